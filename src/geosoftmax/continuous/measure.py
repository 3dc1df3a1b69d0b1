"""Boxes, and discrete measures on them whose points lie anywhere."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from geosoftmax.validation import as_float_tensor

__all__ = ["Box", "Measure"]


@dataclasses.dataclass(frozen=True, init=False, eq=False)
class Box:
    """The box ``[lower, upper]`` in 1, 2 or 3 dimensions.

    Parameters
    ----------
    lower, upper : float or array_like, shape (dim,)
        Opposite corners; numbers stand for one dimension.

    Examples
    --------
    >>> Box([0.0, 0.0], [2.0, 1.0])
    Box([0.0, 0.0], [2.0, 1.0])
    >>> Box(0, 1).grid(3)
    tensor([[0.0000],
            [0.5000],
            [1.0000]], dtype=torch.float64)
    """

    lower: Tensor
    upper: Tensor

    def __init__(self, lower: Any, upper: Any) -> None:
        corners = [as_float_tensor("corner of a Box", c).to(torch.float64) for c in (lower, upper)]
        low, high = (corner.reshape(1) if corner.dim() == 0 else corner for corner in corners)
        if low.shape != high.shape or low.dim() != 1 or not 1 <= low.numel() <= 3:
            raise ValueError(
                "the corners of a Box are two vectors of 1, 2 or 3 numbers; got shapes "
                f"{tuple(low.shape)} and {tuple(high.shape)}."
            )
        if not bool((torch.isfinite(low) & torch.isfinite(high) & (low < high)).all()):
            raise ValueError(
                "a Box needs finite corners with lower < upper in each coordinate; got "
                f"{low.tolist()} and {high.tolist()}."
            )
        object.__setattr__(self, "lower", low)
        object.__setattr__(self, "upper", high)

    @property
    def dim(self) -> int:
        """The number of dimensions."""
        return self.lower.numel()

    @property
    def width(self) -> Tensor:
        """The lengths of the sides."""
        return self.upper - self.lower

    def grid(self, n: int) -> Tensor:
        """Return the ``n ** dim`` points of a regular grid, corners included, row-major."""
        steps = torch.linspace(0, 1, n, dtype=torch.float64, device=self.lower.device)
        axes = [low + width * steps for low, width in zip(self.lower, self.width, strict=True)]
        return torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).reshape(-1, self.dim)

    def contains(self, points: Tensor) -> Tensor:
        """Whether points of shape ``(..., dim)`` lie inside, up to rounding."""
        slack = 1e-12 * self.width
        return ((points >= self.lower - slack) & (points <= self.upper + slack)).all(-1)

    def clip(self, points: Tensor) -> Tensor:
        """Return the nearest points inside."""
        return torch.minimum(torch.maximum(points, self.lower), self.upper)

    def to(self, device: torch.device | str) -> Box:
        """Return the same box on another device."""
        return Box(self.lower.to(device), self.upper.to(device))

    def __repr__(self) -> str:
        return f"Box({self.lower.tolist()}, {self.upper.tolist()})"


@dataclasses.dataclass(frozen=True, init=False, eq=False)
class Measure:
    r"""Discrete positive measures :math:`\sum_i w_i \delta_{x_i}`, one for each sample of a batch.

    Samples may have different numbers of points: they are padded with points of weight 0.

    Parameters
    ----------
    points : Tensor, shape (*batch, n, dim)
        In 1, 2 or 3 dimensions.
    weights : Tensor, shape (*batch, n), optional
        At least 0. By default equal, with sum 1.

    Examples
    --------
    >>> import torch
    >>> measure = Measure([[0.0], [1.0], [4.0]], [0.5, 0.25, 0.25])
    >>> measure.mean()
    tensor([1.2500], dtype=torch.float64)
    >>> measure.expectation(lambda x: x[..., 0] ** 2)
    tensor(4.2500, dtype=torch.float64)
    >>> Measure.stack([measure, Measure([[2.0]])]).counts
    tensor([3, 1])
    """

    points: Tensor
    weights: Tensor

    def __init__(self, points: Any, weights: Any = None) -> None:
        points = as_float_tensor("points", points).to(torch.float64)
        if points.dim() < 2 or not 1 <= points.shape[-1] <= 3 or points.shape[-2] < 1:
            raise ValueError(
                "points must have shape (*batch, n, dim), n at least 1 and dim 1, 2 or 3; got "
                f"{tuple(points.shape)}. Points on a line are a column: points[..., None]."
            )
        if weights is None:
            weights = points.new_full(points.shape[:-1], 1 / points.shape[-2])
        weights = as_float_tensor("weights", weights).to(points.device, torch.float64)
        if weights.shape != points.shape[:-1]:
            raise ValueError(
                f"weights must have shape {tuple(points.shape[:-1])}, one for each point; "
                f"got {tuple(weights.shape)}."
            )
        if not bool(torch.isfinite(points.detach()).all()):
            raise ValueError("points must be finite; got NaN or infinite coordinates.")
        if not bool(((weights.detach() >= 0) & torch.isfinite(weights.detach())).all()):
            raise ValueError(
                "weights must be finite and at least 0; got a smallest weight of "
                f"{float(weights.detach().min()):g}. Differences of measures are not measures."
            )
        object.__setattr__(self, "points", points)
        object.__setattr__(self, "weights", weights)

    @classmethod
    def stack(cls, measures: Iterable[Measure]) -> Measure:
        """Make a batch of single measures, which may have different numbers of points."""
        single = list(measures)
        if not single or any(m.batch_shape or m.dim != single[0].dim for m in single):
            raise ValueError("stack takes at least one measure, all single and of one dimension.")
        size = max(m.points.shape[0] for m in single)
        points, weights = [], []
        for m in single:
            missing = size - m.points.shape[0]
            points.append(torch.cat([m.points, m.points[:1].detach().expand(missing, -1)]))
            weights.append(torch.cat([m.weights, m.weights.new_zeros(missing)]))
        return cls(torch.stack(points), torch.stack(weights))

    # ------------------------------------------------------- what it is

    @property
    def batch_shape(self) -> torch.Size:
        """The shape of the batch."""
        return self.weights.shape[:-1]

    @property
    def dim(self) -> int:
        """The number of dimensions."""
        return self.points.shape[-1]

    @property
    def counts(self) -> Tensor:
        """The number of points with positive weight, of shape batch."""
        return (self.weights > 0).sum(-1)

    @property
    def mass(self) -> Tensor:
        """The sum of the weights, of shape batch."""
        return self.weights.sum(-1)

    def __len__(self) -> int:
        if not self.batch_shape:
            raise TypeError("a single measure has no length; counts is its number of points.")
        return self.batch_shape[0]

    def __getitem__(self, index: int) -> Measure:
        """Return one measure of a batch, without the padding."""
        if not self.batch_shape:
            raise IndexError("a single measure cannot be indexed; use points and weights.")
        points, weights = self.points[index], self.weights[index]
        if weights.dim() == 1 and bool((weights > 0).any()):
            points, weights = points[weights > 0], weights[weights > 0]
        return Measure(points, weights)

    # ------------------------------------------------------- what it does

    def expectation(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """``∫ function dμ``, for a function from points ``(..., n, dim)`` to ``(..., n)``."""
        values = function(self.points)
        return torch.where(self.weights > 0, self.weights * values, 0.0).sum(-1)

    def mean(self) -> Tensor:
        """Return the barycentre, of shape ``(*batch, dim)``."""
        return (self.weights[..., None] * self.points).sum(-2) / self.mass[..., None]

    def normalise(self) -> Measure:
        """Return the measure with mass 1."""
        return Measure(self.points, self.weights / self.mass[..., None])

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw `n` points of each normalised measure: ``(*batch, n, dim)``."""
        rows = self.weights.detach().reshape(-1, self.weights.shape[-1])
        drawn = torch.multinomial(rows, n, replacement=True, generator=generator)
        index = drawn.reshape(*self.batch_shape, n, 1).expand(*self.batch_shape, n, self.dim)
        return self.points.gather(-2, index)

    def move(self, function: Callable[[Tensor], Tensor]) -> Measure:
        """Return the measure with each point moved to ``function(point)`` (the push-forward)."""
        return Measure(function(self.points), self.weights)

    def translate(self, shift: Any) -> Measure:
        """Return the measure moved by a vector of shape ``(dim,)`` or ``(*batch, dim)``."""
        shift = as_float_tensor("shift", shift).to(self.points)
        if shift.dim() == 0 or shift.shape[-1] != self.dim:
            raise ValueError(f"shift must end with {self.dim} numbers; got {tuple(shift.shape)}.")
        return self.move(lambda x: x + shift[..., None, :])

    def to(self, device: torch.device | str) -> Measure:
        """Return the same measure on another device."""
        return Measure(self.points.to(device), self.weights.to(device))

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """Draw a single measure with matplotlib: stems on a line, discs by weight otherwise.

        Parameters
        ----------
        ax : matplotlib axes, optional
            By default new ones.
        **options
            Handed on to ``ax.vlines`` (1-D) or ``ax.scatter`` (2-D, and 3-D on 3-D axes).
        """
        if self.batch_shape:
            raise ValueError("plot draws one measure; choose it as measure[i].plot().")
        if ax is None:
            import matplotlib.pyplot as plt

            kind = {"projection": "3d"} if self.dim == 3 else {}
            ax = plt.figure(layout="constrained").add_subplot(**kind)
        seen = self.weights.detach() > 0
        points = self.points.detach()[seen].cpu().numpy()
        weights = self.weights.detach()[seen].cpu().numpy()
        if self.dim == 1:
            ax.vlines(points[:, 0], 0, weights, **options)
        else:
            largest = max(float(weights.max()), math.ulp(0.0)) if len(weights) else 1.0
            ax.scatter(*points.T, **{"s": 60 * weights / largest, **options})
        return ax

    def __repr__(self) -> str:
        batch = f"batch {tuple(self.batch_shape)}, up to " if self.batch_shape else ""
        largest = int(self.counts.max()) if self.counts.numel() else 0
        return f"Measure({batch}{largest} points in {self.dim}-D)"
