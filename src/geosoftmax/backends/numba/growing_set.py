"""Predictions on grids: an active set that grows by blocks, with its factor kept up to date.

``K = K0 ⊗ K1 ⊗ K2``. A round adds the outputs at which ``b - Ku`` has a local maximum, in turn, as
far as they are still violated after those before; it then drops all outputs whose weight is
negative, until none is. Where the kernel is wide, neighbours are nearly dependent and seldom in the
support together: thanks to local maxima, few rounds suffice. ``⟨b,u⟩`` has to grow in each round.
Where it does not, the row goes on as Lawson and Hanson do, one output at a time, until it has: so
that rounds end.

Supports larger than `LARGEST`, or that will be, are given up: their bracket is true, but wide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from geosoftmax.backends.numba.certificate import bracket
from geosoftmax.backends.numba.runtime import inner, jit, spread
from geosoftmax.backends.numba.updates import (
    PASS,
    append,
    clear,
    clear_tail,
    dot,
    eliminate,
    grown,
    remove,
    substitute,
)

#: Entries of a kernel below this are left out of products.
NEGLIGIBLE = 2e-18
#: Largest support.
LARGEST = 1536
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
    return Tables(K0, K1, K2, np.array(bands), np.ascontiguousarray(places, dtype=np.int64))


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
    b /= b.sum(axis=1, keepdims=True)
    return b.astype(scores.dtype), u.astype(scores.dtype), lower, upper, rounds


@jit
def _solve(
    obstacles, K0, K1, K2, bands, places, tol, max_iter, found, lower, upper, rounds,
    first, last,
):  # fmt: skip
    d = obstacles.shape[1]
    largest = min(d, LARGEST)
    # Few kinds of arrays: each takes a tenth of a second to compile.
    R = np.empty((0, 0))
    lists = np.empty((3, d), dtype=np.int64)
    index, chosen, inside = lists[0], lists[1], lists[2]
    fields = np.empty((8, d + PASS))
    for field in fields:
        clear(field)
    inverse, y, x, r, old = fields[0], fields[1], fields[2], fields[3], fields[4]
    v, middle, h = fields[5], fields[6], fields[7]
    unit = fields[0, :0]
    for row in range(first, last):
        b = obstacles[row]
        u = found[row]
        lower[row] = np.nan if b[0] != b[0] else -np.inf
        upper[row] = np.nan if b[0] != b[0] else np.inf
        for i in range(d):
            inside[i] = 0
            u[i] = 0.0
            v[i] = b[i]
        size = np.int64(0)
        best = 0.0
        singly = best > 0.0  # no literal, for which functions would be compiled once more
        while rounds[row] < max_iter:
            rounds[row] += 1
            before = size
            count = np.int64(0) if singly else _peaks(b, v, K0, K1, K2, places, inside, chosen)
            if size + count > largest:
                break
            if size + count >= R.shape[0] < largest:
                R = grown(R, size, min(largest, 2 * (size + count) + FIRST))
            turn = np.int64(0)
            while turn < count or size == before:
                if turn == count:  # no peak is independent of the support: the worst that is
                    i = _worst(b, v, inside)
                    if i < 0:
                        break
                    v[i] = 0.0
                else:
                    i = chosen[turn]
                    turn += 1
                size = _add(i, b, K0, K1, K2, places, R, inverse, y, r, index, inside, size)
            if size == before:
                break
            size = _drop(R, inverse, y, x, r, old, index, inside, size, u, singly)
            clear_tail(y, size)
            energy = dot(y, y, size)
            singly = energy <= best * (1.0 + GROWTH)
            best = max(best, energy)
            moved = _replace(b, u, index, x, size)
            multiply(K0, K1, K2, bands, places, index, x, size, middle, h)
            _, lower[row], upper[row] = bracket(b, u, h, unit, 1.0)
            if upper[row] - lower[row] <= tol and moved <= 2.0 * SETTLED * energy:
                break
            smooth = d > largest and rounds[row] == SMOOTH_ROUNDS
            if smooth and upper[row] - lower[row] > SMOOTH_GAP:
                break
            for i in range(d):
                v[i] = b[i] - h[i]


@inner
def _add(i, b, K0, K1, K2, places, R, inverse, y, r, index, inside, size):
    """Add output i if it is independent of the support, and violated given all of it."""
    if size == R.shape[0]:
        return size
    k0 = K0[places[0, i]]
    k1 = K1[places[1, i]]
    k2 = K2[places[2, i]]
    for p in range(size):
        j = index[p]
        r[p] = k0[places[0, j]] * k1[places[1, j]] * k2[places[2, j]]
    eliminate(R, inverse, size, r)
    distance = k0[places[0, i]] * k1[places[1, i]] * k2[places[2, i]] - dot(r, r, size)
    left = b[i] - dot(r, y, size)
    if distance <= DEPENDENT or left <= ROUNDING * b[i]:
        return size
    pivot = math.sqrt(distance)
    append(R, inverse, y, size, r, pivot, left / pivot)
    index[size] = i
    inside[i] = 1
    return size + 1


@inner
def _peaks(b, v, K0, K1, K2, places, inside, chosen):
    """List the outputs that violate most among their neighbours, diagonal ones included."""
    n0, n1, n2 = K0.shape[0], K1.shape[0], K2.shape[0]
    d = b.shape[0]
    highest = 0.0
    for i in range(d):
        highest = max(highest, v[i])
    count = np.int64(0)
    for i in range(d):
        here = v[i]
        if here <= CANDIDATE * highest or here <= ROUNDING * b[i] or inside[i]:
            continue
        a0, a1, a2 = places[0, i], places[1, i], places[2, i]
        top = True
        for e in range(-1 if a0 > 0 else 0, 2 if a0 + 1 < n0 else 1):
            for f in range(-1 if a1 > 0 else 0, 2 if a1 + 1 < n1 else 1):
                for g in range(-1 if a2 > 0 else 0, 2 if a2 + 1 < n2 else 1):
                    top = top and v[i + (e * n1 + f) * n2 + g] <= here
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
def _drop(R, inverse, y, x, r, old, index, inside, size, u, singly):
    """Solve on the support and drop negative weights, until there are none.

    Singly, weights go from u towards the solution as far as none is negative, and only those that
    stop them are dropped.
    """
    for p in range(size):
        old[p] = u[index[p]]
    while True:
        substitute(R, inverse, size, y, x)
        far = 1.0
        negative = False
        for p in range(size):
            if x[p] <= 0.0:
                negative = True
                far = min(far, old[p] / (old[p] - x[p]))
        if not negative:
            return size
        for p in range(size - 1, -1, -1):
            blocks = x[p] <= 0.0 and (not singly or old[p] <= far * (old[p] - x[p]))
            old[p] += far * (x[p] - old[p])
            if blocks:
                inside[index[p]] = 0
                remove(R, inverse, y, size, p, r)
                size -= 1
                for q in range(p, size):
                    index[q] = index[q + 1]
                    old[q] = old[q + 1]


@inner
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
def multiply(K0, K1, K2, bands, places, index, x, size, middle, out):
    """Compute out = K u, for u = x on the support: by points along the last axis, then by lines."""
    n0, n1, n2 = K0.shape[0], K1.shape[0], K2.shape[0]
    plane = n1 * n2
    for i in range(n0 * plane):
        middle[i] = 0.0
    for p in range(size):
        i = index[p]
        line = middle[i - places[2, i] :]
        k2 = K2[places[2, i]]
        weight = x[p]
        for j in range(n2):
            line[j] += weight * k2[j]
    for a in range(n0):
        _mix(K1, bands[1], middle[a * plane :], out[a * plane :], n2)
    if n0 > 1:
        for i in range(n0 * plane):
            middle[i] = out[i]
        _mix(K0, bands[0], middle, out, plane)


@inner
def _mix(K, band, lines, out, width):
    """Compute out = K lines, four lines at once: fewer loads and stores."""
    n = K.shape[0]
    for i in range(n):
        row = out[i * width :]
        for j in range(width):
            row[j] = 0.0
        k = max(0, i - band)
        end = min(n, i + band + 1)
        while k + 3 < end:
            q0, q1, q2, q3 = K[i, k], K[i, k + 1], K[i, k + 2], K[i, k + 3]
            m0 = lines[k * width :]
            m1 = m0[width:]
            m2 = m1[width:]
            m3 = m2[width:]
            for j in range(width):
                row[j] += (q0 * m0[j] + q1 * m1[j]) + (q2 * m2[j] + q3 * m3[j])
            k += 4
        while k < end:
            q0 = K[i, k]
            m0 = lines[k * width :]
            for j in range(width):
                row[j] += q0 * m0[j]
            k += 1
