"""Minimising ``Σ_i w_i ℓ(y_i, f_i) + alpha/2 ‖W‖²`` over linear scores ``f = X W + c``.

Where classes share weights, the penalty is ``alpha/2 tr(W K⁻¹ Wᵀ)`` with a kernel ``K`` between
classes. With ``W = V K^½`` it is that of ``V`` again.

The method is L-BFGS, preconditioned with what is known of the Hessian: in the principal axes of the
features it is nearly ``mean curvature of the losses ⊗ variances + penalty``, which two small
eigendecompositions invert. The curvature (d × d) is computed anew every few steps, because samples
leave it as they are fitted: a loss is flat where the support is a single class.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from geosoftmax.costs.base import Cost
from geosoftmax.estimators._design import Design
from geosoftmax.functional import solve
from geosoftmax.solvers import Solution, registry
from geosoftmax.solvers.active_set import MOST_OUTPUTS
from geosoftmax.solvers.base import FitPlan

#: Steps that L-BFGS remembers; with many coefficients only so many that these numbers hold them,
#: but no fewer than `FEWEST_STEPS`.
MEMORY, FEWEST_STEPS, MOST_NUMBERS = 30, 10, 1 << 25
#: Steps after which the curvature is computed anew.
REFRESH = 10
#: Rows whose curvature is looked at, at most; and the work, in d³, from which on they are fewer.
MOST_CURVES, CURVE_WORK = 1000, 1 << 27
#: Smallest curvature, relative to the largest, that the preconditioner believes in.
FLATTEST = 1e-8
#: Sufficient decrease and curvature condition of the line search.
DECREASE, FLATTER = 1e-4, 0.9
#: The objective is not trusted to more digits than this.
ROUNDING = 1e-13
MOST_TRIALS = 40


@dataclass(frozen=True)
class Fit:
    """Where the optimiser stopped."""

    V: np.ndarray
    iterations: int
    largest: float  # entry of the gradient of the mean objective
    converged: bool
    stuck: bool = False  # rounding left no way down


def fit_linear(
    X: Any, target: np.ndarray, weight: np.ndarray, cost: Cost, alpha: float,
    fit_intercept: bool, tol: float, max_iter: int, shared: Cost | None = None,
) -> tuple[Design, Fit]:  # fmt: skip
    """Fit to all samples, from the start; return the coordinates, and the fit in them.

    Weights of classes that are near under `shared` are drawn together.
    """
    total = weight.sum()
    design = Design(X, weight / total, fit_intercept)
    losses = Losses(cost, target, weight / total)
    V = start(design, losses)
    if shared is None:
        return design, minimise(Objective(design, losses, alpha / total), V, tol, max_iter)
    root = _square_root(shared.kernel().double().numpy())
    V[-1] = np.linalg.lstsq(root, V[-1], rcond=None)[0]
    found = minimise(Objective(design, losses, alpha / total, root), V, tol, max_iter)
    return design, replace(found, V=found.V @ root)


def _square_root(K: np.ndarray) -> np.ndarray:
    """Return the symmetric square root of a positive definite matrix."""
    values, axes = np.linalg.eigh(K)
    return (axes * np.sqrt(np.maximum(values, 0.0))) @ axes.T


class Losses:
    """``Σ_i w_i ℓ(y_i, f_i)`` as a function of the scores.

    Where the plan has losses of its own (small dense costs), these. Other costs are solved by the
    method that is made for them, iterative ones from the last solution.
    """

    def __init__(self, cost: Cost, target: np.ndarray, weight: np.ndarray) -> None:
        self.cost, self.target, self.weight = cost, target, weight
        self.plan: FitPlan = registry.plan(cost, "fit", torch.float64)
        self.workspace = None
        if self.plan.workspace is not None:
            self.workspace = self.plan.workspace(target, weight)
        self.found: tuple[np.ndarray, Solution] | None = None

    def evaluate(self, scores: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the sum and its gradient in the scores."""
        if self.workspace is not None:
            return self.workspace.evaluate(scores)
        if not np.isfinite(scores).all():
            return np.inf, np.zeros_like(scores)
        init = None
        if self.found is not None and self.found[1].method in ("accelerated", "splitting"):
            init = self.found[1]
        solution = solve(torch.from_numpy(scores), self.cost, init=init)
        self.found = scores, solution
        rows = np.arange(len(scores))
        slope = solution.alpha.numpy() * self.weight[:, None]
        slope[rows, self.target] -= self.weight
        value = self.weight @ (solution.lower.numpy() - scores[rows, self.target])
        return float(value), slope

    @functools.cached_property
    def _kernel(self) -> np.ndarray:
        if self.workspace is not None:
            return self.workspace.K
        return self.cost.kernel().double().numpy()

    def potential(self, shares: np.ndarray) -> np.ndarray:
        """Return scores whose geometric softmax is near the shares, which sum to one.

        Where Sinkhorn's method would begin: fits take no more steps from here than from its end.
        """
        shares = shares + 1e-4 * (1 / len(shares) - shares)  # classes that do not occur get a score
        return 2 * np.log(self._product(shares / np.sqrt(self._product(shares))))

    def _product(self, x: np.ndarray) -> np.ndarray:
        if self.cost.size <= MOST_OUTPUTS:
            return self._kernel @ x
        return self.cost.matvec(torch.from_numpy(x)).numpy()

    def curvature(self) -> np.ndarray:
        """Return ``Σ_i w_i ∇²ℓ`` where the losses were evaluated last, or nearly that.

        With ``S = supp u`` that of a loss is ``½ (D_b K_SS⁻¹ D_b / Z + D_α) - ααᵀ``.

        With very many classes only a guess, of shape (d,), from what far classes have: the shares
        of the classes, and something for those that have none yet.
        """
        if self.workspace is not None:
            scores, alpha, lower = self.workspace.found
        else:
            assert self.found is not None
            scores, solution = self.found
            alpha, lower = solution.alpha.numpy(), solution.lower.numpy()
        d = self.cost.size
        if d > MOST_OUTPUTS:
            return (self.weight @ alpha + 1 / d) / 2
        part, weight = _sample(self.weight, d)
        scores, alpha, lower = scores[part], alpha[part], lower[part]
        weighted = alpha * weight[:, None]
        total = np.diag(0.5 * weighted.sum(0)) - alpha.T @ weighted
        b = np.exp((scores - lower[:, None]) / 2)  # divided by √Z already
        self.plan.add_inverses(self._kernel, b, alpha > 0, weight, total)
        return total


