"""Small dense solves for many rows at once: vector lanes hold rows with supports of one size.

Arrays end with the lane. All rows of a block have equally many outputs in their support, so one
elimination without branches serves them all; the innermost loops run over lanes and are vectorised.
"""

from __future__ import annotations

import math

import numpy as np

from geosoftmax.backends.numba.runtime import jit

#: Rows in flight. Shorter loops are unrolled before they could be vectorised.
LANES = 64
#: Entries of the factors in flight: they stay in the second-level cache.
CAPACITY = 1 << 14
#: Supports larger than this are left to `pivoting`.
LARGEST = 32
#: Pivots below this are those of a singular matrix.
SINGULAR = 1e-14

_LOG2_E = 1 / math.log(2)
_LN2_HIGH = 6.93147180369123816490e-01  # ln 2 in two parts, the first with trailing zeros
_LN2_LOW = 1.90821492927058770002e-10
_ROUNDER = 6755399441055744.0  # 1.5 · 2⁵²: adding it leaves the nearest integer in the low bits
_UNDERFLOW = -708.0
_TAYLOR = tuple(1 / math.factorial(k) for k in range(14))


@jit
def exponentials(x, bits, power):
    """Replace x by exp(x), to the last bit or so, for x ≤ 0; 0 below the range of normal numbers.

    exp(x) = 2ⁿ exp(y) with |y| ≤ ln2 / 2. `power` shows the floats that `bits` encodes.
    """
    for r in range(x.shape[0]):
        power[r] = max(x[r], _UNDERFLOW) * _LOG2_E + _ROUNDER
    for r in range(x.shape[0]):
        bits[r] = (bits[r] + 1023) << 52
    for r in range(x.shape[0]):
        inside = max(x[r], _UNDERFLOW)
        n = (inside * _LOG2_E + _ROUNDER) - _ROUNDER
        y = (inside - n * _LN2_HIGH) - n * _LN2_LOW
        series = _TAYLOR[13]
        series = series * y + _TAYLOR[12]
        series = series * y + _TAYLOR[11]
        series = series * y + _TAYLOR[10]
        series = series * y + _TAYLOR[9]
        series = series * y + _TAYLOR[8]
        series = series * y + _TAYLOR[7]
        series = series * y + _TAYLOR[6]
        series = series * y + _TAYLOR[5]
        series = series * y + _TAYLOR[4]
        series = series * y + _TAYLOR[3]
        series = series * y + _TAYLOR[2]
        series = (series * y) * y + y
        x[r] = power[r] + power[r] * series if x[r] >= _UNDERFLOW else 0.0


@jit
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


@jit
def prepare(scores, K, guessing, b, peak, inside, first, last):
    """``b = exp((f - peak) / 2)`` and, if asked for, the guess of a support, for each row.

    The peak is NaN where a row cannot be solved.
    """
    d = scores.shape[1]
    x = np.empty((d, LANES))
    guess = np.empty((d, LANES))
    top = np.empty(LANES)
    fine = np.empty(LANES)
    bits = np.empty(LANES, dtype=np.int64)
    power = bits.view(np.float64)
    for start in range(first, last, LANES):
        rows = min(LANES, last - start)
        for r in range(rows):
            for i in range(d):
                x[i, r] = scores[start + r, i]
        for r in range(rows, LANES):
            for i in range(d):
                x[i, r] = 0.0
        for r in range(LANES):
            top[r] = x[0, r]
        for i in range(1, d):
            for r in range(LANES):
                top[r] = max(top[r], x[i, r])
        for r in range(LANES):
            fine[r] = 1.0
        for i in range(d):
            for r in range(LANES):
                below = (x[i, r] - top[r]) * 0.5
                fine[r] = fine[r] if below <= 0.0 else 0.0  # NaN and all infinities fail
                x[i, r] = below
            exponentials(x[i], bits, power)
        for r in range(rows):
            peak[start + r] = top[r] if fine[r] > 0.0 else np.nan
            for i in range(d):
                b[start + r, i] = x[i, r]
        if guessing:
            uncovered(K, x, LANES, guess)
            for r in range(rows):
                for i in range(d):
                    inside[start + r, i] = guess[i, r] > 0.0


@jit
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
    for k in range(size - 1, -1, -1):
        for r in range(lanes):
            x[k, r] *= A[k, k, r]
        for p in range(k + 1, size):
            for r in range(lanes):
                x[k, r] -= A[k, p, r] * x[p, r]


@jit
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
                h[i, r] += k * x[j, r] + other * x[j + 1, r]
