"""Rounds that only a kernel has: all weights anew, or steps on the simplex of ``α = u b``."""

from __future__ import annotations

import torch
from torch import Tensor

from geosoftmax.continuous._search import KernelSearch
from geosoftmax.continuous.search import Found
from geosoftmax.continuous.spikes import Spikes, compact


def corrective(
    search: KernelSearch, state: Spikes, shown: Tensor, found: Found, turn: int
) -> tuple[Spikes, Tensor]:
    """Add all that was found, and solve for the weights."""
    state = search.weigh(state.join(found.points, found.gain))
    return state, search.show(state)


def pairwise(
    search: KernelSearch, state: Spikes, shown: Tensor, found: Found, turn: int
) -> tuple[Spikes, Tensor]:
    """Move mass from the worst point to the best one, as much as is best."""
    return _moved(search, state, found, pairs=True)


def away(
    search: KernelSearch, state: Spikes, shown: Tensor, found: Found, turn: int
) -> tuple[Spikes, Tensor]:
    """Move towards the best point or away from the worst one, as far as is best."""
    return _moved(search, state, found, pairs=False)


def _moved(
    search: KernelSearch, state: Spikes, found: Found, *, pairs: bool
) -> tuple[Spikes, Tensor]:
    problem = search.problem
    rows = torch.arange(len(state.u), device=state.u.device)
    towards = found.gain.argmax(-1)
    points = torch.cat([state.points, found.points[rows, towards][:, None]], 1)
    b = torch.exp(problem.values(points) / 2)
    alpha = torch.cat([state.u, torch.zeros_like(state.u[:, :1])], 1) * b
    alpha = alpha / alpha.sum(-1, keepdim=True)
    M = problem.cost.kernel(points, points) / b[:, :, None] / b[:, None, :]
    slope = (M @ alpha[..., None])[..., 0]
    new = torch.zeros_like(alpha)
    new[:, -1] = 1
    worst = torch.where(alpha > 0, slope, -torch.inf).argmax(-1)
    old = torch.zeros_like(alpha)
    old[rows, worst] = 1
    held = alpha[rows, worst][:, None]
    direction, longest = new - alpha, torch.ones_like(held)
    if pairs:
        direction, longest = new - old, held
    else:
        energy = (slope * alpha).sum(-1)
        turns = ((slope[rows, worst] - energy) > (energy - slope[:, -1]))[:, None] & (held < 1)
        direction = torch.where(turns, alpha - old, direction)
        longest = torch.where(turns, held / (1 - held).clamp_min(1e-300), longest)
    along = (slope * direction).sum(-1, keepdim=True)
    bend = (direction * (M @ direction[..., None])[..., 0]).sum(-1, keepdim=True)
    step = torch.minimum((-along).clamp_min(0) / bend.clamp_min(1e-300), longest)
    moved = alpha + step * direction
    dropped = (old > 0) & (step >= longest) & (direction < 0)
    alpha = torch.where(dropped, 0.0, moved.clamp_min(0))
    state = compact(Spikes(points, alpha / b, state.level))
    return state, search.show(state)