def _sample(weight: np.ndarray, d: int) -> tuple[slice, np.ndarray]:
    """Return which rows stand for all, many more than there are directions, and their weights."""
    rows = min(MOST_CURVES, max(4 * d, CURVE_WORK // d**3))
    part = slice(None, None, -(-len(weight) // rows))
    share = weight[part].sum() / weight.sum()
    return (part, weight[part] / share) if share > 0 else (slice(None), weight)


class Preconditioner:
    """The inverse of ``curvature ⊗ variances + penalty``, and of the curvature for intercepts."""

    def __init__(self, curvature: np.ndarray, variances: np.ndarray, penalty: float) -> None:
        self.basis = None
        if curvature.ndim == 2:
            curvature, self.basis = np.linalg.eigh(curvature)
        floor = FLATTEST * max(curvature.max(), FLATTEST)
        values = np.maximum(curvature, floor)
        self.scale = np.empty((len(variances) + 1, len(values)))
        self.scale[:-1] = 1.0 / np.maximum(variances[:, None] * values + penalty, floor)
        self.scale[-1] = 1.0 / values

    def __call__(self, gradient: np.ndarray) -> np.ndarray:
        if self.basis is None:
            return gradient * self.scale
        return ((gradient @ self.basis) * self.scale) @ self.basis.T


class Memory:
    """The last steps of L-BFGS, and how they changed the gradient."""

    def __init__(self, size: int, plan: FitPlan) -> None:
        self.loops = plan.two_loop_first, plan.two_loop_second
        self.room = min(MEMORY, max(FEWEST_STEPS, MOST_NUMBERS // (2 * size)))
        self.steps, self.changes = np.empty((self.room, size)), np.empty((self.room, size))
        self.inverse, self.factors = np.empty(self.room), np.empty(self.room)
        self.newest, self.count = -1, 0

    def add(self, step: np.ndarray, change: np.ndarray) -> None:
        """Remember a step, unless the gradient did not change along it."""
        curve = float(step.ravel() @ change.ravel())
        if curve <= 1e-14 * np.linalg.norm(step) * np.linalg.norm(change):
            return
        self.newest = (self.newest + 1) % self.room
        self.count = min(self.count + 1, self.room)
        self.steps[self.newest], self.changes[self.newest] = step.ravel(), change.ravel()
        self.inverse[self.newest] = 1.0 / curve

    def direction(self, gradient: np.ndarray, precondition: Preconditioner) -> np.ndarray:
        """Return minus the inverse Hessian that was learnt, times the gradient."""
        if self.count == 0:
            return -precondition(gradient)
        q = gradient.ravel().copy()
        pairs = self.steps, self.changes, self.inverse, self.newest, self.count
        first_loop, second_loop = self.loops
        first_loop(*pairs, q, self.factors)
        r = precondition(q.reshape(gradient.shape)).ravel()
        change = self.changes[self.newest]
        length = change @ precondition(change.reshape(gradient.shape)).ravel()
        r /= self.inverse[self.newest] * length
        second_loop(*pairs, r, self.factors)
        return -r.reshape(gradient.shape)


class Point(NamedTuple):
    """Weights, the scores that they give, and the objective with its gradient there."""

    V: np.ndarray
    scores: np.ndarray
    value: float
    gradient: np.ndarray


class Objective:
    """``(Σ_i w_i ℓ(y_i, f_i) + alpha/2 ‖W‖²) / Σ_i w_i`` as a function of V."""

    def __init__(
        self, design: Design, losses: Losses, penalty: float, root: np.ndarray | None = None
    ) -> None:
        """Take the root of the kernel by which classes share weights; None if they do not."""
        self.design, self.losses, self.penalty, self.root = design, losses, penalty, root

    def scores(self, V: np.ndarray) -> np.ndarray:
        """Return the scores of all samples, linear in V."""
        scores = self.design.scores(V)
        return scores if self.root is None else scores @ self.root

    def gradient(self, V: np.ndarray, slope: np.ndarray) -> np.ndarray:
        """Return the gradient in V, from that of the losses in the scores."""
        gradient = self.design.gradient(slope if self.root is None else slope @ self.root)
        gradient[:-1] += self.penalty * V[:-1]
        return gradient

    def ridge(self, V: np.ndarray, direction: np.ndarray) -> float:
        """Return the slope of the penalty at V along a direction."""
        return self.penalty * float(V[:-1].ravel() @ direction[:-1].ravel())

    def point(self, V: np.ndarray) -> Point:
        """Return V with its scores, value and gradient."""
        scores = self.scores(V)
        value, slope = self.losses.evaluate(scores)
        return Point(V, scores, value + 0.5 * self.ridge(V, V), self.gradient(V, slope))

    def preconditioner(self) -> Preconditioner:
        """Return the one that suits the point that was evaluated last."""
        curvature = self.losses.curvature()
        if self.root is not None and curvature.ndim == 2:
            curvature = self.root @ curvature @ self.root
        return Preconditioner(curvature, self.design.variances, self.penalty)


def start(design: Design, losses: Losses) -> np.ndarray:
    """Return V without features: intercepts that predict the shares of the classes."""
    V = np.zeros((len(design.variances) + 1, losses.cost.size))
    if design.fit_intercept:
        shares = np.bincount(losses.target, weights=losses.weight, minlength=losses.cost.size)
        V[-1] = losses.potential(shares)
    return V


@np.errstate(over="ignore", invalid="ignore")  # a trial step may go too far; it is then cut
def minimise(objective: Objective, V: np.ndarray, tol: float, max_iter: int) -> Fit:
    """Descend from V until no entry of the gradient is larger than `tol`."""
    here = objective.point(V)
    memory = Memory(V.size, objective.losses.plan)
    precondition = None
    for iteration in range(max_iter + 1):
        largest = objective.design.largest(here.gradient)
        if largest <= tol or iteration == max_iter:
            return Fit(here.V, iteration, largest, largest <= tol)
        if precondition is None or iteration % REFRESH == 0:
            precondition = objective.preconditioner()
            here = here._replace(scores=objective.scores(here.V))  # without the sum of roundings
        direction = memory.direction(here.gradient, precondition)
        ahead = _search(objective, here, direction)
        if ahead is None:
            return Fit(here.V, iteration, largest, False, stuck=True)
        memory.add(ahead.V - here.V, ahead.gradient - here.gradient)
        here = ahead
    raise AssertionError("unreachable")


def _search(objective: Objective, here: Point, direction: np.ndarray) -> Point | None:
    """Go along a direction until the Wolfe conditions hold. The objective is convex.

    Scores are linear in V: a trial costs the losses alone, and no product with the features.
    """
    slope = float(here.gradient.ravel() @ direction.ravel())
    if not slope < 0:
        return None
    change = objective.scores(direction)
    square = objective.ridge(here.V, here.V)
    first, second = objective.ridge(here.V, direction), objective.ridge(direction, direction)
    short, long, t = 0.0, np.inf, 1.0
    noise = ROUNDING * max(abs(here.value), 1e-3)
    for _ in range(MOST_TRIALS):
        scores = here.scores + t * change
        there, score_slope = objective.losses.evaluate(scores)
        there += 0.5 * (square + 2 * t * first + t * t * second)
        slope_there = float(score_slope.ravel() @ change.ravel()) + first + t * second
        enough = there <= here.value + DECREASE * t * slope
        if not enough and there <= here.value + noise:  # no digits are left: ask the slope
            enough = slope_there <= (2 * DECREASE - 1) * slope
        if not enough:
            long, middle = t, (short + t) / 2
            secant = t * slope / (slope - slope_there) if slope_there > 0 else middle
            t = min(max(secant, short + 0.1 * (long - short)), middle)
        elif slope_there < FLATTER * slope:
            short = t
            t = 2 * t if np.isinf(long) else (short + long) / 2
        else:
            V = here.V + t * direction
            return Point(V, scores, there, objective.gradient(V, score_slope))
    return None
