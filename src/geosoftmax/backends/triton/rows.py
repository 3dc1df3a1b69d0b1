"""Splitting with a dense kernel of up to 1024 outputs: one launch, 16 rows per program.

The iteration of `grid`, with ``(K + ρ)⁻¹`` as a matrix: one product a step.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from geosoftmax.backends import settings
from geosoftmax.backends.triton.certificate import (
    certify,
    diagonal_factor,
    store_bounds,
    store_distribution,
)
from geosoftmax.backends.triton.fp16_split import fp16_split, rows_times
from geosoftmax.backends.triton.tiles import (
    CHECK_EVERY,
    LIFT,
    ROWS,
    Outputs,
    aim,
    on_device,
    outputs,
    padded,
    row_stages,
    row_tile,
    row_warps,
    scratch,
)

#: Outputs of which 16 rows fit into registers.
LARGEST_MATRIX = 1024
#: Steps between two times that ``x`` is made afresh.
REFRESH_EVERY = 20


class SplittingRowTables(NamedTuple):
    """What solves with a dense kernel read, made once by `make_tables`."""

    shape: tuple[int, ...]
    #: ``(K + ρ)⁻¹`` and ``K``, as `fp16_split` returns them.
    inverse: Tensor
    kernel: Tensor
    #: ``1 / K1``, with which a solve starts: padded, in float32.
    start: Tensor
    #: The penalty, and `certificate.diagonal_factor`.
    numbers: Tensor


def make_tables(
    kernels: list[Tensor], bases: list[Tensor], eigenvalues: Tensor
) -> SplittingRowTables:
    """Make the tables from kernels of each axis, their eigenvectors, and the eigenvalues of ``K``.

    The eigenvalues have the shape of a signal. ``K`` is the Kronecker product of the kernels.
    """
    rho = settings.split_penalty(eigenvalues)
    K, basis = (functools.reduce(torch.kron, parts) for parts in (kernels, bases))
    side = padded(len(K))
    inverse = (basis / (eigenvalues.flatten() + rho)) @ basis.T
    start = K.new_zeros(side, dtype=torch.float32)
    start[: len(K)] = 1 / K.sum(1)
    return SplittingRowTables(
        tuple(eigenvalues.shape),
        fp16_split(inverse, side),
        fp16_split(K, side),
        start,
        torch.stack([rho, diagonal_factor(K)]).to(torch.float32),
    )


def solve(
    tables: SplittingRowTables, scores: Tensor, tol: float, max_iter: int, warps: int | None = None
) -> Outputs:
    """From scores to the distribution, ``u``, its bracket and the iterations."""
    d = torch.Size(tables.shape).numel()
    side = padded(d)
    f = scores.contiguous()
    found = outputs(f, len(tables.shape))
    rows = found.lower.numel()
    programs = triton.cdiv(rows, ROWS)
    slack = settings.rounding_allowance(d, torch.float32)
    with on_device(f):
        _solve[(programs,)](
            f, found, scratch(f, programs, side), *tables[1:],
            rows, d, aim(tol, slack), slack, max_iter, settings.SPLIT_RELAXATION, 0,
            CHECK=CHECK_EVERY, REFRESH=REFRESH_EVERY, TILE=row_tile(side),
            num_warps=warps or row_warps(side), num_stages=row_stages(side),
        )  # fmt: skip
    return found


@triton.jit
def _obstacle(scores, place, inside, peak):
    """Return ``b``, made again wherever it is used: registers are scarce."""
    f = tl.load(scores + place, mask=inside, other=float("-inf")).to(tl.float32)
    return tl.where(inside, tl.exp((f - peak[:, None]) * 0.5), 0.0)


@triton.jit
def _solution(s, x):
    """Return ``u``, positive where ``s`` is."""
    return tl.where(s > 0, tl.maximum(x, 0.0) * (1.0 / LIFT), 0.0)


@triton.jit
def _solve(
    scores, found, scratch, inverse, kernel, start, numbers,
    rows, width, tol, slack, max_iter, relaxation, zero,
    CHECK: tl.constexpr, REFRESH: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    M: tl.constexpr = TILE.M
    D: tl.constexpr = TILE.D
    scratch += tl.program_id(0).to(tl.int64) * 2 * M * D
    row = tl.program_id(0).to(tl.int64) * M + tl.arange(0, M)
    j = tl.arange(0, D)[None, :]
    real = row < rows
    inside = real[:, None] & (j < width)
    place = row[:, None] * width + j
    f = tl.load(scores + place, mask=inside, other=float("-inf")).to(tl.float32)
    peak = tl.max(f, 1)
    rho, diagonal_factor = tl.load(numbers), tl.load(numbers + 1)
    s = _obstacle(scores, place, inside, peak) * tl.load(start + j)

    # x is lifted. Rows that are done stay as they are: no row depends on its neighbours.
    x = tl.zeros([M, D], tl.float32)
    bu, uh = tl.zeros([M], tl.float32), tl.zeros([M], tl.float32)
    gap = tl.where(real, 1.0, 0.0)
    count = tl.zeros([M], tl.int32)
    done = 0
    while (tl.max((gap > tol).to(tl.int32)) > 0) & (done < max_iter):
        going = gap > tol
        b = _obstacle(scores, place, inside, peak)
        fresh = rows_times(
            b + rho * tl.abs(s), tl.zeros([M, D], tl.float32), scratch, inverse + done * zero,
            3, TILE,
        )  # fmt: skip
        x = tl.where(going[:, None], fresh * LIFT, x)
        until = tl.minimum(done + REFRESH, max_iter)
        seen = tl.where(going, 1.0, 0.0)
        while (tl.max((seen > tol).to(tl.int32)) > 0) & (done < until):
            moving = (seen > tol)[:, None]
            count = tl.where(seen > tol, done + CHECK, count)
            for k in range(CHECK):  # zero: as in grid.py
                ahead = s + relaxation * (x * (1.0 / LIFT) - tl.maximum(s, 0.0))
                change = (tl.abs(ahead) - tl.abs(s)) * (rho * LIFT)
                s = tl.where(moving, ahead, s)
                change = tl.where(moving, change, 0.0)
                x = rows_times(change, x, scratch, inverse + k * zero, 1, TILE)
            done += CHECK
            b = _obstacle(scores, place, inside, peak)
            h = (b + rho * tl.abs(s)) * LIFT - rho * x  # Kx, lifted; and u is near x
            u = _solution(s, x)
            h = rows_times(u * LIFT - x, h, scratch, kernel + done * zero, 1, TILE)
            _, _, now = certify(b, u, h * (1.0 / LIFT), diagonal_factor, "rows")
            seen = tl.where(seen > tol, now, seen)
        close = going & ((seen <= 2 * tol) | (seen != seen) | (done >= max_iter))
        if tl.max(close.to(tl.int32)) > 0:
            u = _solution(s, x)
            h = tl.zeros([M, D], tl.float32)
            h = rows_times(u, h, scratch, kernel + done * zero, 3, TILE)
            b = _obstacle(scores, place, inside, peak)
            new_bu, new_uh, new_gap = certify(b, u, h, diagonal_factor, "rows")
            bu, uh = tl.where(close, new_bu, bu), tl.where(close, new_uh, uh)
            gap = tl.where(close, new_gap, gap)

    u = _solution(s, x)
    b = _obstacle(scores, place, inside, peak)
    store_distribution(found, place, inside, b, u, bu, uh, "rows")
    store_bounds(found, row, real, peak, bu, uh, gap, slack, count)
