"""What a Frank–Wolfe method does in a round: it takes measures and returns better ones."""

from __future__ import annotations

import dataclasses
import warnings

import torch
from torch import Tensor

from geosoftmax.continuous._problem import Problem
from geosoftmax.continuous.sliding import slide
from geosoftmax.continuous.spikes import Spikes, compact, merge
from geosoftmax.costs import DenseCost
from geosoftmax.functional import solve as solve_on_points
from geosoftmax.solvers.solution import ConvergenceWarning

#: Points merge where ``1 - K`` is below this; it halves in each round, so that no round undoes
#: the last for ever, down to where ``K`` on the points would be singular.
MERGED, INSEPARABLE = 0.05, 1e-12
#: Steps of sliding at most, and the share of the longest below which they are rounding.
SLIDES, SETTLED = 40, 1e-12
#: Maxima are added that gain at least this share of the largest one.
WORTH = 0.01
#: What the value may lose, by rounding, where points are merged.
NOTHING_LOST = 1e-13


@dataclasses.dataclass
class Found:
    """Refined local maxima ``(rows, k, dim)``, what they gain, and the worst that was seen."""

    points: Tensor
    gain: Tensor
    ratio: Tensor
    worst: Tensor

    def joined(self, other: Found) -> Found:
        return Found(
            torch.cat([self.points, other.points], 1),
            torch.cat([self.gain, other.gain], 1),
            torch.maximum(self.ratio, other.ratio),
            torch.maximum(self.worst, other.worst),
        )


def improve(
    problem: Problem, state: Spikes, found: Found, method: str, rounds: int, tol: float
) -> Spikes:
    """Do one round of a method, the `rounds`-th."""
    if method == "sliding":
        merged = max(MERGED * 0.5**rounds, INSEPARABLE)
        return _slid(problem, _extended(problem, state, found, tol, merged))
    if method == "corrective":
        return _extended(problem, state, found, tol, INSEPARABLE)
    return compact(_conditional(problem, state, found, rounds, method))


# ------------------------------------------------------------------ corrective, sliding


def _extended(problem: Problem, state: Spikes, found: Found, tol: float, merged: float) -> Spikes:
    """Add what was found, merge points that nearly meet, solve for the weights."""
    worth = found.gain > (WORTH * found.worst.clamp_min(tol))[:, None]
    joined = state.join(found.points, torch.where(worth, found.gain, 0.0))
    return _corrected(problem, compact(_merged(problem, joined, merged)))


def _merged(problem: Problem, state: Spikes, merged: float) -> Spikes:
    """Join points that nearly meet."""
    return merge(state, 1 - problem.cost.kernel(state.points, state.points) < merged)


def _corrected(problem: Problem, state: Spikes) -> Spikes:
    """Solve for the weights on the points, exactly."""
    f = problem.values(state.points)
    f = torch.where(state.u > 0, f, -torch.inf)
    dense = DenseCost(problem.cost.matrix(state.points, state.points).detach(), validate=False)
    with warnings.catch_warnings():  # the certificate off the grid says what was reached
        warnings.simplefilter("ignore", ConvergenceWarning)
        solved = solve_on_points(f, dense, tol=1e-12)
    scale = torch.exp(f.amax(-1, keepdim=True) / 2)
    return compact(Spikes.without_level(state.points, solved.u * scale))


def _slid(problem: Problem, state: Spikes) -> Spikes:
    """Slide; then once more with neighbours merged, and keep that where nothing was lost.

    Two points that stand for one make the problem singular: they approach each other for ever.
    """
    state = _settled(problem, state)
    fewer = _merged(problem, state, MERGED)
    if bool(((fewer.u > 0).sum(-1) == (state.u > 0).sum(-1)).all()):
        return state
    fewer = _settled(problem, _corrected(problem, fewer))
    before, after = (value(problem, one)[0] for one in (state, fewer))
    return compact(fewer.where(after >= before - NOTHING_LOST, state))


def _settled(problem: Problem, state: Spikes) -> Spikes:
    reach = 2 * problem.spacing
    return _corrected(problem, slide(problem, state, reach=reach, steps=SLIDES, tol=SETTLED))


# ------------------------------------------------------------------ the simplex


def _conditional(problem: Problem, state: Spikes, found: Found, rounds: int, method: str) -> Spikes:
    """One Frank–Wolfe step on the simplex of ``α = u b``."""
    rows = torch.arange(problem.rows, device=state.u.device)
    towards = found.gain.argmax(-1)
    points = torch.cat([state.points, found.points[rows, towards][:, None]], 1)
    b = torch.exp(problem.values(points) / 2)
    alpha = torch.cat([state.u, torch.zeros_like(state.u[:, :1])], 1) * b
    alpha = alpha / alpha.sum(-1, keepdim=True)
    M = problem.cost.kernel(points, points) / b[:, :, None] / b[:, None, :]
    slope = (M @ alpha[..., None])[..., 0]
    new = torch.zeros_like(alpha)
    new[:, -1] = 1
    if method == "plain":
        step = torch.full_like(alpha[:, :1], 2 / (rounds + 2))
        return Spikes.without_level(points, (alpha + step * (new - alpha)) / b)
    worst = torch.where(alpha > 0, slope, -torch.inf).argmax(-1)
    old = torch.zeros_like(alpha)
    old[rows, worst] = 1
    held = alpha[rows, worst][:, None]
    direction, longest = new - alpha, torch.ones_like(held)
    if method == "pairwise":
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
    return Spikes.without_level(points, torch.where(dropped, 0.0, moved.clamp_min(0)) / b)


# ------------------------------------------------------------------ measures


def value(problem: Problem, state: Spikes) -> tuple[Tensor, Tensor]:
    """Return ``log(⟨b,u⟩² / uᵀKu)`` and ``⟨b,u⟩ / uᵀKu``."""
    b = torch.exp(problem.values(state.points) / 2)
    inner = torch.where(state.u > 0, b * state.u, 0.0).sum(-1)
    h = (problem.cost.kernel(state.points, state.points) @ state.u[..., None])[..., 0]
    energy = (state.u * h).sum(-1)
    return 2 * torch.log(inner) - torch.log(energy), inner / energy


def rescaled(problem: Problem, state: Spikes) -> Spikes:
    """Return the best multiple: ``⟨b,u⟩ = uᵀKu``."""
    _, factor = value(problem, state)
    return Spikes.without_level(state.points, state.u * factor[:, None])
