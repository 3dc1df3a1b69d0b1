"""Predictions with a dense kernel of up to 512 outputs: one launch, 16 rows per program.

The iteration of `predict`, with ``(K + ρ)⁻¹`` as a matrix for each penalty: one product a step.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from geosoftmax.backends import settings
from geosoftmax.backends.triton.certificate import diagonal_factor, store_bounds
from geosoftmax.backends.triton.fp16_split import fp16_split, rows_times
from geosoftmax.backends.triton.predict import CUT, SCALED, SETTLED, penalties, schedule
from geosoftmax.backends.triton.tiles import (
    ROWS,
    Outputs,
    aim,
    on_device,
    outputs,
    padded,
    padded_square,
    row_stages,
    row_tile,
    row_warps,
)

#: Outputs of which 16 rows fit into registers.
LARGEST_MATRIX = 512
#: Outputs that products in float64 take at a time.
BLOCK = 64


class PredictionRowArrays(NamedTuple):
    """What the kernel reads."""

    #: ``ρ (K + ρ)⁻¹`` for each penalty, as `fp16_split` returns it.
    inverses: Tensor
    #: ``K``, padded, in float64.
    kernel: Tensor
    #: ``1 / K1``, with which a solve starts: padded, in float32.
    start: Tensor
    #: The penalties, then the `diagonal_factor`.
    numbers: Tensor


class RowScratch(NamedTuple):
    """Rows through which each program passes its own."""

    #: Two fp16 parts; what a product in float64 reads, what it lacks, and what it gives.
    parts: Tensor
    signal: Tensor
    rest: Tensor
    product: Tensor


class PredictionRowTables(NamedTuple):
    """What predictions with a dense kernel read, made once by `make_tables`."""

    shape: tuple[int, ...]
    #: As in `PredictionTables`.
    wide: int
    arrays: PredictionRowArrays


def make_tables(
    kernels: list[Tensor], bases: list[Tensor], eigenvalues: Tensor
) -> PredictionRowTables:
    """Make the tables from kernels of each axis, their eigenvectors, and the eigenvalues of ``K``.

    The eigenvalues have the shape of a signal. ``K`` is the Kronecker product of the kernels.
    """
    K, basis = (functools.reduce(torch.kron, parts) for parts in (kernels, bases))
    side = padded(len(K))
    rhos, wide = penalties(eigenvalues)
    flat = eigenvalues.flatten()
    inverses = [fp16_split((basis * (rho / (flat + rho))) @ basis.T, side) for rho in rhos]
    start = K.new_zeros(side, dtype=torch.float32)
    start[: len(K)] = 1 / K.sum(1)
    numbers = torch.cat([rhos, diagonal_factor(K)[None]]).to(torch.float32)
    arrays = PredictionRowArrays(torch.stack(inverses), padded_square(K, side), start, numbers)
    return PredictionRowTables(tuple(eigenvalues.shape), wide, arrays)


def solve(tables: PredictionRowTables, scores: Tensor, tol: float, max_iter: int) -> Outputs:
    """From scores to the distribution, ``u``, its bracket and the iterations."""
    d = torch.Size(tables.shape).numel()
    side = padded(d)
    f = scores.contiguous()
    found = outputs(f, len(tables.shape))
    rows = found.lower.numel()
    programs = triton.cdiv(rows, ROWS)
    slack = settings.rounding_allowance(d, torch.float64)
    tile = programs, ROWS, side
    scratch = RowScratch(
        f.new_empty((2, *tile), dtype=torch.float16),
        f.new_empty(tile),
        f.new_empty(tile),
        f.new_empty(tile, dtype=torch.float64),
    )
    with on_device(f):
        _solve[(programs,)](
            f, found, scratch, tables.arrays,
            rows, d, aim(tol, slack), SETTLED, max_iter, slack, 0,
            TILE=row_tile(side), SCHEDULE=schedule(tables.wide, min(BLOCK, side)),
            num_warps=row_warps(side), num_stages=row_stages(side),
        )  # fmt: skip
    return found


# ------------------------------------------------------------------ products in float64


@triton.jit
def _obstacle(scores, row, column, peak, rows, width):
    """Return ``b`` in float64 in some columns."""
    inside = (row < rows)[:, None] & (column < width)[None, :]
    place = row[:, None] * width + column[None, :]
    f = tl.load(scores + place, mask=inside, other=float("-inf")).to(tl.float64)
    return tl.where(inside, tl.exp((f - peak.to(tl.float64)[:, None]) * 0.5), 0.0)


@triton.jit
def _product(column, scratch, kernel, TILE: tl.constexpr, BLOCK: tl.constexpr):
    """Return some columns of ``K`` times the signal of the scratch."""
    M: tl.constexpr = TILE.M
    D: tl.constexpr = TILE.D
    m = tl.arange(0, M)[:, None]
    k = tl.arange(0, BLOCK)
    total = tl.zeros([M, BLOCK], tl.float64)
    for inner in range(0, D, BLOCK):
        left = tl.load(scratch.signal + m * D + (inner + k)[None, :]).to(tl.float64)
        right = tl.load(kernel + (inner + k)[:, None] * D + column[None, :])
        total = tl.dot(left, right, acc=total, out_dtype=tl.float64)
    return total


@triton.jit
def _pass_on(x, scratch, TILE: tl.constexpr):
    """Make ``x`` the signal of the scratch."""
    M: tl.constexpr = TILE.M
    D: tl.constexpr = TILE.D
    m = tl.arange(0, M)[:, None]
    j = tl.arange(0, D)[None, :]
    tl.debug_barrier()  # others may still read what is overwritten here
    tl.store(scratch.signal + m * D + j, x)
    tl.debug_barrier()


@triton.jit
def _corrected(
    s, x, at, rho, scores, row, peak, rows, width, scratch, arrays, here,
    TILE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Return ``x`` with what its equation lacks, as float64 sees it."""
    M: tl.constexpr = TILE.M
    D: tl.constexpr = TILE.D
    m = tl.arange(0, M)[:, None]
    _pass_on(x, scratch, TILE)
    for start in range(0, D, BLOCK):
        column = start + tl.arange(0, BLOCK)
        h = _product(column, scratch, arrays.kernel + here, TILE, BLOCK)
        b = _obstacle(scores, row, column, peak, rows, width)
        tl.store(scratch.rest + m * D + column[None, :], (b - h).to(tl.float32))
    tl.debug_barrier()
    rest = tl.load(scratch.rest + m * D + tl.arange(0, D)[None, :]) + rho * (tl.abs(s) - x)
    return x + _resolve(rest, _scale(rest), at, rho, scratch, arrays, here, 3, TILE)


