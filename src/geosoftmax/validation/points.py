"""Points on grids of pixels, and distributions over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geosoftmax.validation.costs import check_count
from geosoftmax.validation.reading import is_readable

#: The rules that turn a distribution on a grid into one point.
READINGS = ("local mean", "mode", "mean", "median")


def check_grid(shape: Any) -> tuple[int, ...]:
    """Check the shape of a grid in 1 to 3 dimensions."""
    sides = (shape,) if isinstance(shape, int) else shape
    sides = sides.tolist() if isinstance(sides, np.ndarray) else sides
    if not isinstance(sides, Sequence) or not 1 <= len(sides) <= 3:
        raise ValueError(
            f"shape must be the 1 to 3 sides of a grid, as in (60, 80); got {shape!r}."
        )
    for n in sides:
        check_count("each side of the grid", n)
    return tuple(int(n) for n in sides)


def check_points(name: str, points: Any, shape: tuple[int, ...]) -> None:
    """Check points in index units of a grid; if values can be read, check that they lie on it."""
    if not isinstance(points, Tensor):
        raise TypeError(
            f"{name} must be a torch.Tensor; got {type(points).__name__}. "
            f"Convert them with torch.as_tensor({name}, dtype=torch.float64)."
        )
    if not points.is_floating_point():
        raise TypeError(f"{name} must be floating-point; got {points.dtype}. Use {name}.double().")
    n = len(shape)
    if points.dim() == 0 or points.shape[-1] != n:
        order = ("index", "(row, column)", "(plane, row, column)")[n - 1]
        raise ValueError(
            f"{name} must end with size {n}, {order}, for a grid of shape {shape}; "
            f"got shape {tuple(points.shape)}."
        )
    if not is_readable(points):
        return
    missing = points.isnan()
    half = missing.any(-1) & ~missing.all(-1)
    if bool(half.any()):
        raise ValueError(
            f"{int(half.sum())} of {half.numel()} {name} have NaN in some coordinates only; the "
            f"first is {tuple(points[half][0].tolist())}. A missing point must be all NaN."
        )
    last = torch.tensor([side - 1.0 for side in shape], dtype=torch.float64)
    outside = ((points < 0) | (points.double() > last)).any(-1)
    if bool(outside.any()):
        first = points[outside][0].tolist()
        ranges = " × ".join(f"[0, {side - 1}]" for side in shape)
        flipped = ", which lies inside if it is (x, y)" if _fits(first[::-1], shape) else ""
        raise ValueError(
            f"{int(outside.sum())} of {outside.numel()} {name} lie outside the grid of shape "
            f"{shape}, whose pixel centres span {ranges}; the first is {tuple(first)}{flipped}. "
            f"Points are (row, column) in index units. Set missing points to NaN, and clamp "
            f"points at the border."
        )


def _fits(point: list[float], shape: tuple[int, ...]) -> bool:
    inside = all(0 <= x <= side - 1 for x, side in zip(point, shape, strict=True))
    return len(point) > 1 and inside


def check_reading(rule: Any, window: Any, shape: tuple[int, ...]) -> None:
    """Check the rule of `locate`, and the window of the local mean."""
    if rule not in READINGS:
        raise ValueError(f"rule must be one of {', '.join(READINGS)}; got {rule!r}.")
    if window is None:
        return
    if rule != "local mean":
        raise ValueError(
            f"window is for rule='local mean' only; got window={window} with {rule!r}."
        )
    check_count("window", window)
    if window > min(shape):
        raise ValueError(
            f"window must fit the grid of shape {shape}; got {window}. rule='mean' uses all pixels."
        )


def check_shares(least: Any, faint: Any) -> None:
    """Check the shares of mass that count as a peak, and as part of one."""
    for name, value in (("least", least), ("faint", faint)):
        if not isinstance(value, (int, float)) or not 0 < value < 1:
            raise ValueError(f"{name} must be a share of the mass, between 0 and 1; got {value!r}.")


def check_map(alpha: Any, dim: Any, tolerance: dict[torch.dtype, float]) -> tuple[int, ...]:
    """Check distributions on a grid; return the axes of the grid, counted from 0."""
    if not isinstance(alpha, Tensor):
        raise TypeError(f"alpha must be a torch.Tensor; got {type(alpha).__name__}.")
    if not alpha.is_floating_point():
        raise TypeError(f"alpha must be floating-point; got {alpha.dtype}.")
    given = (dim,) if isinstance(dim, int) else dim
    if not isinstance(given, Sequence) or not all(type(axis) is int for axis in given):
        raise TypeError(f"dim must be the axes of the grid, as in (-2, -1); got {dim!r}.")
    axes = tuple(given)
    count = alpha.dim()
    if not 1 <= len(axes) <= 3 or any(not -count <= axis < count for axis in axes):
        raise ValueError(
            f"dim must name 1 to 3 axes of alpha, whose shape is {tuple(alpha.shape)}; got {dim}."
        )
    found = tuple(axis % count for axis in axes)
    if len(set(found)) < len(found):
        raise ValueError(f"dim={dim} names an axis of alpha (shape {tuple(alpha.shape)}) twice.")
    if alpha.numel() and is_readable(alpha):
        _check_mass(alpha.detach(), found, tolerance[alpha.dtype])
    return found


def _check_mass(alpha: Tensor, axes: tuple[int, ...], tolerance: float) -> None:
    total = alpha.sum(axes, dtype=torch.float64)
    worst = float((total - 1).abs().amax())
    if not (float(alpha.amin()) >= 0 and worst <= tolerance):
        raise ValueError(
            f"alpha must be distributions over the axes {axes}: at least 0, with sum 1. The "
            f"smallest value is {float(alpha.amin()):.3g}, and a sum is wrong by {worst:.3g}. For "
            "scores, take a softmax first. Clamp a heat map at 0 and divide it by its sum."
        )
