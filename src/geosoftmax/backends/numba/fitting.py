"""What fitting a linear model needs at each step, compiled: losses, curvature, L-BFGS directions.

For small dense costs. With ``K = exp(-C/2)``, ``b = exp(f/2)``, ``Z = ⟨b,u⟩`` and ``S = supp u``, a
sample of class y has loss ``log Z - f_y``, slope ``α - δ_y`` and curvature
``½ (D_b K_SS⁻¹ D_b / Z + D_α) - ααᵀ``.
"""

from __future__ import annotations

import functools

import numpy as np

from geosoftmax.backends.numba import active_set
from geosoftmax.backends.numba.calls import run
from geosoftmax.backends.numba.memory import DOUBLE
from geosoftmax.backends.numba.pivoting import factor, substitute
from geosoftmax.backends.numba.runtime import jit
from geosoftmax.backends.numba.tables import DenseTables

#: Rows whose curvature is looked at, at most; and the work, in d³, from which on they are fewer.
MOST_CURVES, CURVE_WORK = 1000, 1 << 27
#: No target is ignored: a class that does not exist.
NO_CLASS = -1


class Workspace:
    """Room for the solves of one fit; the supports that were found last start the next solves."""

    def __init__(self, kernels: np.ndarray, target: np.ndarray, weight: np.ndarray) -> None:
        rows, d = len(target), kernels.shape[-1]
        self.kernels, self.weight = kernels, np.ascontiguousarray(weight, dtype=np.float64)
        self.target = np.ascontiguousarray(target, dtype=np.int64)
        self.alpha, self.scores = np.empty((rows, d)), np.empty((rows, d))
        self.loss, self.lower, self.upper = (np.empty(rows) for _ in range(3))
        self.iterations = np.empty(rows, dtype=np.int64)
        self.inside: np.ndarray | None = None
        self._kernel, self._alpha = active_set.kernel(DenseTables(kernels)), self.alpha.ctypes.data
        kept = self.lower, self.upper, self.iterations, self.loss, self.target
        self._results = *(x.ctypes.data for x in kept), NO_CLASS, 0, self.weight.ctypes.data

    def evaluate(self, scores: np.ndarray) -> tuple[float, np.ndarray]:
        """Return ``Σ w_i ℓ(y_i, f_i)`` and its gradient in the scores."""
        scores = self.scores = np.ascontiguousarray(scores, dtype=np.float64)
        slope = np.empty(scores.shape)
        kernel, rows = self._kernel, len(scores)
        run(
            kernel.method(rows, self.inside), rows, kernel.work * scores.size,
            scores.ctypes.data, DOUBLE, 0, rows, self._alpha, 0, slope.ctypes.data, *self._results,
        )  # fmt: skip
        if self.inside is None:  # later calls update it
            self.inside = self.alpha > 0
        return float(self.loss.sum()), slope

    def curvature(self) -> np.ndarray:
        """Return ``Σ w_i ∇²ℓ(y_i, f_i)``, of shape (d, d), where `evaluate` was called last."""
        part, weight = _sample(self.weight, self.kernels.shape[-1])
        scores, alpha = self.scores[part], self.alpha[part]
        peak = scores.max(1)
        b, inverse_energy = np.exp((scores - peak[:, None]) / 2), np.exp(peak - self.lower[part])
        return _curvature(self.kernels[0], weight, b, alpha, alpha > 0, inverse_energy)


def curvature(
    K: np.ndarray,
    weight: np.ndarray,
    b: np.ndarray,
    alpha: np.ndarray,
    inside: np.ndarray,
    inverse_energy: np.ndarray,
) -> np.ndarray:
    """Return ``Σ w_i (½ (D_b K_SS⁻¹ D_b / Z + D_α) - ααᵀ)``; of many rows, from a part of them."""
    part, weight = _sample(weight, b.shape[1])
    return _curvature(K, weight, b[part], alpha[part], inside[part], inverse_energy[part])


def _sample(weight: np.ndarray, d: int) -> tuple[slice, np.ndarray]:
    """Return which rows stand for all, many more than there are directions, and their weights."""
    rows = min(MOST_CURVES, max(4 * d, CURVE_WORK // d**3))
    part = slice(None, None, -(-len(weight) // rows))
    share = weight[part].sum() / weight.sum()
    return (part, weight[part] / share) if share > 0 else (slice(None), weight)


def _curvature(
    K: np.ndarray,
    weight: np.ndarray,
    b: np.ndarray,
    alpha: np.ndarray,
    inside: np.ndarray,
    inverse_energy: np.ndarray,
) -> np.ndarray:
    d = b.shape[1]
    weighted = alpha * weight[:, None]
    total = -(alpha.T @ weighted)
    total[np.diag_indices(d)] += 0.5 * weighted.sum(0)
    # Rows with equal supports come one after the other: one inverse serves them all.
    order = np.argsort(inside @ np.sqrt(np.arange(2.0, d + 2.0)))
    _add_inverses(K, b, inside, weight * inverse_energy, order, total)
    return total


@jit
def _add_inverses(K, b, inside, weight, order, total):
    """Add ``½ Σ_i w_i D_b K_SS⁻¹ D_b``."""
    d = K.shape[0]
    index = np.empty(d, dtype=np.int64)
    A = np.empty((d, d))
    x = np.empty(d)
    column = np.empty(d)
    products = np.empty((d, d))
    start = 0
    while start < order.shape[0]:
        support = inside[order[start]]
        size = np.int64(0)
        for i in range(d):
            if support[i]:
                index[size] = i
                size += 1
        products[:size, :size] = 0.0
        last = start
        while last < order.shape[0]:
            row = order[last]
            same = True
            for i in range(d):
                same = same and inside[row, i] == support[i]
            if not same:
                break
            for p in range(size):
                scaled = weight[row] * b[row, index[p]]
                for q in range(size):
                    products[p, q] += scaled * b[row, index[q]]
            last += 1
        if factor(K, index, size, A, column):  # nearly singular ones are left out
            for p in range(size):
                x[:size] = 0.0
                x[p] = 1.0
                substitute(A, size, x)
                for q in range(size):
                    total[index[p], index[q]] += 0.5 * products[p, q] * x[q]
        start = last


@functools.partial(jit, fastmath={"contract", "reassoc"})
def two_loop_first(steps, changes, inverse, newest, count, q, factors):
    """First loop of the recursion of L-BFGS: changes q, from the newest pair to the oldest."""
    room = steps.shape[0]
    for k in range(count):
        at = (newest - k) % room
        total = 0.0
        for i in range(q.shape[0]):
            total += steps[at, i] * q[i]
        factors[at] = total * inverse[at]
        for i in range(q.shape[0]):
            q[i] -= factors[at] * changes[at, i]


@functools.partial(jit, fastmath={"contract", "reassoc"})
def two_loop_second(steps, changes, inverse, newest, count, r, factors):
    """Second loop of the recursion: changes r, from the oldest pair to the newest."""
    room = steps.shape[0]
    for k in range(count - 1, -1, -1):
        at = (newest - k) % room
        total = 0.0
        for i in range(r.shape[0]):
            total += changes[at, i] * r[i]
        factor = factors[at] - total * inverse[at]
        for i in range(r.shape[0]):
            r[i] += factor * steps[at, i]
