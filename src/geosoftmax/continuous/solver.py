"""(QP) over the measures on a box, ``min ½ ∬K dμdμ - ∫b dμ``, by Frank–Wolfe methods.

==============  ===================================================================================
method          a round
==============  ===================================================================================
``sliding``     add the largest local maxima of ``b - h``, solve for all weights exactly, slide
                points and weights together, merge points that nearly meet
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

from geosoftmax.continuous._problem import Problem
from geosoftmax.continuous._rounds import away, corrective, pairwise
from geosoftmax.continuous._search import KernelSearch, rescaled, value
from geosoftmax.continuous.costs import PointCost
from geosoftmax.continuous.measure import Box, Measure
from geosoftmax.continuous.search import plain, search, sliding
from geosoftmax.continuous.spikes import Spikes, compact
from geosoftmax.solvers.solution import Bracketed, ConvergenceWarning

__all__ = ["METHODS", "ContinuousSolution", "minimise"]

STEPS = {
    "sliding": sliding,
    "corrective": corrective,
    "pairwise": pairwise,
    "away": away,
    "plain": plain,
}
METHODS = tuple(STEPS)
MAX_ITER = {"sliding": 50, "corrective": 200, "pairwise": 1000, "away": 1000, "plain": 1000}
#: Points of the grid along each side, by dimension.
GRID = {1: 257, 2: 49, 3: 17}
#: Spikes are not part of the answer whose probability is below this share of the tolerance, and
#: below this value. The value loses about its square, ``b - h`` changes by about as much.
FAINT, FAINTEST = 0.1, 1e-9


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
        The lower bound after each round; samples that are done repeat their last.
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
    searched = KernelSearch.of(problem, method, tol)
    result = search(searched, searched.start(), STEPS[method], limit)
    state = _without_faint(problem, result.spikes, tol)
    state = rescaled(state, value(problem, state)[1])
    lower, upper, worst = result.certificate.unbind(-1)
    alpha = _probabilities(problem, state)
    batch, n = problem.batch, state.u.shape[-1]
    solution = ContinuousSolution(
        measure=Measure(state.points.reshape(*batch, n, -1), alpha.reshape(*batch, n)),
        u=state.u.reshape(*batch, n),
        peak=problem.peak.reshape(batch),
        lower=(lower + problem.peak).reshape(batch),
        upper=(upper + problem.peak).reshape(batch),
        violation=worst.reshape(batch),
        iterations=result.rounds.reshape(batch),
        history=(torch.stack(result.history)[..., 0] + problem.peak).reshape(-1, *batch),
        tol=tol,
        method=method,
    )
    _warn_of_late_samples(solution)
    return solution


def _probabilities(problem: Problem, state: Spikes) -> Tensor:
    b = torch.exp(problem.values(state.points) / 2)
    alpha = torch.where(state.u > 0, state.u * b, 0.0)
    return alpha / alpha.sum(-1, keepdim=True)


def _without_faint(problem: Problem, state: Spikes, tol: float) -> Spikes:
    """Drop spikes that the certificate does not see."""
    faint = _probabilities(problem, state) < min(FAINT * tol, FAINTEST)
    return compact(Spikes(state.points, torch.where(faint, 0.0, state.u), state.level))


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
