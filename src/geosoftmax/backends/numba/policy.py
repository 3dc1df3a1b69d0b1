"""Trees: policy iteration over supports, each round one elimination along the tree."""

from __future__ import annotations

import numpy as np

from geosoftmax.backends.numba.calls import Kernel, begin, finish, obstacle, to_distribution
from geosoftmax.backends.numba.certificate import bracket, for_more_terms
from geosoftmax.backends.numba.products import tree_product
from geosoftmax.backends.numba.runtime import inner, jit, spread
from geosoftmax.backends.numba.tables import TreeTables


def kernel(tables: TreeTables) -> Kernel:
    """Return the method with these tables."""
    return Kernel(_rows, tables, len(tables.outputs))


@jit
def _rows(call, r, D, parents, outputs, first, last):
    d = outputs.shape[0]
    n = parents.shape[0]
    counted, bad = begin(call, d)
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
        peak = obstacle(call, row, b)
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
        low, high = for_more_terms(low, high, n - d)
        to_distribution(b, x, energy)
        worst = finish(call, row, b, x, low, high, peak, steps, worst)
    return worst, counted, bad


def solve_on(tables: TreeTables, support: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    """Return ``x`` with ``K_SS x_S = rhs_S`` on the support and 0 elsewhere, for rows (rows, d)."""
    x = np.empty(rhs.shape)
    spread(_solve_on, len(rhs), 4 * rhs.size, support, rhs, x, *tables)
    return x


@jit
def _solve_on(support, rhs, x, r, D, parents, outputs, first, last):
    n = parents.shape[0]
    fixed = np.empty(n, dtype=np.bool_)
    h = np.empty(n)
    lam = np.empty(n)
    eta = np.empty(n)
    mass = np.empty(n)
    for row in range(first, last):
        for i in range(n):
            fixed[i] = False
        for j in range(outputs.shape[0]):
            fixed[outputs[j]] = support[row, j]
        _interpolate(rhs[row], r, D, parents, outputs, fixed, h, lam, eta, mass)
        for j in range(outputs.shape[0]):
            x[row, j] = mass[outputs[j]] if support[row, j] else 0.0


@inner
def _round(b, r, D, parents, outputs, fixed, h, lam, eta, mass):
    """Solve with h = b at the fixed nodes, and free those of negative mass; False if none is."""
    _interpolate(b, r, D, parents, outputs, fixed, h, lam, eta, mass)
    dropped = False
    for i in range(parents.shape[0]):
        if fixed[i] and mass[i] <= 0.0:
            fixed[i] = False
            dropped = True
    return dropped


@inner
def _interpolate(b, r, D, parents, outputs, fixed, h, lam, eta, mass):
    """Interpolate from h = b at the fixed nodes; what drives a fixed node is its mass.

    The free nodes are eliminated from the leaves upwards, which leaves ½ λ h² - η h at each node,
    then filled in downwards.
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
