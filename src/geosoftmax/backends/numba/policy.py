"""Trees: policy iteration over supports, each round one elimination along the tree."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from geosoftmax.backends.numba import calls
from geosoftmax.backends.numba.calls import Rows
from geosoftmax.backends.numba.certificate import bracket
from geosoftmax.backends.numba.products import tree_product
from geosoftmax.backends.numba.runtime import inner, jit
from geosoftmax.backends.numba.tables import TreeTables


def solve(tables: TreeTables, scores: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return ``alpha, u, lower, upper, iterations`` for scores of shape (*batch, d)."""
    return calls.solve(_kernel, tables, len(tables.outputs), scores, 1)


def softmax(tables: TreeTables, scores: Tensor) -> tuple[Tensor, float]:
    """Return ``alpha`` and the widest bracket."""
    return calls.softmax(_kernel, tables, len(tables.outputs), scores)


def loss(
    tables: TreeTables,
    scores: Tensor,
    target: Tensor,
    ignore_index: int,
    reduction: str,
    want_slope: bool = True,
) -> tuple[Tensor, Tensor, float, int]:
    """Return losses of classes, their slopes, the widest bracket, and how many are no class."""
    return calls.loss(_kernel, tables, scores, target, ignore_index, reduction, want_slope)


def solve_rows(tables: TreeTables, b: Tensor, start: Tensor | None = None) -> Rows:
    """Solve rows from ``b``. The method needs no start."""
    return calls.solve_rows(_kernel, tables, b)


@jit
def _kernel(
    scores, kind, given, alpha, u, slope, target, ignore, mean, weight, loss, lower, upper,
    iterations, r, D, parents, outputs, first, last,
):  # fmt: skip
    d = outputs.shape[0]
    n = parents.shape[0]
    results, counted, bad = calls.begin(
        scores, kind, alpha, u, slope, target, ignore, mean, weight, loss, lower, upper,
        iterations, loss.shape[0], d,
    )  # fmt: skip
    b = np.empty(d)
    x = np.empty(d)
    product = np.empty(d)
    fixed = np.empty(n, dtype=np.bool_)
    h = np.empty(n)
    lam = np.empty(n)
    eta = np.empty(n)
    mass = np.empty(n)
    unit = np.empty(0)
    worst = 0.0
    for row in range(first, last):
        peak = calls.obstacle(scores, kind, given, row, b)
        for i in range(n):
            fixed[i] = False
        for j in range(d):
            fixed[outputs[j]] = b[j] > 0.0
        steps = np.int64(1)
        while _round(b, r, D, parents, outputs, fixed, h, lam, eta, mass):
            steps += 1
        for j in range(d):
            x[j] = mass[outputs[j]] if fixed[outputs[j]] else 0.0
        tree_product(x, r, D, parents, outputs, lam, eta, product)
        energy, low, high = bracket(b, x, product, unit, 1.0)
        calls.to_distribution(b, x, energy)
        worst = calls.finish(results, row, b, x, low, high, peak, steps, worst)
    return worst, counted, bad


@inner
def _round(b, r, D, parents, outputs, fixed, h, lam, eta, mass):
    """Solve with h = b at the fixed nodes, and free those of negative mass; False if none is.

    The free nodes are eliminated from the leaves upwards, which leaves ½ λ h² - η h at each node,
    then filled in downwards; what drives a fixed node is its mass.
    """
    n = parents.shape[0]
    for i in range(n):
        lam[i] = 0.0
        eta[i] = 0.0
    for j in range(outputs.shape[0]):
        h[outputs[j]] = b[j]
    for i in range(n - 1, 0, -1):
        p = parents[i]
        if fixed[i]:
            lam[p] += r[i] * r[i] / D[i]
            eta[p] += r[i] * h[i] / D[i]
        else:
            free = 1.0 + D[i] * lam[i]
            lam[p] += r[i] * r[i] * lam[i] / free
            eta[p] += r[i] * eta[i] / free
    if not fixed[0]:
        h[0] = eta[0] / (1.0 + lam[0])
    mass[0] = h[0]
    for i in range(1, n):
        arriving = r[i] * h[parents[i]]
        if not fixed[i]:
            h[i] = (arriving + D[i] * eta[i]) / (1.0 + D[i] * lam[i])
        mass[i] = (h[i] - arriving) / D[i]
    for i in range(n):
        lam[i] = mass[i]  # parents come before their children, and must not see changed ones
    for i in range(1, n):
        mass[parents[i]] -= r[i] * lam[i]
    dropped = False
    for i in range(n):
        if fixed[i] and mass[i] <= 0.0:
            fixed[i] = False
            dropped = True
    return dropped
