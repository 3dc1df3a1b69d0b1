"""Principal pivoting for one row with a dense kernel."""

from __future__ import annotations

import functools
import math

import numpy as np

from geosoftmax.backends.numba.runtime import jit


@jit
def times(K, x, index, size, h):
    """Compute h = K x for x on the listed outputs, column by column (K is symmetric)."""
    for i in range(h.shape[0]):
        h[i] = 0.0
    for p in range(size):
        column = K[index[p]]
        weight = x[index[p]]
        for i in range(h.shape[0]):
            h[i] += weight * column[i]


@functools.partial(jit, reassociate=True)
def solve_on(K, b, index, size, L, x):
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


@jit
def pivot_blocks(K, b, inside, index, L, x, h):
    """Block principal pivoting: returns the number of solves, and whether an optimum was found."""
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
        if not solve_on(K, b, index, size, L, x):
            return step, False
        times(K, x, index, size, h)
        wrong = 0
        last_wrong = -1
        for i in range(d):
            h[i] = x[i] if inside[i] else h[i] * (1.0 + 1e-14) - b[i]
            if b[i] == 0.0:  # masked
                h[i] = 0.0
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


@jit
def pivot_singly(K, b, inside, index, L, x, h):
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
            if not solve_on(K, b, index, size, L, trial):
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
