"""Grids: a whole solve in one launch, one program for each sample.

Scores and iterates stay in registers; the matrices of the cost lie in shared memory. The iteration
is that of `reference.split`: cheap products until they stall, precise ones after that, and a
precise look at the gap now and then, by which each sample stops for itself.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from geosoftmax.costs import GridCost
from geosoftmax.costs.base import Cost
from geosoftmax.kernels import reference
from geosoftmax.kernels.gpu.halves import both, halves, load_square
from geosoftmax.kernels.gpu.tiles import CHECK_EVERY, on_device, outputs, padded

#: Bytes of shared memory that matrices may take.
SHARED_FOR_MATRICES = 168_000
#: Warps of a program, by the number of entries of a padded sample.
WARPS = {256: 1, 512: 2, 1024: 2, 2048: 4, 4096: 4, 8192: 8, 16384: 8}


def split_grid(
    cost: Cost, scores: Tensor, tol: float, max_iter: int, warps: int | None = None
) -> tuple[Tensor, ...]:
    """From scores to the distribution, ``u``, its bracket and the iterations."""
    assert isinstance(cost, GridCost)
    h, w = cost.shape
    sides = padded(h), padded(w)
    f = scores.contiguous()
    found = outputs(f, 2)
    matrices = cost._once("split_matrices", lambda: _matrices(cost, sides))
    slack = reference.rounding_allowance(cost.size, torch.float32)
    with on_device(f):
        _split[(found[2].numel(),)](
            f, *found, *matrices, h, w, 0.9 * tol - 2 * slack, slack, max_iter,
            reference.SPLIT_RELAXATION, 0, H=sides[0], W=sides[1], CHECK=CHECK_EVERY,
            RESIDENT=_fit(sides), num_stages=1, num_warps=warps or WARPS[sides[0] * sides[1]],
        )  # fmt: skip
    return found


def _fit(sides: tuple[int, int]) -> bool:
    """Whether bases and kernels, in halves, stay in shared memory beside the tiles."""
    return 8 * (sides[0] ** 2 + sides[1] ** 2) <= SHARED_FOR_MATRICES


def _matrices(cost: GridCost, sides: tuple[int, int]) -> tuple[Tensor, ...]:
    """Return bases and kernels in halves, the damping and the start, and the penalty."""
    kernels, bases, eigenvalues = reference.spectrum(cost)
    rho = reference.split_penalty(eigenvalues)
    sums = kernels[0].sum(1)[:, None] * kernels[1].sum(1)
    shape = eigenvalues.shape
    fields = eigenvalues.new_zeros((2, *sides), dtype=torch.float32)
    fields[0, : shape[0], : shape[1]] = 1 / (eigenvalues + rho)
    fields[1, : shape[0], : shape[1]] = 1 / sums
    squares = [
        halves(m, side) for m, side in zip((*bases, *kernels), (*sides, *sides), strict=True)
    ]
    return (*squares, fields, rho.to(torch.float32))


@triton.jit
def _gap(
    b, u, kh, kh_hi, kh_lo, kw, kw_hi, kw_lo,
    H: tl.constexpr, W: tl.constexpr, RESIDENT: tl.constexpr,
):  # fmt: skip
    """Return ``⟨b,u⟩``, ``uᵀKu`` and a bound of the gap."""
    h = both(u, kh, kh_hi, kh_lo, kw, kw_hi, kw_lo, H, W, False, 3, RESIDENT)
    bu = tl.sum(b * u)
    uh = tl.sum(u * h)
    scale = bu / uh
    v = tl.maximum(b - h * scale, 0.0)
    vh = tl.sum(v * h) * scale
    v_sum = tl.sum(v)
    added = (2 * vh + v_sum * v_sum) / (bu * scale)
    return bu, uh, added


@triton.jit
def _step(
    b, s, rho, relaxation, damping, vh, vh_hi, vh_lo, vw, vw_hi, vw_lo,
    H: tl.constexpr, W: tl.constexpr, PASSES: tl.constexpr, RESIDENT: tl.constexpr,
):  # fmt: skip
    x = b + rho * tl.abs(s)
    x = both(x, vh, vh_hi, vh_lo, vw, vw_hi, vw_lo, H, W, False, PASSES, RESIDENT) * damping
    x = both(x, vh, vh_hi, vh_lo, vw, vw_hi, vw_lo, H, W, True, PASSES, RESIDENT)
    return s + relaxation * (x - tl.maximum(s, 0.0))


@triton.jit
def _split(
    scores, alpha, u_out, lower, upper, iterations,
    vh, vw, kh, kw, fields, penalty,
    height, width, tol, slack, max_iter, relaxation, zero,
    H: tl.constexpr, W: tl.constexpr, CHECK: tl.constexpr, RESIDENT: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, H)[:, None]
    j = tl.arange(0, W)[None, :]
    inside = (i < height) & (j < width)
    place = row * height * width + i * width + j
    f = tl.load(scores + place, mask=inside, other=float("-inf")).to(tl.float32)
    peak = tl.max(f)
    b = tl.exp((f - peak) * 0.5)
    tile = i * W + j
    damping = tl.load(fields + tile)
    s = b * tl.load(fields + H * W + tile)
    rho = tl.load(penalty)
    # Addresses seem to change with each turn of a loop (zero is an argument): else the compiler
    # would read all matrices before it, and keep them all in shared memory.
    vh_hi, vh_lo, vw_hi, vw_lo = 0, 0, 0, 0
    kh_hi, kh_lo, kw_hi, kw_lo = 0, 0, 0, 0
    if RESIDENT:
        vh_hi, vh_lo = load_square(vh, 0, H), load_square(vh, 1, H)
        vw_hi, vw_lo = load_square(vw, 0, W), load_square(vw, 1, W)
        kh_hi, kh_lo = load_square(kh, 0, H), load_square(kh, 1, H)
        kw_hi, kw_lo = load_square(kw, 0, W), load_square(kw, 1, W)

    done = 0
    u = tl.maximum(s, 0.0)
    bu, uh, gap = _gap(b, u, kh, kh_hi, kh_lo, kw, kw_hi, kw_lo, H, W, RESIDENT)
    going = gap > tol
    while going:  # cheap products, as long as they help
        for k in range(CHECK):
            here = k * zero
            s = _step(
                b, s, rho, relaxation, damping, vh + here, vh_hi, vh_lo, vw + here, vw_hi, vw_lo,
                H, W, 1, RESIDENT,
            )  # fmt: skip
        done += CHECK
        here = done * zero
        before = gap
        u = tl.maximum(s, 0.0)
        bu, uh, gap = _gap(b, u, kh + here, kh_hi, kh_lo, kw + here, kw_hi, kw_lo, H, W, RESIDENT)
        stalled = (gap > 0.8 * before) & (done >= 4 * CHECK)
        going = (gap > tol) & (done < max_iter) & (not stalled)
    going = (gap > tol) & (done < max_iter)
    while going:
        for k in range(CHECK):
            here = k * zero
            s = _step(
                b, s, rho, relaxation, damping, vh + here, vh_hi, vh_lo, vw + here, vw_hi, vw_lo,
                H, W, 3, RESIDENT,
            )  # fmt: skip
        done += CHECK
        here = done * zero
        u = tl.maximum(s, 0.0)
        bu, uh, gap = _gap(b, u, kh + here, kh_hi, kh_lo, kw + here, kw_hi, kw_lo, H, W, RESIDENT)
        going = (gap > tol) & (done < max_iter)

    scale = bu / uh
    tl.store(alpha + place, (u * b / bu).to(alpha.dtype.element_ty), mask=inside)
    tl.store(u_out + place, (u * scale).to(u_out.dtype.element_ty), mask=inside)
    value = peak.to(tl.float64) + tl.log(bu * scale).to(tl.float64)
    tl.store(lower + row, value - slack)
    tl.store(upper + row, value + tl.log(1.0 + gap).to(tl.float64) + slack)
    tl.store(iterations + row, done.to(tl.int64))
