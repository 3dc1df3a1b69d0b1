"""From scores to what a caller wants, the same way for every method.

A method is a compiled kernel ``kernel(*call, *tables, first, last) -> worst gap, counted, bad`` for
the rows ``first … last - 1``. Its first arguments describe the call, in the order of `CALL`: where
the scores lie and where each result goes. An address of 0, or an empty array, is a result that
nobody wants. The kernel passes them to `begin`; it reads each row with `obstacle`, and ends it with
`finish`.
"""

from __future__ import annotations

import functools
import math
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
)
from geosoftmax.backends.numba.runtime import inner, jit, spread

#: The arguments that describe a call.
CALL = (
    "scores",  # address of the scores, or of b where `given`
    "kind",  # their dtype; that of alpha, u and slope too
    "given",  # whether b = exp(f/2) is given in place of scores
    "alpha", "u", "slope",  # addresses of results with the shape of the scores
    "target", "ignore", "mean",  # address of classes; what to ignore; whether slopes are of a mean
    "weight", "loss", "lower", "upper", "iterations",  # arrays of shape (rows,)
)  # fmt: skip
NOTHING = np.empty(0)
NO_COUNTS = np.empty(0, dtype=np.int64)
#: What `softmax` passes after the addresses.
_ALPHA_ALONE = (0, 0, 0, 0, 0, NOTHING, NOTHING, NOTHING, NOTHING, NO_COUNTS)

Kernel = Callable[..., tuple[float, int, int]]


class Rows(NamedTuple):
    """The result of a solve, row by row."""

    u: Tensor
    lower: Tensor
    upper: Tensor
    iterations: Tensor


class Results(NamedTuple):
    """The description of a call, inside kernels: addresses, and the `share` that slopes get.

    No arrays: references to them would be counted in each row.
    """

    scores: Any
    kind: Any
    alpha: Any
    u: Any
    slope: Any
    target: Any
    ignore: Any
    share: Any
    weight: Any
    loss: Any
    lower: Any
    upper: Any
    iterations: Any


# ------------------------------------------------------------------ from Python


