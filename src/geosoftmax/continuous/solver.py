"""(QP) over the measures on a box, ``min ½ ∬K dμdμ - ∫b dμ``, by Frank–Wolfe methods.

==============  ===================================================================================
method          a round
==============  ===================================================================================
``sliding``     add the largest local maxima of ``b - h``, solve for all weights exactly, merge
                points that nearly meet, slide points and weights together
``corrective``  the same without merging and sliding
``pairwise``    move mass from the worst point to the best one, as much as is best
``away``        move towards the best point, or away from the worst one
``plain``       the paper's: towards the best point, by ``2/(t+2)``
==============  ===================================================================================

The last three work on probabilities ``α = u b``, and their best point is where ``h/b`` is least.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from geosoftmax.continuous._oracle import (
    difference_jet,
    envelope,
    largest_maxima,
    ratio_jet,
    refine,
)
from geosoftmax.continuous._problem import Problem
from geosoftmax.continuous._rounds import Found, improve, rescaled, value
from geosoftmax.continuous.costs import PointCost
from geosoftmax.continuous.measure import Box, Measure
from geosoftmax.continuous.spikes import Spikes
from geosoftmax.solvers.solution import Bracketed, ConvergenceWarning, has_converged

__all__ = ["METHODS", "ContinuousSolution", "minimise"]

METHODS = ("sliding", "corrective", "pairwise", "away", "plain")
MAX_ITER = {"sliding": 50, "corrective": 200, "pairwise": 1000, "away": 1000, "plain": 1000}
#: Points of the grid along each side, by dimension.
GRID = {1: 257, 2: 49, 3: 17}
#: Local maxima that are followed up in each round.
STARTS = 16


@dataclasses.dataclass(frozen=True)
class ContinuousSolution(Bracketed):
    """The answer of a solve off the grid, with its certificate.

    ``lower ≤ g-LSE(score)`` always holds. ``g-LSE(score) ≤ upper`` holds if nothing between the
    points of the finer grid, and away from the maxima that were refined from it, is less covered
    than what was found there: it is a check on a grid, not a proof.

    Attributes
    ----------
    measure : Measure
        The geometric softmax ``u b / ⟨b,u⟩``.
    u : Tensor, shape (*batch, n)
        The minimiser of (QP) on the points, for ``b = exp((score - peak) / 2)``.
    peak : Tensor, shape batch
        The largest score on the grid.
    lower, upper : Tensor, shape batch
        The bracket of the geometric log-sum-exp.
    violation : Tensor, shape batch
        The largest ``b - h`` that was found; at most 0 but for rounding at the exact solution.
    iterations : Tensor, shape batch
        Rounds until `tol` was reached, or all.
    history : Tensor, shape (rounds, *batch)
        The lower bound after each round.
    tol : float
        The gap that was asked for.
    method : str
        The method that ran.
    """

    measure: Measure
    u: Tensor
    peak: Tensor
    lower: Tensor
    upper: Tensor
    violation: Tensor
    iterations: Tensor
    history: Tensor
    tol: float
    method: str

    def __repr__(self) -> str:
        return f"ContinuousSolution({self.measure!r}, {self._described()})"


class _View:
    """What a grid shows of ``b`` and ``h``, and the local maxima that are followed from there."""

    def __init__(self, problem: Problem, side: int) -> None:
        self.problem, self.side = problem, side
        self.points = problem.domain.grid(side)
        self.f = problem.on(self.points)

    def look(self, state: Spikes, method: str) -> Found:
        """Return the refined maxima of ``b - h`` or ``b/h``, and the worst that was seen."""
        problem = self.problem
        dim, radius = problem.domain.dim, problem.domain.width / (self.side - 1)
        h = envelope(problem.cost, self.points, state.points, state.u)
        ratio, worst = _uncovered(self.f, h)
        direct = method in ("sliding", "corrective")
        starts = largest_maxima(worst if direct else ratio, self.side, dim, STARTS)
        start = self.points[starts]
        if method == "corrective":  # without sliding, maxima lie next to its points, too near
            start = torch.cat([start, state.points], 1)  # for a grid to show them
        jet = difference_jet if direct else ratio_jet
        points, gain = refine(
            lambda x: jet(problem, x, state.points, state.u),
            start,
            problem.domain,
            radius,
        )
        h = (problem.cost.kernel(points, state.points) * state.u[:, None, :]).sum(-1)
        more_ratio, more_worst = _uncovered(problem.values(points), h)
        return Found(
            points,
            gain,
            torch.maximum(ratio.amax(-1), more_ratio.amax(-1)),
            torch.maximum(worst.amax(-1), more_worst.amax(-1)),
        )


def _uncovered(f: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``log(b/h)`` and ``b - h``."""
    return f / 2 - torch.log(h.clamp_min(1e-300)), torch.exp(f / 2) - h


