"""Zero-one cost: ``u = max(0, b - τ) / (1 - k)``, by dropping what lies below the threshold."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from geosoftmax.backends.numba import calls
from geosoftmax.backends.numba.calls import Rows
from geosoftmax.backends.numba.certificate import bracket
from geosoftmax.backends.numba.runtime import inner, jit
from geosoftmax.backends.numba.tables import ZeroOneTables


def solve(tables: ZeroOneTables, scores: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return ``alpha, u, lower, upper, iterations`` for scores of shape (*batch, d)."""
    d = scores.shape[-1]
    return calls.solve(_kernel, (d, *tables), d, scores, 1)


def softmax(tables: ZeroOneTables, scores: Tensor) -> tuple[Tensor, float]:
    """Return ``alpha`` and the widest bracket."""
    d = scores.shape[-1]
    return calls.softmax(_kernel, (d, *tables), d, scores)


def loss(
    tables: ZeroOneTables,
    scores: Tensor,
    target: Tensor,
    ignore_index: int,
    reduction: str,
    want_slope: bool = True,
) -> tuple[Tensor, Tensor, float, int]:
    """Return losses of classes, their slopes, the widest bracket, and how many are no class."""
    arrays = (scores.shape[-1], *tables)
    return calls.loss(_kernel, arrays, scores, target, ignore_index, reduction, want_slope)


def solve_rows(tables: ZeroOneTables, b: Tensor, start: Tensor | None = None) -> Rows:
    """Solve rows from ``b``. The method needs no start."""
    return calls.solve_rows(_kernel, (b.shape[-1], *tables), b)


@jit
def _kernel(
    scores, kind, given, alpha, u, slope, target, ignore, mean, weight, loss, lower, upper,
    iterations, d, k, one_minus_k, first, last,
):  # fmt: skip
    results, counted, bad = calls.begin(
        scores, kind, alpha, u, slope, target, ignore, mean, weight, loss, lower, upper,
        iterations, loss.shape[0], d,
    )  # fmt: skip
    b = np.empty(d)
    x = np.empty(d)
    h = np.empty(d)
    unit = np.empty(0)
    worst = 0.0
    for row in range(first, last):
        peak = calls.obstacle(scores, kind, given, row, b)
        steps = _row(b, k, one_minus_k, x, h)
        energy, low, high = bracket(b, x, h, unit, 1.0)
        calls.to_distribution(b, x, energy)
        worst = calls.finish(results, row, b, x, low, high, peak, steps, worst)
    return worst, counted, bad


@inner
def _row(b, k, one_minus_k, u, h):
    """Solve one row; return the rounds. Each drops what lies below the threshold of the rest."""
    d = b.shape[0]
    tau = -1.0
    kept = d + 1
    steps = np.int64(0)
    while True:
        total = 0.0
        count = 0
        for i in range(d):
            if b[i] > tau:
                total += b[i]
                count += 1
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
