"""Costs that are solved by scans: zero-one, line with p = 1, tree."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from geosoftmax.backends.numba.runtime import (
    as_rows,
    bracket,
    bracket_from,
    flat64,
    jit,
    new_outputs,
    spread,
)
from geosoftmax.backends.reference import Rows, rounding_allowance
from geosoftmax.costs import GridCost, LineCost, TreeCost, ZeroOneCost
from geosoftmax.costs.base import Cost

# ------------------------------------------------------------------ zero-one


def threshold(cost: Cost, b: Tensor) -> Rows:
    """Zero-one cost: drop what lies below the threshold of the rest, until nothing does."""
    assert isinstance(cost, ZeroOneCost)
    k, one_minus_k = (float(x) for x in cost.affinities(torch.float64))
    out = new_outputs(b)
    slack = rounding_allowance(cost.size, torch.float64)
    rows = b.shape[0]
    spread(_threshold, rows, b.numel(), flat64(b, rows), k, one_minus_k, slack, *out)
    return as_rows(b, *out)


@jit
def _threshold(b, k, one_minus_k, slack, u, lower, upper, iterations, first, last):
    d = b.shape[1]
    h = np.empty(d)
    for row in range(first, last):
        tau = -1.0
        kept = d + 1
        while True:  # each round drops what lies below the threshold of the rest
            total = 0.0
            count = 0
            for i in range(d):
                if b[row, i] > tau:
                    total += b[row, i]
                    count += 1
            iterations[row] += 1
            if count >= kept:  # rounding may let a class at the threshold back in
                break
            kept = count
            tau = k * total / (one_minus_k + k * count)
        total = 0.0
        for i in range(d):
            u[row, i] = max(b[row, i] - tau, 0.0) / one_minus_k
            total += u[row, i]
        for i in range(d):
            h[i] = one_minus_k * u[row, i] + k * total
        lower[row], upper[row] = bracket(b[row], u[row], h, slack)


# ------------------------------------------------------------------ line, tree


def prune(cost: Cost, b: Tensor) -> Rows:
    """Line with p = 1: one scan. Tree: policy iteration."""
    if isinstance(cost, TreeCost):
        return _prune_tree(cost, b)
    line = cost.axes[0] if isinstance(cost, GridCost) else cost
    if not isinstance(line, LineCost):
        return threshold(cost, b)
    out = new_outputs(b)
    slack = rounding_allowance(cost.size, torch.float64)
    rows = b.shape[0]
    E, D = _line_decays(line)
    spread(_hull, rows, b.numel(), flat64(b, rows), E, D, slack, *out)
    return as_rows(b, *out)


def _line_decays(line: LineCost) -> tuple[np.ndarray, np.ndarray]:
    """``E = exp(-gap)``, ``D = 1 - E²`` from each class to the one before (the first is unused)."""
    d = line.shape[0]
    x = line.positions.detach().to(torch.float64)
    steps = x[:2].diff() if line.even else x.diff(prepend=x[:1])
    gaps = line.scale.detach().to(torch.float64) / 2 * steps
    E, D = torch.exp(-gaps), -torch.expm1(-2 * gaps)
    if line.even:
        E, D = (t.expand(d) if d > 1 else t.new_zeros(1) for t in (E, D))
    return E.numpy(), D.numpy()


@jit
def _hull(b, E, D, slack, u, lower, upper, iterations, first, last):
    """The smallest concave, non-decreasing majorant, in coordinates that cannot overflow.

    Between neighbours a < m < z of the envelope, with decays E and D = 1 - E² over each gap, m lies
    on or below the chord when b_m (D_am + E_am² D_mz) ≤ b_a E_am D_mz + b_z E_mz D_am. The two ends
    are neighbours with b = 0, E = 0, D = 1. What m stands above its chord is u_m D_am D_mz.
    """
    d = b.shape[1]
    index = np.empty(d + 1, dtype=np.int32)  # of the vertices, from 1 on
    decay = np.empty(d + 1)  # E and D from the vertex before
    rest = np.empty(d + 1)
    for row in range(first, last):
        brow = b[row]
        urow = u[row]
        top = 1
        index[1] = 0
        decay[1] = 0.0
        rest[1] = 1.0
        below = 0.0  # b of the vertex below the top
        b_top = brow[0]
        for z in range(1, d):
            bz = brow[z]
            e = E[z]
            r = D[z]
            e1 = decay[top]
            r1 = rest[top]
            joined = r1 + e1 * e1 * r
            while b_top * joined <= below * e1 * r + bz * e * r1:
                e = e1 * e
                r = joined
                top -= 1
                if top == 0:
                    b_top = 0.0
                    break
                b_top = below
                below = brow[index[top - 1]] if top > 1 else 0.0
                e1 = decay[top]
                r1 = rest[top]
                joined = r1 + e1 * e1 * r
            top += 1
            index[top] = z
            decay[top] = e
            rest[top] = r
            below = b_top
            b_top = bz
        while top > 1 and brow[index[top]] <= brow[index[top - 1]] * decay[top]:
            top -= 1
        for i in range(d):
            urow[i] = 0.0
        e2 = 0.0
        r2 = 1.0
        bz = 0.0
        for m in range(top, 0, -1):
            e1 = decay[m]
            r1 = rest[m]
            bm = brow[index[m]]
            ba = brow[index[m - 1]] if m > 1 else 0.0
            above = bm * (r1 + e1 * e1 * r2) - ba * e1 * r2 - bz * e2 * r1
            urow[index[m]] = max(above / r1 / r2, 0.0)
            e2 = e1
            r2 = r1
            bz = bm
        h = decay[:d]  # the stack is done with
        _from_the_left(urow, E, h)
        bu = brow[d - 1] * urow[d - 1]
        uh = urow[d - 1] * h[d - 1]
        carried = 0.0
        for i in range(d - 2, -1, -1):  # as _from_the_right, with the sums of the bracket
            carried = E[i + 1] * (carried + urow[i + 1])
            h[i] += carried
            bu += brow[i] * urow[i]
            uh += urow[i] * h[i]
        iterations[row] = 1
        lower[row], upper[row] = bracket_from(brow, urow, h, bu, uh, slack)


@jit
def _from_the_left(u, E, h):
    carried = u[0]
    h[0] = carried
    for i in range(1, u.shape[0]):
        carried = E[i] * carried + u[i]
        h[i] = carried


@jit
def _from_the_right(u, E, h):
    carried = 0.0
    for i in range(u.shape[0] - 2, -1, -1):
        carried = E[i + 1] * (carried + u[i + 1])
        h[i] += carried


def matvec(cost: Cost, u: Tensor) -> Tensor:
    """``K u`` on lines and trees, in float64."""
    rows = u.numel() // cost.size
    h = np.empty((rows, cost.size))
    if isinstance(cost, TreeCost):
        spread(_tree_products, rows, u.numel(), flat64(u, rows), *_tree_arrays(cost), h)
    else:
        assert isinstance(cost, LineCost)
        spread(_line_products, rows, u.numel(), flat64(u, rows), _line_decays(cost)[0], h)
    return torch.from_numpy(h).reshape(u.shape).to(u.dtype)


@jit
def _line_products(u, E, h, first, last):
    for row in range(first, last):
        _from_the_left(u[row], E, h[row])
        _from_the_right(u[row], E, h[row])


def _tree_arrays(cost: TreeCost) -> tuple[np.ndarray, ...]:
    r, D = (x.detach().numpy() for x in cost.edges(torch.float64))
    return r, D, cost.parents.numpy(), cost.outputs.numpy()


def _prune_tree(cost: TreeCost, b: Tensor) -> Rows:
    out = new_outputs(b)
    slack = rounding_allowance(cost.size, torch.float64)
    rows = b.shape[0]
    spread(_policy, rows, b.numel(), flat64(b, rows), *_tree_arrays(cost), slack, *out)
    return as_rows(b, *out)


@jit
def _policy(b, r, D, parents, outputs, slack, u, lower, upper, iterations, first, last):
    """Drop negative nodes until none is; each round is one elimination along the tree.

    As `TreeCost.solve`: the free nodes are eliminated from the leaves upwards, which leaves
    ½ λ h² - η h at each node, then filled in downwards; what drives a fixed node is its weight.
    """
    n = parents.shape[0]
    d = outputs.shape[0]
    h = np.empty(n)
    fixed = np.empty(n, dtype=np.bool_)
    lam = np.empty(n)
    eta = np.empty(n)
    weight = np.empty(n)
    product = np.empty(d)
    for row in range(first, last):
        for i in range(n):
            fixed[i] = False
        for j in range(d):
            fixed[outputs[j]] = b[row, j] > 0.0
        dropped = True
        while dropped:
            iterations[row] += 1
            for i in range(n):
                lam[i] = 0.0
                eta[i] = 0.0
            for j in range(d):
                h[outputs[j]] = b[row, j]
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
            weight[0] = h[0]
            for i in range(1, n):
                arriving = r[i] * h[parents[i]]
                if not fixed[i]:
                    h[i] = (arriving + D[i] * eta[i]) / (1.0 + D[i] * lam[i])
                weight[i] = (h[i] - arriving) / D[i]
            for i in range(n - 1, 0, -1):
                pull = weight[i]  # children have a larger index, so this one is not yet changed
                lam[i] = pull
            lam[0] = weight[0]
            for i in range(1, n):
                weight[parents[i]] -= r[i] * lam[i]
            dropped = False
            for i in range(n):
                if fixed[i] and weight[i] <= 0.0:
                    fixed[i] = False
                    dropped = True
        for j in range(d):
            i = outputs[j]
            u[row, j] = weight[i] if fixed[i] else 0.0
        _tree_product(u[row], r, D, parents, outputs, lam, eta, product)
        lower[row], upper[row] = bracket(b[row], u[row], product, slack)


@jit
def _tree_product(u, r, D, parents, outputs, below, total, h):
    n = parents.shape[0]
    for i in range(n):
        below[i] = 0.0
    for j in range(outputs.shape[0]):
        below[outputs[j]] = u[j]
    for i in range(n - 1, 0, -1):
        below[parents[i]] += r[i] * below[i]
    total[0] = below[0]
    for i in range(1, n):
        total[i] = D[i] * below[i] + r[i] * total[parents[i]]
    for j in range(outputs.shape[0]):
        h[j] = total[outputs[j]]


@jit
def _tree_products(u, r, D, parents, outputs, h, first, last):
    below = np.empty(parents.shape[0])
    total = np.empty(parents.shape[0])
    for row in range(first, last):
        _tree_product(u[row], r, D, parents, outputs, below, total, h[row])
