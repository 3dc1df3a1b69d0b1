"""Costs with a dense kernel, up to 1024 outputs: a whole solve in one launch, 16 rows a program.

The iteration of `grid`, with ``(K + ρ)⁻¹`` as a matrix: one product a step.
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

from geosoftmax.backends import reference
from geosoftmax.backends.triton.halves import halves, rows_times
from geosoftmax.backends.triton.tiles import (
    CHECK_EVERY,
    LIFT,
    ROWS,
    aim,
    block,
    on_device,
    outputs,
    padded,
    row_stages,
    row_warps,
    scratch,
)
from geosoftmax.costs.base import Cost

#: Steps between two times that ``x`` is made afresh.
REFRESH_EVERY = 20


def split_rows(
    cost: Cost, scores: Tensor, tol: float, max_iter: int, warps: int | None = None
) -> tuple[Tensor, ...]:
    """From scores to the distribution, ``u``, its bracket and the iterations."""
    d = cost.size
    side = padded(d)
    f = scores.contiguous()
    found = outputs(f, len(cost.shape))
    rows = found[2].numel()
    programs = triton.cdiv(rows, ROWS)
    matrices = cost._once("row_matrices", lambda: _matrices(cost, side))
    slack = reference.rounding_allowance(d, torch.float32)
    with on_device(f):
        _split_rows[(programs,)](
            f, *found, scratch(f, programs, side), *matrices,
            rows, d, aim(tol, slack), slack, max_iter, reference.SPLIT_RELAXATION, 0,
            M=ROWS, D=side, BLOCK=block(side), CHECK=CHECK_EVERY, REFRESH=REFRESH_EVERY,
            num_warps=warps or row_warps(side), num_stages=row_stages(side),
        )  # fmt: skip
    return found


def _matrices(cost: Cost, side: int) -> tuple[Tensor, ...]:
    """Return ``(K + ρ)⁻¹`` and ``K`` in halves, the start ``1 / K1``, and the penalty."""
    kernels, bases, values = reference.spectrum(cost)
    rho = reference.split_penalty(values)
    K, basis = (functools.reduce(torch.kron, parts) for parts in (kernels, bases))
    inverse = (basis / (values.flatten() + rho)) @ basis.T
    start = K.new_zeros(side, dtype=torch.float32)
    start[: len(K)] = 1 / K.sum(1)
    return halves(inverse, side), halves(K, side), start, rho.to(torch.float32)


@triton.jit
def _obstacle(scores, place, inside, peak):
    """Return ``b``, made again wherever it is used: registers are scarce."""
    f = tl.load(scores + place, mask=inside, other=float("-inf")).to(tl.float32)
    return tl.where(inside, tl.exp((f - peak[:, None]) * 0.5), 0.0)


@triton.jit
def _gap(b, u, h):
    """Return ``⟨b,u⟩``, ``⟨u,h⟩`` and a bound of the gap, of each row, where ``h = Ku``."""
    bu = tl.sum(b * u, 1)
    uh = tl.sum(u * h, 1)
    scale = bu / uh
    v = tl.maximum(b - h * scale[:, None], 0.0)
    v_sum = tl.sum(v, 1)
    gap = (2 * tl.sum(v * h, 1) * scale + v_sum * v_sum) / (bu * scale)
    return bu, uh, tl.where(bu == 0.0, 1e9, gap)  # for a moment, u may be 0


@triton.jit
def _solution(s, x):
    """Return ``u``, positive where ``s`` is."""
    return tl.where(s > 0, tl.maximum(x, 0.0) * (1.0 / LIFT), 0.0)


@triton.jit
def _split_rows(
    scores, alpha, u_out, lower, upper, iterations, scratch, inverse, kernel, start, penalty,
    rows, width, tol, slack, max_iter, relaxation, zero,
    M: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, CHECK: tl.constexpr,
    REFRESH: tl.constexpr,
):  # fmt: skip
    scratch += tl.program_id(0).to(tl.int64) * 2 * M * D
    row = tl.program_id(0).to(tl.int64) * M + tl.arange(0, M)
    j = tl.arange(0, D)[None, :]
    real = row < rows
    inside = real[:, None] & (j < width)
    place = row[:, None] * width + j
    f = tl.load(scores + place, mask=inside, other=float("-inf")).to(tl.float32)
    peak = tl.max(f, 1)
    rho = tl.load(penalty)
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
            M, D, BLOCK, 3,
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
                x = rows_times(change, x, scratch, inverse + k * zero, M, D, BLOCK, 1)
            done += CHECK
            b = _obstacle(scores, place, inside, peak)
            h = (b + rho * tl.abs(s)) * LIFT - rho * x  # Kx, lifted; and u is near x
            u = _solution(s, x)
            h = rows_times(u * LIFT - x, h, scratch, kernel + done * zero, M, D, BLOCK, 1)
            _, _, now = _gap(b, u, h * (1.0 / LIFT))
            seen = tl.where(seen > tol, now, seen)
        close = going & ((seen <= 2 * tol) | (seen != seen) | (done >= max_iter))
        if tl.max(close.to(tl.int32)) > 0:
            u = _solution(s, x)
            h = tl.zeros([M, D], tl.float32)
            h = rows_times(u, h, scratch, kernel + done * zero, M, D, BLOCK, 3)
            new_bu, new_uh, new_gap = _gap(_obstacle(scores, place, inside, peak), u, h)
            bu, uh = tl.where(close, new_bu, bu), tl.where(close, new_uh, uh)
            gap = tl.where(close, new_gap, gap)

    u = _solution(s, x)
    b = _obstacle(scores, place, inside, peak)
    scale = bu / uh
    tl.store(alpha + place, u * b / bu[:, None], mask=inside)
    tl.store(u_out + place, u * scale[:, None], mask=inside)
    value = peak.to(tl.float64) + tl.log(bu * scale).to(tl.float64)
    tl.store(lower + row, value - slack, mask=real)
    tl.store(upper + row, value + tl.log(1.0 + gap).to(tl.float64) + slack, mask=real)
    tl.store(iterations + row, count.to(tl.int64), mask=real)
