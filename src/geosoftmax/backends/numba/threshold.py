"""Zero-one cost: ``u = max(0, b - τ) / (1 - k)``, by dropping what lies below the threshold."""

from __future__ import annotations

import functools

import numpy as np

from geosoftmax.backends.numba.calls import Kernel, finish, obstacle, to_distribution
from geosoftmax.backends.numba.certificate import bracket
from geosoftmax.backends.numba.runtime import inner, jit
from geosoftmax.backends.numba.tables import ZeroOneTables


def kernel(tables: ZeroOneTables, d: int) -> Kernel:
    """Return the method with these tables."""
    return Kernel(_rows, (d, *tables), d)


@jit
def _rows(call, d, k, one_minus_k, first, last):
    b = np.empty(d)
    x = np.empty(d)
    h = np.empty(d)
    unit = np.empty(0)
    worst = 0.0
    for row in range(first, last):
        peak = obstacle(call, row, b)
        steps = _row(b, k, one_minus_k, x, h)
        energy, low, high = bracket(b, x, h, unit, 1.0)
        to_distribution(b, x, energy)
        worst = finish(call, row, b, x, low, high, peak, steps, worst)
    return worst


@functools.partial(inner, reassociate=True)
def _above(b, tau):
    """Return the sum of what lies above the threshold, and how many do."""
    total = 0.0
    count = 0
    for i in range(b.shape[0]):
        total += b[i] if b[i] > tau else 0.0
        count += b[i] > tau
    return total, count


@inner
def _row(b, k, one_minus_k, u, h):
    """Solve one row; return the rounds. Each drops what lies below the threshold of the rest."""
    d = b.shape[0]
    tau = -1.0
    kept = d + 1
    steps = np.int64(0)
    while True:
        total, count = _above(b, tau)
        steps += 1
        if count >= kept:  # rounding may let a class at the threshold back in
            break
        kept = count
        tau = k * total / (one_minus_k + k * count)
    total = 0.0
    for i in range(d):
        u[i] = max(b[i] - tau, 0.0) / one_minus_k
        total += u[i]
    for i in range(d):
        h[i] = one_minus_k * u[i] + k * total
    return steps
