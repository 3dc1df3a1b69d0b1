"""Small dense costs: principal pivoting, on many rows at once and then on those that are left."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from geosoftmax.backends.numba.lanes import (
    CAPACITY,
    LANES,
    LARGEST,
    eliminate,
    prepare,
    products,
    uncovered,
)
from geosoftmax.backends.numba.pivoting import pivot_blocks, pivot_singly, times
from geosoftmax.backends.numba.runtime import (
    as_rows,
    bounds_of,
    bracket,
    flat64,
    jit,
    new_outputs,
    spread,
)
from geosoftmax.backends.reference import Rows, dense_kernel, rounding_allowance
from geosoftmax.costs.base import Cost

#: Rounds that rows make together; most need one or two.
ROUNDS = 4
#: Adding the maximum back to a bound, and widening it, rounds twice.
ADDED_BACK = 2 * np.finfo(np.float64).eps
#: h that lies this near below b covers it: rounding.
COVERS = 1.0 + 1e-14
#: A bracket wider than this shows that rounding has misled the pivoting: K_SS is nearly singular.
LOOSE = 1e-9
#: What is summed up of each lane.
WORST, SCALE, ENERGY, GAP_BY_H, GAP = range(5)


def active_set(cost: Cost, b: Tensor, start: Tensor | None) -> Rows:
    """Exact solves with the dense kernel of the cost, one or one per row."""
    rows = b.shape[0]
    flat = flat64(b, rows)
    u, lower, upper, iterations = new_outputs(b)
    warm = start is not None
    inside = np.empty(flat.shape, dtype=np.bool_)
    if start is not None:
        np.greater(np.minimum(flat, flat64(start, rows)), 0, out=inside)
    peak = np.zeros(rows)
    slack = rounding_allowance(cost.size, torch.float64)
    found = (np.empty_like(flat), u, lower, upper, iterations)
    spread(pivot, rows, 32 * b.numel(), kernels(cost), flat, peak, warm, inside, slack, *found)
    return as_rows(b, u, lower, upper, iterations)


def active_set_whole(cost: Cost, scores: Tensor, tol: float, max_iter: int) -> tuple[Tensor, ...]:
    """From scores to the distribution, ``u``, its bracket and the rounds; exactly, always."""
    signals, batch = tuple(scores.shape), tuple(scores.shape[: scores.dim() - len(cost.shape)])
    f = scores.contiguous().numpy().reshape(-1, cost.size)
    b, inside, peak = np.empty(f.shape), np.empty(f.shape, dtype=np.bool_), np.empty(len(f))
    alpha, u = np.empty(signals, dtype=f.dtype), np.empty(signals, dtype=f.dtype)
    lower, upper, iterations = np.empty(batch), np.empty(batch), np.empty(batch, dtype=np.int64)
    found = alpha.reshape(f.shape), u.reshape(f.shape)
    found += lower.reshape(-1), upper.reshape(-1), iterations.reshape(-1)
    slack = rounding_allowance(cost.size, torch.float64)
    work = f.size * (32 + f.shape[1]) // 128
    spread(_solve, len(f), work, f, kernels(cost), b, peak, inside, slack, *found)
    return tuple(map(torch.from_numpy, (alpha, u, lower, upper, iterations)))


def kernels(cost: Cost) -> np.ndarray:
    """Return the dense kernel of the cost, one or one per row, in float64."""

    def build() -> np.ndarray:
        K = dense_kernel(cost)
        return K.reshape(-1, *K.shape[-2:]).contiguous().numpy()

    return cost._once("kernels64", build)


@jit
def _solve(f, kernels, b, peak, inside, slack, alpha, u, lower, upper, iterations, first, last):
    shared = kernels.shape[0] == 1
    prepare(f, kernels[0], shared, b, peak, inside, first, last)
    pivot(kernels, b, peak, shared, inside, slack, alpha, u, lower, upper, iterations, first, last)


@jit
def pivot(
    kernels, b, peak, guessed, inside, slack, alpha, u, lower, upper, iterations, first, last
):
    """Solve rows; `inside` holds the supports to begin with, if guessed, and those found after."""
    d = b.shape[1]
    todo = np.empty(last - first, dtype=np.int64)
    left = 0
    for row in range(first, last):
        if peak[row] == peak[row]:
            todo[left] = row
            left += 1
        else:
            lower[row] = np.nan
            upper[row] = np.nan
        iterations[row] = 0
    shared = kernels.shape[0] == 1
    K = kernels[0]
    if not guessed and shared:
        _guess(K, b, inside, todo, left)
    if shared:
        left = _pivot_together(
            K, b, peak, inside, slack, alpha, u, lower, upper, iterations, todo, left
        )
    index = np.empty(d, dtype=np.int64)
    L = np.empty((d, d))
    x = np.empty(d)
    h = np.empty(d)
    for n in range(left):
        row = todo[n]
        if not shared:
            K = kernels[row]
            if not guessed:
                _guess(K, b, inside, todo[n : n + 1], 1)
        steps, found = pivot_blocks(K, b[row], inside[row], index, L, x, h)
        iterations[row] += steps
        low, high = _certified(K, b[row], x, h, index, slack) if found else (0.0, np.inf)
        if high - low > LOOSE:
            iterations[row] += pivot_singly(K, b[row], inside[row], index, L, x, h)
            low, high = _certified(K, b[row], x, h, index, slack)
        energy = 0.0
        for i in range(d):
            energy += b[row, i] * x[i]
        for i in range(d):
            u[row, i] = x[i]
            alpha[row, i] = x[i] * b[row, i] / energy
        lower[row], upper[row] = _add_back(low, high, peak[row])


@jit
def _certified(K, b, x, h, index, slack):
    """Clip and rescale x; return its bracket."""
    size = 0
    for i in range(x.shape[0]):
        x[i] = max(x[i], 0.0)
        if x[i] > 0.0:
            index[size] = i
            size += 1
    times(K, x, index, size, h)
    return bracket(b, x, h, slack)


@jit
def _guess(K, b, inside, todo, left):
    d = b.shape[1]
    columns = np.empty((d, LANES))
    guess = np.empty((d, LANES))
    for start in range(0, left, LANES):
        rows = min(LANES, left - start)
        lanes = _whole_vectors(rows)
        for r in range(lanes):
            row = todo[start + min(r, rows - 1)]
            for i in range(d):
                columns[i, r] = b[row, i]
        uncovered(K, columns, lanes, guess)
        for r in range(rows):
            row = todo[start + r]
            for i in range(d):
                inside[row, i] = guess[i, r] > 0.0


@jit
def _pivot_together(K, b, peak, inside, slack, alpha, u, lower, upper, iterations, todo, left):
    """Rounds of block pivoting. Rows that it does not solve stay listed in `todo`."""
    d = b.shape[1]
    B = np.empty((d, LANES))
    X = np.empty((d, LANES))
    H = np.empty((d, LANES))
    largest = min(d, LARGEST)
    index = np.empty((largest + 1, LANES), dtype=np.uint32)
    x = np.empty((largest + 1, LANES))
    room = np.empty(min(CAPACITY, LANES * largest * largest))
    singular = np.empty(LANES)
    sums = np.empty((5, LANES))
    order = np.empty(left, dtype=np.int64)
    sizes = np.empty(left, dtype=np.int64)
    bounds = np.empty(largest + 3, dtype=np.int64)
    for step in range(1, ROUNDS + 1):
        _sort_by_size(inside, todo, left, sizes, order, bounds)
        kept = 0
        for n in range(bounds[largest + 1], bounds[largest + 2]):  # too large
            todo[kept] = order[n]
            kept += 1
        for size in range(largest + 1):
            width = min(LANES, CAPACITY // max(1, size * size) // 8 * 8)
            for start in range(bounds[size], bounds[size + 1], width):
                rows = min(width, bounds[size + 1] - start)
                lanes = _whole_vectors(rows)
                A = room[: size * size * lanes].reshape(size, size, lanes)
                for r in range(lanes):
                    row = order[start + min(r, rows - 1)]
                    p = 0
                    for i in range(d):
                        B[i, r] = b[row, i]
                        index[p, r] = i  # overwritten unless inside: no branch to mispredict
                        x[p, r] = b[row, i]
                        p += inside[row, i]
                for p in range(size):
                    for q in range(p + 1):
                        for r in range(lanes):
                            A[p, q, r] = K[index[p, r], index[q, r]]
                eliminate(A, x, size, lanes, singular)
                for i in range(d):
                    for r in range(lanes):
                        X[i, r] = 0.0
                for p in range(size):
                    for r in range(lanes):
                        X[index[p, r], r] = x[p, r]
                products(K, X, lanes, H)
                _judge(B, X, H, lanes, sums)
                for r in range(rows):
                    row = order[start + r]
                    iterations[row] = step
                    if singular[r] > 0.0 or sums[WORST, r] < 0.0:
                        todo[kept] = row
                        kept += 1
                        for i in range(d):
                            if X[i, r] < 0.0:
                                inside[row, i] = False
                            elif not inside[row, i] and H[i, r] * COVERS < B[i, r]:
                                inside[row, i] = True
                        continue
                    scale = sums[SCALE, r]
                    energy = sums[ENERGY, r]
                    low, high = bounds_of(energy, sums[GAP_BY_H, r], sums[GAP, r], np.inf, slack)
                    if high - low > LOOSE:
                        todo[kept] = row
                        kept += 1
                        continue
                    share = scale / energy
                    for i in range(d):
                        u[row, i] = X[i, r] * scale
                        alpha[row, i] = X[i, r] * B[i, r] * share
                    lower[row], upper[row] = _add_back(low, high, peak[row])
        left = kept
        if left == 0:
            break
    return left


@jit
def _judge(B, X, H, lanes, sums):
    """Sum up, lane by lane, what tells whether a row is solved, and its bracket."""
    d = B.shape[0]
    for r in range(lanes):
        sums[WORST, r] = 0.0
        sums[SCALE, r] = 0.0
        sums[ENERGY, r] = 0.0
        sums[GAP_BY_H, r] = 0.0
        sums[GAP, r] = 0.0
    for i in range(d):
        for r in range(lanes):
            sums[SCALE, r] += B[i, r] * X[i, r]
            sums[ENERGY, r] += X[i, r] * H[i, r]
            right = H[i, r] * COVERS - B[i, r] if X[i, r] == 0.0 else X[i, r]
            sums[WORST, r] = min(sums[WORST, r], right)
    for r in range(lanes):
        scale = sums[SCALE, r] / sums[ENERGY, r]
        sums[ENERGY, r] = sums[SCALE, r] * scale
        sums[SCALE, r] = scale
    for i in range(d):
        for r in range(lanes):
            h = H[i, r] * sums[SCALE, r]
            v = max(B[i, r] - h, 0.0)
            sums[GAP_BY_H, r] += v * h
            sums[GAP, r] += v


@jit
def _sort_by_size(inside, todo, left, sizes, order, bounds):
    """List rows by the size of their supports; those of size s lie at bounds[s]:bounds[s + 1]."""
    last = bounds.shape[0] - 1
    for s in range(last + 1):
        bounds[s] = 0
    for n in range(left):
        size = 0
        for i in range(inside.shape[1]):
            size += inside[todo[n], i]
        sizes[n] = min(size, last - 1)
        bounds[sizes[n] + 1] += 1
    for s in range(last):
        bounds[s + 1] += bounds[s]
    for n in range(left):  # shifts each bound to the next one
        order[bounds[sizes[n]]] = todo[n]
        bounds[sizes[n]] += 1
    for s in range(last, 0, -1):
        bounds[s] = bounds[s - 1]
    bounds[0] = 0


@jit
def _whole_vectors(rows):
    return (rows + 7) // 8 * 8


@jit
def _add_back(low, high, peak):
    """Add the maximum of the scores to a bracket, and widen it for the rounding of that."""
    low += peak
    high += peak
    return low - ADDED_BACK * abs(low), high + ADDED_BACK * abs(high)