@triton.jit
def _certify(
    u, scores, row, peak, rows, width, scratch, arrays, here, diagonal_factor,
    TILE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Return what `certificate.certify` does, in float64."""
    M: tl.constexpr = TILE.M
    D: tl.constexpr = TILE.D
    m = tl.arange(0, M)[:, None]
    _pass_on(u, scratch, TILE)
    bu, uh = tl.zeros([M, BLOCK], tl.float64), tl.zeros([M, BLOCK], tl.float64)
    for start in range(0, D, BLOCK):
        column = start + tl.arange(0, BLOCK)
        place = m * D + column[None, :]
        h = _product(column, scratch, arrays.kernel + here, TILE, BLOCK)
        tl.store(scratch.product + place, h)
        part = tl.load(scratch.signal + place).to(tl.float64)
        bu += part * _obstacle(scores, row, column, peak, rows, width)
        uh += part * h
    tl.debug_barrier()
    bu, uh = tl.sum(bu, 1), tl.sum(uh, 1)
    scale = bu / uh
    v_sum, vh = tl.zeros([M, BLOCK], tl.float64), tl.zeros([M, BLOCK], tl.float64)
    for start in range(0, D, BLOCK):
        column = start + tl.arange(0, BLOCK)
        h = tl.load(scratch.product + m * D + column[None, :])
        b = _obstacle(scores, row, column, peak, rows, width)
        v = tl.maximum(b - scale[:, None] * h, 0.0)
        v_sum += v
        vh += v * h
    v_sum, vh = tl.sum(v_sum, 1) * diagonal_factor, tl.sum(vh, 1) * diagonal_factor
    gap = (2 * vh * scale + v_sum * v_sum) / (bu * scale)
    return bu, uh, tl.where(bu == 0.0, 1e9, gap)


# ------------------------------------------------------------------ products in half precision


@triton.jit
def _scale(x):
    """Return the factors that bring each row to the range of half precision."""
    return SCALED / tl.maximum(tl.max(tl.abs(x), 1), 1e-30)[:, None]


@triton.jit
def _resolve(x, scale, at, rho, scratch, arrays, here, PASSES: tl.constexpr, TILE: tl.constexpr):
    """Return ``(K + ρ)⁻¹ x``."""
    M: tl.constexpr = TILE.M
    D: tl.constexpr = TILE.D
    x = tl.minimum(tl.maximum(x * scale, -CUT), CUT)
    matrix = arrays.inverses + at * (2 * D * D) + here
    zeros = tl.zeros([M, D], tl.float32)
    return rows_times(x, zeros, scratch.parts, matrix, PASSES, TILE) * (1.0 / (rho * scale))


@triton.jit
def _solve(
    scores, found, scratch, arrays, rows, width, tol, settled, max_iter, slack, zero,
    TILE: tl.constexpr, SCHEDULE: tl.constexpr,
):  # fmt: skip
    M: tl.constexpr = TILE.M
    D: tl.constexpr = TILE.D
    TURNS: tl.constexpr = SCHEDULE.TURNS
    STEPS: tl.constexpr = SCHEDULE.STEPS
    BLOCK: tl.constexpr = SCHEDULE.BLOCK
    program = tl.program_id(0).to(tl.int64)
    scratch = RowScratch(
        scratch.parts + program * (2 * M * D),
        scratch.signal + program * (M * D),
        scratch.rest + program * (M * D),
        scratch.product + program * (M * D),
    )
    row = program * M + tl.arange(0, M)
    j = tl.arange(0, D)[None, :]
    real = row < rows
    inside = real[:, None] & (j < width)
    place = row[:, None] * width + j
    f = tl.load(scores + place, mask=inside, other=float("-inf"))
    peak = tl.max(f, 1)
    s = tl.where(inside, tl.exp((f - peak[:, None]) * 0.5), 0.0) * tl.load(arrays.start + j)
    x = s
    rho = tl.load(arrays.numbers)
    diagonal_factor = tl.load(arrays.numbers + TURNS)
    bu = tl.zeros([M], tl.float64)
    uh, gap = bu, bu
    count = tl.zeros([M], tl.int32)
    going = real
    done, rounds, parts = zero, zero, zero + 1
    while (tl.max(going.to(tl.int32)) > 0) & (done < max_iter):
        # Rows that are done stay as they are: no row depends on its neighbours.
        moving = going[:, None]
        for turn in range(TURNS):
            here = (done + turn) * zero  # zero: as in grid.py
            new = tl.load(arrays.numbers + turn)
            change = (tl.maximum(s, 0.0) - x) * (new - rho)
            change = _resolve(change, _scale(change), turn, new, scratch, arrays, here, 1, TILE)
            x = tl.where(moving, x + change, x)
            s = tl.where(moving & (s <= 0), s * (rho / new), s)
            rho = new
            for part in range(parts):
                here = (done + part) * zero
                if (turn % SCHEDULE.BETWEEN == 0) | (rounds >= SCHEDULE.ROUNDS):
                    better = _corrected(
                        s, x, turn, rho, scores, row, peak, rows, width, scratch, arrays, here,
                        TILE, BLOCK,
                    )  # fmt: skip
                    x = tl.where(moving, better, x)
                change = SCHEDULE.RELAXATION * (x - tl.maximum(s, 0.0))
                scale = _scale((tl.abs(s + change) - tl.abs(s)) * rho)
                for k in range(STEPS):
                    here = (done + k) * zero
                    ahead = s + SCHEDULE.RELAXATION * (x - tl.maximum(s, 0.0))
                    change = tl.where(moving, (tl.abs(ahead) - tl.abs(s)) * rho, 0.0)
                    s = tl.where(moving, ahead, s)
                    x += _resolve(change, scale, turn, rho, scratch, arrays, here, 1, TILE)
        done += TURNS * STEPS * parts
        rounds += 1
        parts = tl.where(rounds % SCHEDULE.ROUNDS == 0, 2 * parts, parts)
        count = tl.where(going, done, count)
        here = done * zero
        if rounds > SCHEDULE.FIRST:
            better = _corrected(
                s, x, TURNS - 1, rho, scores, row, peak, rows, width, scratch, arrays, here,
                TILE, BLOCK,
            )  # fmt: skip
            x = tl.where(moving, better, x)
        u = tl.where(s > 0, tl.maximum(x, 0.0), 0.0)
        new_bu, new_uh, new_gap = _certify(
            u, scores, row, peak, rows, width, scratch, arrays, here, diagonal_factor, TILE, BLOCK
        )
        bu, uh = tl.where(going, new_bu, bu), tl.where(going, new_uh, uh)
        gap = tl.where(going, new_gap, gap)
        f = tl.load(scores + place, mask=inside, other=float("-inf"))
        b = tl.where(inside, tl.exp((f - peak[:, None]) * 0.5), 0.0)
        alpha = u * b * (1.0 / bu).to(tl.float32)[:, None]
        before = tl.load(found.alpha + place, mask=inside & (rounds > 1), other=0.0)
        moved = tl.sum(tl.abs(alpha - before), 1) * 0.5
        tl.store(found.alpha + place, alpha, mask=inside & moving)
        unsettled = (moved > settled) & (done < SCHEDULE.SETTLED_ANYWAY)
        going = going & ((gap > tol) | unsettled)

    u = tl.where(s > 0, tl.maximum(x, 0.0), 0.0) * (bu / uh).to(tl.float32)[:, None]
    tl.store(found.u + place, u, mask=inside)
    store_bounds(found, row, real, peak, bu, uh, gap, slack, count)
