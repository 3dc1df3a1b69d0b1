"""The symmetric Sinkhorn problem ``v · Kv = α`` in one launch, by an averaged fixed point.

``log v`` moves two thirds of the way to ``log(α / Kv)``. Near the solution its error is multiplied
by ``(1 - 2P) / 3``, where ``P`` has eigenvalues in [0, 1]: see `backends.sinkhorn`. So each step
divides it by 3, whatever the cost.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from geosoftmax.backends.reference import dense_kernel
from geosoftmax.backends.triton.halves import both, halves, rows_times
from geosoftmax.backends.triton.tiles import (
    ROWS,
    block,
    on_device,
    padded,
    row_stages,
    row_warps,
    scratch,
    sums,
    tile,
)
from geosoftmax.costs import GridCost
from geosoftmax.costs.base import Cost

#: Steps: each divides the error of ``log v`` by 3, to the digits of float32.
STEPS = 16
#: Warps of a program, by the number of entries of a padded sample.
WARPS = {256: 1, 512: 1, 1024: 2, 2048: 4, 4096: 4, 8192: 8, 16384: 8}


def sinkhorn_grid(cost: Cost, alpha: Tensor, warps: int | None = None) -> Tensor:
    """Return ``v`` in float32 for distributions over a grid of two dimensions."""
    assert isinstance(cost, GridCost)
    h, w = cost.shape
    sides = padded(h), padded(w)
    a = alpha.to(torch.float32).contiguous()
    v = torch.empty_like(a)
    kernels = axis_kernels(cost, sides)
    with on_device(a):
        _sinkhorn[(a.numel() // (h * w),)](
            a, v, *kernels, h, w, float(h * w), math.sqrt(h * w),
            H=sides[0], W=sides[1], STEPS=STEPS,
            num_warps=warps or WARPS[sides[0] * sides[1]], num_stages=1,
        )  # fmt: skip
    return v


def axis_kernels(cost: GridCost, sides: tuple[int, int]) -> tuple[Tensor, ...]:
    """Return the kernel of each axis, in halves."""

    def build() -> tuple[Tensor, ...]:
        parts = zip(cost.axes, sides, strict=True)
        return tuple(halves(dense_kernel(line), side) for line, side in parts)

    return cost._once("axis_kernels", build)


def sinkhorn_rows(cost: Cost, alpha: Tensor) -> Tensor:
    """The same for any small cost, with its dense kernel."""
    d = cost.size
    side = padded(d)
    a = alpha.to(torch.float32).contiguous()
    v = torch.empty_like(a)
    rows = a.numel() // d

    kernel = cost._once("row_kernel", lambda: halves(dense_kernel(cost), side))
    programs = triton.cdiv(rows, ROWS)
    with on_device(a):
        _sinkhorn_rows[(programs,)](
            a, v, scratch(a, programs, side), kernel, rows, d, float(d), math.sqrt(d),
            M=ROWS, D=side, BLOCK=block(side), STEPS=STEPS,
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
def _sinkhorn_rows(
    alpha, v_out, scratch, kernel, rows, width, size, root,
    M: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    scratch += tl.program_id(0).to(tl.int64) * 2 * M * D
    row = tl.program_id(0).to(tl.int64) * M + tl.arange(0, M)[:, None]
    j = tl.arange(0, D)[None, :]
    inside = (row < rows) & (j < width)
    place = row * width + j
    a = tl.load(alpha + place, mask=inside, other=0.0) * size
    none = tl.zeros([M, D], tl.float32)
    h = rows_times(a, none, scratch, kernel, M, D, BLOCK, 3)
    v = tl.where(a > 0, a / tl.sqrt(tl.maximum(h, a)), 0.0)
    for _ in range(STEPS):
        v = _towards(v, a, rows_times(v, none, scratch, kernel, M, D, BLOCK, 3))
    tl.store(v_out + place, v / root, mask=inside)


@triton.jit
def _scaling(a, kh, kw, H: tl.constexpr, W: tl.constexpr, STEPS: tl.constexpr):
    """Return ``v`` with ``v · Kv = a``."""
    h = both(a, kh, 0, 0, kw, 0, 0, H, W, False, 3, False, True)
    v = tl.where(a > 0, a / tl.sqrt(tl.maximum(h, a)), 0.0)
    for _ in range(STEPS):
        v = _towards(v, a, both(v, kh, 0, 0, kw, 0, 0, H, W, False, 3, False, True))
    return v


@triton.jit
def negentropy(
    a, mass, size, kh, kh_hi, kh_lo, kw, kw_hi, kw_lo,
    H: tl.constexpr, W: tl.constexpr, RESIDENT: tl.constexpr, LEFT: tl.constexpr,
):  # fmt: skip
    """Return ``Ω(α)``: the least ``vᵀKv - 2⟨α, log v⟩``, which sees an error of ``v`` squared.

    Three steps of Sinkhorn's iteration, by the roots of Chebyshev's polynomial on [1, 2], divide
    the error of ``log v`` by 99: see `backends.sinkhorn`.
    """
    a = a * size  # about 1: inside half precision
    h = both(a, kh, kh_hi, kh_lo, kw, kw_hi, kw_lo, H, W, False, 1, RESIDENT, LEFT)
    inside = a > 0
    log_a = tl.log(tl.where(inside, a, 1.0))
    log_v = log_a - 0.5 * tl.log(tl.where(inside, tl.maximum(h, a), 1.0))
    for k in range(3):
        v = tl.where(inside, tl.exp(log_v), 0.0)
        h = both(v, kh, kh_hi, kh_lo, kw, kw_hi, kw_lo, H, W, False, 1, RESIDENT, LEFT)
        h = tl.maximum(h, v)  # K has a diagonal of ones: rounding went below
        share = tl.where(k == 0, 0.5173, tl.where(k == 1, 0.9373, 0.6667))
        log_v += (log_a - log_v - tl.log(tl.where(inside, h, 1.0))) * share
    v = tl.where(inside, tl.exp(log_v), 0.0)
    h = both(v, kh, kh_hi, kh_lo, kw, kw_hi, kw_lo, H, W, False, 3, RESIDENT, LEFT)
    energy, linear = sums(v * h, tl.where(inside, a * (log_a - log_v), 0.0))
    return 2 * linear / size + mass * (tl.log(energy / (mass * size * size)) - 1.0) + 1.0


@triton.jit
def _sinkhorn(
    alpha, v_out, kh, kw, height, width, size, root,
    H: tl.constexpr, W: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    _, place, inside = tile(height, width, H, W)
    a = tl.load(alpha + place, mask=inside, other=0.0) * size  # about 1: inside half precision
    v = _scaling(a, kh, kw, H, W, STEPS)
    tl.store(v_out + place, v / root, mask=inside)
