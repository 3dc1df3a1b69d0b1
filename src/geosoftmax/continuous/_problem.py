"""The problem that all methods see: scores and a cost on a box, checked and differentiated."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor

from geosoftmax.continuous.costs import PointCost
from geosoftmax.continuous.measure import Box

#: The number of points at which a cost of one's own is checked.
TRIED = 32
#: Least value of the kernel between neighbours on the grid.
RESOLVED = 0.1


class Problem:
    """(QP) on a box: a cost, and a score for each sample, with ``b = exp((f - peak) / 2)``.

    Points come as ``(rows, n, dim)`` and values as ``(rows, n)``, whatever the batch shape of the
    score is. Nothing here keeps a graph to the score's own parameters.
    """

    def __init__(
        self, score: Callable[[Tensor], Tensor], domain: Box, cost: PointCost, side: int
    ) -> None:
        if not callable(score):
            raise TypeError(
                f"score must be a function of points; got {type(score).__name__}. "
                "Wrap values on a grid as interpolate(values, domain)."
            )
        self.score, self.domain, self.cost, self.side = score, domain, cost, side
        self.chosen: Tensor | None = None
        self.spacing = domain.width / (side - 1)
        self.cost.check(_some_points(domain))
        self._check_resolution()
        grid = domain.grid(side)
        with torch.no_grad():
            values = score(grid)
        if not isinstance(values, Tensor) or values.shape[-1:] != grid.shape[:1]:
            shape = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise ValueError(
                f"score must return one value for each point, shape (*batch, {grid.shape[0]}) for "
                f"points of shape {tuple(grid.shape)}; got {shape}."
            )
        self.batch = values.shape[:-1]
        self.rows = math.prod(self.batch)
        if self.rows == 0:
            raise ValueError(f"score returned an empty batch, shape {tuple(values.shape)}.")
        self.peak = self._checked(values).reshape(self.rows, -1).amax(-1)
        if not bool(torch.isfinite(self.peak).all()):
            raise ValueError(
                "scores are -inf on the whole grid in some samples: every point is masked. "
                "Leave a finite score somewhere, or use a finer grid."
            )

    def take(self, rows: Tensor) -> Self:
        """Return the problem of some samples. Their scores are still computed with all others."""
        part = copy.copy(self)
        part.chosen = rows if self.chosen is None else self.chosen[rows]
        part.peak = self.peak[rows]
        return part

    def call(self, points: Tensor) -> Tensor:
        """Return the scores themselves, ``(*batch, n)``, for points ``(*batch, n, dim)``."""
        values = self.score(points)
        if not isinstance(values, Tensor) or values.shape != points.shape[:-1]:
            shape = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise ValueError(
                f"score must return shape {tuple(points.shape[:-1])} for points of shape "
                f"{tuple(points.shape)}; got {shape}. Broadcast over the leading dimensions."
            )
        return self._checked(values)

    def values(self, points: Tensor) -> Tensor:
        """Return ``f - peak``."""
        with torch.no_grad():
            f = self.call(self._to_batch(points))
        return self._from_batch(f, 1) - self.peak[:, None]

    def on(self, grid: Tensor) -> Tensor:
        """Return ``f - peak`` on points ``(n, dim)`` that all samples share."""
        with torch.no_grad():
            f = self._checked(self.score(grid))
        return self._from_batch(f, 1) - self.peak[:, None]

    def jet(self, points: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return ``f - peak``, ``∇f`` and ``∇²f`` (0 where they do not exist)."""
        dim = points.shape[-1]
        x = self._to_batch(points.detach()).clone().requires_grad_()
        with torch.enable_grad():
            f = self.call(x)
            flat = torch.zeros_like(x)
            first, second = flat, torch.zeros(*x.shape, dim, dtype=x.dtype, device=x.device)
            if f.requires_grad:
                first = _slope(f, x, create_graph=True)
                if first.requires_grad:
                    rows = [_slope(first[..., a], x, retain_graph=True) for a in range(dim)]
                    second = torch.stack(rows, -2)
        first, second = (one.detach().nan_to_num(0, 0, 0) for one in (first, second))
        return (
            self._from_batch(f.detach(), 1) - self.peak[:, None],
            self._from_batch(first, 2),
            self._from_batch(second, 3),
        )

    def _to_batch(self, points: Tensor) -> Tensor:
        """Return points as the score takes them; samples that were not taken get some of these."""
        if self.chosen is not None:
            others = points[:1].repeat(self.rows, 1, 1)
            points = others.index_copy(0, self.chosen, points)
        return points.reshape(*self.batch, *points.shape[1:])

    def _from_batch(self, values: Tensor, dims: int) -> Tensor:
        """Return values of the samples that were taken, which end with so many dimensions."""
        values = values.reshape(self.rows, *values.shape[values.dim() - dims :])
        return values if self.chosen is None else values[self.chosen]

    def _check_resolution(self) -> None:
        """Refuse a grid between whose points the kernel fits: it would overlook everything."""
        centre = (self.domain.lower + self.domain.upper)[None] / 2
        K = self.cost.kernel(centre, centre + torch.diag(self.spacing)).detach()
        if float(K.min()) < RESOLVED:
            raise ValueError(
                f"grid={self.side} is too coarse for {self.cost!r} on {self.domain!r}: exp(-C/2) "
                f"falls to {float(K.min()):.1e} from one point to the next. Raise grid until it "
                f"stays above {RESOLVED}, or make the cost smaller."
            )

    @staticmethod
    def _checked(values: Tensor) -> Tensor:
        values = values.to(torch.float64)
        flat = values.detach()
        if bool(torch.isnan(flat).any()) or bool((flat == math.inf).any()):
            raise ValueError(
                "score returned NaN or +inf inside the domain. Scores must be finite, or -inf "
                "where no mass may lie."
            )
        return values


def _some_points(domain: Box) -> Tensor:
    """Return points anywhere in a box, always the same."""
    places = torch.rand(TRIED, domain.dim, generator=torch.Generator().manual_seed(0))
    return domain.lower + domain.width * places.to(domain.lower)


def _slope(values: Tensor, x: Tensor, **options: Any) -> Tensor:
    (slope,) = torch.autograd.grad(values.sum(), x, materialize_grads=True, **options)
    return slope
