"""Trees: policy iteration over supports, each round one elimination along the tree."""

from __future__ import annotations

from typing import Any

import numpy as np

from geosoftmax.backends.numba.calls import Kernel, finish, obstacle, to_distribution
from geosoftmax.backends.numba.certificate import bracket, for_more_terms
from geosoftmax.backends.numba.products import tree_product
from geosoftmax.backends.numba.runtime import inner, jit, spread
from geosoftmax.backends.numba.tables import TreeTables

#: Rows of the room for one elimination. `NEAR` and `OFF`: h, as a number near it and what is left.
NEAR, OFF, LAM, FORCE, MASS = range(5)


def kernel(tables: TreeTables) -> Kernel:
    """Return the method with these tables."""
    return Kernel(_rows, _arrays(tables), len(tables.outputs))


def _arrays(tables: TreeTables) -> tuple[Any, ...]:
    """Return the tables with None for "not short": only one way of elimination is compiled."""
    return tables._replace(short=tables.short or None)  # pyright: ignore


@jit
def _rows(call, r, D, parents, outputs, stiffness, slope, short, first, last):
    d = outputs.shape[0]
    n = parents.shape[0]
    b = np.empty(d)
    x = np.empty(d)
    product = np.empty(d)
    fixed = np.empty(n, dtype=np.bool_)
    room = np.empty((5, n))
    tree = (r, D, parents, outputs, stiffness, slope)
    near, lam, force, mass = room[NEAR], room[LAM], room[FORCE], room[MASS]
    unit = product[:0]
    worst = 0.0
    for row in range(first, last):
        peak = obstacle(call, row, b)
        _uncovered(b, r, parents, outputs, fixed, near)
        steps = np.int64(0)
        dropped = True
        while dropped:
            steps += 1
            _interpolate(b, tree, short, fixed, room)
            dropped = _drop(fixed, mass)
        for j in range(d):
            x[j] = mass[outputs[j]] if fixed[outputs[j]] else 0.0
        tree_product(x, r, D, parents, outputs, lam, force, product)
        energy, low, high = bracket(b, x, product, unit, 1.0)
        low, high = for_more_terms(low, high, n - d)
        to_distribution(b, x, energy)
        worst = finish(call, row, b, x, low, high, peak, steps, worst)
    return worst


