"""What fitting a linear model needs at each step, compiled: losses, curvature, L-BFGS directions.

For small dense costs. With ``K = exp(-C/2)``, ``b = exp(f/2)``, ``Z = ⟨b,u⟩`` and ``S = supp u``, a
sample of class y has loss ``log Z - f_y``, slope ``α - δ_y`` and curvature
``½ (D_b K_SS⁻¹ D_b / Z + D_α) - ααᵀ``.
"""

from __future__ import annotations

import functools

import numpy as np

from geosoftmax.backends.numba.active_set import pivot
from geosoftmax.backends.numba.lanes import prepare
from geosoftmax.backends.numba.pivoting import solve_on
from geosoftmax.backends.numba.runtime import jit, spread

#: Rows whose curvature is looked at, at most; and the work, in d³, from which on they are fewer.
MOST_CURVES, CURVE_WORK = 1000, 1 << 27


class Workspace:
    """Room for the solves of one fit; the supports that were found last start the next solves."""

    def __init__(self, kernels: np.ndarray, target: np.ndarray, weight: np.ndarray) -> None:
        shape = len(target), kernels.shape[-1]
        self.kernels, self.target, self.weight = kernels, target, weight
        self.b, self.alpha, self.u = np.empty(shape), np.empty(shape), np.empty(shape)
        self.inside = np.empty(shape, dtype=np.bool_)
        self.peak, self.lower, self.upper = (np.empty(shape[0]) for _ in range(3))
        self.iterations = np.empty(shape[0], dtype=np.int64)
        self.loss = np.empty(shape[0])
        self.warm = False

    def evaluate(self, scores: np.ndarray) -> tuple[float, np.ndarray]:
        """Return ``Σ w_i ℓ(y_i, f_i)`` and its gradient in the scores."""
        slope = np.empty(scores.shape)
        work = scores.size * (32 + scores.shape[1]) // 128
        spread(
            _losses, len(scores), work, scores, self.target, self.weight, self.kernels, self.warm,
            self.b, self.peak, self.inside, self.alpha, self.u, self.lower, self.upper,
            self.iterations, self.loss, slope,
        )  # fmt: skip
        self.warm = True
        return float(self.loss.sum()), slope

    def curvature(self) -> np.ndarray:
        """Return ``Σ w_i ∇²ℓ(y_i, f_i)``, of shape (d, d), where `evaluate` was called last."""
        inverse_energy = np.exp(self.peak - self.lower)
        found = self.b, self.alpha, self.inside, inverse_energy
        return curvature(self.kernels[0], self.weight, *found)


def curvature(
    K: np.ndarray,
    weight: np.ndarray,
    b: np.ndarray,
    alpha: np.ndarray,
    inside: np.ndarray,
    inverse_energy: np.ndarray,
) -> np.ndarray:
    """Return ``Σ w_i (½ (D_b K_SS⁻¹ D_b / Z + D_α) - ααᵀ)``; of many rows, from a part of them."""
    d = b.shape[1]
    rows = min(MOST_CURVES, max(4 * d, CURVE_WORK // d**3))  # many more than there are directions
    part = slice(None, None, -(-len(b) // rows))
    share = weight[part].sum() / weight.sum()
    if not share > 0:
        part, share = slice(None), 1.0
    b, alpha, inside = b[part], alpha[part], inside[part]
    weight = weight[part] / share
    weighted = alpha * weight[:, None]
    total = -(alpha.T @ weighted)
    total[np.diag_indices(d)] += 0.5 * weighted.sum(0)
    # Rows with equal supports come one after the other: one inverse serves them all.
    order = np.argsort(inside @ np.sqrt(np.arange(2.0, d + 2.0)))
    _add_inverses(K, b, inside, weight * inverse_energy[part], order, total)
    return total


@jit
def _losses(
    f, target, weight, kernels, warm, b, peak, inside, alpha, u, lower, upper, iterations, loss,
    slope, first, last,
):  # fmt: skip
    prepare(f, kernels[0], not warm, b, peak, inside, first, last)
    for row in range(first, last):  # what has underflowed since is in no support
        for i in range(f.shape[1]):
            inside[row, i] = inside[row, i] and b[row, i] > 0.0
    pivot(kernels, b, peak, True, inside, 0.0, alpha, u, lower, upper, iterations, first, last)
    for row in range(first, last):
        w = weight[row]
        for i in range(f.shape[1]):
            slope[row, i] = w * alpha[row, i]
        slope[row, target[row]] -= w
        loss[row] = w * (lower[row] - f[row, target[row]])


@functools.partial(jit, reassociate=True)
def _unit_solve(L, size, at, x):
    """Column `at` of the inverse of L Lᵀ, where the diagonal of L holds reciprocals."""
    for p in range(at):
        x[p] = 0.0
    x[at] = L[at, at]
    for p in range(at + 1, size):
        total = 0.0
        for k in range(at, p):
            total -= L[p, k] * x[k]
        x[p] = total * L[p, p]
    for p in range(size - 1, -1, -1):
        x[p] *= L[p, p]
        for k in range(p):
            x[k] -= L[p, k] * x[p]


@jit
def _add_inverses(K, b, inside, weight, order, total):
    """Add ``½ Σ_i w_i D_b K_SS⁻¹ D_b``."""
    d = K.shape[0]
    index = np.empty(d, dtype=np.int64)
    L = np.empty((d, d))
    x = np.empty(d)
    side = np.zeros(d)
    products = np.empty((d, d))
    start = 0
    while start < order.shape[0]:
        support = inside[order[start]]
        size = 0
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
        if solve_on(K, side, index, size, L, x):  # for its factor; else nearly singular: left out
            for p in range(size):
                _unit_solve(L, size, p, x)
                for q in range(size):
                    total[index[p], index[q]] += 0.5 * products[p, q] * x[q]
        start = last


@functools.partial(jit, reassociate=True)
def backward(steps, changes, inverse, newest, count, q, factors):
    """First loop of L-BFGS: q is changed in place, from the newest pair to the oldest."""
    room = steps.shape[0]
    for k in range(count):
        at = (newest - k) % room
        total = 0.0
        for i in range(q.shape[0]):
            total += steps[at, i] * q[i]
        factors[at] = total * inverse[at]
        for i in range(q.shape[0]):
            q[i] -= factors[at] * changes[at, i]


@functools.partial(jit, reassociate=True)
def forward(steps, changes, inverse, newest, count, r, factors):
    """Second loop: r is changed in place, from the oldest pair to the newest."""
    room = steps.shape[0]
    for k in range(count - 1, -1, -1):
        at = (newest - k) % room
        total = 0.0
        for i in range(r.shape[0]):
            total += changes[at, i] * r[i]
        factor = factors[at] - total * inverse[at]
        for i in range(r.shape[0]):
            r[i] += factor * steps[at, i]
