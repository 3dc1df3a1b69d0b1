"""Small dense solves for many rows at once: one row per SIMD lane, with supports of equal size.

The last axis of arrays is the lane. All rows of a block have supports of equal size, so one
elimination without branches serves them all. The innermost loops run over lanes, and are
vectorised.
"""

from __future__ import annotations

import numpy as np

from geosoftmax.backends.numba import calls
from geosoftmax.backends.numba.certificate import (
    ENERGY,
    LOWER,
    SCALE,
    SCALED,
    UPPER,
    diagonal_of,
    lane_brackets,
)
from geosoftmax.backends.numba.elementary import exponential
from geosoftmax.backends.numba.memory import load_long, read, write
from geosoftmax.backends.numba.pivoting import COVERS, LARGEST, ROUNDS, SINGULAR
from geosoftmax.backends.numba.runtime import allocating, inner, jit

#: Rows in flight. Shorter loops are unrolled before they could be vectorised.
LANES = 64
#: Entries of the factors in flight: they stay in the second-level cache.
CAPACITY = 1 << 14
#: A bracket wider than this shows that rounding has misled the pivoting: K_SS is nearly singular.
LOOSE = 1e-9


@jit
def solve_together(call, kernels, inside, warm, todo, steps, first, last):
    """Solve what the first rounds solve; list the rest from `todo[first]` on, and return how many.

    For those `inside` holds supports, and `steps` the rounds that were made: negative if no more
    should be. `inside` may hold supports to begin with (`warm`).
    """
    K = kernels[0]
    d = K.shape[0]
    b = np.empty((last - first, d))
    peak = np.empty(last - first)
    prepare(call, K, warm, b, peak, inside, first)
    for row in range(first, last):
        todo[row] = row
        steps[row] = 0
    left, worst = _rounds(call, K, b, peak, inside, steps, todo[first:last], first)
    return worst, left


@allocating
def prepare(call, K, warm, b, peak, inside, first):
    """``b = exp((f - peak) / 2)`` and, unless it is known, the guess of a support, for each row.

    The peak is NaN where a row cannot be solved.
    """
    d = K.shape[0]
    scores, kind = load_long(call, calls.SCORES), load_long(call, calls.KIND)
    given = load_long(call, calls.GIVEN) != 0
    x = np.empty((d, LANES))
    marks = np.empty((d, LANES))
    top = np.empty(LANES)
    fine = np.empty(LANES)
    one = np.empty(d)
    for start in range(0, b.shape[0], LANES):
        rows = min(LANES, b.shape[0] - start)
        lanes = _full_vectors(rows)
        for r in range(lanes):
            read(scores, kind, (first + start + min(r, rows - 1)) * d, one)
            for i in range(d):
                x[i, r] = one[i]
        if not given:
            _exponentiate(x, lanes, top, fine)
        for r in range(rows):
            peak[start + r] = 0.0 if given else top[r]
            for i in range(d):
                b[start + r, i] = x[i, r]
        if warm:  # what has underflowed since is in no support
            for r in range(rows):
                for i in range(d):
                    inside[first + start + r, i] &= b[start + r, i] > 0.0
        else:
            uncovered(K, x, lanes, marks)
            for r in range(rows):
                for i in range(d):
                    inside[first + start + r, i] = marks[i, r] > 0.0


@inner
def _exponentiate(x, lanes, top, fine):
    for r in range(lanes):
        top[r] = x[0, r]
        fine[r] = 1.0
    for i in range(1, x.shape[0]):
        for r in range(lanes):
            top[r] = max(top[r], x[i, r])
    for i in range(x.shape[0]):
        for r in range(lanes):
            below = (x[i, r] - top[r]) * 0.5
            fine[r] = fine[r] if below <= 0.0 else 0.0  # NaN and all infinities fail
            x[i, r] = below
    for r in range(lanes):
        if fine[r] == 0.0:  # another row is solved in its place; see calls.obstacle
            top[r] = np.nan
            for i in range(x.shape[0]):
                x[i, r] = -np.inf
            x[0, r] = 0.0
    for i in range(x.shape[0]):
        for r in range(lanes):
            x[i, r] = exponential(x[i, r])


