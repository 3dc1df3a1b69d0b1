"""An updated Cholesky factor of the support: ``Rᵀ R = K_SS``, ``Rᵀ y = b_S``, ``R x = y``.

``R`` is stored by rows, so that inner loops read contiguous memory. Arrays are longer than the
support by `PASS`, so that loops can run to a multiple of the vector width. The extra entries are
never read. Loops start at 0, on slices: with an unknown start, numba has to allow for negative
indices, and does not vectorise.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from geosoftmax.backends.numba.runtime import allocating, inner

#: Entries that one pass of a vectorised loop takes.
PASS = 32
#: Entries of a vector register. Loops start at multiples of it: what one has just written is then
#: read in the same pieces by the next, which processors do at once.
LANES = 8
#: Outputs that enter or leave together.
FOUR = 4
#: Entries from one row of a block to the next: a constant, so that loops are vectorised.
STRIDE = 1600


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
    """Set the entries behind the support to 0, also if it grows by one block."""
    clear(x[size : size + PASS + FOUR])


@allocating
def room(count):
    """Return memory that starts with a cache line, all 0."""
    wide = np.empty(count + LANES)
    start = -(wide.ctypes.data // 8) % LANES
    x = wide[start : start + count]
    clear(x)
    return x


@inner
def width_for(capacity):
    """Return the length of rows of a factor with room for a support of this capacity."""
    width = (capacity + PASS) // LANES * LANES + 2 * LANES
    # Rows that start at equal places of the cache would evict each other.
    return width + LANES if width % 64 == 0 else width


@allocating
def grown(R, width, size, wider):
    """Copy the factor to rows of another length."""
    larger = room(wider * wider)
    for i in range(size):
        for j in range(size):
            larger[i * wider + j] = R[i * width + j]
    return larger


@inner
def eliminate(R, width, inverse, size, block, found):
    """Solve Rᵀ r = k for the four rows k of a block, two rows of R at a time; k is lost."""
    inverse[size] = 0.0  # where rows are odd in number, the last pair has one more
    for i in range(0, size, 2):
        for q in range(FOUR):
            at = q * STRIDE + i
            first = block[at] * inverse[i]
            found[at] = first
            found[at + 1] = (block[at + 1] - first * R[i * width + i + 1]) * inverse[i + 1]
        done = found[i:]
        a0, a1, a2, a3 = done[0], done[STRIDE], done[2 * STRIDE], done[3 * STRIDE]
        c0, c1, c2, c3 = done[1], done[1 + STRIDE], done[1 + 2 * STRIDE], done[1 + 3 * STRIDE]
        start = i // LANES * LANES
        R0 = R[i * width + start :]
        R1 = R[(i + 1) * width + start :]
        rest = block[start:]
        for j in range((size - start + LANES - 1) // LANES * LANES):
            first = R0[j]
            second = R1[j]
            rest[j] = rest[j] - a0 * first - c0 * second
            rest[j + STRIDE] = rest[j + STRIDE] - a1 * first - c1 * second
            rest[j + 2 * STRIDE] = rest[j + 2 * STRIDE] - a2 * first - c2 * second
            rest[j + 3 * STRIDE] = rest[j + 3 * STRIDE] - a3 * first - c3 * second
    for q in range(FOUR):
        clear_tail(found[q * STRIDE :], size)


@functools.partial(inner, reassociate=True)
def substitute(R, width, inverse, size, y, x):
    """Solve R x = y."""
    clear_tail(x, size)
    for i in range(size - 1, -1, -1):
        row = R[i * width + i + 1 :]
        rest = x[i + 1 :]
        total = 0.0
        for j in range(padded(size - i - 1)):
            total += row[j] * rest[j]
        x[i] = (y[i] - total) * inverse[i]


@inner
def remove(R, width, inverse, y, size, dropped, count, block):
    """Take up to four outputs out, listed by place from the last to the first.

    Columns behind them are shifted. Their rows are carried down, and each row below is reflected
    with them (Householder), so that a triangle remains.
    """
    for i in range(size):
        R[i * width + size] = y[i]  # one more column
    kept = size - count
    for t in range(count):
        k = dropped[t]
        for i in range(k):
            row = R[i * width + k :]
            for j in range(size - t - k):
                row[j] = row[j + 1]
    start = dropped[count - 1] // LANES * LANES
    for q in range(FOUR):
        clear(block[q * STRIDE + start : q * STRIDE + size + PASS])
    carried = np.int64(0)
    for i in range(dropped[count - 1], size):
        at = i - carried
        start = at // LANES * LANES
        source = R[i * width + start + carried :]
        rest = block[start:]
        if carried < count and i == dropped[count - 1 - carried]:
            rest = rest[carried * STRIDE :]
            for j in range(at - start, kept + 1 - start):
                rest[j] = source[j + 1]
            carried += 1
            continue
        pivot = source[at - start]
        heads = block[at:]
        h0, h1, h2, h3 = heads[0], heads[STRIDE], heads[2 * STRIDE], heads[3 * STRIDE]
        length = math.sqrt((pivot * pivot + h0 * h0) + (h1 * h1 + h2 * h2) + h3 * h3)
        inverse[at] = 1.0 / length
        shorter = 1.0 / (pivot + length)
        share = (pivot + length) * inverse[at]
        h0 *= shorter
        h1 *= shorter
        h2 *= shorter
        h3 *= shorter
        target = R[at * width + start :]
        for j in range((kept - start + LANES) // LANES * LANES):
            r0, r1, r2, r3 = rest[j], rest[j + STRIDE], rest[j + 2 * STRIDE], rest[j + 3 * STRIDE]
            mixed = (source[j] + (h0 * r0 + h1 * r1) + (h2 * r2 + h3 * r3)) * share
            target[j] = mixed - source[j]
            rest[j] = r0 - h0 * mixed
            rest[j + STRIDE] = r1 - h1 * mixed
            rest[j + 2 * STRIDE] = r2 - h2 * mixed
            rest[j + 3 * STRIDE] = r3 - h3 * mixed
    for i in range(kept):
        y[i] = R[i * width + kept]
