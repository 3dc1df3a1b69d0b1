"""What a Frank–Wolfe method does in a round: it takes measures and returns better ones."""

from __future__ import annotations

import dataclasses
import warnings

import torch
from torch import Tensor

from geosoftmax.continuous._problem import Problem
from geosoftmax.continuous._slide import slide
from geosoftmax.continuous.costs import PointCost
from geosoftmax.costs import DenseCost
from geosoftmax.functional import solve as solve_on_points
from geosoftmax.solvers.solution import ConvergenceWarning

#: Points merge where ``1 - K`` is below this; it halves in each round, so that no round undoes
#: the last for ever, down to where ``K`` on the points would be singular.
MERGED, INSEPARABLE = 0.05, 1e-12
SLIDES = 40
#: Maxima are added that gain at least this share of the largest one.
WORTH = 0.01
#: What the value may lose, by rounding, where points are merged.
NOTHING_LOST = 1e-13


@dataclasses.dataclass
class State:
    """Measures ``(rows, n, dim)`` with weights ``(rows, n)``, 0 for padding."""

    points: Tensor
    u: Tensor


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
    problem: Problem, state: State, found: Found, method: str, rounds: int, tol: float
) -> State:
    """Do one round of a method, the `rounds`-th."""
    if method == "sliding":
        merged = max(MERGED * 0.5**rounds, INSEPARABLE)
        return _slid(problem, _extended(problem, state, found, tol, merged))
    if method == "corrective":
        return _extended(problem, state, found, tol, INSEPARABLE)
    return compact(_conditional(problem, state, found, rounds, method))


# ------------------------------------------------------------------ corrective, sliding


def _extended(problem: Problem, state: State, found: Found, tol: float, merged: float) -> State:
    """Add what was found, merge points that nearly meet, solve for the weights."""
    worth = found.gain > (WORTH * found.worst.clamp_min(tol))[:, None]
    points = torch.cat([state.points, found.points], 1)
    u = torch.cat([state.u, torch.where(worth, found.gain, 0.0)], 1)
    return _corrected(problem, compact(_merged(problem.cost, State(points, u), merged)))


def _merged(cost: PointCost, state: State, merged: float) -> State:
    """Join each point to the heaviest one that nearly meets it, at their centre of mass."""
    order = state.u.argsort(-1, descending=True)
    u = state.u.gather(-1, order)
    points = state.points.gather(1, order[..., None].expand(state.points.shape))
    alive = u > 0
    near = (1 - cost.kernel(points, points) < merged) & alive[:, None, :] & alive[:, :, None]
    leads = torch.zeros_like(u, dtype=torch.bool)
    leader = torch.zeros_like(order)
    for i in range(u.shape[-1]):  # greedy: the first leader that is near, or oneself
        close = near[:, i, :i] & leads[:, :i]
        taken = close.any(-1)
        first = close.to(torch.int8).argmax(-1) if i else torch.zeros_like(leader[:, 0])
        leader[:, i] = torch.where(taken, first, i)
        leads[:, i] = ~taken & alive[:, i]
    mass = torch.zeros_like(u).scatter_add(-1, leader, u)
    index = leader[..., None].expand(points.shape)
    moment = torch.zeros_like(points).scatter_add(1, index, points * u[..., None])
    centre = moment / torch.where(mass > 0, mass, 1.0)[..., None]
    return State(torch.where((mass > 0)[..., None], centre, points), mass)


def _corrected(problem: Problem, state: State) -> State:
    """Solve for the weights on the points, exactly."""
    f = problem.values(state.points)
    f = torch.where(state.u > 0, f, -torch.inf)
    dense = DenseCost(problem.cost.matrix(state.points, state.points).detach(), validate=False)
    with warnings.catch_warnings():  # the certificate off the grid says what was reached
        warnings.simplefilter("ignore", ConvergenceWarning)
        solved = solve_on_points(f, dense, tol=1e-12)
    scale = torch.exp(f.amax(-1, keepdim=True) / 2)
    return compact(State(state.points, solved.u * scale))


def _slid(problem: Problem, state: State) -> State:
    """Slide; then once more with neighbours merged, and keep that where nothing was lost.

    Two points that stand for one make the problem singular: they approach each other for ever.
    """
    state = _settled(problem, state)
    fewer = _merged(problem.cost, state, MERGED)
    if bool(((fewer.u > 0).sum(-1) == (state.u > 0).sum(-1)).all()):
        return state
    fewer = _settled(problem, _corrected(problem, fewer))
    before, after = (value(problem, one)[0] for one in (state, fewer))
    return _chosen(after >= before - NOTHING_LOST, fewer, state)


def _settled(problem: Problem, state: State) -> State:
    moved = slide(problem, state.points, state.u, radius=2 * problem.spacing, steps=SLIDES)
    return _corrected(problem, State(*moved))


def _chosen(first: Tensor, one: State, other: State) -> State:
    """Return `one` in the rows that `first` marks, else `other`."""
    size = max(one.u.shape[-1], other.u.shape[-1])
    padded = []
    for state in (one, other):
        missing = size - state.u.shape[-1]
        points = torch.cat([state.points, state.points[:, :1].expand(-1, missing, -1)], 1)
        padded.append((points, torch.nn.functional.pad(state.u, (0, missing))))
    (points, u), (other_points, other_u) = padded
    return compact(
        State(
            torch.where(first[:, None, None], points, other_points),
            torch.where(first[:, None], u, other_u),
        )
    )


# ------------------------------------------------------------------ the simplex


def _conditional(problem: Problem, state: State, found: Found, rounds: int, method: str) -> State:
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
        return State(points, (alpha + step * (new - alpha)) / b)
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
    return State(points, torch.where(dropped, 0.0, moved.clamp_min(0)) / b)


# ------------------------------------------------------------------ measures


def value(problem: Problem, state: State) -> tuple[Tensor, Tensor]:
    """Return ``log(⟨b,u⟩² / uᵀKu)`` and ``⟨b,u⟩ / uᵀKu``."""
    b = torch.exp(problem.values(state.points) / 2)
    inner = torch.where(state.u > 0, b * state.u, 0.0).sum(-1)
    h = (problem.cost.kernel(state.points, state.points) @ state.u[..., None])[..., 0]
    energy = (state.u * h).sum(-1)
    return 2 * torch.log(inner) - torch.log(energy), inner / energy


def rescaled(problem: Problem, state: State) -> State:
    """Return the best multiple: ``⟨b,u⟩ = uᵀKu``."""
    _, factor = value(problem, state)
    return State(state.points, state.u * factor[:, None])


def compact(state: State) -> State:
    """Drop points without weight, and padding that nobody needs."""
    size = max(1, int((state.u > 0).sum(-1).max())) if state.u.numel() else 1
    order = state.u.argsort(-1, descending=True)[:, :size]
    points = state.points.gather(1, order[..., None].expand(*order.shape, state.points.shape[-1]))
    return State(points, state.u.gather(-1, order))
