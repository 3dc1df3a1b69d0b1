"""Score functions from values on a grid."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from geosoftmax.continuous.measure import Box
from geosoftmax.validation import as_float_tensor

__all__ = ["interpolate"]


def interpolate(values: Any, domain: Box) -> Callable[[Tensor], Tensor]:
    r"""Turn values on a regular grid into a score function (Keys' cubic convolution).

    Once continuously differentiable, through all the values, exact for quadratic functions; the
    error for smooth ones is of third order in the spacing.

    Parameters
    ----------
    values : Tensor, shape (*batch, *sides)
        As many sides as the domain has dimensions, each at least 3; first and last values lie on
        the border of the domain. Gradients flow to them.
    domain : Box

    Returns
    -------
    callable
        From points of shape ``(n, dim)`` or ``(*batch, n, dim)`` to values ``(*batch, n)``.

    Examples
    --------
    >>> import torch
    >>> from geosoftmax.continuous import Box, interpolate
    >>> score = interpolate(torch.linspace(0, 1, 5) ** 2, Box(0, 1))
    >>> score(torch.tensor([[0.1], [0.6]]))
    tensor([0.0100, 0.3600], dtype=torch.float64)
    """
    values = as_float_tensor("values", values).to(torch.float64)
    dim = domain.dim
    sides = values.shape[values.dim() - dim :]
    if values.dim() < dim or min(sides) < 3:
        raise ValueError(
            f"values must end with {dim} sides of at least 3 points for {domain!r}; "
            f"got shape {tuple(values.shape)}."
        )
    batch = values.shape[: values.dim() - dim]
    padded = values
    for axis in range(-dim, 0):
        a, b, c = (padded.narrow(axis, i, 1) for i in range(3))
        end = padded.shape[axis]
        z, y, x = (padded.narrow(axis, end - 1 - i, 1) for i in range(3))
        padded = torch.cat([3 * a - 3 * b + c, padded, 3 * z - 3 * y + x], axis)
    flat = padded.reshape(*batch, -1)
    strides = [math.prod(s + 2 for s in sides[a + 1 :]) for a in range(dim)]

    def score(points: Tensor) -> Tensor:
        if points.shape[-1] != dim:
            raise ValueError(
                f"values of shape {tuple(values.shape)} lie on {domain!r}, which is {dim}-D; got "
                f"points of shape {tuple(points.shape)}. Interpolate on the domain that is used."
            )
        weights, starts = [], []
        for a in range(dim):
            t = (points[..., a] - domain.lower[a]) / domain.width[a] * (sides[a] - 1)
            i = t.detach().floor().clamp(0, sides[a] - 2)
            weights.append(_keys(t - i))
            starts.append(i.to(torch.int64))
        total = torch.zeros((), dtype=torch.float64, device=points.device)
        shape = torch.broadcast_shapes(batch, points.shape[:-2])
        source = flat.expand(*shape, flat.shape[-1])
        for corner in itertools.product(range(4), repeat=dim):
            index = torch.zeros_like(starts[0])
            weight = torch.ones_like(weights[0][0])
            for a, k in enumerate(corner):
                index = index + (starts[a] + k) * strides[a]
                weight = weight * weights[a][k]
            index = index.expand(*shape, index.shape[-1])
            total = total + weight * source.gather(-1, index)
        return total

    return score


def _keys(s: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the weights of the four nearest values, for a position ``s`` in 0…1."""
    return (
        ((2 - s) * s - 1) * s / 2,
        ((3 * s - 5) * s * s + 2) / 2,
        ((4 - 3 * s) * s + 1) * s / 2,
        (s - 1) * s * s / 2,
    )
