"""The linear oracle: where a measure leaves the obstacle ``b`` most uncovered.

Multi-start: the best local maxima on a grid, each refined by a safeguarded Newton method that stays
inside the box. All samples and all starts move together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from geosoftmax.continuous._problem import Problem
from geosoftmax.continuous.costs import PointCost
from geosoftmax.continuous.measure import Box

REFINEMENTS = 25
#: Values are of order 1: what a step promises below this is rounding.
NOTHING_GAINED = 1e-15
#: Elements of a kernel matrix that are formed at once.
BLOCK = 1 << 22


class Jet(NamedTuple):
    """A function at points ``(rows, n, dim)``, its gradient and its Hessian."""

    value: Tensor
    slope: Tensor
    bend: Tensor


def envelope(cost: PointCost, grid: Tensor, points: Tensor, u: Tensor) -> Tensor:
    """``h = K u`` of each sample on points ``(n, dim)`` that all share, block by block."""
    size = max(1, BLOCK // max(1, u.numel()))
    parts = [
        (cost.kernel(grid[i : i + size], points) @ u[..., None])[..., 0]
        for i in range(0, grid.shape[0], size)
    ]
    return torch.cat(parts, -1)


def difference_jet(problem: Problem, x: Tensor, points: Tensor, u: Tensor) -> Jet:
    """``b - h``."""
    f, df, ddf = problem.jet(x)
    b = torch.exp(f / 2)
    jet = problem.cost.jet(x, points)
    weight = u[:, None, :, None]
    outer = df[..., :, None] * df[..., None, :]
    return Jet(
        b - (jet.K * u[:, None, :]).sum(-1),
        b[..., None] * df / 2 - (jet.x * weight).sum(-2),
        b[..., None, None] * (ddf / 2 + outer / 4) - (jet.xx * weight[..., None]).sum(-3),
    )


def ratio_jet(problem: Problem, x: Tensor, points: Tensor, u: Tensor) -> Jet:
    """``log b - log h``: minus the logarithm of the gradient that the paper minimises."""
    f, df, ddf = problem.jet(x)
    jet = problem.cost.jet(x, points)
    weight = u[:, None, :, None]
    h = (jet.K * u[:, None, :]).sum(-1).clamp_min(1e-300)
    dh = (jet.x * weight).sum(-2) / h[..., None]
    ddh = (jet.xx * weight[..., None]).sum(-3) / h[..., None, None]
    bend = ddf / 2 - ddh + dh[..., :, None] * dh[..., None, :]
    return Jet(f / 2 - torch.log(h), df / 2 - dh, bend)


def refine(
    jet_at: Callable[[Tensor], Jet], x: Tensor, domain: Box, radius: Tensor
) -> tuple[Tensor, Tensor]:
    """Climb from points ``x``; return where it ended, and the values there.

    Newton steps with the absolute eigenvalues of the Hessian, at most `radius` long in each
    coordinate, taken where they climb; elsewhere the radius of that point shrinks. Coordinates
    that the slope presses against the border stay there.
    """
    reach = torch.ones_like(x[..., :1])
    jet = jet_at(x)
    for _ in range(REFINEMENTS):
        step = _newton_step(jet, x, domain)
        step = torch.maximum(torch.minimum(step, reach * radius), -reach * radius)
        moved = domain.clip(x + step)
        promised = (jet.slope * (moved - x)).sum(-1)
        if float(promised.max()) < NOTHING_GAINED:
            break
        trial = jet_at(moved)
        better = trial.value > jet.value
        x = torch.where(better[..., None], moved, x)
        jet = Jet(
            torch.where(better, trial.value, jet.value),
            torch.where(better[..., None], trial.slope, jet.slope),
            torch.where(better[..., None, None], trial.bend, jet.bend),
        )
        shrunk = (moved - x).abs().amax(-1, keepdim=True) / radius.max() / 4
        reach = torch.where(better[..., None], reach, torch.minimum(reach / 4, shrunk))
    return x, jet.value


def _newton_step(jet: Jet, x: Tensor, domain: Box) -> Tensor:
    held = ((x <= domain.lower) & (jet.slope < 0)) | ((x >= domain.upper) & (jet.slope > 0))
    slope = torch.where(held, 0.0, jet.slope)
    free = (~held).to(x.dtype)
    bend = jet.bend * free[..., :, None] * free[..., None, :] + torch.diag_embed(1 - free)
    if x.shape[-1] == 1:
        return slope / bend[..., 0].abs().clamp_min(1e-200)
    curvature, axes = torch.linalg.eigh(bend)
    along = (axes.mT @ slope[..., None])[..., 0] / curvature.abs().clamp_min(1e-200)
    return (axes @ along[..., None])[..., 0] * free
