"""Predictions on planes: full float32 precision, in one launch, one program per sample.

The iteration of `grid`, with alternating penalties. Large penalties fit the value. Small ones fit
the distribution, which depends on the small eigenvalues of ``K``. Short turns may cycle, so turns
become longer: any single penalty converges.

A small penalty divides by small numbers, and magnifies rounding. So from time to time the residual
of ``(K + ρ) x = b + ρ|s|`` is computed in float64, block by block, and ``x`` is corrected. The
steps in between are products in half precision, of changes that are scaled to its range. The
certificate is float64, too. For both, planes are written to scratch memory, because a kernel cannot
take a part of a tile in registers.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from geosoftmax.backends import settings
from geosoftmax.backends.triton.certificate import store_bounds
from geosoftmax.backends.triton.fp16_split import PlaneTile, both_sides, fp16_split, load_plane
from geosoftmax.backends.triton.tiles import (
    Outputs,
    aim,
    on_device,
    outputs,
    padded,
    padded_square,
    tile,
)

#: Longest side of a plane that fits into the registers of one program.
LONGEST_SIDE = 128
#: Smallest gap that it is used for. Below, exact solves take less time.
SMALLEST_GAP = 1e-6
#: The number of penalties.
TURNS = 6
#: The largest penalty, relative to the largest eigenvalue. The smallest, relative to the smallest
#: eigenvalue and at least to the largest.
LARGEST, SMALLEST, SMALLEST_OF_LARGEST = 1 / 7, 4.0, 1.2e-5
#: Steps with each penalty, and penalties between two corrections of ``x`` in the first rounds,
#: where the largest penalty is up to 1,000 times the smallest, and beyond.
STEPS, BETWEEN = (5, 10), (6, 3)
#: Rounds before the steps with each penalty double: more parts, each with a correction of ``x``.
#: The first rounds, which are enough for most samples, end without one.
ROUNDS, FIRST = 4, 3
#: A distribution that moved less than this in a round, in total variation, has settled. After so
#: many steps the gap alone decides.
SETTLED, SETTLED_ANYWAY = 3e-4, 720
#: Entries of changes in half precision are scaled to this, and cut at the other.
SCALED, CUT = tl.constexpr(256.0), tl.constexpr(1000.0)
#: Rows and columns that products in float64 take at a time.
BLOCK = 32


class Tuning(NamedTuple):
    """What was measured: see `TUNING`."""

    warps: int
    #: As in `PlaneTile`.
    resident: bool = True
    left: bool = True


#: By the number of entries of a padded sample.
TUNING = {
    256: Tuning(1),
    512: Tuning(2),
    1024: Tuning(2),
    2048: Tuning(4),
    4096: Tuning(4),
    8192: Tuning(8, resident=False, left=False),
    16384: Tuning(8, resident=False, left=False),
}


class Schedule(NamedTuple):
    """When the kernel does what: a constexpr."""

    TURNS: int
    STEPS: int
    BETWEEN: int
    ROUNDS: int
    FIRST: int
    SETTLED_ANYWAY: int
    BLOCK: int
    RELAXATION: float = settings.SPLIT_RELAXATION


class PredictionArrays(NamedTuple):
    """What the kernel reads."""

    #: Eigenvectors of each axis, as `fp16_split` returns them.
    row_basis: Tensor
    column_basis: Tensor
    #: Kernels of each axis, padded, in float64.
    row_kernel: Tensor
    column_kernel: Tensor
    #: Eigenvalues of ``K``, and ``1 / K1``, with which a solve starts: padded, in float32.
    fields: Tensor
    #: The penalties, from small to large.
    penalties: Tensor


class Scratch(NamedTuple):
    """Planes through which each program passes its own."""

    #: ``(samples, 2, H, W)`` in float64, and ``(samples, H, W)`` in float32.
    products: Tensor
    signal: Tensor


class PredictionTables(NamedTuple):
    """What predictions on a plane read, made once by `make_tables`."""

    shape: tuple[int, int]
    #: Whether the largest penalty is up to 1,000 times the smallest, 0, or more, 1.
    wide: int
    arrays: PredictionArrays


def make_tables(
    kernels: list[Tensor], bases: list[Tensor], eigenvalues: Tensor
) -> PredictionTables:
    """Make the tables from kernels of both axes, their eigenvectors, and the eigenvalues."""
    h, w = eigenvalues.shape
    sides = padded(h), padded(w)
    fields = eigenvalues.new_ones((2, *sides), dtype=torch.float32)
    fields[0, :h, :w] = eigenvalues
    fields[1, :h, :w] = 1 / (kernels[0].sum(1)[:, None] * kernels[1].sum(1))
    rhos, wide = penalties(eigenvalues)
    arrays = PredictionArrays(
        fp16_split(bases[0], sides[0]),
        fp16_split(bases[1], sides[1]),
        padded_square(kernels[0], sides[0]),
        padded_square(kernels[1], sides[1]),
        fields,
        rhos.to(torch.float32),
    )
    return PredictionTables((h, w), wide, arrays)


def penalties(eigenvalues: Tensor) -> tuple[Tensor, int]:
    """Return the penalties, from small to large, and whether they reach wide."""
    least, most = float(eigenvalues.amin()), float(eigenvalues.amax())
    largest = max(LARGEST * most, (max(least, 0.0) * most) ** 0.5)
    smallest = min(largest, max(SMALLEST * least, SMALLEST_OF_LARGEST * most))
    ratio = largest / smallest
    turns = [smallest * ratio ** (k / (TURNS - 1)) for k in range(TURNS)]
    return eigenvalues.new_tensor(turns), int(ratio > 1000)


def schedule(wide: int, block: int) -> Schedule:
    """Return when the kernel does what; `wide` is of the tables."""
    return Schedule(TURNS, STEPS[wide], BETWEEN[wide], ROUNDS, FIRST, SETTLED_ANYWAY, block)


def solve(
    tables: PredictionTables, scores: Tensor, tol: float, max_iter: int,
    tuning: Tuning | None = None,
) -> Outputs:  # fmt: skip
    """From scores to the distribution, ``u``, its bracket and the iterations."""
    f = scores.contiguous()
    found = outputs(f, 2)
    h, w = tables.shape
    sides = padded(h), padded(w)
    tuning = tuning or TUNING[sides[0] * sides[1]]
    slack = settings.rounding_allowance(h * w, torch.float64)
    samples = found.lower.numel()
    scratch = Scratch(
        f.new_empty((samples, 2, *sides), dtype=torch.float64), f.new_empty((samples, *sides))
    )
    with on_device(f):
        _solve[(samples,)](
            f, found, scratch, tables.arrays,
            h, w, aim(tol, slack), SETTLED, max_iter, slack, 0,
            TILE=PlaneTile(*sides, RESIDENT=tuning.resident, LEFT=tuning.left),
            SCHEDULE=schedule(tables.wide, min(BLOCK, *sides)),
            num_warps=tuning.warps, num_stages=1,
        )  # fmt: skip
    return found


# ------------------------------------------------------------------ products in float64


@triton.jit
def _times_kernels(x, scratch, arrays, here, TILE: tl.constexpr, BLOCK: tl.constexpr):
    """Leave ``x`` in the signal of the scratch, and ``Kx`` in the first of its products."""
    H: tl.constexpr = TILE.H
    W: tl.constexpr = TILE.W
    i = tl.arange(0, H)
    j = tl.arange(0, W)
    k = tl.arange(0, BLOCK)
    tl.debug_barrier()  # others may still read what is overwritten here
    tl.store(scratch.signal + i[:, None] * W + j[None, :], x)
    tl.debug_barrier()
    half = scratch.products + H * W
    for column in range(0, W, BLOCK):
        total = tl.zeros([H, BLOCK], tl.float64)
        for row in range(0, H, BLOCK):
            left = tl.load(arrays.row_kernel + here + i[:, None] * H + (row + k)[None, :])
            right = tl.load(scratch.signal + (row + k)[:, None] * W + (column + k)[None, :])
            total = tl.dot(left, right.to(tl.float64), acc=total, out_dtype=tl.float64)
        tl.store(half + i[:, None] * W + (column + k)[None, :], total)
    tl.debug_barrier()
    for row in range(0, H, BLOCK):
        total = tl.zeros([BLOCK, W], tl.float64)
        for column in range(0, W, BLOCK):
            left = tl.load(half + (row + k)[:, None] * W + (column + k)[None, :])
            right = tl.load(arrays.column_kernel + here + (column + k)[:, None] * W + j[None, :])
            total = tl.dot(left, right, acc=total, out_dtype=tl.float64)
        tl.store(scratch.products + (row + k)[:, None] * W + j[None, :], total)
    tl.debug_barrier()


@triton.jit
def _obstacle(scores, peak, row, height, width, TILE: tl.constexpr, BLOCK: tl.constexpr):
    """Return ``b`` in float64 for some rows, from this one on."""
    i = row + tl.arange(0, BLOCK)[:, None]
    j = tl.arange(0, TILE.W)[None, :]
    inside = (i < height) & (j < width)
    f = tl.load(scores + i * width + j, mask=inside, other=float("-inf")).to(tl.float64)
    return tl.exp((f - peak.to(tl.float64)) * 0.5)


@triton.jit
def _shortfall(
    x, scores, peak, scratch, arrays, height, width, here, TILE: tl.constexpr, BLOCK: tl.constexpr
):
    """Return ``b - Kx``, computed in float64."""
    H: tl.constexpr = TILE.H
    W: tl.constexpr = TILE.W
    _times_kernels(x, scratch, arrays, here, TILE, BLOCK)
    j = tl.arange(0, W)[None, :]
    for row in range(0, H, BLOCK):
        place = (row + tl.arange(0, BLOCK)[:, None]) * W + j
        b = _obstacle(scores, peak, row, height, width, TILE, BLOCK)
        tl.store(scratch.signal + place, (b - tl.load(scratch.products + place)).to(tl.float32))
    tl.debug_barrier()
    return tl.load(scratch.signal + tl.arange(0, H)[:, None] * W + j)


@triton.jit
def _certify(
    u, scores, peak, scratch, arrays, height, width, here, TILE: tl.constexpr, BLOCK: tl.constexpr
):
    """Return what `certificate.certify` does, in float64."""
    H: tl.constexpr = TILE.H
    W: tl.constexpr = TILE.W
    _times_kernels(u, scratch, arrays, here, TILE, BLOCK)
    j = tl.arange(0, W)[None, :]
    k = tl.arange(0, BLOCK)[:, None]
    bu, uh = tl.zeros([BLOCK, W], tl.float64), tl.zeros([BLOCK, W], tl.float64)
    for row in range(0, H, BLOCK):
        place = (row + k) * W + j
        part = tl.load(scratch.signal + place).to(tl.float64)
        bu += part * _obstacle(scores, peak, row, height, width, TILE, BLOCK)
        uh += part * tl.load(scratch.products + place)
    bu, uh = tl.sum(bu), tl.sum(uh)
    scale = bu / uh
    v_sum, vh = tl.zeros([BLOCK, W], tl.float64), tl.zeros([BLOCK, W], tl.float64)
    for row in range(0, H, BLOCK):
        h = tl.load(scratch.products + (row + k) * W + j)
        b = _obstacle(scores, peak, row, height, width, TILE, BLOCK)
        v = tl.maximum(b - scale * h, 0.0)
        v_sum += v
        vh += v * h
    v_sum, vh = tl.sum(v_sum), tl.sum(vh)
    gap = (2 * vh * scale + v_sum * v_sum) / (bu * scale)
    return bu, uh, tl.where(bu == 0.0, 1e9, gap)


# ------------------------------------------------------------------ products in half precision


@triton.jit
def _scale(x):
    """Return the factor that brings a signal to the range of half precision."""
    return SCALED / tl.maximum(tl.max(tl.abs(x)), 1e-30)


@triton.jit
def _damping(fields, rho, TILE: tl.constexpr):
    """Return ``ρ / (λ + ρ)``; for large tiles in half precision, which takes fewer registers."""
    entries = tl.arange(0, TILE.H)[:, None] * TILE.W + tl.arange(0, TILE.W)[None, :]
    damping = rho / (tl.load(fields + entries) + rho)
    if TILE.H * TILE.W > 4096:
        damping = damping.to(tl.float16)
    return damping


@triton.jit
def _resolve(x, scale, damping, rho, basis, here, PASSES: tl.constexpr, TILE: tl.constexpr):
    """Return ``(K + ρ)⁻¹ x``."""
    x = tl.minimum(tl.maximum(x * scale, -CUT), CUT)
    x = both_sides(x, basis, here, False, PASSES, TILE) * damping
    return both_sides(x, basis, here, True, PASSES, TILE) * (1.0 / (rho * scale))


@triton.jit
def _corrected(
    s, x, rho, damping, scores, peak, scratch, arrays, height, width, basis, here,
    TILE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Return ``x`` with what its equation lacks, as float64 sees it."""
    rest = _shortfall(x, scores, peak, scratch, arrays, height, width, here, TILE, BLOCK)
    rest += rho * (tl.abs(s) - x)
    return x + _resolve(rest, _scale(rest), damping, rho, basis, here, 3, TILE)


