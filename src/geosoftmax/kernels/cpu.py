"""Numba twins of `reference` for CPUs: compiled, one row at a time, rows spread over threads.

Kernels release the interpreter lock and are spread over a thread pool of our own, so that calling
them from several threads, or after a fork, is safe, and ``torch.set_num_threads`` is obeyed. Rows
never share state: results do not depend on the batch or on the number of threads.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from geosoftmax.costs import DenseCost, GridCost, LineCost, TreeCost
from geosoftmax.costs.base import Cost
from geosoftmax.kernels.reference import Rows, largest_eigenvalue, rounding_allowance

#: Grids with a side longer than this are left to the matrix products of torch.
LONGEST_SIDE = 96
#: Work, in entries, below which threads do not pay.
WORTH_A_THREAD = 4096


def supports(operation: str, cost: Cost) -> bool:
    """Whether there is a compiled twin of the operation for this cost."""
    if operation == "matvec":
        return isinstance(cost, TreeCost) or (isinstance(cost, LineCost) and cost.p == 1)
    if operation == "prune":
        return not isinstance(cost, DenseCost)
    if operation == "accelerate":
        return (
            isinstance(cost, GridCost) and len(cost.shape) > 1 and max(cost.shape) <= LONGEST_SIDE
        )
    return operation in {"threshold", "active_set"}


def _jit(function: Callable[..., None]) -> Callable[..., None]:
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"}}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no folder can hold the cache: compile in this process only
        return numba.njit(**options)(function)


# ------------------------------------------------------------------ threads


@functools.lru_cache(maxsize=2)
def _pool(_pid: int, threads: int) -> ThreadPoolExecutor:
    """Return the pool of this process; a forked child gets one of its own."""
    return ThreadPoolExecutor(threads, thread_name_prefix="geosoftmax")


def _spread(kernel: Callable[..., None], rows: int, work: int, *arguments: Any) -> None:
    """Run ``kernel(*arguments, first, last)`` over slices of the rows."""
    threads = min(torch.get_num_threads(), rows)
    if threads <= 1 or work < WORTH_A_THREAD:
        kernel(*arguments, 0, rows)
        return
    parts = threads if rows < 64 * threads else 4 * threads
    bounds = [rows * i // parts for i in range(parts + 1)]
    pool = _pool(os.getpid(), threads)
    jobs = [
        pool.submit(kernel, *arguments, first, last)
        for first, last in zip(bounds[:-1], bounds[1:], strict=True)
    ]
    for job in jobs:
        job.result()


def _flat64(signal: Tensor, rows: int) -> np.ndarray:
    return signal.detach().to(torch.float64).contiguous().reshape(rows, -1).numpy()


def _outputs(b: Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rows = b.shape[0]
    u = np.empty((rows, b[0].numel() if rows else 0))
    return u, np.empty(rows), np.empty(rows), np.zeros(rows, dtype=np.int64)


def _as_rows(b: Tensor, u: np.ndarray, *rest: np.ndarray) -> Rows:
    lower, upper, iterations = (torch.from_numpy(x) for x in rest)
    return Rows(torch.from_numpy(u).reshape(b.shape), lower, upper, iterations)


# ------------------------------------------------------------------ the bracket of a row


@_jit
def _bracket(b, u, h, slack):  # type: ignore[no-untyped-def]
    """Rescale u and h in place so that ⟨b,u⟩ = uᵀKu; return lower, upper.

    As `reference.certify`, with vᵀKv bounded by (Σv)² instead of one more product.
    """
    bu = 0.0
    uh = 0.0
    for i in range(b.shape[0]):
        bu += b[i] * u[i]
        uh += u[i] * h[i]
    scale = bu / uh
    energy = bu * scale
    vh = 0.0
    v_sum = 0.0
    ratio = 1.0
    for i in range(b.shape[0]):
        u[i] *= scale
        hi = h[i] * scale
        h[i] = hi
        v = b[i] - hi
        if v > 0.0:
            vh += v * hi
            v_sum += v
            if b[i] > ratio * hi:
                ratio = b[i] / hi
    lower = math.log(energy)
    upper = min(math.log(energy + 2.0 * vh + v_sum * v_sum), lower + 2.0 * math.log(ratio))
    return lower - slack, upper + slack


# ------------------------------------------------------------------ zero-one


def threshold(cost: Cost, b: Tensor) -> Rows:
    k, one_minus_k = (float(x) for x in cost.affinities(torch.float64))  # type: ignore[attr-defined]
    out = _outputs(b)
    slack = rounding_allowance(cost.size, torch.float64)
    rows = b.shape[0]
    _spread(_threshold, rows, b.numel(), _flat64(b, rows), k, one_minus_k, slack, *out)
    return _as_rows(b, *out)


@_jit
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
            if count == kept:
                break
            kept = count
            tau = k * total / (one_minus_k + k * count)
        total = 0.0
        for i in range(d):
            u[row, i] = max(b[row, i] - tau, 0.0) / one_minus_k
            total += u[row, i]
        for i in range(d):
            h[i] = one_minus_k * u[row, i] + k * total
        lower[row], upper[row] = _bracket(b[row], u[row], h, slack)


# ------------------------------------------------------------------ line, tree


def prune(cost: Cost, b: Tensor) -> Rows:
    if isinstance(cost, TreeCost):
        return _prune_tree(cost, b)
    line = cost.axes[0] if isinstance(cost, GridCost) else cost
    if not isinstance(line, LineCost):
        return threshold(cost, b)
    out = _outputs(b)
    slack = rounding_allowance(cost.size, torch.float64)
    rows = b.shape[0]
    E, D = _line_decays(line)
    _spread(_hull, rows, b.numel(), _flat64(b, rows), E, D, slack, *out)
    return _as_rows(b, *out)


def _line_decays(line: LineCost) -> tuple[np.ndarray, np.ndarray]:
    """``E = exp(-gap)`` and ``D = 1 - E²`` from each class to the one before; 0 and 1 at the first."""
    x = line._half_distances(torch.float64).detach()
    gaps = torch.cat([torch.full((1,), math.inf, dtype=torch.float64), x.diff()])
    return torch.exp(-gaps).numpy(), (-torch.expm1(-2 * gaps)).numpy()


@_jit
def _hull(b, E, D, slack, u, lower, upper, iterations, first, last):
    """The smallest concave, non-decreasing majorant, in coordinates that cannot overflow.

    Between neighbours a < m < z of the envelope, with decays E and D = 1 - E² over each gap, m lies
    on or below the chord when b_m (D_am + E_am² D_mz) ≤ b_a E_am D_mz + b_z E_mz D_am. The two ends
    are neighbours with b = 0, E = 0, D = 1. What m stands above its chord is u_m D_am D_mz.
    """
    d = b.shape[1]
    index = np.empty(d, dtype=np.int64)
    value = np.empty(d + 1)  # of the vertex; value[0] is the end on the left
    decay = np.empty(d + 1)
    rest = np.empty(d + 1)
    h = np.empty(d)
    value[0] = 0.0
    for row in range(first, last):
        top = 0
        for z in range(d):
            bz = b[row, z]
            e = E[z]
            r = D[z]
            while top > 0:
                e1 = decay[top]
                r1 = rest[top]
                joined = r1 + e1 * e1 * r
                if value[top] * joined > value[top - 1] * e1 * r + bz * e * r1:
                    break
                e = e1 * e
                r = joined
                top -= 1
            top += 1
            index[top - 1] = z
            value[top] = bz
            decay[top] = e
            rest[top] = r
        while top > 1 and value[top] <= value[top - 1] * decay[top]:
            top -= 1
        for i in range(d):
            u[row, i] = 0.0
        for m in range(1, top + 1):
            e1 = decay[m]
            r1 = rest[m]
            e2 = 0.0
            r2 = 1.0
            bz = 0.0
            if m < top:
                e2 = decay[m + 1]
                r2 = rest[m + 1]
                bz = value[m + 1]
            above = value[m] * (r1 + e1 * e1 * r2) - value[m - 1] * e1 * r2 - bz * e2 * r1
            u[row, index[m - 1]] = max(above / r1 / r2, 0.0)
        _line_product(u[row], E, h)
        iterations[row] = 1
        lower[row], upper[row] = _bracket(b[row], u[row], h, slack)


@_jit
def _line_product(u, E, h):
    carried = 0.0
    for i in range(u.shape[0]):
        carried = E[i] * carried + u[i]
        h[i] = carried
    carried = 0.0
    for i in range(u.shape[0] - 2, -1, -1):
        carried = E[i + 1] * (carried + u[i + 1])
        h[i] += carried


def matvec(cost: Cost, u: Tensor) -> Tensor:
    """``K u`` on lines and trees, in float64."""
    rows = u.numel() // cost.size
    h = np.empty((rows, cost.size))
    if isinstance(cost, TreeCost):
        _spread(_tree_products, rows, u.numel(), _flat64(u, rows), *_tree_arrays(cost), h)
    else:
        assert isinstance(cost, LineCost)
        _spread(_line_products, rows, u.numel(), _flat64(u, rows), _line_decays(cost)[0], h)
    return torch.from_numpy(h).reshape(u.shape).to(u.dtype)


@_jit
def _line_products(u, E, h, first, last):
    for row in range(first, last):
        _line_product(u[row], E, h[row])


def _tree_arrays(cost: TreeCost) -> tuple[np.ndarray, ...]:
    r, D = (x.detach().numpy() for x in cost.edges(torch.float64))
    return r, D, cost.parents.numpy(), cost.outputs.numpy()


def _prune_tree(cost: TreeCost, b: Tensor) -> Rows:
    out = _outputs(b)
    slack = rounding_allowance(cost.size, torch.float64)
    rows = b.shape[0]
    _spread(_policy, rows, b.numel(), _flat64(b, rows), *_tree_arrays(cost), slack, *out)
    return _as_rows(b, *out)


@_jit
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
        lower[row], upper[row] = _bracket(b[row], u[row], product, slack)


@_jit
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


@_jit
def _tree_products(u, r, D, parents, outputs, h, first, last):
    below = np.empty(parents.shape[0])
    total = np.empty(parents.shape[0])
    for row in range(first, last):
        _tree_product(u[row], r, D, parents, outputs, below, total, h[row])


# ------------------------------------------------------------------ small dense


def active_set(cost: Cost, b: Tensor, start: Tensor | None) -> Rows:
    """Exact solves with the dense kernel of the cost, one or one per row."""
    K = torch.exp(-cost.matrix().detach().to(torch.float64) / 2)
    out = _outputs(b)
    slack = rounding_allowance(cost.size, torch.float64)
    kernels = K.reshape(-1, *K.shape[-2:]).contiguous().numpy()
    rows = b.shape[0]
    warm = start is not None
    guess = _flat64(start, rows) if start is not None else np.empty((0, 0))
    work = 32 * b.numel()
    _spread(_active_sets, rows, work, kernels, _flat64(b, rows), warm, guess, slack, *out)
    return _as_rows(b, *out)


@_jit
def _active_sets(
    kernels, b, warm, guess, slack, u, lower, upper, iterations, first, last
):  # type: ignore[no-untyped-def]
    d = b.shape[1]
    index = np.empty(d, dtype=np.int64)
    inside = np.empty(d, dtype=np.bool_)
    L = np.empty((d, d))
    x = np.empty(d)
    h = np.empty(d)
    shared = kernels.shape[0] == 1
    for row in range(first, last):
        K = kernels[0] if shared else kernels[row]
        brow = b[row]
        for i in range(d):
            if warm:
                inside[i] = guess[row, i] > 0.0 and brow[i] > 0.0
            else:  # a point that another one covers alone is seldom in the support
                inside[i] = brow[i] > 0.0
                for j in range(d):
                    if j != i and brow[i] <= K[i, j] * brow[j]:
                        inside[i] = False
                        break
        steps, found = _pivot_blocks(K, brow, inside, index, L, x, h)
        iterations[row] = steps
        if not found:
            iterations[row] += _pivot_singly(K, brow, inside, index, L, x, h)
        for i in range(d):
            u[row, i] = x[i] if x[i] > 0.0 else 0.0
        for i in range(d):
            total = 0.0
            for j in range(d):
                total += K[i, j] * u[row, j]
            h[i] = total
        lower[row], upper[row] = _bracket(brow, u[row], h, slack)


@_jit
def _solve_on(K, b, index, size, L, x):
    """Cholesky solve on the listed outputs: x = K_SS⁻¹ b_S there. False where K_SS is singular."""
    for p in range(size):
        i = index[p]
        for q in range(p):
            j = index[q]
            total = K[i, j]
            for k in range(q):
                total -= L[p, k] * L[q, k]
            L[p, q] = total * L[q, q]
        total = K[i, i]
        for k in range(p):
            total -= L[p, k] * L[p, k]
        if total <= 1e-14:
            return False
        L[p, p] = 1.0 / math.sqrt(total)  # the diagonal holds reciprocals
        total = b[i]
        for k in range(p):
            total -= L[p, k] * x[index[k]]
        x[i] = total * L[p, p]
    for p in range(size - 1, -1, -1):
        total = x[index[p]]
        for k in range(p + 1, size):
            total -= L[k, p] * x[index[k]]
        x[index[p]] = total * L[p, p]
    return True


@_jit
def _pivot_blocks(K, b, inside, index, L, x, h):
    """Block principal pivoting. Returns the number of solves, and whether it ended at an optimum."""
    d = b.shape[0]
    fewest = d + 1
    patience = 3
    for step in range(1, 4 * d + 20):
        size = 0
        for i in range(d):
            x[i] = 0.0
            if inside[i]:
                index[size] = i
                size += 1
        if not _solve_on(K, b, index, size, L, x):
            return step, False
        wrong = 0
        last_wrong = -1
        for i in range(d):
            if inside[i]:
                h[i] = -1.0 if x[i] < 0.0 else 1.0
            else:
                total = 0.0
                for p in range(size):
                    total += K[i, index[p]] * x[index[p]]
                h[i] = total * (1.0 + 1e-14) - b[i]
            if h[i] < 0.0:
                wrong += 1
                last_wrong = i
        if wrong == 0:
            return step, True
        if wrong < fewest:
            fewest = wrong
            patience = 3
        else:
            patience -= 1
        if patience >= 0:
            for i in range(d):
                if h[i] < 0.0:
                    inside[i] = not inside[i]
        else:
            inside[last_wrong] = not inside[last_wrong]
    return 4 * d + 20, False


@_jit
def _pivot_singly(K, b, inside, index, L, x, h):
    """Lawson–Hanson: adds one output at a time, so that K_SS stays regular. x ≥ 0 throughout."""
    d = b.shape[0]
    blocked = np.zeros(d, dtype=np.bool_)
    trial = np.empty(d)
    for i in range(d):
        inside[i] = False
        x[i] = 0.0
    size = 0
    steps = 0
    while steps < 10 * d + 20:
        best = -1
        most = 0.0
        for i in range(d):
            if inside[i] or blocked[i]:
                continue
            total = 0.0
            for p in range(size):
                total += K[i, index[p]] * x[index[p]]
            violation = b[i] - total * (1.0 + 1e-14)
            if violation > most:
                most = violation
                best = i
        if best < 0:
            break
        index[size] = best
        inside[best] = True
        size += 1
        added = True
        while True:
            steps += 1
            if not _solve_on(K, b, index, size, L, trial):
                # The newest output is a combination of the others: leave it out.
                size -= 1
                newest = index[size]
                inside[newest] = False
                blocked[newest] = True
                x[newest] = 0.0
                added = False
                break
            step = 1.0
            for p in range(size):
                i = index[p]
                if trial[i] <= 0.0 and x[i] - trial[i] > 0.0:
                    step = min(step, x[i] / (x[i] - trial[i]))
            for p in range(size):
                i = index[p]
                x[i] += step * (trial[i] - x[i])
            if step == 1.0:
                break
            kept = 0
            for p in range(size):
                i = index[p]
                if x[i] > 1e-300 and not (trial[i] <= 0.0 and x[i] <= 1e-15):
                    index[kept] = i
                    kept += 1
                else:
                    x[i] = 0.0
                    inside[i] = False
            if kept == size:  # rounding kept the blocking output: drop the smallest
                smallest = 0
                for p in range(1, size):
                    if x[index[p]] < x[index[smallest]]:
                        smallest = p
                x[index[smallest]] = 0.0
                inside[index[smallest]] = False
                for p in range(smallest, size - 1):
                    index[p] = index[p + 1]
                kept = size - 1
            size = kept
        if added:
            for i in range(d):
                blocked[i] = False
    return steps


# ------------------------------------------------------------------ grids


def accelerate(cost: Cost, b: Tensor, start: Tensor, tol: float, max_iter: int) -> Rows:
    """Accelerated projected gradient on a grid, in the dtype of ``b``; certified in float64."""
    from geosoftmax.kernels import reference

    assert isinstance(cost, GridCost)
    rows = b.shape[0]
    dtype = b.dtype
    sides = (1,) * (3 - len(cost.shape)) + cost.shape
    kernels = [line._kernel().detach().to(dtype) for line in cost.axes]
    kernels = [torch.ones((1, 1), dtype=dtype)] * (3 - len(kernels)) + kernels
    smallest = torch.finfo(dtype).eps * 1e-2
    bands = tuple(_bandwidth(k, smallest) for k in kernels)
    step = float(1 / largest_eigenvalue(cost, torch.float64))
    u = start.to(dtype).contiguous().clone().reshape(rows, *sides).numpy()
    flat_b = b.contiguous().reshape(rows, *sides).numpy()
    iterations = np.zeros(rows, dtype=np.int64)
    K0, K1, K2 = (k.contiguous().numpy() for k in kernels)
    tol_here = 0.9 * tol
    _spread(
        _accelerated, rows, 100 * b.numel(), flat_b, K0, K1, K2, bands, step, tol_here, max_iter,
        u, iterations,
    )  # fmt: skip
    u, lower, upper = reference.certify(cost, b, torch.from_numpy(u).reshape(b.shape))
    return Rows(u, lower, upper, torch.from_numpy(iterations))


def _bandwidth(kernel: Tensor, smallest: float) -> int:
    """Distance from the diagonal beyond which a kernel is negligible in its own precision."""
    matters = (kernel > smallest).nonzero()
    return int((matters[:, 0] - matters[:, 1]).abs().max())


@_jit
def _grid_product(K0, K1, K2, bands, y, middle, out):
    """out = (K0 ⊗ K1 ⊗ K2) y, axis by axis; the axpys are contiguous so that they vectorise."""
    n0, n1, n2 = y.shape
    w0, w1, w2 = bands
    for a in range(n0):
        for i in range(n1):
            for k in range(n2):
                middle[a, i, k] = 0
            for k in range(n2):
                weight = y[a, i, k]
                if weight != 0:
                    for j in range(max(0, k - w2), min(n2, k + w2 + 1)):
                        middle[a, i, j] += weight * K2[k, j]
    for a in range(n0):
        for i in range(n1):
            for j in range(n2):
                out[a, i, j] = 0
            for k in range(max(0, i - w1), min(n1, i + w1 + 1)):
                weight = K1[i, k]
                for j in range(n2):
                    out[a, i, j] += weight * middle[a, k, j]
    if n0 > 1:
        for a in range(n0):
            for i in range(n1):
                for j in range(n2):
                    middle[a, i, j] = 0
            for k in range(max(0, a - w0), min(n0, a + w0 + 1)):
                weight = K0[a, k]
                for i in range(n1):
                    for j in range(n2):
                        middle[a, i, j] += weight * out[k, i, j]
        for a in range(n0):
            for i in range(n1):
                for j in range(n2):
                    out[a, i, j] = middle[a, i, j]


@_jit
def _accelerated(b, K0, K1, K2, bands, step_size, tol, max_iter, u, iterations, first, last):
    n0, n1, n2 = b.shape[1:]
    y = np.empty_like(b[0])
    middle = np.empty_like(b[0])
    h = np.empty_like(b[0])
    for row in range(first, last):
        step = b.dtype.type(step_size)
        brow = b[row]
        urow = u[row]
        for a in range(n0):
            for i in range(n1):
                for j in range(n2):
                    y[a, i, j] = urow[a, i, j]
        momentum = 1.0
        iteration = 0
        while iteration < max_iter:
            iteration += 1
            _grid_product(K0, K1, K2, bands, y, middle, h)
            uphill = 0.0
            for a in range(n0):
                for i in range(n1):
                    for j in range(n2):
                        ahead = y[a, i, j] - step * (h[a, i, j] - brow[a, i, j])
                        ahead = max(ahead, ahead * 0)
                        moved = ahead - urow[a, i, j]
                        uphill += (y[a, i, j] - ahead) * moved
                        urow[a, i, j] = ahead
                        h[a, i, j] = moved
            grown = (1.0 + math.sqrt(1.0 + 4.0 * momentum * momentum)) / 2.0
            weight = b.dtype.type(0.0 if uphill > 0 else (momentum - 1.0) / grown)
            momentum = 1.0 if uphill > 0 else grown
            for a in range(n0):
                for i in range(n1):
                    for j in range(n2):
                        y[a, i, j] = urow[a, i, j] + weight * h[a, i, j]
            if iteration % 10 == 0:
                _grid_product(K0, K1, K2, bands, urow, middle, h)
                if _gap_bound(brow, urow, h) <= tol:
                    break
        iterations[row] = iteration


@_jit
def _gap_bound(b, u, h):
    """An upper bound of the gap of u, given h = Ku, for scaled u."""
    n0, n1, n2 = b.shape
    bu = 0.0
    uh = 0.0
    for a in range(n0):
        for i in range(n1):
            for j in range(n2):
                bu += b[a, i, j] * u[a, i, j]
                uh += u[a, i, j] * h[a, i, j]
    if uh <= 0.0:
        return np.inf
    scale = bu / uh
    vh = 0.0
    v_sum = 0.0
    for a in range(n0):
        for i in range(n1):
            for j in range(n2):
                hi = h[a, i, j] * scale
                v = b[a, i, j] - hi
                if v > 0.0:
                    vh += v * hi
                    v_sum += v
    return math.log1p((2.0 * vh + v_sum * v_sum) / (bu * scale))