@inner
def uncovered(K, b, lanes, inside):
    """Guess supports: a point that another one covers alone, b_i ≤ K_ij b_j, is seldom in one."""
    d = b.shape[0]
    for i in range(d):
        for r in range(lanes):
            inside[i, r] = 0.0
        for j in range(0, d - 1, 2):  # two at a time: half the loads and stores
            k = K[i, j] if j != i else 0.0
            other = K[i, j + 1] if j + 1 != i else 0.0
            for r in range(lanes):
                inside[i, r] = max(inside[i, r], max(k * b[j, r], other * b[j + 1, r]))
        k = K[i, d - 1] if d % 2 == 1 and i != d - 1 else 0.0
        for r in range(lanes):
            highest = max(inside[i, r], k * b[d - 1, r])
            inside[i, r] = 1.0 if b[i, r] > highest else 0.0


@allocating
def _rounds(call, K, b, peak, inside, steps, todo, first):
    """Rounds of block pivoting. Rows that they do not solve stay listed in `todo`."""
    d = K.shape[0]
    kind, target = load_long(call, calls.KIND), load_long(call, calls.TARGET)
    alphas, weights = load_long(call, calls.ALPHA), load_long(call, calls.U)
    left = todo.shape[0]
    worst = 0.0
    B = np.empty((d, LANES))
    X = np.empty((d, LANES))
    H = np.empty((d, LANES))
    U = np.empty((d, LANES))
    P = np.empty((d, LANES))
    largest = min(d, LARGEST)
    index = np.empty((largest + 1, LANES), dtype=np.uint32)
    x = np.empty((largest + 1, LANES))
    room = np.empty(min(CAPACITY, LANES * largest * largest))
    singular = np.empty(LANES)
    negative = np.empty(LANES)
    order = np.empty(left, dtype=np.int64)
    sizes = np.empty(left, dtype=np.int64)
    bounds = np.empty(largest + 3, dtype=np.int64)
    diagonal, highest = diagonal_of(K, np.empty(d))
    sums = np.empty((5, LANES))
    for step in range(1, ROUNDS + 1):
        _sort_by_size(inside, steps, todo, left, sizes, order, bounds)
        left = 0
        for n in range(bounds[largest + 1], bounds[largest + 2]):  # too large, or given up
            todo[left] = order[n]
            left += 1
        for size in range(largest + 1):
            width = min(LANES, CAPACITY // max(1, size * size) // 8 * 8)
            for start in range(bounds[size], bounds[size + 1], width):
                rows = min(width, bounds[size + 1] - start)
                lanes = _full_vectors(rows)
                A = room[: size * size * lanes].reshape(size, size, lanes)
                for r in range(lanes):
                    row = order[start + min(r, rows - 1)]
                    n = row - first
                    p = 0
                    for i in range(d):
                        value = b[n, i]
                        B[i, r] = value
                        index[p, r] = i  # overwritten unless inside: no branch to mispredict
                        x[p, r] = value
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
                violations(B, X, H, lanes, negative)
                lane_brackets(B, X, H, lanes, diagonal, highest, sums)
                _scale(B, X, lanes, sums, U, P)
                for r in range(rows):
                    row = order[start + r]
                    steps[row] = step
                    if singular[r] > 0.0:
                        steps[row] = -step
                    elif negative[r] < 0.0:
                        for i in range(d):
                            if X[i, r] < 0.0:
                                inside[row, i] = False
                            elif not inside[row, i] and H[i, r] * COVERS - B[i, r] < 0.0:
                                inside[row, i] = B[i, r] > 0.0
                    elif sums[UPPER, r] - sums[LOWER, r] <= LOOSE:
                        top = peak[row - first]
                        if top != top:
                            for i in range(d):
                                U[i, r] = top
                                P[i, r] = top
                        if weights != 0:
                            write(weights, kind, row * d, U[:, r], 1.0)
                        if alphas != 0:
                            write(alphas, kind, row * d, P[:, r], 1.0)
                        if target != 0:
                            calls.finish_loss(call, row, P[:, r], sums[LOWER, r], top)
                        worst = calls.finish_bounds(
                            call, row, sums[LOWER, r], sums[UPPER, r], top, step, worst
                        )
                        continue
                    else:
                        steps[row] = -step
                    todo[left] = row
                    left += 1
        if left == 0:
            break
    return left, worst


@inner
def _scale(B, X, lanes, sums, U, P):
    """Rescale weights to U, and compute the distributions P, as `calls.to_distribution`."""
    for r in range(lanes):
        sums[SCALED, r] = 1.0 / sums[ENERGY, r]
    for i in range(B.shape[0]):
        for r in range(lanes):
            U[i, r] = X[i, r] * sums[SCALE, r]
            P[i, r] = U[i, r] * B[i, r] * sums[SCALED, r]


@inner
def violations(B, X, H, lanes, negative):
    """Find the most negative weight or cover of each lane; 0 where a row is solved."""
    for r in range(lanes):
        negative[r] = 0.0
    for i in range(B.shape[0]):
        for r in range(lanes):
            right = H[i, r] * COVERS - B[i, r] if X[i, r] == 0.0 else X[i, r]
            negative[r] = min(negative[r], right)


@inner
def _sort_by_size(inside, steps, todo, left, sizes, order, bounds):
    """List rows by the size of their supports; those of size s lie at bounds[s]:bounds[s + 1]."""
    last = bounds.shape[0] - 1
    for s in range(last + 1):
        bounds[s] = 0
    for n in range(left):
        size = 0
        for i in range(inside.shape[1]):
            size += inside[todo[n], i]
        sizes[n] = min(size, last - 1) if steps[todo[n]] >= 0 else last - 1
        bounds[sizes[n] + 1] += 1
    for s in range(last):
        bounds[s + 1] += bounds[s]
    for n in range(left):  # shifts each bound to the next one
        order[bounds[sizes[n]]] = todo[n]
        bounds[sizes[n]] += 1
    for s in range(last, 0, -1):
        bounds[s] = bounds[s - 1]
    bounds[0] = 0


@inner
def _full_vectors(rows):
    return (rows + 7) // 8 * 8


@inner
def eliminate(A, x, size, lanes, singular):
    """Solve A x = x by LDLᵀ. A[p, q] for p ≥ q goes in; factors overwrite it, with Lᵀ above."""
    for r in range(lanes):
        singular[r] = 0.0
    for k in range(size):
        for r in range(lanes):
            singular[r] = max(singular[r], 1.0 if A[k, k, r] <= SINGULAR else 0.0)
        for r in range(lanes):
            A[k, k, r] = 1.0 / max(A[k, k, r], SINGULAR)
        for p in range(k + 1, size):
            for r in range(lanes):
                A[k, p, r] = A[p, k, r] * A[k, k, r]
            for q in range(k + 1, p + 1):
                for r in range(lanes):
                    A[p, q, r] -= A[k, p, r] * A[q, k, r]
            for r in range(lanes):
                x[p, r] -= A[k, p, r] * x[k, r]
    for k in range(size):
        for r in range(lanes):
            x[k, r] *= A[k, k, r]
    for p in range(size - 1, 0, -1):
        for k in range(p):
            for r in range(lanes):
                x[k, r] -= A[k, p, r] * x[p, r]


@inner
def products(K, x, lanes, h):
    """Compute h = K x."""
    d = x.shape[0]
    for i in range(d):
        k = K[i, 0] if d % 2 == 1 else 0.0
        for r in range(lanes):
            h[i, r] = k * x[0, r]
        for j in range(d % 2, d, 2):  # two at a time: half the loads and stores
            k = K[i, j]
            other = K[i, j + 1]
            for r in range(lanes):
                h[i, r] = (h[i, r] + k * x[j, r]) + other * x[j + 1, r]
