"""Splitting on grids: a fused solve, or a fused loss, in one launch, one program per sample.

Kernels see planes. The first two of three axes become one, whose kernel is the Kronecker product.

Scores and iterates stay in registers, the matrices in shared memory. The iteration is that of
`reference.split`, but it updates ``x = (K + ρ)⁻¹ (b + ρ|s|)``: each step adds the product with the
change of ``ρ|s|``. The change is small, so that cheap products suffice. From time to time a precise
product computes ``x`` again.

The equation of ``x`` gives ``Kx``, and ``u`` is near ``x``. So a check of the gap also costs a
cheap product. A precise product with ``K`` then certifies the result. Each sample stops
independently.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from geosoftmax.backends import settings
from geosoftmax.backends.triton.certificate import certify, store_bounds, store_distribution
from geosoftmax.backends.triton.fp16_split import (
    PlaneTile,
    both_sides,
    fp16_split,
    load_plane,
)
from geosoftmax.backends.triton.sinkhorn import negentropy
from geosoftmax.backends.triton.tiles import (
    CHECK_EVERY,
    LIFT,
    Outputs,
    aim,
    on_device,
    outputs,
    padded,
    tile,
)

#: Longest side of a plane that fits into the registers of one program.
LONGEST_SIDE = 128
#: Longest side of one that stands for three axes, and its entries, both padded.
LONGEST_MERGED_SIDE, MOST_MERGED = 256, 4096
#: Bytes of shared memory that matrices may take.
SHARED_FOR_MATRICES = 168_000


class Tuning(NamedTuple):
    """What `benchmarks.tune_gpu` measures: see `TUNING`."""

    warps: int
    #: Multiply by the matrix of the rows from the left, or turn the signal before each product.
    left: bool = True
    #: Steps between two looks at the gap, and between two times that ``x`` is made afresh.
    check: int = CHECK_EVERY
    refresh: int = 40


#: For longer sides than `LONGEST_SIDE`, and else by the number of entries of a padded sample.
MERGED_TUNING = Tuning(8)
TUNING = {
    256: Tuning(1),
    512: Tuning(2),
    1024: Tuning(2),
    2048: Tuning(4),
    4096: Tuning(4),
    8192: Tuning(8, left=False),
    16384: Tuning(8, left=False),
}


class SplittingPlaneArrays(NamedTuple):
    """What a kernel reads."""

    #: Eigenvectors and kernel of each axis, as `fp16_split` returns them.
    row_basis: Tensor
    column_basis: Tensor
    row_kernel: Tensor
    column_kernel: Tensor
    #: Eigenvalues of ``K``, and ``1 / K1``, with which a solve starts: padded, in float32.
    fields: Tensor
    #: The first penalty and the later one.
    penalties: Tensor


class SplittingPlaneTables(NamedTuple):
    """What a plane's solves read, made once by `make_tables`."""

    shape: tuple[int, int]
    #: Dimensions of a signal.
    dimensions: int
    #: Steps with the first penalty.
    first_steps: int
    arrays: SplittingPlaneArrays


def make_tables(
    kernels: list[Tensor], bases: list[Tensor], eigenvalues: Tensor, power: float
) -> SplittingPlaneTables:
    """Make the tables from kernels of all axes, their eigenvectors, and the eigenvalues of ``K``.

    `power` is that of the distances, 1 or 2: it decides the number of first steps.
    """
    dimensions = len(kernels)
    if dimensions == 3:
        kernels, bases = _merged(kernels), _merged(bases)
        eigenvalues = eigenvalues.flatten(0, 1)
    h, w = eigenvalues.shape
    sides = padded(h), padded(w)
    rho = settings.split_penalty(eigenvalues)
    fields = eigenvalues.new_ones((2, *sides), dtype=torch.float32)
    fields[0, :h, :w] = eigenvalues
    fields[1, :h, :w] = 1 / (kernels[0].sum(1)[:, None] * kernels[1].sum(1))
    penalties = torch.stack([settings.SPLIT_FIRST_PENALTY * rho, rho])
    arrays = SplittingPlaneArrays(
        fp16_split(bases[0], sides[0]),
        fp16_split(bases[1], sides[1]),
        fp16_split(kernels[0], sides[0]),
        fp16_split(kernels[1], sides[1]),
        fields,
        penalties.to(torch.float32),
    )
    return SplittingPlaneTables((h, w), dimensions, settings.SPLIT_FIRST_STEPS[power], arrays)


def _merged(matrices: list[Tensor]) -> list[Tensor]:
    return [torch.kron(matrices[0], matrices[1]), matrices[2]]


def holds(shape: tuple[int, ...]) -> bool:
    """Whether the kernels hold grids of this shape."""
    if len(shape) == 2:
        return max(shape) <= LONGEST_SIDE
    if len(shape) != 3:
        return False
    sides = padded(shape[0] * shape[1]), padded(shape[2])
    return max(sides) <= LONGEST_MERGED_SIDE and sides[0] * sides[1] <= MOST_MERGED


