"""Small dense costs: principal pivoting, on many rows at once and then on those that are left.

Few rows are solved one by one: the kernels for many rows take long to compile.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from geosoftmax.backends.numba import calls
from geosoftmax.backends.numba.calls import NO_COUNTS, Rows, worst_of
from geosoftmax.backends.numba.certificate import bracket, diagonal_of
from geosoftmax.backends.numba.pivoting import guess, pivot_blocks, pivot_singly
from geosoftmax.backends.numba.runtime import jit
from geosoftmax.backends.numba.simd import LOOSE, solve_together
from geosoftmax.backends.numba.tables import DenseTables

#: Rows from which on they are solved together.
MANY = 24
NO_SUPPORTS = np.empty((0, 0), dtype=np.bool_)


def solve(
    tables: DenseTables, scores: Tensor, dims: int | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return ``alpha, u, lower, upper, iterations`` for scores of shape (*batch, *shape).

    `dims` is the number of dimensions of the shape; by default the fewest that have d entries.
    """
    d = tables.kernels.shape[-1]
    return calls.solve(*method(tables, scores.numel() // d), d, scores, dims, _work(d))


def softmax(tables: DenseTables, scores: Tensor) -> tuple[Tensor, float]:
    """Return ``alpha`` and the widest bracket."""
    d = tables.kernels.shape[-1]
    return calls.softmax(*method(tables, scores.numel() // d), d, scores, _work(d))


def loss(
    tables: DenseTables,
    scores: Tensor,
    target: Tensor,
    ignore_index: int,
    reduction: str,
    want_slope: bool = True,
) -> tuple[Tensor, Tensor, float, int]:
    """Return losses of classes, their slopes, the widest bracket, and how many are no class."""
    kernel, arrays = method(tables, scores.shape[0])
    work = _work(tables.kernels.shape[-1])
    return calls.loss(kernel, arrays, scores, target, ignore_index, reduction, want_slope, work)


def solve_rows(tables: DenseTables, b: Tensor, start: Tensor | None = None) -> Rows:
    """Solve rows from ``b``; the supports of `start` are tried first."""
    rows = b.shape[0]
    supports = None
    if start is not None:
        supports = (start.detach().reshape(rows, -1) > 0).numpy()
    return calls.solve_rows(*method(tables, rows, supports), b)


def _work(d: int) -> float:
    """Return the work for an entry: SIMD makes little of it where outputs are few."""
    return (32 + d) / 128


def method(
    tables: DenseTables, rows: int, supports: np.ndarray | None = None
) -> tuple[calls.Kernel, tuple[Any, ...]]:
    """Return the kernel for so many rows, and its arguments after those of the call.

    `supports`, of shape (rows, d), are started from, and replaced by those found.
    """
    kernels = tables.kernels
    warm = supports is not None
    if rows < MANY or kernels.shape[0] > 1:
        inside = supports if warm else NO_SUPPORTS
        return solve_singly, (kernels, inside, NO_COUNTS, NO_COUNTS, rows)
    _, inside, todo, steps = calls.SCRATCH.get(rows, kernels.shape[-1])
    return _solve_many, (kernels, supports if warm else inside, int(warm), todo, steps)


def _solve_many(*arguments: Any) -> tuple[float, int, int]:
    """Solve rows together, and those that are left one by one."""
    worst, counted, bad, left = solve_together(*arguments)
    if left:
        *call, kernels, inside, _, todo, steps, first, _ = arguments
        listed = todo[first : first + left]
        rest = solve_singly(*call, kernels, inside, steps, listed, len(steps), 0, left)
        worst = worst_of([(worst, counted, bad), rest])
    return worst, counted, bad


@jit
def solve_singly(
    scores, kind, given, alpha, u, slope, target, ignore, mean, weight, loss, lower, upper,
    iterations, kernels, supports, steps, listed, rows, first, last,
):  # fmt: skip
    """Solve rows one by one, those of a list if there is one.

    From `supports`, if there are any, after so many `steps` (negative: no more blocks).
    """
    d = kernels.shape[-1]
    results, counted, bad = calls.begin(
        scores, kind, alpha, u, slope, target, ignore, mean, weight, loss, lower, upper,
        iterations, rows, d,
    )  # fmt: skip
    A = np.empty((d, d))
    b = np.empty(d)
    x = np.empty(d)
    h = np.empty(d)
    column = np.empty(d)
    found = np.empty(d)
    index = np.empty(d, dtype=np.int64)
    inside = np.empty(d, dtype=np.bool_)
    K = kernels[0]
    diagonal, highest = diagonal_of(K, np.empty(d))
    worst = 0.0
    for n in range(first, last):
        row = listed[n] if listed.shape[0] > 0 else n
        peak = calls.obstacle(scores, kind, given, row, b)
        if kernels.shape[0] > 1:
            K = kernels[row]
            diagonal, highest = diagonal_of(K, np.empty(d))
        if supports.shape[0] > 0:
            for i in range(d):
                inside[i] = supports[row, i] and b[i] > 0.0
        else:
            guess(K, b, inside)
        step = steps[row] if steps.shape[0] > 0 else np.int64(0)
        solved = False
        energy, low, high = 0.0, 0.0, np.inf
        if step >= 0:
            step, solved = pivot_blocks(K, b, inside, step, index, A, column, found, x, h)
        if solved:
            energy, low, high = bracket(b, x, h, diagonal, highest)
        if high - low > LOOSE:
            step = abs(step) + pivot_singly(K, b, inside, index, A, column, found, x, h)
            energy, low, high = bracket(b, x, h, diagonal, highest)
        if supports.shape[0] > 0:
            for i in range(d):
                supports[row, i] = inside[i]
        calls.to_distribution(b, x, energy)
        worst = calls.finish(results, row, b, x, low, high, peak, step, worst)
    return worst, counted, bad
