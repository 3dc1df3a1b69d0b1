"""Minimise ``Σ_i w_i ℓ(y_i, f_i) + alpha/2 ‖W‖²`` over linear scores ``f = X W + c``.

If classes share weights, the penalty is ``alpha/2 tr(W K⁻¹ Wᵀ)`` with a kernel ``K`` between
classes. With ``W = V K^½`` it becomes ``alpha/2 ‖V‖²``.

The method is L-BFGS with a preconditioner. In the principal axes of the features, the Hessian is
nearly ``mean curvature of the losses ⊗ variances + penalty``, and two small eigendecompositions
invert this. The curvature (d × d) is computed again every few steps, because it shrinks as samples
are fitted: a loss is flat where the support is a single class.
"""

from __future__ import annotations

import functools
import math
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

#: L-BFGS stores this many steps. With many coefficients it stores fewer, within `MOST_NUMBERS`
#: numbers, but at least `FEWEST_STEPS`.
MEMORY, FEWEST_STEPS, MOST_NUMBERS = 30, 10, 1 << 25
#: The curvature is computed again after this many steps.
REFRESH = 10
#: The curvature is that of at most so many rows, and of fewer if rows times d³ exceeds the second.
MOST_CURVES, CURVE_WORK = 1000, 1 << 27
#: The preconditioner raises curvatures to at least this, relative to the largest.
FLATTEST = 1e-8
#: Sufficient decrease and curvature condition of the line search.
DECREASE, FLATTER = 1e-4, 0.9
#: The relative rounding error of the objective.
ROUNDING = 1e-13
MOST_TRIALS = 40


@dataclass(frozen=True)
class Fit:
    """Where the optimiser stopped."""

    V: np.ndarray
    iterations: int
    largest: float  # entry of the gradient of the mean objective
    converged: bool
    stuck: bool = False  # no step decreases the objective, because of rounding


def fit_linear(
    X: Any, target: np.ndarray, weight: np.ndarray, cost: Cost, alpha: float,
    fit_intercept: bool, tol: float, max_iter: int, shared: Cost | None = None,
) -> tuple[Design, Fit]:  # fmt: skip
    """Fit to all samples; return the coordinates, and the fit in them.

    Classes that are near under `shared` get similar weights.
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

    If the plan has a workspace (small dense costs), it computes the losses. Other costs are solved
    by their own method; iterative methods start from the last solution.
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
        """Return scores whose geometric softmax is close to the shares, which sum to one.

        This is the first iterate of Sinkhorn's method. Fits that start from its solution do not
        take fewer steps.
        """
        shares = shares + 1e-4 * (1 / len(shares) - shares)  # classes that do not occur get a score
        return 2 * np.log(self._product(shares / np.sqrt(self._product(shares))))

    def _product(self, x: np.ndarray) -> np.ndarray:
        if self.cost.size <= MOST_OUTPUTS:
            return self._kernel @ x
        return self.cost.matvec(torch.from_numpy(x)).numpy()

    def curvature(self) -> np.ndarray:
        """Return ``Σ_i w_i ∇²ℓ`` at the last evaluation, estimated from some of the rows.

        For one loss it is ``½ (D_b K_SS⁻¹ D_b / Z + D_α) - ααᵀ`` with ``S = supp u``.

        With very many classes, return only a guess of the diagonal, of shape (d,): that of classes
        far apart. It is half the share of each class, plus a constant for empty classes.
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
    """Return a subset of the rows, several times larger than d, and their rescaled weights."""
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

    def square(self, change: np.ndarray) -> float:
        """Return the inner product of a change of the gradient with its preconditioned self."""
        turned = change if self.basis is None else change @ self.basis
        return float((turned * self.scale).ravel() @ turned.ravel())


