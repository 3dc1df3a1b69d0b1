"""Lines with the absolute value: the exact envelope in one launch, one program for each row.

`reference.prune` with scans: the inverse of ``K`` on a support couples neighbours, which a scan
finds. All in float64; every round drops the outputs that are not positive, until none is.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from geosoftmax.backends import reference
from geosoftmax.backends.triton.tiles import on_device, outputs
from geosoftmax.costs.base import Cost


def prune_line(cost: Cost, scores: Tensor, tol: float, max_iter: int) -> tuple[Tensor, ...]:
    """From scores to the distribution, ``u``, its bracket and the rounds; exactly, always."""
    d = cost.size
    f = scores.contiguous()
    found = outputs(f, 1)
    rows = found[2].numel()
    places = cost._once("half_distances64", lambda: half_distances(cost))
    slack = reference.rounding_allowance(d, torch.float64)
    side = triton.next_power_of_2(d)
    with on_device(f):
        _prune[(rows,)](
            f, *found, places, d, slack, D=side, num_warps=min(16, max(1, side // 256))
        )  # fmt: skip
    return found


def half_distances(cost: Cost) -> Tensor:
    """``c x / 2`` along the line, in float64."""
    line = getattr(cost, "axes", [cost])[0]
    return line._half_distances(torch.float64).detach()


@triton.jit
def _larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def _smaller(a, b):
    return tl.minimum(a, b)


@triton.jit
def _then(decay_a, sum_a, decay_b, sum_b):
    """Compose ``x → decay · x + sum`` for two stretches of the line."""
    return decay_a * decay_b, sum_a * decay_b + sum_b


@triton.jit
def _neighbour(at, b, x, width):
    """Return E, D and b towards the neighbours at these positions."""
    real = (at >= 0) & (at < width)
    index = tl.where(real, at, 0)
    gap = tl.abs(x - tl.gather(x, index, 0))
    near = tl.where(real, tl.exp(-gap), 0.0)
    return near, 1.0 - near * near, tl.gather(b, index, 0)


@triton.jit
def _prune(scores, alpha, u_out, lower, upper, iterations, places, width, slack, D: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    here = tl.arange(0, D)
    inside = here < width
    f = tl.load(scores + row * width + here, mask=inside, other=float("-inf")).to(tl.float64)
    x = tl.load(places + here, mask=inside, other=0.0)
    peak = tl.max(f, 0)
    b = tl.exp((f - peak) * 0.5)
    keep = b > 0
    u = b
    rounds = 0
    going = peak == peak
    before_here = tl.maximum(here - 1, 0)
    after_here = tl.minimum(here + 1, D - 1)
    while going:
        rounds += 1
        left = tl.associative_scan(tl.where(keep, here, -1), 0, _larger)
        right = tl.associative_scan(tl.where(keep, here, D), 0, _smaller, reverse=True)
        left = tl.where(here > 0, tl.gather(left, before_here, 0), -1)
        right = tl.where(here < D - 1, tl.gather(right, after_here, 0), D)
        ea, da, ra = _neighbour(left, b, x, width)
        ez, dz, rz = _neighbour(right, b, x, width)
        u = (b * (da + ea * ea * dz) - ra * ea * dz - rz * ez * da) / (da * dz)
        u = tl.where(keep, u, 0.0)
        still = keep & (u > 0)
        going = tl.sum((still != keep).to(tl.int32), 0) > 0
        keep = still
    # h = Ku: what comes from the left, and from the right
    to_left = tl.where(inside & (here > 0), tl.exp(tl.gather(x, before_here, 0) - x), 0.0)
    to_right = tl.where(here < width - 1, tl.exp(x - tl.gather(x, after_here, 0)), 0.0)
    _, from_left = tl.associative_scan((to_left, u), 0, _then)
    _, from_right = tl.associative_scan((to_right, u), 0, _then, reverse=True)
    h = from_left + from_right - u
    bu = tl.sum(b * u, 0)
    scale = bu / tl.sum(u * h, 0)
    h = h * scale
    v = tl.where(inside, tl.maximum(b - h, 0.0), 0.0)
    v_sum = tl.sum(v, 0)
    gap = (2 * tl.sum(v * h, 0) + v_sum * v_sum) / (bu * scale)
    value = peak + tl.log(bu * scale)
    place = row * width + here
    tl.store(alpha + place, (u * b / bu).to(alpha.dtype.element_ty), mask=inside)
    tl.store(u_out + place, (u * scale).to(u_out.dtype.element_ty), mask=inside)
    tl.store(lower + row, value - slack)
    tl.store(upper + row, value + gap + slack)
    tl.store(iterations + row, rounds.to(tl.int64))
