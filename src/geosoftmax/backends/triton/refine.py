"""More digits, in one launch: splitting in float64, with penalties that take turns.

For predictions, and for derivatives of the softmax. The iteration of `reference.split` with one
penalty is quick on the parts of the problem that the penalty fits: large ones settle the value,
small ones the distribution, which lives on the small eigenvalues of ``K``. Taking turns, small to
large, settles both. Should that circle without an end, the largest alone goes on, which always
converges.

A program holds one plane, or 16 rows of a small cost. With a support that is given, the same
iteration solves ``K_SS x = rhs_S``: the outputs that are free are then known beforehand.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from geosoftmax.backends import settings
from geosoftmax.backends.triton.certificate import certify, diagonal_factor, store_bounds
from geosoftmax.backends.triton.tiles import ROWS, Outputs, aim, on_device, outputs, padded

#: Longest side of a plane, and outputs of another cost, that one program holds in float64.
LONGEST_SIDE = 64
LARGEST_MATRIX = 128
#: Smallest gap that it is used for. Below, exact solves take less time.
SMALLEST_GAP = 1e-6
#: The penalties, as fractions of the one that `reference.split_penalty` gives.
PENALTIES = (0.00036, 0.0018, 0.009, 0.045, 0.22, 1.0)
#: Steps with each, and rounds of all before the largest goes on alone.
STEPS = 10
ROUNDS = 12
#: A distribution that moved less than this in a round, in total variation, has settled.
SETTLED = 3e-4
#: Residual of a system on a support, relative to its right-hand side.
RESIDUAL = 1e-7


class Schedule(NamedTuple):
    """The numbers of penalties, of steps with each, and of rounds: a constexpr of the kernel."""

    TURNS: int
    STEPS: int
    ROUNDS: int


class RefineTables(NamedTuple):
    """What solves in float64 read, made once by `make_tables`."""

    shape: tuple[int, ...]
    #: Eigenvectors along both axes of a plane; of any other cost, those of ``K``, twice.
    row_basis: Tensor
    column_basis: Tensor
    #: Eigenvalues of ``K``, and ``1 / K1``, with which a solve starts: padded to a tile.
    fields: Tensor
    #: The penalties, then `certificate.diagonal_factor`.
    numbers: Tensor


def make_tables(kernels: list[Tensor], bases: list[Tensor], eigenvalues: Tensor) -> RefineTables:
    """Make the tables from kernels of each axis, their eigenvectors, and the eigenvalues of ``K``.

    The eigenvalues have the shape of a signal. Two dimensions are a plane, one sample a program;
    any other number is flattened to rows, with the Kronecker product of the kernels.
    """
    shape = tuple(eigenvalues.shape)
    rho = settings.split_penalty(eigenvalues)
    if len(shape) == 2:
        sides = padded(shape[0]), padded(shape[1])
        sums = kernels[0].sum(1)[:, None] * kernels[1].sum(1)
        factor = torch.ones_like(rho)
    else:
        K, basis = (functools.reduce(torch.kron, parts) for parts in (kernels, bases))
        sides = ROWS, padded(len(K))
        bases = [basis]
        eigenvalues = eigenvalues.reshape(1, -1).expand(ROWS, -1)
        sums = K.sum(1).expand_as(eigenvalues)
        factor = diagonal_factor(K)
    h, w = eigenvalues.shape
    fields = eigenvalues.new_ones((2, *sides))
    fields[0, :h, :w] = eigenvalues
    fields[1, :h, :w] = 1 / sums
    squares = [_padded_square(v, side) for v, side in zip(bases, sides[-len(bases) :], strict=True)]
    penalties = rho * torch.tensor(PENALTIES, dtype=rho.dtype).to(rho.device)
    numbers = torch.cat([penalties, factor[None]])
    return RefineTables(shape, squares[0], squares[-1], fields, numbers)


def solve(tables: RefineTables, scores: Tensor, tol: float, max_iter: int) -> Outputs:
    """From scores to the distribution, ``u``, its bracket and the iterations."""
    f = scores.contiguous()
    found = outputs(f, len(tables.shape))
    slack = settings.rounding_allowance(torch.Size(tables.shape).numel(), torch.float64)
    _launch(tables, f, f, found, aim(tol, slack), max_iter, slack, given=False)
    return found


def solve_on(tables: RefineTables, rhs: Tensor, support: Tensor, max_iter: int) -> Tensor:
    """``x`` with ``K_SS x_S = rhs_S`` on the support and 0 elsewhere, to the digits of float32."""
    rhs = rhs.contiguous()
    found = outputs(rhs, len(tables.shape))
    free = support.expand(rhs.shape).to(rhs.dtype).contiguous()  # no smaller type: triton fails
    _launch(tables, rhs, free, found, RESIDUAL, max_iter, 0.0, given=True)
    return found.u


def _launch(
    tables: RefineTables, signal: Tensor, free: Tensor, found: Outputs, tol: float,
    max_iter: int, slack: float, *, given: bool,
) -> None:  # fmt: skip
    plane = len(tables.shape) == 2
    h, w = tables.shape if plane else (1, torch.Size(tables.shape).numel())
    sides = (padded(h) if plane else ROWS), padded(w)
    samples = found.lower.numel()
    with on_device(signal):
        _solve[(samples if plane else triton.cdiv(samples, ROWS),)](
            signal, free, found, *tables[1:], samples, h, w, tol, SETTLED, max_iter, slack,
            settings.SPLIT_RELAXATION, 0,
            H=sides[0], W=sides[1], PLANE=plane, GIVEN=given,
            SCHEDULE=Schedule(len(PENALTIES), STEPS, ROUNDS),
            num_warps=max(1, min(8, sides[0] * sides[1] // 512)), num_stages=1,
        )  # fmt: skip


def _padded_square(matrix: Tensor, side: int) -> Tensor:
    n = matrix.shape[-1]
    square = matrix.new_zeros((side, side))
    square[:n, :n] = matrix
    return square


@triton.jit
def _load(pointer, N: tl.constexpr, TRANSPOSED: tl.constexpr):
    n = tl.arange(0, N)
    if TRANSPOSED:
        place = n[None, :] * N + n[:, None]
    else:
        place = n[:, None] * N + n[None, :]
    return tl.load(pointer + place)


@triton.jit
def _filter(x, factor, vh, vw, H: tl.constexpr, W: tl.constexpr, PLANE: tl.constexpr):
    """Multiply by a factor in the basis in which ``K`` is diagonal."""
    if PLANE:
        x = tl.dot(_load(vh, H, True), x)
    x = tl.dot(x, _load(vw, W, False)) * factor
    if PLANE:
        x = tl.dot(_load(vh, H, False), x)
    return tl.dot(x, _load(vw, W, True))


@triton.jit
def _total(x, PLANE: tl.constexpr):
    """Sum over each sample; with the dimensions of a tile."""
    total = tl.sum(x, 1)[:, None]
    if PLANE:
        total = tl.sum(total, 0)[None, :]
    return total


@triton.jit
def _largest(x, PLANE: tl.constexpr):
    """The same for the maximum."""
    largest = tl.max(x, 1)[:, None]
    if PLANE:
        largest = tl.max(largest, 0)[None, :]
    return largest


@triton.jit
def _certify(b, u, h, diagonal_factor, PLANE: tl.constexpr):
    """Return what `certify` does, with the dimensions of a tile."""
    if PLANE:
        bu, uh, gap = certify(b, u, h, 1.0, "plane")
        one = tl.full([1, 1], 1.0, tl.float64)
        bu, uh, gap = bu * one, uh * one, gap * one
    else:
        bu, uh, gap = certify(b, u, h, diagonal_factor, "rows")
        bu, uh, gap = bu[:, None], uh[:, None], gap[:, None]
    return bu, uh, gap


@triton.jit
def _solve(
    signal, support, found, row_basis, column_basis, fields, numbers,
    samples, height, width, tol, settled, max_iter, slack, relaxation, zero,
    H: tl.constexpr, W: tl.constexpr, PLANE: tl.constexpr, GIVEN: tl.constexpr,
    SCHEDULE: tl.constexpr,
):  # fmt: skip
    TURNS: tl.constexpr = SCHEDULE.TURNS
    STEPS: tl.constexpr = SCHEDULE.STEPS
    i = tl.arange(0, H)[:, None]
    j = tl.arange(0, W)[None, :]
    program = tl.program_id(0).to(tl.int64)
    if PLANE:
        inside = (i < height) & (j < width)
        place = program * height * width + i * width + j
        sample = program + tl.zeros([1, 1], tl.int64)
    else:
        sample = program * H + i
        inside = (sample < samples) & (j < width)
        place = sample * width + j
    real = sample < samples
    eigenvalues = tl.load(fields + i * W + j)
    if GIVEN:
        b = tl.load(signal + place, mask=inside, other=0.0).to(tl.float64)
        given = tl.load(support + place, mask=inside, other=0.0) > 0
        b = tl.where(given, b, 0.0)
        peak = _largest(tl.abs(b), PLANE)
    else:
        f = tl.load(signal + place, mask=inside, other=float("-inf")).to(tl.float64)
        peak = _largest(f, PLANE)
        b = tl.where(inside, tl.exp((f - peak) * 0.5), 0.0)
    s = b * tl.load(fields + H * W + i * W + j)

    going = real & (peak == peak)
    gap = tl.where(going, 1.0, 0.0).to(tl.float64)
    bu, uh = gap, gap
    count = tl.zeros(sample.shape, tl.int32)
    last = tl.load(numbers + TURNS - 1)
    done = 0
    while (tl.max(going.to(tl.int32)) > 0) & (done < max_iter):
        for turn in range(TURNS):
            at = tl.where(done < SCHEDULE.ROUNDS * TURNS * STEPS, turn, TURNS - 1)
            rho = tl.load(numbers + at)
            if GIVEN:
                s = tl.where(given, s, s * (last / rho))
            else:
                s = tl.where(s > 0, s, s * (last / rho))
            last = rho
            factor = 1.0 / (eigenvalues + rho)
            for k in range(STEPS):
                here = k * zero  # zero: as in grid.py
                if GIVEN:
                    free = given
                else:
                    free = s > 0
                mirrored = tl.where(free, s, -s)
                x = _filter(
                    b + rho * mirrored, factor, row_basis + here, column_basis + here, H, W, PLANE
                )
                s = tl.where(going, s + relaxation * (x - tl.where(free, s, 0.0)), s)
        done += TURNS * STEPS
        count = tl.where(going, done, count)
        here = done * zero
        if GIVEN:
            u = tl.where(given, s, 0.0)
            h = _filter(u, eigenvalues, row_basis + here, column_basis + here, H, W, PLANE)
            gap = _largest(tl.where(given, tl.abs(h - b), 0.0), PLANE)
            going = going & (gap > tol * peak)
        else:
            u = tl.maximum(s, 0.0)
            h = _filter(u, eigenvalues, row_basis + here, column_basis + here, H, W, PLANE)
            bu, uh, gap = _certify(b, u, h, tl.load(numbers + TURNS), PLANE)
            a = u * b / bu
            before = tl.load(found.alpha + place, mask=inside, other=0.0).to(tl.float64)
            moved = _total(tl.abs(a - before), PLANE) * 0.5
            moved = tl.where(done > TURNS * STEPS, moved, 1.0)
            tl.store(found.alpha + place, a.to(found.alpha.dtype.element_ty), mask=inside & going)
            going = going & ((gap > tol) | (moved > settled))

    if GIVEN:
        tl.store(found.u + place, tl.where(given, s, 0.0).to(found.u.dtype.element_ty), mask=inside)
    else:
        u = tl.maximum(s, 0.0) * (bu / uh)
        tl.store(found.u + place, u.to(found.u.dtype.element_ty), mask=inside)
        store_bounds(found, sample, real, peak, bu, uh, gap, slack, count)
