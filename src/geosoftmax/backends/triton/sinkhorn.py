"""The symmetric Sinkhorn problem ``v · Kv = α`` in one launch, by an averaged fixed point.

``log v`` moves two thirds of the way to ``log(α / Kv)``. Near the solution its error is multiplied
by ``(1 - 2P) / 3``, where ``P`` has eigenvalues in [0, 1]: see `backends.sinkhorn`. So each step
divides it by 3, whatever the cost.
"""

from __future__ import annotations

import math
from typing import NamedTuple

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
#: Warps of a program, by the number of entries of a padded sample.
WARPS = {256: 1, 512: 1, 1024: 2, 2048: 4, 4096: 4, 8192: 8, 16384: 8}
#: Longest side of a plane, and outputs of another cost, that `solve_plane` and `solve_rows` hold.
LONGEST_SIDE = 128
LARGEST_MATRIX = 1024


class SinkhornPlaneTables(NamedTuple):
    """What `solve_plane` reads: the kernel of each axis, as `fp16_split` returns it."""

    shape: tuple[int, int]
    row_kernel: Tensor
    column_kernel: Tensor


class SinkhornRowTables(NamedTuple):
    """What `solve_rows` reads: the dense kernel, as `fp16_split` returns it."""

    size: int
    kernel: Tensor


def make_tables(kernels: list[Tensor]) -> SinkhornPlaneTables:
    """Make the tables of a plane from the kernels of both axes."""
    h, w = (len(K) for K in kernels)
    row_kernel, column_kernel = (fp16_split(K, padded(len(K))) for K in kernels)
    return SinkhornPlaneTables((h, w), row_kernel, column_kernel)


def make_row_tables(K: Tensor) -> SinkhornRowTables:
    """Make the tables of any other cost from its dense kernel."""
    return SinkhornRowTables(len(K), fp16_split(K, padded(len(K))))


def solve_plane(tables: SinkhornPlaneTables, alpha: Tensor, warps: int | None = None) -> Tensor:
    """Return ``v`` in float32 for distributions over a plane."""
    h, w = tables.shape
    sides = padded(h), padded(w)
    a = alpha.to(torch.float32).contiguous()
    v = torch.empty_like(a)
    with on_device(a):
        _solve_plane[(a.numel() // (h * w),)](
            a, v, tables.row_kernel, tables.column_kernel, h, w, float(h * w), math.sqrt(h * w),
            STEPS=STEPS, TILE=PlaneTile(*sides, RESIDENT=False, LEFT=True),
            num_warps=warps or WARPS[sides[0] * sides[1]], num_stages=1,
        )  # fmt: skip
    return v


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
    h = both_sides(v, kernel, 0, False, 3, TILE)
    energy, linear = sums(v * h, tl.where(inside, a * (log_a - log_v), 0.0))
    return 2 * linear / size + mass * (tl.log(energy / (mass * size * size)) - 1.0) + 1.0


@triton.jit
def _solve_plane(
    alpha, v_out, row_kernel, column_kernel, height, width, size, root,
    STEPS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    _, place, inside = tile(height, width, TILE.H, TILE.W)
    a = tl.load(alpha + place, mask=inside, other=0.0) * size  # about 1: inside half precision
    kernel = load_plane(row_kernel, column_kernel, TILE)
    v = _scaling(a, kernel, STEPS, TILE)
    tl.store(v_out + place, v / root, mask=inside)
