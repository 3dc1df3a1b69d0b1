"""Principal pivoting for one row with a dense kernel.

Up to `LARGEST`, operations and their order are those of `simd`, so that a row has the same bits on
either path.
"""

from __future__ import annotations

import functools

import numpy as np

from geosoftmax.backends.numba.runtime import allocating, inner

#: Pivots below this are those of a singular matrix.
SINGULAR = 1e-14
#: h that lies this near below b covers it: rounding.
COVERS = 1.0 + 1e-14
#: Supports up to this size are also solved by `simd`.
LARGEST = 32
#: First rounds, in which all wrong outputs are exchanged; most rows need one or two.
ROUNDS = 4
#: Most rows need fewer. The others may go round in circles: K_SS is nearly singular.
MOST_ROUNDS = 12


@inner
def guess(K, b, inside):
    """Guess a support: a point that another one covers alone, b_i ≤ K_ij b_j, is seldom in it."""
    d = b.shape[0]
    for i in range(d):
        highest = 0.0
        for j in range(d):
            if j != i:
                highest = max(highest, K[i, j] * b[j])
        inside[i] = b[i] > highest


@inner
def times(K, x, index, size, h):
    """Compute h = K x for x on the listed outputs, column by column (K is symmetric)."""
    for i in range(h.shape[0]):
        h[i] = 0.0
    for p in range(size):
        j = index[p]
        weight = x[j]
        for i in range(h.shape[0]):
            h[i] += weight * K[j, i]


@inner
def factor(K, index, size, A, column):
    """Factor K_SS = L D Lᵀ for the listed outputs: A holds L below 1/D. False if it is singular."""
    for p in range(size):
        for q in range(p + 1):
            A[p, q] = K[index[p], index[q]]
    for k in range(size):
        if A[k, k] <= SINGULAR:
            return False
        inverse = 1.0 / A[k, k]
        A[k, k] = inverse
        for p in range(k + 1, size):
            column[p] = A[p, k]
        for p in range(k + 1, size):
            ratio = column[p] * inverse
            A[p, k] = ratio
            for q in range(k + 1, p + 1):
                A[p, q] -= ratio * column[q]
    return True


@functools.partial(inner, reassociate=True)
def extend(K, index, known, size, A, column):
    """Continue a factor of the first `known` listed outputs to `size`. False if it is singular."""
    for p in range(known, size):
        row = K[index[p]]
        own = A[p]
        pivot = row[index[p]]
        for q in range(p):
            total = row[index[q]]
            there = A[q]
            for k in range(q):
                total -= there[k] * column[k]
            column[q] = total
        for q in range(p):
            own[q] = column[q] * A[q, q]
            pivot -= column[q] * own[q]
        if pivot <= SINGULAR:
            return False
        own[p] = 1.0 / pivot
    return True


@inner
def substitute(A, size, x):
    """Solve L D Lᵀ x = x in place."""
    for k in range(size):
        for p in range(k + 1, size):
            x[p] -= A[p, k] * x[k]
    for p in range(size):
        x[p] *= A[p, p]
    for p in range(size - 1, 0, -1):
        for k in range(p):
            x[k] -= A[p, k] * x[p]


@inner
def solve_on(K, b, index, size, A, column, found, x):
    """Solve K_SS x_S = b_S for the listed outputs S. False where K_SS is singular."""
    if size <= LARGEST:
        regular = factor(K, index, size, A, column)
    else:
        regular = extend(K, index, np.int64(0), size, A, column)
    if not regular:
        return False
    for p in range(size):
        found[p] = b[index[p]]
    substitute(A, size, found)
    for p in range(size):
        x[index[p]] = found[p]
    return True


@inner
def pivot_blocks(K, b, inside, step, index, A, column, found, x, h):
    """Block principal pivoting from round `step` on: returns the last, and whether it ended well.

    Then x ≥ 0 solves (QP) and h = K x.
    """
    d = b.shape[0]
    fewest = d + 1
    patience = 3
    while step < MOST_ROUNDS:
        step += 1
        size = np.int64(0)
        for i in range(d):
            x[i] = 0.0
            if inside[i]:
                index[size] = i
                size += 1
        if not solve_on(K, b, index, size, A, column, found, x):
            return step, False
        times(K, x, index, size, h)
        wrong = 0
        last_wrong = -1
        for i in range(d):
            if _is_wrong(inside[i], b[i], x[i], h[i]):
                wrong += 1
                last_wrong = i
        if wrong == 0:
            return step, True
        if step > ROUNDS:
            patience = 3 if wrong < fewest else patience - 1
            fewest = min(fewest, wrong)
        if patience < 0:
            inside[last_wrong] = not inside[last_wrong]
        else:
            for i in range(d):
                if _is_wrong(inside[i], b[i], x[i], h[i]):
                    inside[i] = not inside[i]
    return step, False


@inner
def _is_wrong(inside, b, x, h):
    return x < 0.0 if inside else b > 0.0 and h * COVERS - b < 0.0


@allocating
def pivot_singly(K, b, inside, index, A, column, found, x, h):
    """Lawson–Hanson: adds one output at a time, so that K_SS stays regular.

    x ≥ 0 throughout; at the end h = K x. Returns the number of solves.
    """
    d = b.shape[0]
    blocked = np.zeros(d, dtype=np.bool_)
    for i in range(d):
        inside[i] = False
        x[i] = 0.0
    size = np.int64(0)
    known = np.int64(0)  # listed outputs whose rows of the factor are there
    steps = 0
    while steps < 10 * d + 20:
        times(K, x, index, size, h)
        best = -1
        most = 0.0
        for i in range(d):
            violation = b[i] - h[i] * COVERS
            if violation > most and not inside[i] and not blocked[i]:
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
            if not extend(K, index, known, size, A, column):
                # The newest output is a combination of the others: leave it out.
                size -= 1
                known = min(known, size)
                newest = index[size]
                inside[newest] = False
                blocked[newest] = True
                x[newest] = 0.0
                added = False
                break
            known = size
            for p in range(size):
                found[p] = b[index[p]]
            substitute(A, size, found)
            step = 1.0
            for p in range(size):
                now = x[index[p]]
                if found[p] <= 0.0 and now - found[p] > 0.0:
                    step = min(step, now / (now - found[p]))
            for p in range(size):
                i = index[p]
                x[i] += step * (found[p] - x[i])
            if step == 1.0:
                break
            kept = 0
            for p in range(size):
                i = index[p]
                if x[i] > 1e-300 and not (found[p] <= 0.0 and x[i] <= 1e-15):
                    index[kept] = i
                    kept += 1
                else:
                    x[i] = 0.0
                    inside[i] = False
                    known = min(known, kept)
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
                known = smallest
            size = kept
        if added:
            for i in range(d):
                blocked[i] = False
    times(K, x, index, size, h)
    return steps
