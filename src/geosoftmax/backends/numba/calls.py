"""From scores to the requested results, in the same way for every method.

A method is a compiled function ``rows(call, *arrays, first, last) -> widest bracket`` for the rows
``first … last - 1``, and a `Kernel` is such a function with its arrays. `call` is the address of a
record: where the scores are, and where each result goes. `SCORES` and the constants after it are
the numbers of its fields. A result with address 0 was not requested. The function reads each row
with `obstacle`, and ends it with `finish`.
"""

from __future__ import annotations

import array
import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from geosoftmax.backends.numba.certificate import ADDED_BACK
from geosoftmax.backends.numba.elementary import exponential
from geosoftmax.backends.numba.memory import (
    KINDS,
    SINGLE,
    load_double,
    load_long,
    load_single,
    read,
    store_double,
    store_long,
    write,
    write_entry,
)
from geosoftmax.backends.numba.runtime import inner, jit, spread

#: Fields of a call: the scores, their dtype (that of alpha, u and slope too), whether they are
#: ``b = exp(f/2)`` instead, and how many rows there are;
SCORES, KIND, GIVEN, ROWS = range(4)
#: addresses of results with the shape of the scores;
ALPHA, U, SLOPE = range(4, 7)
#: addresses of results with one entry for each row;
LOWER, UPPER, ITERATIONS, LOSS = range(7, 11)
#: and classes, what to ignore of them, what to divide slopes by, and weights of rows.
TARGET, IGNORE, DIVISOR, WEIGHT = range(11, 15)

_NOTHING = (0,) * 15
#: A number of each kind: torch makes a number like another faster than one of a shape and a dtype.
_NUMBER = {kind: torch.zeros((), dtype=dtype, device="cpu") for dtype, kind in KINDS.items()}

Function = Callable[..., float]
Solved = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


class Rows(NamedTuple):
    """The result of a solve, row by row."""

    u: Tensor
    lower: Tensor
    upper: Tensor
    iterations: Tensor


# ------------------------------------------------------------------ from Python


def run(method: tuple[Function, Sequence[Any]], rows: int, work: float, *fields: int) -> float:
    """Run a function over the rows of a call, given its first fields; the others are 0.

    Returns the widest bracket, NaN if some row cannot be solved.
    """
    record = array.array("q", fields + _NOTHING[len(fields) :])
    return widest(spread(method[0], rows, int(work), record.buffer_info()[0], *method[1]))


