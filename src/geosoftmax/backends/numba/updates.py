"""A Cholesky factor that outputs enter and leave: ``Rᵀ R = K_SS``, ``Rᵀ y = b_S``, ``R x = y``.

``R`` is stored by rows, so that every inner loop runs along memory. Arrays are longer than the
support by `PASS`: loops go up to whole passes of vector instructions, over entries that are never
read. Loops start from 0 on slices: where a start is not known, negative indices have to be expected
and nothing is vectorised.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from geosoftmax.backends.numba.runtime import inner

#: Entries that one pass of a vectorised loop takes.
PASS = 32


@inner
def padded(count):
    """Round up to whole passes."""
    return (count + (PASS - 1)) // PASS * PASS


@functools.partial(inner, reassociate=True)
def dot(x, y, size):
    """Sum x y; entries up to a whole pass have to be 0 in one of them."""
    total = 0.0
    for i in range(padded(size)):
        total += x[i] * y[i]
    return total


@inner
def clear(x):
    """Set all entries to 0."""
    for j in range(x.shape[0]):
        x[j] = 0.0


@inner
def clear_tail(x, size):
    """Set the entries behind the support to 0."""
    clear(x[size : size + PASS])


@inner
def grown(R, size, capacity):
    """Return a copy of the factor with room for a support of this capacity."""
    width = capacity + PASS
    if width % 64 == 0:
        width += 8  # rows that start at equal places of the cache would evict each other
    larger = np.empty((capacity, width))
    for i in range(capacity):
        clear(larger[i])
        for j in range(size if i < size else 0):
            larger[i, j] = R[i, j]
    return larger


@inner
def eliminate(R, inverse, size, r):
    """Solve Rᵀ r = r in place, four rows at a time."""
    i = 0
    while i + 3 < size:
        r0 = r[i] * inverse[i]
        r1 = (r[i + 1] - r0 * R[i, i + 1]) * inverse[i + 1]
        r2 = (r[i + 2] - r0 * R[i, i + 2] - r1 * R[i + 1, i + 2]) * inverse[i + 2]
        r3 = r[i + 3] - r0 * R[i, i + 3] - r1 * R[i + 1, i + 3] - r2 * R[i + 2, i + 3]
        r3 *= inverse[i + 3]
        r[i] = r0
        r[i + 1] = r1
        r[i + 2] = r2
        r[i + 3] = r3
        i += 4
        R0 = R[i - 4, i:]
        R1 = R[i - 3, i:]
        R2 = R[i - 2, i:]
        R3 = R[i - 1, i:]
        rest = r[i:]
        for j in range(padded(size - i)):
            rest[j] -= (r0 * R0[j] + r1 * R1[j]) + (r2 * R2[j] + r3 * R3[j])
    while i < size:
        r0 = r[i] * inverse[i]
        r[i] = r0
        for j in range(i + 1, size):
            r[j] -= r0 * R[i, j]
        i += 1
    clear_tail(r, size)


@functools.partial(inner, reassociate=True)
def substitute(R, inverse, size, y, x):
    """Solve R x = y."""
    clear_tail(x, size)
    for i in range(size - 1, -1, -1):
        row = R[i, i + 1 :]
        rest = x[i + 1 :]
        total = 0.0
        for j in range(padded(size - i - 1)):
            total += row[j] * rest[j]
        x[i] = (y[i] - total) * inverse[i]


@inner
def append(R, inverse, y, size, r, pivot, value):
    """Let an output in: its column r, with its pivot below, and its entry of y."""
    for q in range(size):
        R[q, size] = r[q]
    R[size, size] = pivot
    inverse[size] = 1.0 / pivot
    y[size] = value


@inner
def remove(R, inverse, y, size, k, carry):
    """Take output k out: shift the columns behind it, rotate rows back to a triangle."""
    for i in range(k):
        row = R[i, k:]
        for j in range(size - 1 - k):
            row[j] = row[j + 1]
    row = R[k, k + 1 :]
    for j in range(size - 1 - k):
        carry[j] = row[j]
    y_carry = y[k]
    at = carry
    for i in range(k, size - 1):
        row = R[i, i:]
        below = R[i + 1, i + 1 :]
        first = at[0]
        second = below[0]
        shorter = 1.0 / math.sqrt(first * first + second * second)
        c = first * shorter
        s = second * shorter
        for j in range(padded(size - 1 - i)):
            a = at[j]
            q = below[j]
            row[j] = c * a + s * q
            at[j] = c * q - s * a
        at = at[1:]
        inverse[i] = shorter
        q = y[i + 1]
        y[i] = c * y_carry + s * q
        y_carry = c * q - s * y_carry