@triton.jit
def _solve(
    scores, found, scratch, arrays, height, width, tol, settled, max_iter, slack, zero,
    TILE: tl.constexpr, SCHEDULE: tl.constexpr,
):  # fmt: skip
    H: tl.constexpr = TILE.H
    W: tl.constexpr = TILE.W
    TURNS: tl.constexpr = SCHEDULE.TURNS
    STEPS: tl.constexpr = SCHEDULE.STEPS
    BLOCK: tl.constexpr = SCHEDULE.BLOCK
    sample, place, inside = tile(height, width, H, W)
    basis = load_plane(arrays.row_basis, arrays.column_basis, TILE)
    entries = tl.arange(0, H)[:, None] * W + tl.arange(0, W)[None, :]
    f = tl.load(scores + place, mask=inside, other=float("-inf"))
    peak = tl.max(f)
    scores += sample * height * width
    scratch = Scratch(scratch.products + sample * (2 * H * W), scratch.signal + sample * (H * W))
    s = tl.exp((f - peak) * 0.5) * tl.load(arrays.fields + H * W + entries)
    x = s
    rho = tl.load(arrays.penalties)
    bu = tl.full([], 0.0, tl.float64)
    uh, gap = bu, bu
    done, rounds, parts = zero, zero, zero + 1
    going = True  # scores that are not finite make the gap NaN, and end the first round
    while going & (done < max_iter):
        for turn in range(TURNS):
            here = (done + turn) * zero  # zero: as in grid.py
            new = tl.load(arrays.penalties + turn)
            damping = _damping(arrays.fields + here, new, TILE)
            change = (tl.maximum(s, 0.0) - x) * (new - rho)
            x += _resolve(change, _scale(change), damping, new, basis, here, 1, TILE)
            s = tl.where(s > 0, s, s * (rho / new))
            rho = new
            for part in range(parts):
                here = (done + part) * zero
                if (turn % SCHEDULE.BETWEEN == 0) | (rounds >= SCHEDULE.ROUNDS):
                    x = _corrected(
                        s, x, rho, damping, scores, peak, scratch, arrays, height, width,
                        basis, here, TILE, BLOCK,
                    )  # fmt: skip
                change = SCHEDULE.RELAXATION * (x - tl.maximum(s, 0.0))
                scale = _scale((tl.abs(s + change) - tl.abs(s)) * rho)
                for k in range(STEPS):
                    here = (done + k) * zero
                    ahead = s + SCHEDULE.RELAXATION * (x - tl.maximum(s, 0.0))
                    change = (tl.abs(ahead) - tl.abs(s)) * rho
                    s = ahead
                    x += _resolve(change, scale, damping, rho, basis, here, 1, TILE)
        done += TURNS * STEPS * parts
        rounds += 1
        parts = tl.where(rounds % SCHEDULE.ROUNDS == 0, 2 * parts, parts)
        here = done * zero
        if rounds > SCHEDULE.FIRST:
            damping = _damping(arrays.fields + here, rho, TILE)
            x = _corrected(
                s, x, rho, damping, scores, peak, scratch, arrays, height, width,
                basis, here, TILE, BLOCK,
            )  # fmt: skip
        u = tl.where(s > 0, tl.maximum(x, 0.0), 0.0)
        bu, uh, gap = _certify(u, scores, peak, scratch, arrays, height, width, here, TILE, BLOCK)
        f = tl.load(scores + place - sample * height * width, mask=inside, other=float("-inf"))
        alpha = u * tl.exp((f - peak) * 0.5) * (1.0 / bu).to(tl.float32)
        before = tl.load(found.alpha + place, mask=inside & (rounds > 1), other=0.0)
        moved = tl.sum(tl.abs(alpha - before)) * 0.5
        tl.store(found.alpha + place, alpha, mask=inside)
        going = (gap > tol) | ((moved > settled) & (done < SCHEDULE.SETTLED_ANYWAY))

    u = tl.where(s > 0, tl.maximum(x, 0.0), 0.0) * (bu / uh).to(tl.float32)
    tl.store(found.u + place, u, mask=inside)
    store_bounds(found, sample, None, peak, bu, uh, gap, slack, done)