class Kernel:
    """A compiled function with its arrays.

    Parameters
    ----------
    function : callable
        ``function(call, *arrays, first, last)``.
    arrays : sequence
        Tables of the cost.
    d : int
        Number of outputs.
    work : float, default=1.0
        Work for an entry, which decides whether threads are worth it.
    """

    def __init__(
        self, function: Function, arrays: Sequence[Any], d: int, work: float = 1.0
    ) -> None:
        self.function, self.arrays, self.d, self.work = function, arrays, d, work

    def method(
        self, rows: int, supports: np.ndarray | None = None
    ) -> tuple[Function, Sequence[Any]]:
        """Return the function for so many rows, and its arrays. Most need no supports to start."""
        return self.function, self.arrays

    def solve(self, scores: Tensor) -> Solved:
        """Return ``alpha, u, lower, upper, iterations`` for scores of shape (*batch, d)."""
        f = _readable(scores)
        if f.shape[-1] != self.d:
            raise ValueError(f"scores must have shape (*batch, {self.d}); got {tuple(f.shape)}")
        batch, size = f.shape[:-1], f.numel()
        rows = size // self.d
        alpha, u = torch.empty_like(f), torch.empty_like(f)
        lower, upper, iterations = _per_row(batch)
        run(
            self.method(rows), rows, self.work * size, f.data_ptr(), KINDS[f.dtype], 0, rows,
            alpha.data_ptr(), u.data_ptr(), 0,
            lower.data_ptr(), upper.data_ptr(), iterations.data_ptr(),
        )  # fmt: skip
        return alpha, u, lower, upper, iterations

    def softmax(self, scores: Tensor) -> tuple[Tensor, float]:
        """Return ``alpha`` and the widest bracket, NaN if some row cannot be solved.

        Scores may have any shape (*batch, *shape) with d outputs.
        """
        f = _readable(scores)
        alpha = torch.empty_like(f)
        size = f.numel()
        rows = size // self.d
        gap = run(
            self.method(rows), rows, self.work * size, f.data_ptr(), KINDS[f.dtype], 0, rows,
            alpha.data_ptr(),
        )  # fmt: skip
        return alpha, gap

    def loss(
        self, scores: Tensor, target: Tensor, ignore_index: int, reduction: str
    ) -> tuple[Tensor, Tensor, float, int]:
        """Return losses (or sum, or mean), slopes, the widest bracket, and how many are no class.

        Scores are of shape (rows, d), classes of shape (rows,).
        """
        f, y = _readable(scores), _readable(target)
        rows, d = f.shape
        kind = KINDS[f.dtype]
        if y.dtype != torch.int64 or y.shape != (rows,):
            raise TypeError(f"target must be int64 of shape ({rows},); got {y.dtype}, {y.shape}")
        slope = torch.empty_like(f)
        each = SCRATCH.get(rows, d)[0]
        counted, bad = _count(y.data_ptr(), rows, ignore_index, d)
        divisor = counted if reduction == "mean" else 1
        gap = run(
            self.method(rows), rows, self.work * rows * d, f.data_ptr(), kind, 0, rows,
            0, 0, slope.data_ptr(), 0, 0, 0, each.data_ptr(), y.data_ptr(), ignore_index, divisor,
        )  # fmt: skip
        if reduction == "none":
            return each.to(f.dtype, copy=True), slope, gap, bad
        # Added up in the order of the rows, whatever the number of threads.
        total = torch.empty_like(_NUMBER[kind])
        _add(each.data_ptr(), rows, divisor, kind, total.data_ptr())
        return total, slope, gap, bad

    def solve_rows(self, b: Tensor, start: Tensor | None = None) -> Rows:
        """Solve rows from ``b = exp(f/2)``, of shape (rows, *shape) in float64.

        The supports of `start` are tried first, by methods that can.
        """
        b = _readable(b.to(torch.float64))
        rows = b.shape[0]
        supports = None if start is None else (start.detach().reshape(rows, -1) > 0).numpy()
        u = torch.empty_like(b)
        lower, upper, iterations = _per_row((rows,))
        run(
            self.method(rows, supports), rows, b.numel(), b.data_ptr(), KINDS[b.dtype], 1, rows,
            0, u.data_ptr(), 0, lower.data_ptr(), upper.data_ptr(), iterations.data_ptr(),
        )  # fmt: skip
        return Rows(u, lower, upper, iterations)


def _room(shape: int | Sequence[int], dtype: torch.dtype = torch.float64) -> Tensor:
    """Return memory of the host, whatever torch's default device is."""
    return torch.empty(shape, dtype=dtype, device="cpu")


class Scratch(threading.local):
    """Room for intermediate results of a call, kept by each thread for the next of equal size.

    Batches of a training loop are of one size: they need no allocation.
    """

    #: Entries beyond which nothing is kept.
    MOST = 1 << 16

    def __init__(self) -> None:
        self.rows, self.d = -1, -1
        self.arrays = self._make(0, 0)

    def get(self, rows: int, d: int) -> tuple[Tensor, np.ndarray, np.ndarray, np.ndarray]:
        """Return losses, supports, a list of rows, and steps; the next call overwrites them."""
        if rows == self.rows and d == self.d:
            return self.arrays
        arrays = self._make(rows, d)
        if rows * d <= self.MOST:
            self.rows, self.d, self.arrays = rows, d, arrays
        return arrays

    def _make(self, rows: int, d: int) -> tuple[Tensor, np.ndarray, np.ndarray, np.ndarray]:
        todo, steps = np.empty(rows, dtype=np.int64), np.empty(rows, dtype=np.int64)
        return _room(rows), np.empty((rows, d), dtype=np.bool_), todo, steps


SCRATCH = Scratch()