def solve_on(tables: TreeTables, support: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    """Return ``x`` with ``K_SS x_S = rhs_S`` on the support and 0 elsewhere, for rows (rows, d)."""
    x = np.empty(rhs.shape)
    spread(_solve_on, len(rhs), 4 * rhs.size, support, rhs, x, *_arrays(tables))
    return x


@jit
def _solve_on(support, rhs, x, r, D, parents, outputs, stiffness, slope, short, first, last):
    n = parents.shape[0]
    fixed = np.empty(n, dtype=np.bool_)
    room = np.empty((5, n))
    tree = (r, D, parents, outputs, stiffness, slope)
    for row in range(first, last):
        for i in range(n):
            fixed[i] = False
        for j in range(outputs.shape[0]):
            fixed[outputs[j]] = support[row, j]
        _interpolate(rhs[row], tree, short, fixed, room)
        mass = room[MASS]
        for j in range(outputs.shape[0]):
            x[row, j] = mass[outputs[j]] if support[row, j] else 0.0


@inner
def _uncovered(b, r, parents, outputs, fixed, reach):
    """Fix the outputs that no other one covers alone: where b_i < K_ij b_j, u_i is 0.

    For h_i ≥ K_ij h_j, by the triangle inequality. `reach` is the largest K_ij b_j at each node.
    """
    n = parents.shape[0]
    for i in range(n):
        reach[i] = 0.0
        fixed[i] = False
    for j in range(outputs.shape[0]):
        reach[outputs[j]] = b[j]
    for i in range(n - 1, 0, -1):
        reach[parents[i]] = max(reach[parents[i]], r[i] * reach[i])
    for i in range(1, n):
        reach[i] = max(reach[i], r[i] * reach[parents[i]])
    for j in range(outputs.shape[0]):
        fixed[outputs[j]] = (b[j] > 0.0) & (b[j] >= reach[outputs[j]])


@inner
def _drop(fixed, mass):
    """Free the fixed nodes of negative mass; return whether there are any."""
    dropped = False
    for i in range(fixed.shape[0]):
        stays = fixed[i] & (mass[i] > 0.0)
        dropped |= fixed[i] != stays
        fixed[i] = stays
    return dropped


@inner
def _interpolate(b, tree, short, fixed, room):
    """Interpolate from h = b at the fixed nodes; what drives a fixed node is its mass.

    The free nodes are eliminated from the leaves upwards, then filled in downwards.
    """
    r, D, parents, outputs, stiffness, slope = tree
    h, off, lam, force, mass = room[NEAR], room[OFF], room[LAM], room[FORCE], room[MASS]
    for i in range(parents.shape[0]):
        h[i] = 0.0
        lam[i] = 0.0
        force[i] = 0.0
    for j in range(outputs.shape[0]):
        if fixed[outputs[j]]:
            h[outputs[j]] = b[j]
    if short is None:
        _eliminate(r, D, parents, stiffness, slope, fixed, h, off, lam, force, mass)
    else:
        _eliminate_short(r, D, parents, stiffness, slope, fixed, h, off, lam, force, mass)


@inner
def _eliminate(r, D, parents, stiffness, slope, fixed, h, inverse, lam, pull, mass):
    """Do so where no edge is short: what is below a node pulls with ``lam h - pull``."""
    n = parents.shape[0]
    for i in range(n - 1, 0, -1):
        p = parents[i]
        inverse[i] = 1.0 / (1.0 + D[i] * lam[i])
        sent = r[i] * inverse[i]
        through = r[i] * sent * lam[i]
        passed = sent * pull[i]
        held = slope[i] * h[i]
        lam[p] += stiffness[i] if fixed[i] else through
        pull[p] += held if fixed[i] else passed
    root = pull[0] / (1.0 + lam[0])
    h[0] = h[0] if fixed[0] else root
    mass[0] = h[0] + (lam[0] * h[0] - pull[0])
    for i in range(1, n):
        above = h[parents[i]]
        filled = (r[i] * above + D[i] * pull[i]) * inverse[i]
        value = h[i] if fixed[i] else filled
        h[i] = value
        mass[i] = value + (lam[i] * value - pull[i]) + slope[i] * (r[i] * value - above)


@inner
def _eliminate_short(r, D, parents, stiffness, slope, fixed, near, off, lam, force, mass):
    """Do so where edges may have a length near 0; how no digits are lost, `TreeCost.solve` says."""
    n = parents.shape[0]
    for i in range(n - 1, 0, -1):
        _send(i, parents[i], r[i], D[i], stiffness[i], slope[i], fixed, near, lam, force)
    off[0] = 0.0
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
                drag = -(slope[i] * beyond + r[i] / (1.0 + r[i]) * near[i])
            else:
                drag = slope[i] * (r[i] * near[i] - above)
            mass[i] = near[i] + force[i] + drag
            off[i] = 0.0
        else:
            if r[i] > 0.5:
                arriving = beyond - D[i] / (1.0 + r[i]) * above
            else:
                arriving = r[i] * above - near[i]
            off[i] = (arriving - D[i] * force[i]) / (1.0 + D[i] * lam[i])


@inner
def _send(i, p, r, D, stiffness, slope, fixed, near, lam, force):
    """Add to node p what node i, with all below it, pulls: ``force + lam (h - near)``."""
    at = near[i]
    if fixed[i]:
        sent = stiffness
        pull = -r / (1.0 + r) * at if sent > 1.0 else -slope * at
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
