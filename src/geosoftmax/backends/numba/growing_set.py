"""Predictions on grids: an active set that grows by blocks, with an updated factor.

``K = K0 ⊗ K1 ⊗ K2``. A round takes the outputs at which ``b - Ku`` has a local maximum, one after
another, and adds those that are still violated. It then drops outputs with negative weights, until
there are none. If the kernel is wide, neighbours are nearly dependent and seldom in the support
together. So local maxima need few rounds. ``⟨b,u⟩`` has to grow in each round. If it does not, the
row continues as in the method of Lawson and Hanson, one output at a time, until it grows. So the
method ends.

Rows whose support is, or will be, larger than `LARGEST` are given up. Their bracket is valid, but
wide.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from geosoftmax.backends.numba.certificate import bracket
from geosoftmax.backends.numba.runtime import inner, jit, spread
from geosoftmax.backends.numba.updates import (
    FOUR,
    LANES,
    PASS,
    STRIDE,
    clear,
    clear_tail,
    dot,
    eliminate,
    grown,
    remove,
    room,
    substitute,
    width_for,
)

#: Products skip entries of a kernel below this.
NEGLIGIBLE = 2e-18
#: Largest support: what the rows of a block have room for.
LARGEST = STRIDE - 2 * PASS
#: Outputs up to which a support may have all of them.
FEW = 1024
#: Condition number from which on a kernel is wide: supports are then a fraction of the outputs.
WIDE = 1e4
#: Room for a support at first, before that of its first candidates.
FIRST = 128
#: Rounds after which a bracket as wide as this shows a smooth field: its support will be large.
SMOOTH_ROUNDS, SMOOTH_GAP = 8, 0.5
#: A distribution that moved less than this in a round, in total variation, has settled.
SETTLED = 1e-4
#: Candidates are violated by at least this fraction of the worst violation.
CANDIDATE = 0.05
#: Violations below this, relative to b, are rounding.
ROUNDING = 1e-14
#: Squared distance of an output from the span of the support below which it is dependent.
DEPENDENT = 1e-11
#: Growth of ⟨b,u⟩ in a round, relative, that counts.
GROWTH = 1e-13


class Tables(NamedTuple):
    """What all solves with one kernel share."""

    K0: np.ndarray
    K1: np.ndarray
    K2: np.ndarray
    bands: np.ndarray  # distance from the diagonal beyond which each kernel is negligible
    places: np.ndarray  # (3, d): the coordinates of each output


def make_tables(kernels: Sequence[Tensor]) -> Tables:
    """Prepare the kernels of one, two or three axes, float64 and of shape (n, n)."""
    arrays = [np.ascontiguousarray(K.detach().numpy(), dtype=np.float64) for K in kernels]
    arrays = [np.ones((1, 1))] * (3 - len(arrays)) + arrays
    bands = [int(np.abs(np.subtract(*np.nonzero(K > NEGLIGIBLE))).max()) for K in arrays]
    places = np.indices([len(K) for K in arrays]).reshape(3, -1)
    K0, K1, K2 = arrays
    return Tables(K0, K1, K2, np.array(bands), np.ascontiguousarray(places, dtype=np.uint32))


def condition(tables: Tables) -> float:
    """Return the condition number of ``K``; infinite where float64 cannot tell."""
    total = 1.0
    for K in tables[:3]:
        values = np.linalg.eigvalsh(K)
        total *= values[-1] / values[0] if values[0] > 0 else np.inf
    return total


def suits(tables: Tables) -> bool:
    """Whether supports are expected to be small enough for this method.

    Where they are not, the kernel is narrow and iterations need few steps.
    """
    return tables.places.shape[1] <= FEW or condition(tables) >= WIDE


def solve(
    tables: Tables, scores: np.ndarray, tol: float, max_iter: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """From rows of scores to the distribution, ``u``, its bracket and the rounds.

    Bounds are NaN where a row has no solution: NaN or +inf scores, or none that is finite.
    """
    rows, d = scores.shape
    peak = scores.max(axis=1, keepdims=True).astype(np.float64)
    peak[~np.isfinite(peak)] = np.nan
    b = scores - peak
    b *= 0.5
    np.exp(b, out=b)
    u, lower, upper = np.empty((rows, d)), np.empty(rows), np.empty(rows)
    rounds = np.zeros(rows, dtype=np.int64)
    spread(_solve, rows, 100 * scores.size, b, *tables, tol, max_iter, u, lower, upper, rounds)
    # Adding the maximum back rounds once more.
    lower = np.nextafter(lower + peak[:, 0], -np.inf)
    upper = np.nextafter(upper + peak[:, 0], np.inf)
    b *= u
    with np.errstate(invalid="ignore"):  # rows without u are left to others, or have no solution
        b /= b.sum(axis=1, keepdims=True)
    return b.astype(scores.dtype), u.astype(scores.dtype), lower, upper, rounds


@jit
def _solve(
    obstacles, K0, K1, K2, bands, places, tol, max_iter, found, lower, upper, rounds,
    first, last,
):  # fmt: skip
    # All functions are called from here: numba compiles a function once more in each caller.
    n0, n1, n2 = K0.shape[0], K1.shape[0], K2.shape[0]
    d = obstacles.shape[1]
    largest = min(d, LARGEST)
    # Few kinds of arrays: each takes a tenth of a second to compile.
    lists = np.empty(4 * d, dtype=np.uint32)
    index, chosen, inside, dropped = lists, lists[d:], lists[2 * d :], lists[3 * d :]
    long = (d + 2 * PASS) // LANES * LANES
    fields = room(7 * long + 2 * FOUR * STRIDE)
    inverse, y, x, old = fields, fields[long:], fields[2 * long :], fields[3 * long :]
    v, middle, h = fields[4 * long :], fields[5 * long :], fields[6 * long :]
    block = fields[7 * long :]
    solved = block[FOUR * STRIDE :]
    capacity = width = np.int64(0)
    R = fields
    for row in range(first, last):
        b = obstacles[row]
        u = found[row]
        ended = b[0] != b[0]
        lower[row] = np.nan if ended else -np.inf
        upper[row] = -lower[row]
        for i in range(d):
            inside[i] = 0
            u[i] = 0.0
            h[i] = 0.0
        size = np.int64(0)
        best = 0.0
        singly = best > 0.0  # no literal, for which functions would be compiled once more
        highest, _, _ = _violations(b, h, v, tol)
        while not ended:
            before = size
            count = np.int64(0)
            if not singly:
                count = _peaks(b, v, highest, n0, n1, n2, places, inside, chosen)
            fits = size + count <= largest and rounds[row] < max_iter
            if fits and size + count >= capacity < largest:
                capacity = min(largest, 2 * (size + count) + FIRST)
                R = grown(R, width, size, width_for(capacity))
                width = width_for(capacity)
            turn = np.int64(0)
            while fits and (turn < count or size == before):
                if turn == count:  # no peak is independent of the support: the worst that is
                    i = _worst(b, v, inside)
                    if i < 0 or size == largest:
                        break
                    v[i] = 0.0
                    chosen[0] = i
                    turn = np.int64(0)
                    count = np.int64(1)
                some = min(count - turn, FOUR)
                start = size
                _list(chosen[turn:], some, K0, K1, K2, places, index, size, block)
                eliminate(R, width, inverse, size, block, solved)
                size = _add(some, b, R, width, inverse, y, block, solved, index, inside, size)
                turn += min(some, size - start + 1)
            ended = size == before
            near = False
            if not ended:
                rounds[row] += 1
                for p in range(size):
                    old[p] = u[index[p]]
                count = np.int64(1)
                while count > 0:
                    substitute(R, width, inverse, size, y, x)
                    count = _negative(x, old, index, inside, dropped, size, singly)
                    for t in range(0, count, FOUR):
                        some = min(count - t, FOUR)
                        remove(R, width, inverse, y, size, dropped[t:], some, block)
                        size -= some
                clear_tail(y, size)
                energy = dot(y, y, size)
                singly = energy <= best * (1.0 + GROWTH)
                best = max(best, energy)
                moved = _replace(b, u, index, x, size)
                _spread(K2, places, index, x, size, middle)
                _mix(K1, bands[1], middle, h, n0 * n1, n2)
                if n0 > 1:
                    h, middle = middle, h
                    _mix(K0, bands[0], middle, h, n0, n1 * n2)
                highest, added, beyond = _violations(b, h, v, tol)
                near = (
                    added <= 2.0 * tol * best or beyond <= 0.0
                ) and moved <= 2.0 * SETTLED * best
            smooth = d > largest and rounds[row] == SMOOTH_ROUNDS
            if (ended or near or smooth) and best > 0.0:
                _, lower[row], upper[row] = bracket(b, u, h, h[:0], 1.0)
                gap = upper[row] - lower[row]
                ended = ended or (near and gap <= tol) or (smooth and gap > SMOOTH_GAP)


@functools.partial(inner, reassociate=True, finite=True)
def _violations(b, h, v, tol):
    """Let v = b - h, and return its maximum.

    Also returns what `bracket` would find about, times ⟨b,u⟩, and the maximum of v - tol h: a
    bracket is worth its time if the first is small, or if the second is not positive.
    """
    highest = 0.0
    total = 0.0
    vh = 0.0
    beyond = -1.0
    for i in range(b.shape[0]):
        left = b[i] - h[i]
        v[i] = left
        beyond = max(beyond, left - tol * h[i])
        left = max(left, 0.0)
        highest = max(highest, left)
        total += left
        vh += left * h[i]
    return highest, 2.0 * vh + total * total, beyond


@inner
def _list(chosen, count, K0, K1, K2, places, index, size, block):
    """List up to four outputs behind the support; find their kernel there, and with each other.

    The latter stands at the end of each row of the block.
    """
    for q in range(count):
        index[size + q] = chosen[q]
    for q in range(FOUR):
        i = chosen[min(q, count - 1)]
        k0 = K0[places[0, i]]
        k1 = K1[places[1, i]]
        k2 = K2[places[2, i]]
        r = block[q * STRIDE :]
        for p in range(size + count):
            j = index[p]
            at = p if p < size else p - size + (STRIDE - FOUR)
            r[at] = k0[places[0, j]] * k1[places[1, j]] * k2[places[2, j]]


@inner
def _add(count, b, R, width, inverse, y, block, solved, index, inside, size):
    """Add listed outputs as long as they are independent of the support, and violated given it."""
    start = size
    for q in range(count):
        r = solved[q * STRIDE :]
        entries = block[(q + 1) * STRIDE - FOUR :]
        for t in range(q):
            p = start + t
            r[p] = (entries[t] - dot(r, solved[t * STRIDE :], p)) * inverse[p]
        i = index[size]
        distance = entries[q] - dot(r, r, size)
        left = b[i] - dot(r, y, size)
        if distance <= DEPENDENT or left <= ROUNDING * b[i]:
            break
        pivot = math.sqrt(distance)
        r[size] = pivot
        inverse[size] = 1.0 / pivot
        y[size] = left / pivot
        inside[i] = 1
        size += 1
    for p in range(size):
        for q in range(size - start):
            R[p * width + start + q] = solved[q * STRIDE + p]
    return size


@inner
def _peaks(b, v, highest, n0, n1, n2, places, inside, chosen):
    """List the outputs that violate most among their neighbours, diagonal ones included."""
    count = np.int64(0)
    for i in range(b.shape[0]):
        chosen[count] = i
        count += v[i] > CANDIDATE * highest
    high = count
    count = np.int64(0)
    for p in range(high):
        i = chosen[p]
        here = v[i]
        if here <= ROUNDING * b[i] or inside[i]:
            continue
        top = True
        a0, a1, a2 = places[0, i] - 1, places[1, i] - 1, places[2, i] - 1
        for e in range(max(a0, 0), min(a0 + 3, n0)):
            for f in range(max(a1, 0), min(a1 + 3, n1)):
                g = max(a2, 0)
                while top and g < min(a2 + 3, n2):
                    top = v[(e * n1 + f) * n2 + g] <= here
                    g += 1
        if top:
            chosen[count] = i
            count += 1
    return count


@inner
def _worst(b, v, inside):
    """Return the output that violates most, or -1."""
    worst = -1
    highest = 0.0
    for i in range(b.shape[0]):
        if v[i] > highest and v[i] > ROUNDING * b[i] and not inside[i]:
            worst = i
            highest = v[i]
    return worst


@inner
def _negative(x, old, index, inside, dropped, size, singly):
    """Drop outputs with negative weights, listing their places from the last on.

    Singly, weights go from the old ones towards x as far as none is negative, and only those that
    stop them are dropped.
    """
    far = 1.0
    for p in range(size):
        if x[p] <= 0.0:
            far = min(far, old[p] / (old[p] - x[p]))
    count = np.int64(0)
    for p in range(size - 1, -1, -1):
        blocks = x[p] <= 0.0 and (not singly or old[p] <= far * (old[p] - x[p]))
        old[p] += far * (x[p] - old[p])
        if blocks:
            inside[index[p]] = 0
            dropped[count] = p
            count += 1
            for q in range(p, size - count):
                index[q] = index[q + 1]
                old[q] = old[q + 1]
    return count


@functools.partial(inner, reassociate=True)
def _replace(b, u, index, x, size):
    """Let u be x on the support; return by how much b u moved in total."""
    moved = 0.0
    for p in range(size):
        i = index[p]
        moved += b[i] * abs(x[p] - u[i])
        u[i] = 0.0
    for i in range(b.shape[0]):
        moved += b[i] * u[i]
        u[i] = 0.0
    for p in range(size):
        u[index[p]] = x[p]
    return moved


@inner
def _spread(K, places, index, x, size, out):
    """Let out be the product of x, on the support, and the kernel of the last axis."""
    clear(out[: places.shape[1]])
    for p in range(size):
        i = index[p]
        line = out[i - places[2, i] :]
        k = K[places[2, i]]
        weight = x[p]
        for j in range(K.shape[0]):
            line[j] += weight * k[j]


@inner
def _mix(K, band, lines, out, count, width):
    """Multiply so many lines of this width by the kernel of their axis.

    Four at once: fewer loads and stores.
    """
    n = K.shape[0]
    for at in range(count):
        i = at % n
        row = out[at * width :]
        clear(row[:width])
        k = max(0, i - band)
        end = min(n, i + band + 1)
        while k + 3 < end:
            q0, q1, q2, q3 = K[i, k], K[i, k + 1], K[i, k + 2], K[i, k + 3]
            m0 = lines[(at - i + k) * width :]
            m1 = m0[width:]
            m2 = m1[width:]
            m3 = m2[width:]
            for j in range(width):
                row[j] += (q0 * m0[j] + q1 * m1[j]) + (q2 * m2[j] + q3 * m3[j])
            k += 4
        while k < end:
            q0 = K[i, k]
            m0 = lines[(at - i + k) * width :]
            for j in range(width):
                row[j] += q0 * m0[j]
            k += 1