def solve(
    kernel: Kernel,
    tables: Sequence[Any],
    d: int,
    scores: Tensor,
    dims: int | None,
    weight: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return ``alpha, u, lower, upper, iterations``.

    `weight` is the work for an entry, which decides whether threads are worth it.
    """
    f = _readable(scores)
    batch = _batch_shape(f, d, dims)
    alpha, u = torch.empty_like(f), torch.empty_like(f)
    rows = math.prod(batch)
    lower, upper, iterations = _per_row(rows)
    spread(
        kernel, rows, int(weight * f.numel()), f.data_ptr(), KINDS[f.dtype], 0,
        alpha.data_ptr(), u.data_ptr(),
        0, 0, 0, 0, NOTHING, NOTHING, lower, upper, iterations, *tables,
    )  # fmt: skip
    low, up, steps = map(torch.from_numpy, (lower, upper, iterations))
    if len(batch) != 1:
        low, up, steps = low.reshape(batch), up.reshape(batch), steps.reshape(batch)
    return alpha, u, low, up, steps


def softmax(
    kernel: Kernel, tables: Sequence[Any], d: int, scores: Tensor, weight: float = 1.0
) -> tuple[Tensor, float]:
    """Return ``alpha`` and the widest bracket, NaN if some row cannot be solved."""
    f = scores if scores.is_contiguous() and scores.is_cpu else _readable(scores)
    alpha = torch.empty_like(f)
    size = f.numel()
    found = spread(
        kernel, size // d, int(weight * size), f.data_ptr(), KINDS[f.dtype], 0, alpha.data_ptr(),
        *_ALPHA_ALONE, *tables,
    )  # fmt: skip
    return alpha, worst_of(found)


def loss(
    kernel: Kernel,
    tables: Sequence[Any],
    scores: Tensor,
    target: Tensor,
    ignore_index: int,
    reduction: str,
    want_slope: bool,
    weight: float = 1.0,
) -> tuple[Tensor, Tensor, float, int]:
    """Return losses (or sum, or mean), slopes, the widest bracket, and how many targets are bad."""
    f, y = _readable(scores), _readable(target)
    rows = f.shape[0]
    if y.dtype != torch.int64 or y.shape[0] != rows:
        raise TypeError(f"target must be int64 of shape ({rows},); got {y.dtype}, {y.shape}")
    slope = torch.empty_like(f) if want_slope else f[:0]
    each = np.empty(rows) if reduction == "none" else SCRATCH.get(*f.shape)[0]
    found = spread(
        kernel, rows, int(weight * f.numel()), f.data_ptr(), KINDS[f.dtype], 0, 0, 0,
        slope.data_ptr() if want_slope else 0, y.data_ptr(), ignore_index, int(reduction == "mean"),
        NOTHING, each, NOTHING, NOTHING, NO_COUNTS, *tables,
    )  # fmt: skip
    counted, bad = found[0][1:3]
    if reduction != "none":
        # Added up in the order of the rows, whatever the number of threads.
        total = f.new_empty(())
        _add(each, counted if reduction == "mean" else 1, KINDS[f.dtype], total.data_ptr())
        return total, slope, worst_of(found), bad
    return torch.from_numpy(each).to(f.dtype), slope, worst_of(found), bad


def solve_rows(kernel: Kernel, tables: Sequence[Any], b: Tensor) -> Rows:
    """Solve rows from ``b = exp(f/2)``, of shape (rows, *shape) in float64."""
    b = _readable(b.to(torch.float64))
    rows = b.shape[0]
    u = torch.empty_like(b)
    lower, upper, iterations = _per_row(rows)
    spread(
        kernel, rows, b.numel(), b.data_ptr(), KINDS[b.dtype], 1, 0, u.data_ptr(), 0, 0, 0, 0,
        NOTHING, NOTHING, lower, upper, iterations, *tables,
    )  # fmt: skip
    return Rows(u, *(torch.from_numpy(x) for x in (lower, upper, iterations)))


class Scratch(threading.local):
    """Room for intermediate results of a call, kept by each thread for the next of equal size.

    Batches of a training loop are of one size: they need no allocation.
    """

    #: Entries beyond which nothing is kept.
    MOST = 1 << 16

    def __init__(self) -> None:
        self.rows, self.d = -1, -1
        self.arrays = self._make(0, 0)

    def get(self, rows: int, d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return losses, supports, a list of rows, and steps; the next call overwrites them."""
        if rows == self.rows and d == self.d:
            return self.arrays
        arrays = self._make(rows, d)
        if rows * d <= self.MOST:
            self.rows, self.d, self.arrays = rows, d, arrays
        return arrays

    def _make(self, rows: int, d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        todo, steps = np.empty(rows, dtype=np.int64), np.empty(rows, dtype=np.int64)
        return np.empty(rows), np.empty((rows, d), dtype=np.bool_), todo, steps


SCRATCH = Scratch()


def _per_row(rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return room for lower, upper and iterations."""
    return np.empty(rows), np.empty(rows), np.empty(rows, dtype=np.int64)


def worst_of(found: Sequence[tuple[float, int, int]]) -> float:
    """Return the widest bracket of all slices; NaN if that of one is."""
    worst = found[0][0]
    for one, *_ in found[1:]:
        if worst == worst and not one <= worst:
            worst = one
    return worst


def _readable(signal: Tensor) -> Tensor:
    """Return a tensor whose memory kernels can read."""
    if not signal.is_cpu:
        raise TypeError(f"compiled kernels read CPU memory; got a tensor on {signal.device}")
    return signal.contiguous()


def _batch_shape(f: Tensor, d: int, dims: int | None) -> torch.Size:
    """Return the leading dimensions: all but the last `dims`, or the fewest with d entries."""
    if dims is None:
        dims = 1
        while f.shape[-dims:].numel() < d:
            dims += 1
    return f.shape[: f.dim() - dims]


# ------------------------------------------------------------------ inside kernels


@inner
def begin(
    scores, kind, alpha, u, slope, target, ignore, mean, weight, loss, lower, upper, iterations,
    rows, d,
):  # fmt: skip
    """Return the `Results` of a call, its number of counted targets, and of those out of range."""
    counted = 0
    bad = 0
    if target != 0:
        for row in range(rows):
            y = load_long(target, row)
            if y != ignore:
                counted += 1
                if y < 0 or y >= d:
                    bad += 1
    share = 1.0 / counted if mean else 1.0
    results = Results(
        scores, kind, alpha, u, slope, target, ignore, share, _address(weight), _address(loss),
        _address(lower), _address(upper), _address(iterations),
    )  # fmt: skip
    return results, counted, bad


@inner
def _address(array):
    return array.ctypes.data if array.shape[0] > 0 else 0


@inner
def obstacle(scores, kind, given, row, b):
    """Fill ``b = exp((f - peak) / 2)`` of a row; return the peak.

    It is NaN if the row has no solution; b is then that of another row, which is solved in its
    place, so that methods need not care.
    """
    read(scores, kind, row * b.shape[0], b)
    if given:
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
def finish(results, row, alpha, u, lower, upper, peak, steps, worst):
    """Write what is wanted of a row; `alpha` is overwritten. Returns the widest bracket so far.

    Where the peak is NaN, the row could not be solved, and everything is.
    """
    d = alpha.shape[0]
    if peak != peak:
        for i in range(d):
            u[i] = peak
            alpha[i] = peak
    if results.u != 0:
        write(results.u, results.kind, row * d, u)
    if results.alpha != 0:
        write(results.alpha, results.kind, row * d, alpha)
    if results.target != 0:
        finish_loss(results, row, alpha, lower, peak)
    return finish_bounds(results, row, lower, upper, peak, steps, worst)


@functools.partial(inner, inline=True)
def finish_bounds(results, row, lower, upper, peak, steps, worst):
    """Write the bracket and the iterations, if wanted. Returns the widest bracket so far."""
    if results.iterations != 0:
        store_long(results.iterations, row, steps if peak == peak else 0)
    lower += peak
    upper += peak
    lower -= ADDED_BACK * abs(lower)
    upper += ADDED_BACK * abs(upper)
    if results.lower != 0:
        store_double(results.lower, row, lower)
        store_double(results.upper, row, upper)
    gap = upper - lower
    return gap if worst == worst and not gap <= worst else worst


@functools.partial(inner, inline=True)
def finish_loss(results, row, alpha, lower, peak):
    """Write loss and slope; `alpha` is overwritten."""
    d = alpha.shape[0]
    y = load_long(results.target, row)
    counts = y != results.ignore and 0 <= y < d
    weight = load_double(results.weight, row) if results.weight != 0 else 1.0
    value = 0.0
    if counts:
        if results.kind == SINGLE:
            score = load_single(results.scores, row * d + y)
        else:
            score = load_double(results.scores, row * d + y)
        value = weight * max(lower + (peak - score), 0.0)
        if peak != peak:
            value = peak
    store_double(results.loss, row, value)
    if results.slope != 0:
        weight *= results.share
        for i in range(d):
            alpha[i] = alpha[i] * weight if counts else 0.0
        if counts:
            alpha[y] -= weight
        write(results.slope, results.kind, row * d, alpha)


@jit
def _add(each, divisor, kind, out):
    total = np.empty(1)
    total[0] = 0.0
    for row in range(each.shape[0]):
        total[0] += each[row]
    total[0] /= divisor
    write(out, kind, 0, total)
