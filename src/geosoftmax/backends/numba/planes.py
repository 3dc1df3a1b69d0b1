"""Predictions on grids: an active set that grows by blocks, with its factor kept up to date.

``K = K0 ⊗ K1 ⊗ K2``. A round adds the outputs at which ``b - Ku`` has a local maximum, in turn, as
far as they are still violated after those before; it then drops all outputs whose weight is
negative, until none is. Where the kernel is wide, neighbours are nearly dependent and seldom in the
support together: thanks to local maxima, few rounds suffice. ``⟨b,u⟩`` has to grow in each round.
Where it does not, the row goes on as Lawson and Hanson do, one output at a time, until it has: so
that rounds end.

Supports larger than `LARGEST` are not finished: their bracket is true, but wide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from geosoftmax.backends.numba.lanes import exponentials
from geosoftmax.backends.numba.runtime import bracket, jit, spread
from geosoftmax.backends.numba.updates import (
    PASS,
    append,
    clear_tail,
    dot,
    eliminate,
    remove,
    substitute,
)
from geosoftmax.backends.reference import rounding_allowance

#: Entries of a kernel below this are left out of products.
NEGLIGIBLE = 2e-18
#: Largest support.
LARGEST = 1024
#: A distribution that moved less than this in a round, in total variation, has settled.
SETTLED = 5e-5
#: Candidates are violated by at least this fraction of the worst violation.
CANDIDATE = 0.1
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
    return Tables(*arrays, np.array(bands), np.ascontiguousarray(places, dtype=np.int64))


def solve(
    tables: Tables, scores: np.ndarray, tol: float, max_iter: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """From rows of scores to the distribution, ``u``, its bracket and the rounds.

    Bounds are NaN where a row has no solution: NaN or +inf scores, or none that is finite.
    """
    rows, d = scores.shape
    alpha, u = np.empty_like(scores), np.empty_like(scores)
    lower, upper, rounds = np.empty(rows), np.empty(rows), np.zeros(rows, dtype=np.int64)
    slack = rounding_allowance(d, torch.float64)
    spread(
        _solve, rows, 100 * scores.size, scores, *tables, tol, max_iter, slack,
        alpha, u, lower, upper, rounds,
    )  # fmt: skip
    return alpha, u, lower, upper, rounds


@jit
def _solve(
    scores, K0, K1, K2, bands, places, tol, max_iter, slack, alpha, u, lower, upper, rounds,
    first, last,
):  # fmt: skip
    d = scores.shape[1]
    capacity = min(d, LARGEST)
    width = capacity + PASS
    if width % 64 == 0:
        width += 8  # rows that start at equal places of the cache would evict each other
    R = np.zeros((capacity, width))
    vectors = np.zeros((5, width))
    index = np.empty(capacity, dtype=np.int64)
    inside = np.zeros(d, dtype=np.bool_)
    fields = np.empty((5, d))
    b, found = fields[0], fields[1]
    bits = np.empty(d, dtype=np.int64)
    for row in range(first, last):
        peak = _obstacle(scores[row], b, bits)
        if peak != peak:
            for i in range(d):
                alpha[row, i] = np.nan
                u[row, i] = np.nan
            lower[row] = np.nan
            upper[row] = np.nan
            continue
        low, up, rounds[row] = _active_set(
            fields, K0, K1, K2, bands, places, tol, max_iter, slack, R, vectors, index, inside
        )
        # Adding the maximum back rounds once more.
        lower[row] = np.nextafter(low + peak, -np.inf)
        upper[row] = np.nextafter(up + peak, np.inf)
        total = 0.0
        for i in range(d):
            total += b[i] * found[i]
        inverse = 1.0 / total
        for i in range(d):
            alpha[row, i] = b[i] * found[i] * inverse
            u[row, i] = found[i]


@jit
def _obstacle(f, b, bits):
    """``b = exp((f - peak) / 2)``; returns the peak, NaN where the row cannot be solved."""
    peak = -np.inf
    for i in range(f.shape[0]):
        peak = max(peak, np.float64(f[i]))
    fine = True
    for i in range(f.shape[0]):
        below = (f[i] - peak) * 0.5
        fine = fine and below <= 0.0  # NaN and all infinities fail
        b[i] = below
    if not fine:
        return np.nan
    exponentials(b, bits, bits.view(np.float64))
    return peak


@jit
def _active_set(fields, K0, K1, K2, bands, places, tol, max_iter, slack, R, vectors, index, inside):
    """Leave u for b, the first field, in the second; return its bracket and the rounds."""
    inverse, y, x, r, old = vectors[0], vectors[1], vectors[2], vectors[3], vectors[4]
    b, u, v, middle, h = fields[0], fields[1], fields[2], fields[3], fields[4]
    d = b.shape[0]
    for i in range(d):
        inside[i] = False
        u[i] = 0.0
        v[i] = b[i]
    size = 0
    best = 0.0
    singly = False
    low, up = -np.inf, np.inf
    step = 0
    while step < max_iter:
        step += 1
        before = size
        if not singly:
            size = _add_peaks(b, v, K0, K1, K2, places, R, inverse, y, r, index, inside, size)
        if size == before:  # no peak is independent of the support: any other output
            size = _add_worst(b, v, K0, K1, K2, places, R, inverse, y, r, index, inside, size)
        if size == before:
            break
        size = _drop(R, inverse, y, x, r, old, index, inside, size, u, singly)
        clear_tail(y, size)
        energy = dot(y, y, size)
        singly = energy <= best * (1.0 + GROWTH)
        best = max(best, energy)
        moved = 0.0
        for p in range(size):
            moved += b[index[p]] * abs(x[p] - u[index[p]])
            u[index[p]] = 0.0
        for i in range(d):
            moved += b[i] * u[i]
            u[i] = 0.0
        for p in range(size):
            u[index[p]] = x[p]
        multiply(K0, K1, K2, bands, places, index, x, size, middle, h)
        low, up = bracket(b, u, h, slack)
        for i in range(d):
            v[i] = b[i] - h[i]
        if up - low <= tol and moved <= 2.0 * SETTLED * energy:
            break
    return low, up, step


@jit
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
    inside[i] = True
    return size + 1


@jit
def _add_peaks(b, v, K0, K1, K2, places, R, inverse, y, r, index, inside, size):
    """Add the outputs that violate most among their neighbours, diagonal ones included."""
    n0, n1, n2 = K0.shape[0], K1.shape[0], K2.shape[0]
    d = b.shape[0]
    highest = 0.0
    for i in range(d):
        highest = max(highest, v[i])
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
            size = _add(i, b, K0, K1, K2, places, R, inverse, y, r, index, inside, size)
    return size


@jit
def _add_worst(b, v, K0, K1, K2, places, R, inverse, y, r, index, inside, size):
    """Add the output that violates most among those that are independent of the support."""
    while True:
        worst = -1
        highest = 0.0
        for i in range(b.shape[0]):
            if v[i] > max(highest, ROUNDING * b[i]) and not inside[i]:
                worst = i
                highest = v[i]
        if worst < 0:
            return size
        grown = _add(worst, b, K0, K1, K2, places, R, inverse, y, r, index, inside, size)
        if grown > size:
            return grown
        v[worst] = 0.0


@jit
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
                inside[index[p]] = False
                remove(R, inverse, y, size, p, r)
                size -= 1
                for q in range(p, size):
                    index[q] = index[q + 1]
                    old[q] = old[q + 1]


@jit
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


@jit
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
