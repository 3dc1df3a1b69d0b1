"""Costs with a small dense kernel: a whole solve in one launch, 16 rows to a program.

The iteration is that of `reference.split` with ``(K + ρ)⁻¹`` as a matrix: one product a step.
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

from geosoftmax.costs.base import Cost
from geosoftmax.kernels import reference
from geosoftmax.kernels.gpu.halves import halves, times
from geosoftmax.kernels.gpu.tiles import CHECK_EVERY, ROWS, on_device, outputs, padded


def split_rows(cost: Cost, scores: Tensor, tol: float, max_iter: int) -> tuple[Tensor, ...]:
    """From scores to the distribution, ``u``, its bracket and the iterations."""
    d = cost.size
    side = padded(d)
    f = scores.contiguous()
    found = outputs(f, len(cost.shape))
    rows = found[2].numel()
    inverse, kernel, start, rho = cost._once("row_matrices", lambda: _matrices(cost, side))
    slack = reference.rounding_allowance(d, torch.float32)
    with on_device(f):
        _split_rows[(triton.cdiv(rows, ROWS),)](
            f, *found, inverse, kernel, start, rho,
            rows, d, 0.9 * tol - 2 * slack, slack, max_iter, reference.SPLIT_RELAXATION, 0,
            M=ROWS, D=side, CHECK=CHECK_EVERY, num_warps=4, num_stages=1,
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
def _gaps(b, u, kernel, D: tl.constexpr):
    """Return ``⟨b,u⟩``, ``uᵀKu`` and a bound of the gap, of each row."""
    h = times(u, kernel, 0, 0, D, False, 3, False)
    bu = tl.sum(b * u, 1)
    uh = tl.sum(u * h, 1)
    scale = bu / uh
    h = h * scale[:, None]
    v = tl.maximum(b - h, 0.0)
    v_sum = tl.sum(v, 1)
    return bu, uh, (2 * tl.sum(v * h, 1) + v_sum * v_sum) / (bu * scale)


@triton.jit
def _split_rows(
    scores, alpha, u_out, lower, upper, iterations, inverse, kernel, start, penalty,
    rows, width, tol, slack, max_iter, relaxation, zero,
    M: tl.constexpr, D: tl.constexpr, CHECK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * M + tl.arange(0, M)
    j = tl.arange(0, D)[None, :]
    real = row < rows
    inside = real[:, None] & (j < width)
    place = row[:, None] * width + j
    f = tl.load(scores + place, mask=inside, other=float("-inf")).to(tl.float32)
    peak = tl.max(f, 1)
    b = tl.exp((f - peak[:, None]) * 0.5)
    b = tl.where(real[:, None], b, 0.0)
    s = b * tl.load(start + j)
    rho = tl.load(penalty)

    bu, uh, gap = _gaps(b, s, kernel, D)
    count = tl.zeros([M], tl.int32)
    going = (gap > tol) & real
    done = 0
    while (tl.max(going.to(tl.int32)) > 0) & (done < max_iter):
        for k in range(CHECK):  # zero: as in grid.py
            x = times(b + rho * tl.abs(s), inverse + k * zero, 0, 0, D, False, 3, False)
            s = tl.where(going[:, None], s + relaxation * (x - tl.maximum(s, 0.0)), s)
        done += CHECK
        bu, uh, gap = _gaps(b, tl.maximum(s, 0.0), kernel + done * zero, D)
        count = tl.where(going, done, count)
        going = going & (gap > tol)

    u = tl.maximum(s, 0.0)
    scale = bu / uh
    tl.store(alpha + place, u * b / bu[:, None], mask=inside)
    tl.store(u_out + place, u * scale[:, None], mask=inside)
    value = peak.to(tl.float64) + tl.log(bu * scale).to(tl.float64)
    tl.store(lower + row, value - slack, mask=real)
    tl.store(upper + row, value + tl.log(1.0 + gap).to(tl.float64) + slack, mask=real)
    tl.store(iterations + row, count.to(tl.int64), mask=real)
