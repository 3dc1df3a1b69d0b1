"""Systems on a support, ``K_SS x = rhs_S``, in one launch, for derivatives of the softmax.

Splitting in float64, with known support and alternating penalties: small ones fit the small
eigenvalues of ``K``, large ones fit the large eigenvalues. If this cycles, only the largest penalty
is used, which always converges.

A program solves one plane, or 16 rows of a small cost.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from geosoftmax.backends import settings
from geosoftmax.backends.triton.tiles import ROWS, on_device, padded, padded_square

#: Longest side of a plane, and outputs of another cost, that one program holds in float64.
LONGEST_SIDE = 64
LARGEST_MATRIX = 128
#: The penalties, as fractions of the one that `reference.split_penalty` gives.
PENALTIES = (0.00036, 0.0018, 0.009, 0.045, 0.22, 1.0)
#: Steps with each, and rounds of all before the largest goes on alone.
STEPS = 10
ROUNDS = 12
#: Residual of a system, relative to its right-hand side.
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
    penalties: Tensor


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
    else:
        K, basis = (functools.reduce(torch.kron, parts) for parts in (kernels, bases))
        sides = ROWS, padded(len(K))
        bases = [basis]
        eigenvalues = eigenvalues.reshape(1, -1).expand(ROWS, -1)
        sums = K.sum(1).expand_as(eigenvalues)
    h, w = eigenvalues.shape
    fields = eigenvalues.new_ones((2, *sides))
    fields[0, :h, :w] = eigenvalues
    fields[1, :h, :w] = 1 / sums
    squares = [padded_square(v, side) for v, side in zip(bases, sides[-len(bases) :], strict=True)]
    penalties = rho * torch.tensor(PENALTIES, dtype=rho.dtype).to(rho.device)
    return RefineTables(shape, squares[0], squares[-1], fields, penalties)


def solve_on(tables: RefineTables, rhs: Tensor, support: Tensor, max_iter: int) -> Tensor:
    """``x`` with ``K_SS x_S = rhs_S`` on the support and 0 elsewhere, to the digits of float32."""
    rhs = rhs.contiguous()
    found = torch.empty_like(rhs)
    free = support.expand(rhs.shape).to(rhs.dtype).contiguous()  # no smaller type: triton fails
    plane = len(tables.shape) == 2
    h, w = tables.shape if plane else (1, torch.Size(tables.shape).numel())
    sides = (padded(h) if plane else ROWS), padded(w)
    samples = rhs.numel() // max(1, h * w)
    with on_device(rhs):
        _solve_on[(samples if plane else triton.cdiv(samples, ROWS),)](
            rhs, free, found, *tables[1:], samples, h, w, RESIDUAL, max_iter,
            settings.SPLIT_RELAXATION, 0,
            H=sides[0], W=sides[1], PLANE=plane,
            SCHEDULE=Schedule(len(PENALTIES), STEPS, ROUNDS),
            num_warps=max(1, min(8, sides[0] * sides[1] // 512)), num_stages=1,
        )  # fmt: skip
    return found


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
def _largest(x, PLANE: tl.constexpr):
    """Return the maximum over each sample, with the dimensions of a tile."""
    largest = tl.max(x, 1)[:, None]
    if PLANE:
        largest = tl.max(largest, 0)[None, :]
    return largest


@triton.jit
def _solve_on(
    signal, support, found, row_basis, column_basis, fields, penalties,
    samples, height, width, tol, max_iter, relaxation, zero,
    H: tl.constexpr, W: tl.constexpr, PLANE: tl.constexpr, SCHEDULE: tl.constexpr,
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
    eigenvalues = tl.load(fields + i * W + j)
    b = tl.load(signal + place, mask=inside, other=0.0).to(tl.float64)
    free = tl.load(support + place, mask=inside, other=0.0) > 0
    b = tl.where(free, b, 0.0)
    peak = _largest(tl.abs(b), PLANE)
    s = b * tl.load(fields + H * W + i * W + j)

    going = (sample < samples) & (peak == peak)
    last = tl.load(penalties + TURNS - 1)
    done = 0
    while (tl.max(going.to(tl.int32)) > 0) & (done < max_iter):
        for turn in range(TURNS):
            at = tl.where(done < SCHEDULE.ROUNDS * TURNS * STEPS, turn, TURNS - 1)
            rho = tl.load(penalties + at)
            s = tl.where(free, s, s * (last / rho))
            last = rho
            factor = 1.0 / (eigenvalues + rho)
            for k in range(STEPS):
                here = k * zero  # zero: as in grid.py
                x = _filter(
                    b + rho * tl.where(free, s, -s), factor,
                    row_basis + here, column_basis + here, H, W, PLANE,
                )  # fmt: skip
                s = tl.where(going, s + relaxation * (x - tl.where(free, s, 0.0)), s)
        done += TURNS * STEPS
        here = done * zero
        u = tl.where(free, s, 0.0)
        h = _filter(u, eigenvalues, row_basis + here, column_basis + here, H, W, PLANE)
        lacking = _largest(tl.where(free, tl.abs(h - b), 0.0), PLANE)
        going = going & (lacking > tol * peak)

    tl.store(found + place, tl.where(free, s, 0.0).to(found.dtype.element_ty), mask=inside)