class Memory:
    """The last steps of L-BFGS, and the changes of the gradient along them."""

    def __init__(self, size: int, plan: FitPlan) -> None:
        self.loops = plan.two_loop_first, plan.two_loop_second
        self.room = min(MEMORY, max(FEWEST_STEPS, MOST_NUMBERS // (2 * size)))
        self.steps, self.changes = np.empty((self.room, size)), np.empty((self.room, size))
        self.inverse, self.factors = np.empty(self.room), np.empty(self.room)
        self.newest, self.count = -1, 0

    def add(self, step: np.ndarray, change: np.ndarray) -> None:
        """Store a step, unless the gradient did not change along it."""
        step, change = step.ravel(), change.ravel()
        curve = float(step @ change)
        if curve <= 1e-14 * math.sqrt(float(step @ step) * float(change @ change)):
            return
        self.newest = (self.newest + 1) % self.room
        self.count = min(self.count + 1, self.room)
        self.steps[self.newest], self.changes[self.newest] = step, change
        self.inverse[self.newest] = 1.0 / curve

    def direction(self, gradient: np.ndarray, precondition: Preconditioner) -> np.ndarray:
        """Return minus the estimated inverse Hessian, times the gradient."""
        if self.count == 0:
            return -precondition(gradient)
        q = gradient.ravel().copy()
        pairs = self.steps, self.changes, self.inverse, self.newest, self.count
        first_loop, second_loop = self.loops
        first_loop(*pairs, q, self.factors)
        r = precondition(q.reshape(gradient.shape)).ravel()
        change = self.changes[self.newest].reshape(gradient.shape)
        r /= self.inverse[self.newest] * precondition.square(change)
        second_loop(*pairs, r, self.factors)
        return -r.reshape(gradient.shape)


class Point(NamedTuple):
    """Weights, the scores that they give, and the objective with its gradient there."""

    V: np.ndarray
    scores: np.ndarray
    value: float
    gradient: np.ndarray
    square: float  # of the weights, times the penalty


class Objective:
    """``(Σ_i w_i ℓ(y_i, f_i) + alpha/2 ‖W‖²) / Σ_i w_i`` as a function of V."""

    def __init__(
        self, design: Design, losses: Losses, penalty: float, root: np.ndarray | None = None
    ) -> None:
        """Take the root of the kernel by which classes share weights, or None."""
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
        if V[:-1].any():
            scores = self.scores(V)
        else:  # where fits start: no product with the samples
            constant = V[-1] if self.root is None else V[-1] @ self.root
            scores = np.tile(constant, (len(self.losses.target), 1))
        value, slope = self.losses.evaluate(scores)
        square = self.ridge(V, V)
        return Point(V, scores, value + 0.5 * square, self.gradient(V, slope), square)

    def preconditioner(self) -> Preconditioner:
        """Return the preconditioner for the point that was evaluated last."""
        curvature = self.losses.curvature()
        if self.root is not None and curvature.ndim == 2:
            curvature = self.root @ curvature @ self.root
        return Preconditioner(curvature, self.design.variances, self.penalty)


def start(design: Design, losses: Losses) -> np.ndarray:
    """Return V with zero weights, and intercepts that predict the shares of the classes."""
    V = np.zeros((len(design.variances) + 1, losses.cost.size))
    if design.fit_intercept:
        shares = np.bincount(losses.target, weights=losses.weight, minlength=losses.cost.size)
        V[-1] = losses.potential(shares)
    return V


@np.errstate(over="ignore", invalid="ignore")  # a trial step may overflow; it is then shortened
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
            if iteration > 0:  # without the sums of roundings
                square = objective.ridge(here.V, here.V)
                here = here._replace(scores=objective.scores(here.V), square=square)
        direction = memory.direction(here.gradient, precondition)
        ahead = _search(objective, here, direction)
        if ahead is None:
            return Fit(here.V, iteration, largest, False, stuck=True)
        memory.add(ahead.V - here.V, ahead.gradient - here.gradient)
        here = ahead
    raise AssertionError("unreachable")


def _search(objective: Objective, here: Point, direction: np.ndarray) -> Point | None:
    """Return the first point along a direction where the Wolfe conditions hold (convex case).

    Scores are linear in V, so a trial evaluates the losses, without a product with the features.
    """
    slope = float(here.gradient.ravel() @ direction.ravel())
    if not slope < 0:
        return None
    change = objective.scores(direction)
    first, second = objective.ridge(here.V, direction), objective.ridge(direction, direction)
    short, long, t = 0.0, math.inf, 1.0
    noise = ROUNDING * max(abs(here.value), 1e-3)
    for _ in range(MOST_TRIALS):
        scores = here.scores + (change if t == 1 else t * change)
        there, score_slope = objective.losses.evaluate(scores)
        square = here.square + t * (2 * first + t * second)
        there += 0.5 * square
        slope_there = float(score_slope.ravel() @ change.ravel()) + first + t * second
        enough = there <= here.value + DECREASE * t * slope
        if not enough and there <= here.value + noise:  # equal up to rounding: use the slope
            enough = slope_there <= (2 * DECREASE - 1) * slope
        if not enough:
            long, middle = t, (short + t) / 2
            secant = t * slope / (slope - slope_there) if slope_there > 0 else middle
            t = min(max(secant, short + 0.1 * (long - short)), middle)
        elif slope_there < FLATTER * slope:
            short = t
            t = 2 * t if math.isinf(long) else (short + long) / 2
        else:
            V = here.V + t * direction
            return Point(V, scores, there, objective.gradient(V, score_slope), square)
    return None