def _per_row(batch: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Return room for lower, upper and iterations."""
    return _room(batch), _room(batch), _room(batch, torch.int64)


def widest(found: Sequence[float]) -> float:
    """Return the widest bracket of all slices; NaN if that of one is."""
    worst = found[0]
    for one in found[1:]:
        if worst == worst and not one <= worst:
            worst = one
    return worst


def _readable(signal: Tensor) -> Tensor:
    """Return a tensor whose memory kernels can read."""
    if not signal.is_cpu:
        raise TypeError(f"compiled kernels read CPU memory; got a tensor on {signal.device}")
    return signal.contiguous()


# ------------------------------------------------------------------ inside kernels


@inner
def obstacle(call, row, b):
    """Fill ``b = exp((f - peak) / 2)`` of a row; return the peak.

    It is NaN if the row has no solution; b is then that of another row, which is solved in its
    place, so that methods need not care.
    """
    read(load_long(call, SCORES), load_long(call, KIND), row * b.shape[0], b)
    if load_long(call, GIVEN) != 0:
        return 0.0
    peak = b[0]
    for i in range(1, b.shape[0]):
        peak = max(peak, b[i])
    fine = True
    for i in range(b.shape[0]):
        below = (b[i] - peak) * 0.5
        fine &= below <= 0.0  # NaN and all infinities fail
        b[i] = below
    if not fine:
        for i in range(b.shape[0]):
            b[i] = -np.inf
        b[0] = 0.0
    for i in range(b.shape[0]):
        b[i] = exponential(b[i])
    return peak if fine else np.nan


@inner
def to_distribution(b, u, energy):
    """Turn b into α = u b / ⟨b,u⟩."""
    inverse = 1.0 / energy
    for i in range(b.shape[0]):
        b[i] = u[i] * b[i] * inverse


@inner
def finish(call, row, alpha, u, lower, upper, peak, steps, worst):
    """Write what is wanted of a row. Returns the widest bracket so far.

    Where the peak is NaN, the row could not be solved, and everything is.
    """
    d = alpha.shape[0]
    kind = load_long(call, KIND)
    if peak != peak:
        for i in range(d):
            u[i] = peak
            alpha[i] = peak
    if load_long(call, U) != 0:
        write(load_long(call, U), kind, row * d, u, 1.0)
    if load_long(call, ALPHA) != 0:
        write(load_long(call, ALPHA), kind, row * d, alpha, 1.0)
    if load_long(call, TARGET) != 0:
        finish_loss(call, row, alpha, lower, peak)
    return finish_bounds(call, row, lower, upper, peak, steps, worst)


@functools.partial(inner, inline=True)
def finish_bounds(call, row, lower, upper, peak, steps, worst):
    """Write the bracket and the iterations, if wanted. Returns the widest bracket so far."""
    if load_long(call, ITERATIONS) != 0:
        store_long(load_long(call, ITERATIONS), row, steps if peak == peak else 0)
    lower += peak
    upper += peak
    lower -= ADDED_BACK * abs(lower)
    upper += ADDED_BACK * abs(upper)
    if load_long(call, LOWER) != 0:
        store_double(load_long(call, LOWER), row, lower)
        store_double(load_long(call, UPPER), row, upper)
    gap = upper - lower
    return gap if worst == worst and not gap <= worst else worst


@functools.partial(inner, inline=True)
def finish_loss(call, row, alpha, lower, peak):
    """Write loss and slope of a row with this distribution."""
    d = alpha.shape[0]
    kind = load_long(call, KIND)
    y = load_long(load_long(call, TARGET), row)
    counts = y != load_long(call, IGNORE) and 0 <= y < d
    weights = load_long(call, WEIGHT)
    weight = load_double(weights, row) if weights != 0 else 1.0
    value = 0.0
    if counts:
        if kind == SINGLE:
            score = load_single(load_long(call, SCORES), row * d + y)
        else:
            score = load_double(load_long(call, SCORES), row * d + y)
        value = weight * max(lower + (peak - score), 0.0)
        if peak != peak:
            value = peak
    store_double(load_long(call, LOSS), row, value)
    slope = load_long(call, SLOPE)
    if slope != 0:
        if counts:
            share = weight * (1.0 / load_long(call, DIVISOR))
            write(slope, kind, row * d, alpha, share)
            write_entry(slope, kind, row * d + y, alpha[y] * share - share)
        else:  # whatever its scores are
            for i in range(d):
                write_entry(slope, kind, row * d + i, 0.0)


@jit
def _count(target, rows, ignore, d):
    """Return how many targets count, and how many of those are out of range."""
    counted = 0
    bad = 0
    for row in range(rows):
        y = load_long(target, row)
        if y != ignore:
            counted += 1
            if y < 0 or y >= d:
                bad += 1
    return counted, bad


@jit
def _add(each, rows, divisor, kind, out):
    total = np.empty(1)
    total[0] = 0.0
    for row in range(rows):
        total[0] += load_double(each, row)
    total[0] /= divisor
    write(out, kind, 0, total, 1.0)
