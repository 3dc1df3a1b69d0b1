"""Grids: all of a loss but the solve in one launch, with its slope in the scores."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from geosoftmax.costs import GridCost
from geosoftmax.costs.base import Cost
from geosoftmax.kernels.gpu.sinkhorn import STEPS, WARPS, axis_kernels, scaling
from geosoftmax.kernels.gpu.tiles import on_device, padded


def fit(
    cost: Cost, target: Tensor, scores: Tensor, alpha: Tensor, value: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the loss of each sample and its slope in the scores, from what a solve found.

    ``Σα Ω*(f) + Ω(α) - ⟨α,f⟩``, at least 0, and ``Σα · softmax - α``.
    """
    assert isinstance(cost, GridCost)
    h, w = cost.shape
    sides = padded(h), padded(w)
    target, f = target.contiguous(), scores.contiguous()
    loss, slope = f.new_empty(value.shape), torch.empty_like(f)
    kernels = axis_kernels(cost, sides)
    with on_device(f):
        _fit[(value.numel(),)](
            target, f, alpha, value, loss, slope, *kernels, h, w, float(h * w), math.log(h * w),
            H=sides[0], W=sides[1], STEPS=STEPS,
            num_warps=WARPS[sides[0] * sides[1]], num_stages=1,
        )  # fmt: skip
    return loss, slope


@triton.jit
def _fit(
    target, scores, alpha, value, loss_out, slope_out, kh, kw, height, width, size, log_size,
    H: tl.constexpr, W: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, H)[:, None]
    j = tl.arange(0, W)[None, :]
    inside = (i < height) & (j < width)
    place = row * height * width + i * width + j
    a = tl.load(target + place, mask=inside, other=0.0)
    f = tl.load(scores + place, mask=inside, other=float("-inf"))
    peak = tl.max(f)
    scaled = a * size
    v = scaling(scaled, kh, kw, H, W, STEPS)
    potential = 2 * tl.log(tl.where(a > 0, scaled / v, 1.0)) - log_size  # Kv = α / v
    mass = tl.sum(a)
    terms = tl.sum(tl.where(a > 0, a * (potential - (f - peak)), 0.0)) - mass + 1.0
    conjugate = (tl.load(value + row) - peak.to(tl.float64)).to(tl.float32)
    loss = mass * conjugate + terms
    tl.store(loss_out + row, tl.where(loss < 0.0, 0.0, loss))
    slope = mass * tl.load(alpha + place, mask=inside, other=0.0) - a
    tl.store(slope_out + place, slope, mask=inside)