class _Certifier:
    """Brackets of the value, from the largest ``b/h`` and ``b - h`` that were found.

    ``h ≥ b`` holds for ``ρμ`` with ``ρ = max b/h``, and for ``μ + ετ`` with ``ε = max (b - h)``
    and any cover ``τ`` with ``Kτ ≥ 1``. Both give upper bounds; the smaller one counts. The cover
    is spread evenly over the grid.
    """

    def __init__(self, problem: Problem, grid: Tensor) -> None:
        self.problem, self.grid = problem, grid
        ones = torch.ones(1, grid.shape[0], dtype=grid.dtype, device=grid.device)
        reached = envelope(problem.cost, grid, grid[None], ones)[0]
        self.cover = 1 / reached.min()
        self.energy = reached.sum() * self.cover**2

    def bracket(self, state: Spikes, found: Found) -> tuple[Tensor, Tensor]:
        """Return the bounds of ``g-LSE - peak``, for weights with ``⟨b,u⟩ = uᵀKu``."""
        lower, _ = value(self.problem, state)
        h = envelope(self.problem.cost, self.grid, state.points, state.u)
        excess = found.worst.clamp_min(0)
        energy = torch.exp(lower) + 2 * excess * self.cover * h.sum(-1)
        energy = energy + excess.square() * self.energy
        return lower, torch.minimum(lower + 2 * found.ratio.clamp_min(0), torch.log(energy))


def minimise(
    score: Callable[[Tensor], Tensor],
    domain: Box,
    cost: PointCost,
    *,
    method: str,
    tol: float,
    max_iter: int | None,
    grid: int | None,
) -> ContinuousSolution:
    """Solve (QP) over measures for every sample of the score."""
    side = GRID[domain.dim] if grid is None else grid
    limit = MAX_ITER[method] if max_iter is None else max_iter
    problem = Problem(score, domain, cost, side)
    coarse, fine = _View(problem, side), _View(problem, 2 * side - 1)
    certifier = _Certifier(problem, coarse.points)
    points = coarse.points[coarse.f.argmax(-1)][:, None]
    state = rescaled(problem, Spikes.without_level(points, torch.ones_like(points[..., 0])))
    iterations = torch.full((problem.rows,), limit, device=points.device)
    history = []
    for rounds in range(limit + 1):
        found = coarse.look(state, method)
        lower, upper = certifier.bracket(state, found)
        history.append(lower + problem.peak)
        done = has_converged(lower, upper, tol)
        if bool(done.all()) or rounds == limit:  # as far as the grid shows: now the finer one
            found = found.joined(fine.look(state, method))
            lower, upper = certifier.bracket(state, found)
            done = has_converged(lower, upper, tol)
        iterations = torch.where(done & (iterations == limit), rounds, iterations)
        if bool(done.all()) or rounds == limit:
            break
        state = rescaled(problem, improve(problem, state, found, method, rounds + 1, tol))
    b = torch.exp(problem.values(state.points) / 2)
    alpha = torch.where(state.u > 0, state.u * b, 0.0)
    alpha = alpha / alpha.sum(-1, keepdim=True)
    batch, n = problem.batch, state.u.shape[-1]
    solution = ContinuousSolution(
        measure=Measure(state.points.reshape(*batch, n, -1), alpha.reshape(*batch, n)),
        u=state.u.reshape(*batch, n),
        peak=problem.peak.reshape(batch),
        lower=(lower + problem.peak).reshape(batch),
        upper=(upper + problem.peak).reshape(batch),
        violation=found.worst.reshape(batch),
        iterations=iterations.reshape(batch),
        history=torch.stack(history).reshape(-1, *batch),
        tol=tol,
        method=method,
    )
    _warn_of_late_samples(solution)
    return solution


def _warn_of_late_samples(solution: ContinuousSolution) -> None:
    late = int((~solution.converged).sum())
    if late:
        warnings.warn(
            f"{late} of {solution.lower.numel()} samples did not reach tol={solution.tol:g}: the "
            f"worst gap is {float(solution.gap.max()):.1e} after {len(solution.history) - 1} "
            f"rounds of {solution.method!r}. Raise max_iter, use a finer grid, or ask for a "
            "larger tol.",
            ConvergenceWarning,
            stacklevel=5,
        )
