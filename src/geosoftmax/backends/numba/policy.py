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
    near = np.empty(n)
    off = np.empty(n)
    lam = np.empty(n)
    force = np.empty(n)
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
        while _round(b, r, D, parents, outputs, fixed, near, off, lam, force, mass):
            steps += 1
        for j in range(d):
            x[j] = mass[outputs[j]] if fixed[outputs[j]] else 0.0
        tree_product(x, r, D, parents, outputs, lam, force, product)
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
    near = np.empty(n)
    off = np.empty(n)
    lam = np.empty(n)
    force = np.empty(n)
    mass = np.empty(n)
    for row in range(first, last):
        for i in range(n):
            fixed[i] = False
        for j in range(outputs.shape[0]):
            fixed[outputs[j]] = support[row, j]
        _interpolate(rhs[row], r, D, parents, outputs, fixed, near, off, lam, force, mass)
        for j in range(outputs.shape[0]):
            x[row, j] = mass[outputs[j]] if support[row, j] else 0.0


@inner
def _round(b, r, D, parents, outputs, fixed, near, off, lam, force, mass):
    """Solve with h = b at the fixed nodes, and free those of negative mass; False if none is."""
    _interpolate(b, r, D, parents, outputs, fixed, near, off, lam, force, mass)
    dropped = False
    for i in range(parents.shape[0]):
        if fixed[i] and mass[i] <= 0.0:
            fixed[i] = False
            dropped = True
    return dropped


@inner
def _interpolate(b, r, D, parents, outputs, fixed, near, off, lam, force, mass):
    """Interpolate from h = b at the fixed nodes; what drives a fixed node is its mass.

    The free nodes are eliminated from the leaves upwards, then filled in downwards. How no digits
    are lost along edges of length near 0, `TreeCost.solve` says.
    """
    n = parents.shape[0]
    for i in range(n):
        near[i] = 0.0
        off[i] = 0.0
        lam[i] = 0.0
        force[i] = 0.0
        mass[i] = 0.0
    for j in range(outputs.shape[0]):
        if fixed[outputs[j]]:
            near[outputs[j]] = b[j]
    for i in range(n - 1, 0, -1):
        _send(i, parents[i], r[i], D[i], fixed, near, lam, force)
    if fixed[0]:
        mass[0] = near[0] + force[0]
    else:
        off[0] = -(near[0] + force[0]) / (1.0 + lam[0])
    for i in range(1, n):
        p = parents[i]
        above = near[p] + off[p]
        beyond = (near[p] - near[i]) + off[p]
        if fixed[i]:
            if r[i] > 0.5:
                pull = -(r[i] / D[i] * beyond + r[i] / (1.0 + r[i]) * near[i])
            else:
                pull = r[i] * (r[i] * near[i] - above) / D[i]
            mass[i] = near[i] + force[i] + pull
        else:
            if r[i] > 0.5:
                arriving = beyond - D[i] / (1.0 + r[i]) * above
            else:
                arriving = r[i] * above - near[i]
            off[i] = (arriving - D[i] * force[i]) / (1.0 + D[i] * lam[i])


@inner
def _send(i, p, r, D, fixed, near, lam, force):
    """Add to node p what node i, with all below it, pulls: ``force + lam (h - near)``."""
    at = near[i]
    if fixed[i]:
        sent = r * r / D
        pull = -r / (1.0 + r) * at if sent > 1.0 else -r / D * at
    else:
        free = 1.0 + D * lam[i]
        sent = r * r * lam[i] / free
        share = D / (1.0 + r) if sent > 1.0 else 1.0
        pull = r * (force[i] - share * lam[i] * at) / free
    if sent <= 1.0:
        at = 0.0
    if not fixed[p] and sent > max(lam[p], 1.0):
        force[p] += lam[p] * (at - near[p])
        near[p] = at
    force[p] += pull + sent * (near[p] - at)
    lam[p] += sent
