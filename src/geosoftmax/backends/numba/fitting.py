"""Compiled functions for each step of a linear fit: losses, curvature, L-BFGS directions.

`reference.fitting` defines them. For small dense costs, there are also losses and their slopes.
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

#: No target is ignored: a class that does not exist.
NO_CLASS = -1


class Workspace:
    """Room for the solves of one fit; the supports that were found last start the next solves.

    `found` holds the last scores, their distributions, and lower bounds of g-LSE.
    """

    found: tuple[np.ndarray, np.ndarray, np.ndarray]

    def __init__(self, kernels: np.ndarray, target: np.ndarray, weight: np.ndarray) -> None:
        rows, d = len(target), kernels.shape[-1]
        self.K, self._kernel = kernels[0], active_set.kernel(DenseTables(kernels))
        self._method, self._is_warm = self._kernel.method(rows), False
        self._alpha, self._slope = np.empty((rows, d)), np.empty((rows, d))
        self._lower, self._upper, self._loss = np.empty(rows), np.empty(rows), np.empty(rows)
        self._target = np.ascontiguousarray(target, dtype=np.int64)
        self._weight = np.ascontiguousarray(weight, dtype=np.float64)
        alpha, slope, lower, upper, loss, classes, weights = map(_address, (
            self._alpha, self._slope, self._lower, self._upper, self._loss, self._target,
            self._weight,
        ))  # fmt: skip
        self._fields = (
            DOUBLE, 0, rows, alpha, 0, slope, lower, upper, 0, loss, classes, NO_CLASS, 1, weights,
        )  # fmt: skip

    def evaluate(self, scores: np.ndarray) -> tuple[float, np.ndarray]:
        """Return ``Σ w_i ℓ(y_i, f_i)`` and its gradient in the scores, until the next call."""
        scores = np.ascontiguousarray(scores, dtype=np.float64)
        self.found = scores, self._alpha, self._lower
        rows, work = len(scores), self._kernel.work * scores.size
        run(self._method, rows, work, _address(scores), *self._fields)
        if not self._is_warm:  # later calls start from the supports, and update them
            self._method, self._is_warm = self._kernel.method(rows, self._alpha > 0), True
        return float(np.add.reduce(self._loss)), self._slope


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]  # `ctypes.data` takes four times as long


def add_inverses(
    K: np.ndarray, b: np.ndarray, inside: np.ndarray, weight: np.ndarray, total: np.ndarray
) -> None:
    """Add ``½ Σ_i w_i D_b K_SS⁻¹ D_b`` to `total`; nearly singular ``K_SS`` are left out."""
    # Rows with equal supports come one after the other: one inverse serves them all.
    order = np.argsort(inside @ np.sqrt(np.arange(2.0, inside.shape[1] + 2.0)))
    _add_inverses(K, b, inside, weight, order, total)


@jit
def _add_inverses(K, b, inside, weight, order, total):
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
        if factor(K, index, size, A, column):
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
