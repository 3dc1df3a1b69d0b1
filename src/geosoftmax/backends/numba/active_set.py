"""Small dense costs: principal pivoting, on many rows at once, then on the remaining rows.

If there are few rows, they are solved one by one: the kernels for many rows compile slowly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from geosoftmax.backends.numba.calls import (
    SCRATCH,
    Function,
    Kernel,
    finish,
    obstacle,
    to_distribution,
    widest,
)
from geosoftmax.backends.numba.certificate import bracket, diagonal_of
from geosoftmax.backends.numba.pivoting import guess, pivot_blocks, pivot_singly
from geosoftmax.backends.numba.runtime import jit
from geosoftmax.backends.numba.simd import LOOSE, solve_together
from geosoftmax.backends.numba.tables import DenseTables

#: From this many rows on, they are solved together.
MANY = 24
NO_SUPPORTS, NO_COUNTS = np.empty((0, 0), dtype=np.bool_), np.empty(0, dtype=np.int64)


def kernel(tables: DenseTables) -> Kernel:
    """Return the method with these tables."""
    return PrincipalPivoting(tables.kernels)


class PrincipalPivoting(Kernel):
    """Few rows one by one, and also those with a kernel each; many rows together."""

    def __init__(self, kernels: np.ndarray) -> None:
        d = kernels.shape[-1]
        # The work for an entry: SIMD makes little of it where outputs are few.
        singly = (kernels, NO_SUPPORTS, NO_COUNTS, NO_COUNTS)
        super().__init__(solve_singly, singly, d, (32 + d) / 128)
        self.kernels = kernels

    def method(
        self, rows: int, supports: np.ndarray | None = None
    ) -> tuple[Function, Sequence[Any]]:
        """Return the function for so many rows, and its arrays.

        `supports`, of shape (rows, d), are started from, and replaced by those found.
        """
        warm = supports is not None
        if rows < MANY or self.kernels.shape[0] > 1:
            if not warm:
                return super().method(rows)
            return solve_singly, (self.kernels, supports, NO_COUNTS, NO_COUNTS)
        _, inside, todo, steps = SCRATCH.get(rows, self.d)
        return _solve_many, (self.kernels, supports if warm else inside, int(warm), todo, steps)


def _solve_many(*arguments: Any) -> float:
    """Solve rows together, and those that are left one by one."""
    worst, left = solve_together(*arguments)
    if left:
        call, kernels, inside, _, todo, steps, first, _ = arguments
        listed = todo[first : first + left]
        rest = solve_singly(call, kernels, inside, steps, listed, 0, left)
        worst = widest([worst, rest])
    return worst


@jit
def solve_singly(call, kernels, supports, steps, listed, first, last):
    """Solve rows one by one, those of a list if there is one.

    From `supports`, if there are any, after so many `steps` (negative: no more blocks).
    """
    d = kernels.shape[-1]
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
        peak = obstacle(call, row, b)
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
        to_distribution(b, x, energy)
        worst = finish(call, row, b, x, low, high, peak, step, worst)
    return worst