def solve(
    tables: SplittingPlaneTables, scores: Tensor, tol: float, max_iter: int,
    tuning: Tuning | None = None,
) -> Outputs:  # fmt: skip
    """From scores to the distribution, ``u``, its bracket and the iterations."""
    f = scores.contiguous()
    found = outputs(f, tables.dimensions)
    _launch(_solve, tables, (f, found), found.lower.numel(), tol, max_iter, tuning)
    return found


def loss(
    tables: SplittingPlaneTables, scores: Tensor, target: Tensor, tol: float, max_iter: int,
    share: float = 1.0, tuning: Tuning | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """From scores and distributions to the loss of each sample and its slope in the scores.

    ``Σα Ω*(f) + Ω(α) - ⟨α,f⟩``, at least 0, and ``Σα · softmax - α``; `share` times both.
    """
    f, target = scores.contiguous(), target.contiguous()
    value, slope = f.new_empty(f.shape[: -tables.dimensions]), torch.empty_like(f)
    signals = (f, target, value, slope, share)
    _launch(_loss, tables, signals, value.numel(), tol, max_iter, tuning)
    return value, slope


def _launch(
    kernel: Any, tables: SplittingPlaneTables, signals: tuple[Any, ...], samples: int,
    tol: float, max_iter: int, tuning: Tuning | None,
) -> None:  # fmt: skip
    h, w = tables.shape
    sides = padded(h), padded(w)
    if tuning is None:
        tuning = TUNING[sides[0] * sides[1]] if max(sides) <= LONGEST_SIDE else MERGED_TUNING
    slack = settings.rounding_allowance(h * w, torch.float32)
    with on_device(signals[0]):
        kernel[(samples,)](
            *signals, tables.arrays, h, w, aim(tol, slack), slack, max_iter, 0,
            TILE=PlaneTile(*sides, RESIDENT=_fits(sides), LEFT=tuning.left),
            SCHEDULE=Schedule(tuning.check, tuning.refresh, tables.first_steps),
            num_warps=tuning.warps, num_stages=1,
        )  # fmt: skip


def _fits(sides: tuple[int, int]) -> bool:
    """Whether bases and kernels, split, stay in shared memory beside the tiles."""
    return 8 * (sides[0] ** 2 + sides[1] ** 2) <= SHARED_FOR_MATRICES


# ------------------------------------------------------------------ pieces of a kernel


class Schedule(NamedTuple):
    """When a kernel does what: a constexpr."""

    #: Steps between two looks at the gap, between two times that ``x`` is made afresh, and with
    #: the first penalty.
    CHECK: int
    REFRESH: int
    FIRST: int
    #: Relaxation of the first steps, and of the others.
    FIRST_RELAXATION: float = settings.SPLIT_FIRST_RELAXATION
    RELAXATION: float = settings.SPLIT_RELAXATION


@triton.jit
def _resolve(x, damping, basis, here, PASSES: tl.constexpr, TILE: tl.constexpr):
    """Return ``(K + ρ)⁻¹ x``."""
    x = both_sides(x, basis, here, False, PASSES, TILE) * damping
    return both_sides(x, basis, here, True, PASSES, TILE)


@triton.jit
def _solution(s, x):
    """Return ``u``: near ``x``, and zero where ``s`` says so."""
    return tl.where(s > 0, tl.maximum(x, 0.0), 0.0)


@triton.jit
def _steps(s, x, damping, rho, relaxation, done, until, zero, basis, TILE: tl.constexpr):
    """Return ``s`` and ``x`` some steps later."""
    while done < until:
        done += 1
        # Addresses seem to change with each turn of a loop (zero is an argument): else the compiler
        # would read all matrices before it, and keep them all in shared memory.
        here = done * zero
        ahead = s + relaxation * (x - tl.maximum(s, 0.0))
        change = (tl.abs(ahead) - tl.abs(s)) * (rho * LIFT)
        s = ahead
        x += (1.0 / LIFT) * _resolve(change, damping, basis, here, 1, TILE)
    return s, x


@triton.jit
def _minimise(
    b, fields, penalties, tol, max_iter, zero, basis, kernel,
    TILE: tl.constexpr, SCHEDULE: tl.constexpr,
):  # fmt: skip
    """Solve (QP): return ``u``, ``⟨b,u⟩``, ``uᵀKu``, a bound of the gap and the iterations."""
    H: tl.constexpr = TILE.H
    W: tl.constexpr = TILE.W
    FIRST: tl.constexpr = SCHEDULE.FIRST
    entries = tl.arange(0, H)[:, None] * W + tl.arange(0, W)[None, :]
    rho, later = tl.load(penalties), tl.load(penalties + 1)
    damping = 1.0 / (tl.load(fields + entries) + rho)
    s = b * tl.load(fields + H * W + entries)
    x = _resolve(b + rho * s, damping, basis, 0, 1, TILE)
    done = zero + FIRST // 2  # half of the first steps from a cheap x, without a look
    s, x = _steps(s, x, damping, rho, SCHEDULE.FIRST_RELAXATION, zero, done, zero, basis, TILE)
    bu, uh, gap = 0.0, 0.0, 1.0
    going = True
    while going:
        here = done * zero
        x = _resolve(b + rho * tl.abs(s), damping, basis, here, 3, TILE)
        until = tl.minimum(done + SCHEDULE.REFRESH, max_iter)
        seen = 1.0
        while (seen > tol) & (done < until):
            look = tl.where(done < FIRST, FIRST, done + SCHEDULE.CHECK)
            relaxation = tl.where(done < FIRST, SCHEDULE.FIRST_RELAXATION, SCHEDULE.RELAXATION)
            s, x = _steps(s, x, damping, rho, relaxation, done, look, zero, basis, TILE)
            done = look
            here = done * zero
            u = _solution(s, x)  # near x, of which the equation says the product with K
            h = b + rho * (tl.abs(s) - x)
            h += (1.0 / LIFT) * both_sides((u - x) * LIFT, kernel, here, False, 1, TILE)
            _, _, seen = certify(b, u, h, 1.0, "plane")
            if (rho != later) & (seen > tol):
                # The other penalty, the same u and b - Ku: by its equation x changes by little.
                change = (tl.maximum(s, 0.0) - x) * ((later - rho) * LIFT)
                damping = 1.0 / (tl.load(fields + here + entries) + later)
                s = tl.where(s > 0, s, s * (rho / later))
                x += (1.0 / LIFT) * _resolve(change, damping, basis, here, 1, TILE)
                rho = later
        if (seen <= 2 * tol) | (seen != seen) | (done >= max_iter):
            here = done * zero
            u = _solution(s, x)
            h = both_sides(u, kernel, here, False, 3, TILE)
            bu, uh, gap = certify(b, u, h, 1.0, "plane")
        going = (gap > tol) & (done < max_iter)
    return _solution(s, x), bu, uh, gap, done


@triton.jit
def _solved(
    scores, arrays, kernel, place, inside, tol, max_iter, zero,
    TILE: tl.constexpr, SCHEDULE: tl.constexpr,
):  # fmt: skip
    """Read the scores of a sample and solve: return the peak, ``b``, and what `_minimise` does."""
    basis = load_plane(arrays.row_basis, arrays.column_basis, TILE)
    f = tl.load(scores + place, mask=inside, other=float("-inf"))
    peak = tl.max(f)
    b = tl.exp((f - peak) * 0.5)
    u, bu, uh, gap, done = _minimise(
        b, arrays.fields, arrays.penalties, tol, max_iter, zero, basis, kernel, TILE, SCHEDULE
    )
    return peak, b, u, bu, uh, gap, done


# ------------------------------------------------------------------ kernels


@triton.jit
def _solve(
    scores, found, arrays, height, width, tol, slack, max_iter, zero,
    TILE: tl.constexpr, SCHEDULE: tl.constexpr,
):  # fmt: skip
    row, place, inside = tile(height, width, TILE.H, TILE.W)
    kernel = load_plane(arrays.row_kernel, arrays.column_kernel, TILE)
    peak, b, u, bu, uh, gap, done = _solved(
        scores, arrays, kernel, place, inside, tol, max_iter, zero, TILE, SCHEDULE
    )  # fmt: skip
    store_distribution(found, place, inside, b, u, bu, uh, "plane")
    store_bounds(found, row, None, peak, bu, uh, gap, slack, done)


@triton.jit
def _loss(
    scores, target, loss_out, slope_out, share, arrays, height, width, tol, slack, max_iter, zero,
    TILE: tl.constexpr, SCHEDULE: tl.constexpr,
):  # fmt: skip
    row, place, inside = tile(height, width, TILE.H, TILE.W)
    kernel = load_plane(arrays.row_kernel, arrays.column_kernel, TILE)
    peak, b, u, bu, uh, _, _ = _solved(
        scores, arrays, kernel, place, inside, tol, max_iter, zero, TILE, SCHEDULE
    )  # fmt: skip
    conjugate = tl.log(bu * bu / uh)  # less the peak, as the linear term
    a = tl.load(target + place, mask=inside, other=0.0)
    mass = tl.sum(a)
    tl.store(slope_out + place, (u * b * (mass / bu) - a) * share, mask=inside)
    omega = negentropy(a, mass, 1.0 * height * width, kernel, TILE)
    f = tl.load(scores + place, mask=inside, other=float("-inf"))
    linear = tl.sum(tl.where(a > 0, a * (f - peak), 0.0))
    value = mass * (conjugate - slack) + omega - linear
    tl.store(loss_out + row, tl.where(value < 0.0, 0.0, value) * share)
