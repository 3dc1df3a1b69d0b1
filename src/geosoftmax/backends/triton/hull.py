"""The hull method on lines with p = 1: exact, in one launch, one program per row.

It is `reference.policy` with scans: the inverse of ``K`` on a support couples neighbours, and a
scan finds them. All is float64. Each round drops the outputs that are not positive, until there are
none.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from geosoftmax.backends import settings
from geosoftmax.backends.triton.certificate import certify, store_bounds, store_distribution
from geosoftmax.backends.triton.tiles import Outputs, on_device, outputs

#: Outputs of a line that fit into registers.
LONGEST_LINE = 8192


def solve(half_distances: Tensor, scores: Tensor) -> Outputs:
    """From scores to the distribution, ``u``, its bracket and the rounds; always exactly.

    `half_distances` are ``c x / 2`` along the line, in float64.
    """
    d = len(half_distances)
    f = scores.contiguous()
    found = outputs(f, 1)
    slack = settings.rounding_allowance(d, torch.float64)
    side = triton.next_power_of_2(d)
    with on_device(f):
        _solve[(found.lower.numel(),)](
            f, found, half_distances, d, slack,
            D=side, num_warps=min(16, max(1, side // 256)),
        )  # fmt: skip
    return found


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
def _solve(
    scores, found, half_distances, width, slack, D: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    here = tl.arange(0, D)
    inside = here < width
    f = tl.load(scores + row * width + here, mask=inside, other=float("-inf")).to(tl.float64)
    x = tl.load(half_distances + here, mask=inside, other=0.0)
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
    bu, uh, gap = certify(b, u, h, 1.0, "line")
    store_distribution(found, row * width + here, inside, b, u, bu, uh, "line")
    store_bounds(found, row, None, peak, bu, uh, gap, slack, rounds)
