"""The symmetric Sinkhorn problem ``v · Kv = α`` in one launch, by the averaged fixed point.

Each step at least halves the error of ``log v``, whatever the cost: see `solvers.sinkhorn`.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from geosoftmax.costs import GridCost
from geosoftmax.costs.base import Cost
from geosoftmax.kernels.gpu.halves import both, halves, times
from geosoftmax.kernels.gpu.tiles import ROWS, on_device, padded
from geosoftmax.kernels.reference import dense_kernel

#: Halvings of the error: to the digits of float32.
STEPS = 24
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
    with on_device(a):
        _sinkhorn_rows[(triton.cdiv(rows, ROWS),)](
            a, v, kernel, rows, d, float(d), math.sqrt(d), M=ROWS, D=side, STEPS=STEPS,
            num_warps=4, num_stages=1,
        )  # fmt: skip
    return v


@triton.jit
def _sinkhorn_rows(
    alpha,
    v_out,
    kernel,
    rows,
    width,
    size,
    root,
    M: tl.constexpr,
    D: tl.constexpr,
    STEPS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * M + tl.arange(0, M)[:, None]
    j = tl.arange(0, D)[None, :]
    inside = (row < rows) & (j < width)
    place = row * width + j
    a = tl.load(alpha + place, mask=inside, other=0.0) * size
    h = times(a, kernel, 0, 0, D, False, 3, False)
    v = tl.where(a > 0, a / tl.sqrt(tl.maximum(h, a)), 0.0)
    for _ in range(STEPS):
        h = tl.maximum(times(v, kernel, 0, 0, D, False, 3, False), v)
        v = tl.where(a > 0, tl.sqrt(v * (a / h)), 0.0)
    tl.store(v_out + place, v / root, mask=inside)


@triton.jit
def scaling(a, kh, kw, H: tl.constexpr, W: tl.constexpr, STEPS: tl.constexpr):
    """Return ``v`` with ``v · Kv = a``."""
    h = both(a, kh, 0, 0, kw, 0, 0, H, W, False, 3, False)
    v = tl.where(a > 0, a / tl.sqrt(tl.maximum(h, a)), 0.0)
    for _ in range(STEPS):
        h = both(v, kh, 0, 0, kw, 0, 0, H, W, False, 3, False)
        h = tl.maximum(h, v)  # K has a diagonal of ones: rounding went below
        v = tl.where(a > 0, tl.sqrt(v * (a / h)), 0.0)
    return v


@triton.jit
def _sinkhorn(
    alpha, v_out, kh, kw, height, width, size, root,
    H: tl.constexpr, W: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, H)[:, None]
    j = tl.arange(0, W)[None, :]
    inside = (i < height) & (j < width)
    place = row * height * width + i * width + j
    a = tl.load(alpha + place, mask=inside, other=0.0) * size  # about 1: inside half precision
    v = scaling(a, kh, kw, H, W, STEPS)
    tl.store(v_out + place, v / root, mask=inside)
