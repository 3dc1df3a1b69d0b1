"""What must hold of every answer. A check returns what is false, row by row."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fuzz import costs, exact
from fuzz.exact import Bounds, Wide
from fuzz.problems import Problem, answer, eps
from geosoftmax import (
    ConvergenceWarning,
    Cost,
    DenseCost,
    Solution,
    geometric_logistic_loss,
    geometric_logsumexp,
    geometric_softmax,
)
from geosoftmax.solvers import registry

#: Methods that solve a row to the same bits in whatever batch it comes, where they are compiled.
#: Others multiply matrices, and that rounds as the number of rows has it.
INDEPENDENT = ("threshold", "hull", "policy", "active_set", "growing_set")
#: Of what is computed in a dtype and rounded to it, in units of its precision.
UNITS = 8
#: Dtypes with too few digits to tell a softmax from its slope.
HALF = (torch.float16, torch.bfloat16)


class Failure(NamedTuple):
    """One thing that does not hold."""

    row: int
    what: str
    detail: str


class Truth(NamedTuple):
    """What is known of a problem without the library."""

    K: np.ndarray
    bounds: Bounds
    #: How far the bounds may be wrong: by rounding, and 2δ for a matrix that is not definite.
    rounding: float
    indefinite: float


def truth(problem: Problem, points: list[np.ndarray]) -> Truth:
    """Bound the values of a problem. The points need not be good; they cannot make it wrong."""
    K = costs.kernel(problem.cost)
    rounding = exact.allowance(problem.cost.size)
    indefinite = 2 * accepted_indefiniteness(K, problem.cost)
    return Truth(K, exact.bounds(K, problem.flat, points), rounding, indefinite)


def accepted_indefiniteness(K: np.ndarray, cost: Cost) -> float:
    """Return δ of a matrix with smallest eigenvalue -δ, at most what `DenseCost` accepts.

    The others are positive definite whatever their parameters.
    """
    if not isinstance(cost, DenseCost):
        return 0.0
    smallest = float(np.linalg.eigvalsh(K.astype(np.float64)).min())
    return min(max(0.0, -smallest), 10 * cost.size * eps(cost.dtype))


def every(mask: np.ndarray, what: str, *shown: np.ndarray) -> Iterator[Failure]:
    """Yield a failure for each row of a mask that is set."""
    for row in np.nonzero(mask)[0]:
        detail = ", ".join(f"{float(values[row])!r}" for values in shown)
        yield Failure(int(row), what, detail)


# ------------------------------------------------------------------ an answer by itself


def check_solution(problem: Problem, solution: Solution, known: Truth) -> Iterator[Failure]:
    """Check the numbers of a solution, and its bracket against what is proven."""
    n = problem.rows
    alpha, u = _rows(solution.alpha, n), _rows(solution.u, n)
    lower, upper = _rows(solution.lower, n)[:, 0], _rows(solution.upper, n)[:, 0]
    numbers = np.isnan(alpha).any(1) | np.isnan(u).any(1) | np.isnan(lower) | np.isnan(upper)
    yield from every(numbers, "NaN")
    yield from every((alpha < 0).any(1) | (u < 0).any(1), "a negative probability")
    yield from every(((alpha > 0) & (problem.flat == -np.inf)).any(1), "mass on a masked output")
    precision = _precision(problem)
    total = alpha.sum(1)
    yield from every(np.abs(total - 1) > precision, "probabilities do not sum to 1", total)
    yield from check_bracket(lower, upper, known)
    # The distribution itself attains the value, up to the gap and the digits of its dtype.
    gap = upper - lower
    short = known.bounds.lower - exact.attained(known.K, *_points_of(problem, alpha))
    allowed = gap + precision * problem.cost.size + known.indefinite
    yield from every(short > allowed, "the distribution is not that of the bracket", short, gap)


def check_bracket(lower: np.ndarray, upper: np.ndarray, known: Truth) -> Iterator[Failure]:
    """Compare a bracket with what is proven; each end can be refuted by one side alone."""
    peak = known.bounds.peak
    at_least, at_most = known.bounds.lower + peak, known.bounds.upper + peak
    rounding = known.rounding + known.indefinite + 2 * exact.EPS * np.abs(peak)
    yield from every(lower > upper, "an empty bracket", lower, upper)
    low = upper < at_least - rounding
    yield from every(low, "upper is below the value", upper, at_least, at_least - upper)
    high = lower > at_most + rounding
    yield from every(high, "lower is above the value", lower, at_most, lower - at_most)


def check_report(solution: Solution, caught: list[warnings.WarningMessage]) -> Iterator[Failure]:
    """Check that what a solve says of itself is so: converged, or a warning."""
    gap, converged = solution.gap.flatten().numpy(), solution.converged.flatten().numpy()
    allowed = solution.tol + UNITS * eps(torch.float64) * solution.upper.abs().flatten().numpy()
    yield from every(converged & ~(gap <= allowed), "converged with a gap above tol", gap)
    others = [w for w in caught if not issubclass(w.category, ConvergenceWarning)]
    for warning in others:
        yield Failure(0, "another warning", f"{warning.category.__name__}: {warning.message}")
    if (len(caught) > len(others)) == bool(converged.all()):
        yield Failure(0, "the warning and `converged` disagree", f"{int((~converged).sum())} late")


# ------------------------------------------------------------------ the same in other words


def check_layouts(
    problem: Problem, solution: Solution, known: Truth, rows: np.ndarray, strided: bool
) -> Iterator[Failure]:
    """Solve some rows in another order and memory layout: they must not depend on the others."""
    part = problem.take(torch.from_numpy(rows))
    if strided:
        doubled = torch.stack([part.scores, torch.zeros_like(part.scores)], -1)
        part = dataclasses.replace(part, scores=doubled[..., 0])
    again, _ = answer(part)
    bounds = Bounds(*(x[rows] for x in known.bounds))
    K = known.K if known.K.ndim == 2 else known.K[rows]
    found = [*check_solution(part, again, known._replace(K=K, bounds=bounds))]
    yield from (failure._replace(row=int(rows[failure.row])) for failure in found)
    plain = problem.init is None and not problem.solver.endswith("reference")
    if solution.method not in INDEPENDENT or not plain:
        return
    for name in ("alpha", "u", "lower"):  # many rows at once have the simpler upper bound
        one, two = getattr(solution, name)[torch.from_numpy(rows)], getattr(again, name)
        differ = ~_rows(torch.eq(one, two) | (one.isnan() & two.isnan()), len(rows)).all(1)
        for failure in every(differ, f"{name} depends on the other rows"):
            yield failure._replace(row=int(rows[failure.row]))


def check_functions(problem: Problem, known: Truth) -> Iterator[Failure]:
    """Check `geometric_softmax` and `geometric_logsumexp` at their default tolerances."""
    scores, cost, dtype = problem.scores, problem.cost, problem.scores.dtype
    n, precision = problem.rows, _precision(problem)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        alpha = _rows(geometric_softmax(scores, cost), n)
        softmax_warned = bool(caught)
        value = _rows(geometric_logsumexp(scores, cost), n)[:, 0]
    yield from every(np.isnan(alpha).any(1) | np.isnan(value), "NaN of a function")
    yield from every(np.abs(alpha.sum(1) - 1) > precision, "softmax does not sum to 1")
    yield from every((alpha < 0).any(1), "a negative probability of softmax")
    at_least = known.bounds.lower + known.bounds.peak
    at_most = known.bounds.upper + known.bounds.peak
    if len(caught) == softmax_warned:
        tol = registry.default_tolerance(dtype, "value")
        allowed = tol + precision * (1 + np.abs(at_least)) + 2 * known.indefinite
        off = (value < at_least - allowed) | (value > at_most + allowed)
        yield from every(off, "log-sum-exp is off", value, at_least, at_most)
    if not softmax_warned:
        short = known.bounds.lower - exact.attained(known.K, *_points_of(problem, alpha))
        tol = registry.default_tolerance(dtype, "distribution")
        allowed = tol + precision * (cost.size + np.abs(at_least)) + 2 * known.indefinite
        yield from every(short > allowed, "softmax is off", short)


# ------------------------------------------------------------------ losses


def check_losses(rng: np.random.Generator, problem: Problem, known: Truth) -> Iterator[Failure]:
    """Check values and slopes of the loss, of class indices and of distributions."""
    n, f = problem.rows, problem.flat
    visible = np.isfinite(f)
    weight = rng.exponential(size=f.shape) * visible
    index = (weight + visible * 1e-9).argmax(1)
    one_hot = np.zeros(f.shape)
    one_hot[np.arange(n), index] = 1
    yield from _check_loss("index", problem, torch.from_numpy(index), one_hot, known, 0, 0)
    keep = (rng.random(f.shape) < 0.5) & visible
    keep[np.arange(n), index] = True
    alpha = weight * keep + 1e-12 * one_hot
    alpha = torch.from_numpy(alpha / alpha.sum(1, keepdims=True)).reshape(problem.scores.shape)
    if problem.scores.dtype != torch.float64:
        alpha = alpha.float()
    exact_alpha = _rows(alpha, n)
    low, high = exact.negentropy(known.K, exact_alpha)
    yield from _check_loss("distribution", problem, alpha, exact_alpha, known, low, high)


def _check_loss(
    kind: str, problem: Problem, target: Tensor, alpha: np.ndarray, known: Truth, low, high
) -> Iterator[Failure]:
    """Check the loss of each row, given bounds of the negentropy of its target."""
    n, dtype = problem.rows, problem.scores.dtype
    scores = problem.scores.clone().requires_grad_()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loss = geometric_logistic_loss(scores, target, problem.cost, reduction="none")
        loss.sum().backward()
    values, slope = _rows(loss.detach(), n)[:, 0], _rows(scores.grad, n)
    broken = ~np.isfinite(values) | ~np.isfinite(slope).all(1)
    yield from every(broken, f"a loss ({kind}) or its slope is not finite", values)
    yield from every(values < 0, f"a negative loss ({kind})", values)
    below = problem.flat.astype(Wide) - known.bounds.peak[:, None]
    inner = alpha.astype(Wide) * np.where(alpha > 0, below, 0)
    at_least = known.bounds.lower + low - inner.sum(1)
    at_most = known.bounds.upper + high - inner.sum(1)
    tol = registry.default_tolerance(dtype, "loss")
    computed = max(eps(dtype), eps(torch.float32) if problem.cost.dtype == torch.float32 else 0)
    size = 1 + np.abs(inner).sum(1) + np.abs(low)
    allowed = tol + UNITS * computed * size + 2 * known.indefinite
    if caught:
        return
    off = (values < at_least - allowed) | (values > at_most + allowed)
    yield from every(off, f"a loss ({kind}) is off", values, at_least, at_most)
    # Slope plus target is the softmax: a distribution that attains the value, up to rounding.
    implied = slope.astype(Wide) + alpha
    noise = _precision(problem)
    wrong = (implied < -noise).any(1) | (np.abs(implied.sum(1) - 1) > 2 * noise)
    yield from every(
        wrong, f"the slope ({kind}) plus the target is no distribution", implied.sum(1)
    )
    if dtype in HALF:
        return
    implied = np.where(implied > noise, implied, 0)
    short = known.bounds.lower - exact.attained(known.K, *_points_of(problem, implied))
    few = tol + 4 * noise * problem.cost.size + 2 * known.indefinite
    yield from every(short > few, f"the slope ({kind}) is not softmax less target", short)


# ------------------------------------------------------------------


def _precision(problem: Problem) -> float:
    """Return how far a sum of probabilities may be from 1: rounding to the dtype, and its sum."""
    return UNITS * eps(problem.scores.dtype) + problem.cost.size * eps(torch.float64)


def _rows(tensor: Tensor, rows: int) -> np.ndarray:
    """Return ``(rows, …)`` in long double, or as booleans."""
    flat = tensor.detach().reshape(rows, -1).cpu()
    if flat.dtype == torch.bool:
        return flat.numpy()
    return flat.double().numpy().astype(Wide)


def _points_of(problem: Problem, alpha: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return b, and the point u for which ``u b`` is proportional to alpha."""
    b, _ = exact.obstacle(problem.flat)
    with np.errstate(divide="ignore", invalid="ignore"):
        return b, np.where((alpha > 0) & (b > 0), alpha / b, 0)
