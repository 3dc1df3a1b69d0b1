"""The symmetric Sinkhorn problem ``v · Kv = α``, its potential and value, in one launch.

``log v`` moves two thirds of the way to ``log(α / Kv)``. Near the solution its error is multiplied
by ``(1 - 2P) / 3``, where ``P`` has eigenvalues in [0, 1]: see `backends.sinkhorn`. So each step
divides it by 3, whatever the cost.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from geosoftmax.backends.triton.fp16_split import (
    PlaneTile,
    both_sides,
    fp16_split,
    load_plane,
    rows_times,
)
from geosoftmax.backends.triton.tiles import (
    ROWS,
    on_device,
    padded,
    row_stages,
    row_tile,
    row_warps,
    scratch,
    sums,
    tile,
)

#: Steps: each divides the error of ``log v`` by 3, to the digits of float32.
STEPS = 16
#: Steps for ``Ω(α)``, which sees that error squared.
VALUE_STEPS = 8
#: Warps of a program, by the number of entries of a padded sample.
WARPS = {256: 1, 512: 1, 1024: 2, 2048: 4, 4096: 4, 8192: 8, 16384: 8}
#: Longest side of a plane, and outputs of another cost, that `solve_plane` and `solve_rows` hold.
LONGEST_SIDE = 128
LARGEST_MATRIX = 1024


class SinkhornPlaneTables(NamedTuple):
    """What kernels for planes read, for both axes."""

    shape: tuple[int, int]
    #: The kernels, as `fp16_split` returns them.
    row_kernel: Tensor
    column_kernel: Tensor
    #: Their logarithms, to the base of 2: padded, in float32.
    row_exponents: Tensor
    column_exponents: Tensor


class SinkhornRowTables(NamedTuple):
    """What `solve_rows` reads: the dense kernel, as `fp16_split` returns it."""

    size: int
    kernel: Tensor


def make_tables(kernels: list[Tensor], costs: list[Tensor]) -> SinkhornPlaneTables:
    """Make the tables of a plane from the kernels, and the cost matrices, of both axes."""
    h, w = (len(K) for K in kernels)
    row_kernel, column_kernel = (fp16_split(K, padded(len(K))) for K in kernels)
    return SinkhornPlaneTables((h, w), row_kernel, column_kernel, *map(_exponents, costs))


def _exponents(C: Tensor) -> Tensor:
    """Return ``log2 K``, padded."""
    n, side = len(C), padded(len(C))
    exponents = C.new_zeros((side, side), dtype=torch.float32)
    exponents[:n, :n] = C * (-0.5 / math.log(2))
    return exponents


def make_row_tables(K: Tensor) -> SinkhornRowTables:
    """Make the tables of any other cost from its dense kernel."""
    return SinkhornRowTables(len(K), fp16_split(K, padded(len(K))))


def solve_plane(tables: SinkhornPlaneTables, alpha: Tensor, warps: int | None = None) -> Tensor:
    """Return ``v`` in float32 for distributions over a plane."""
    a = alpha.to(torch.float32).contiguous()
    v = torch.empty_like(a)
    _launch(_solve_plane, tables, (a, v), a.numel(), STEPS, warps)
    return v


def potential_plane(tables: SinkhornPlaneTables, alpha: Tensor, warps: int | None = None) -> Tensor:
    """Return ``2 log(Kv)`` in float32, at every output: in the log domain, as it may underflow."""
    a = alpha.to(torch.float32).contiguous()
    potential = torch.empty_like(a)
    exponents = tables.row_exponents, tables.column_exponents
    _launch(_potential_plane, tables, (a, potential, *exponents), a.numel(), STEPS, warps)
    return potential


def negentropy_plane(
    tables: SinkhornPlaneTables, alpha: Tensor, warps: int | None = None
) -> Tensor:
    """Return ``Ω(α)`` in float32."""
    a = alpha.to(torch.float32).contiguous()
    value = a.new_empty(a.shape[:-2])
    _launch(_negentropy_plane, tables, (a, value), a.numel(), VALUE_STEPS, warps)
    return value


def _launch(
    kernel: Any, tables: SinkhornPlaneTables, signals: tuple[Tensor, ...], entries: int,
    steps: int, warps: int | None,
) -> None:  # fmt: skip
    """Run one of the kernels below; the arguments that they share come last."""
    h, w = tables.shape
    sides = padded(h), padded(w)
    with on_device(signals[0]):
        kernel[(entries // (h * w),)](
            *signals, tables.row_kernel, tables.column_kernel, h, w, float(h * w),
            STEPS=steps, TILE=PlaneTile(*sides, RESIDENT=False, LEFT=True),
            num_warps=warps or WARPS[sides[0] * sides[1]], num_stages=1,
        )  # fmt: skip


def solve_rows(tables: SinkhornRowTables, alpha: Tensor) -> Tensor:
    """Return ``v`` in float32 for distributions over the outputs of a dense kernel."""
    d, kernel = tables
    side = padded(d)
    a = alpha.to(torch.float32).contiguous()
    v = torch.empty_like(a)
    rows = a.numel() // d
    programs = triton.cdiv(rows, ROWS)
    with on_device(a):
        _solve_rows[(programs,)](
            a, v, scratch(a, programs, side), kernel, rows, d, float(d), math.sqrt(d),
            STEPS=STEPS, TILE=row_tile(side),
            num_warps=row_warps(side), num_stages=row_stages(side),
        )  # fmt: skip
    return v


@triton.jit
def _towards(v, a, h):
    """Return the next ``v``."""
    h = tl.maximum(h, v)  # K has a diagonal of ones: rounding went below
    positive = (a > 0) & (v > 0)
    step = tl.log2(tl.where(positive, a / h / v, 1.0)) * (2.0 / 3.0)
    return tl.where(positive, v * tl.exp2(step), 0.0)


@triton.jit
def _solve_rows(
    alpha, v_out, scratch, kernel, rows, width, size, root,
    STEPS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    M: tl.constexpr = TILE.M
    D: tl.constexpr = TILE.D
    scratch += tl.program_id(0).to(tl.int64) * 2 * M * D
    row = tl.program_id(0).to(tl.int64) * M + tl.arange(0, M)[:, None]
    j = tl.arange(0, D)[None, :]
    inside = (row < rows) & (j < width)
    place = row * width + j
    a = tl.load(alpha + place, mask=inside, other=0.0) * size
    none = tl.zeros([M, D], tl.float32)
    h = rows_times(a, none, scratch, kernel, 3, TILE)
    v = tl.where(a > 0, a / tl.sqrt(tl.maximum(h, a)), 0.0)
    for _ in range(STEPS):
        v = _towards(v, a, rows_times(v, none, scratch, kernel, 3, TILE))
    tl.store(v_out + place, v / root, mask=inside)


@triton.jit
def _scaling(a, kernel, STEPS: tl.constexpr, TILE: tl.constexpr):
    """Return ``v`` with ``v · Kv = a``."""
    h = both_sides(a, kernel, 0, False, 3, TILE)
    v = tl.where(a > 0, a / tl.sqrt(tl.maximum(h, a)), 0.0)
    for _ in range(STEPS):
        v = _towards(v, a, both_sides(v, kernel, 0, False, 3, TILE))
    return v


@triton.jit
def negentropy(a, mass, size, kernel, TILE: tl.constexpr):
    """Return ``Ω(α)``: the least ``vᵀKv - 2⟨α, log v⟩``, which sees an error of ``v`` squared.

    Three steps of Sinkhorn's iteration, by the roots of Chebyshev's polynomial on [1, 2], divide
    the error of ``log v`` by 99: see `backends.sinkhorn`.
    """
    a = a * size  # about 1: inside half precision
    h = both_sides(a, kernel, 0, False, 1, TILE)
    inside = a > 0
    log_a = tl.log(tl.where(inside, a, 1.0))
    log_v = log_a - 0.5 * tl.log(tl.where(inside, tl.maximum(h, a), 1.0))
    for k in range(3):
        v = tl.where(inside, tl.exp(log_v), 0.0)
        h = both_sides(v, kernel, 0, False, 1, TILE)
        h = tl.maximum(h, v)  # K has a diagonal of ones: rounding went below
        share = tl.where(k == 0, 0.5173, tl.where(k == 1, 0.9373, 0.6667))
        log_v += (log_a - log_v - tl.log(tl.where(inside, h, 1.0))) * share
    v = tl.where(inside, tl.exp(log_v), 0.0)
    return _value(a, v, log_a - log_v, mass, size, kernel, TILE)


@triton.jit
def _value(a, v, log_ratio, mass, size, kernel, TILE: tl.constexpr):
    """Return ``Ω(α)`` from ``v``, scaled as well as can be, and ``log(a / v)`` on the support."""
    h = both_sides(v, kernel, 0, False, 3, TILE)
    energy, linear = sums(v * h, tl.where(a > 0, a * log_ratio, 0.0))
    return 2 * linear / size + mass * (tl.log(energy / (mass * size * size)) - 1.0) + 1.0


@triton.jit
def _solve_plane(
    alpha, v_out, row_kernel, column_kernel, height, width, size,
    STEPS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    _, place, inside = tile(height, width, TILE.H, TILE.W)
    a = tl.load(alpha + place, mask=inside, other=0.0) * size  # about 1: inside half precision
    v = _scaling(a, load_plane(row_kernel, column_kernel, TILE), STEPS, TILE)
    tl.store(v_out + place, v / tl.sqrt(size), mask=inside)


@triton.jit
def _negentropy_plane(
    alpha, value, row_kernel, column_kernel, height, width, size,
    STEPS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    row, place, inside = tile(height, width, TILE.H, TILE.W)
    a = tl.load(alpha + place, mask=inside, other=0.0) * size
    kernel = load_plane(row_kernel, column_kernel, TILE)
    v = _scaling(a, kernel, STEPS, TILE)
    positive = (a > 0) & (v > 0)
    log_ratio = tl.log(tl.where(positive, a / tl.where(positive, v, 1.0), 1.0))
    mass = tl.sum(tl.sum(a, 1), 0) / size
    tl.store(value + row, _value(a, v, log_ratio, mass, size, kernel, TILE))


@triton.jit
def _potential_plane(
    alpha, potential, row_exponents, column_exponents, row_kernel, column_kernel, height, width,
    size, STEPS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    row, place, inside = tile(height, width, TILE.H, TILE.W)
    a = tl.load(alpha + place, mask=inside, other=0.0) * size
    v = _scaling(a, load_plane(row_kernel, column_kernel, TILE), STEPS, TILE)
    log_v = tl.where(v > 0, tl.log2(tl.where(v > 0, v, 1.0)), -float("inf"))
    # Signals pass through the memory of the result, from one axis to the next.
    here = potential + row * height * width
    tl.store(potential + place, log_v, mask=inside)
    tl.debug_barrier()
    log_h = _log_product(here, row_exponents, height, width, 0, TILE)
    tl.debug_barrier()
    tl.store(potential + place, log_h, mask=inside)
    tl.debug_barrier()
    log_h = _log_product(here, column_exponents, height, width, 1, TILE)
    tl.debug_barrier()
    two_ln_2 = 1.3862943611198906
    tl.store(potential + place, (log_h - 0.5 * tl.log2(size)) * two_ln_2, mask=inside)


@triton.jit
def _log_product(g, exponents, height, width, AXIS: tl.constexpr, TILE: tl.constexpr):
    """Return ``log2 Σ_k 2^(E_ik + g_k)`` along an axis of a signal in memory.

    Entry by entry, without a sum over threads: first the largest exponent, then the sum.
    """
    H: tl.constexpr = TILE.H
    W: tl.constexpr = TILE.W
    most = tl.full([H, W], -float("inf"), tl.float32)
    total = tl.zeros([H, W], tl.float32)
    count = height if AXIS == 0 else width
    for k in range(count):
        most = tl.maximum(most, _exponent(g, exponents, k, height, width, AXIS, H, W))
    most = tl.where(most > -float("inf"), most, 0.0)
    for k in range(count):
        total += tl.exp2(_exponent(g, exponents, k, height, width, AXIS, H, W) - most)
    return most + tl.log2(total)


@triton.jit
def _exponent(g, exponents, k, height, width, AXIS: tl.constexpr, H: tl.constexpr, W: tl.constexpr):
    i = tl.arange(0, H)
    j = tl.arange(0, W)
    if AXIS == 0:
        signal = tl.load(g + k * width + j, mask=j < width, other=-float("inf"))
        result = tl.load(exponents + k * H + i)[:, None] + signal[None, :]
    else:
        signal = tl.load(g + i * width + k, mask=i < height, other=-float("inf"))
        result = tl.load(exponents + k * W + j)[None, :] + signal[:, None]
    return result
