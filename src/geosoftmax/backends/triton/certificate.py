"""The certificate of all kernels: how far a solve is from the optimum, and its bracket.

For ``u ≥ 0`` and ``h = Ku``, scaled by ``s = ⟨b,u⟩ / ⟨u,h⟩``, put ``v = max(b - s h, 0)``. As the
entries of ``K`` are at most 1 and its diagonal is 1, ``s u + v`` is feasible for the dual, and

    log(s ⟨b,u⟩)  ≤  g-LSE  ≤  log(s ⟨b,u⟩ (1 + gap)),
    gap = (2 s ⟨v,h⟩ + (Σv)²) / (s ⟨b,u⟩).

A dense kernel may have another diagonal. There ``v`` is multiplied by the `diagonal_factor`.

Kernels hold their samples in one of three layouts:

========  ====================================  =====================
LAYOUT    tile                                  sums
========  ====================================  =====================
"line"    one dimension, one sample             a number
"plane"   two dimensions, one sample            a number
"rows"    two dimensions, a sample in each row  a number for each row
========  ====================================  =====================
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from geosoftmax.backends.triton.tiles import sums


def diagonal_factor(K: Tensor) -> Tensor:
    """Return what ``v`` is multiplied by: 1 where the diagonal is 1 and no entry is larger.

    Else the smallest entry of the diagonal makes ``s u + v`` feasible, and the root of the largest
    entry bounds its energy.
    """
    return torch.sqrt(K.amax().clamp(min=1)) / K.diagonal().amin().clamp(max=1)


@triton.jit
def _totals(x, y, LAYOUT: tl.constexpr):
    """Sum two signals over each sample."""
    if LAYOUT == "plane":
        x, y = sums(x, y)
    elif LAYOUT == "rows":
        x, y = tl.sum(x, 1), tl.sum(y, 1)
    else:
        x, y = tl.sum(x, 0), tl.sum(y, 0)
    return x, y


@triton.jit
def _over_entries(x, LAYOUT: tl.constexpr):
    """Give a number of each sample the dimensions of the tile."""
    if LAYOUT == "rows":
        x = x[:, None]
    return x


@triton.jit
def certify(b, u, h, diagonal_factor, LAYOUT: tl.constexpr):
    """Return ``⟨b,u⟩``, ``⟨u,h⟩`` and the gap of each sample, where ``h = Ku``.

    The gap is large where ``u = 0``, which happens for a moment on the way.
    """
    bu, uh = _totals(b * u, u * h, LAYOUT)
    scale = bu / uh
    v = tl.maximum(b - h * _over_entries(scale, LAYOUT), 0.0)
    v_sum, vh = _totals(v, v * h, LAYOUT)
    v_sum, vh = v_sum * diagonal_factor, vh * diagonal_factor
    gap = (2 * vh * scale + v_sum * v_sum) / (bu * scale)
    return bu, uh, tl.where(bu == 0.0, 1e9, gap)


@triton.jit
def store_distribution(found, place, inside, b, u, bu, uh, LAYOUT: tl.constexpr):
    """Store ``α = u b / ⟨b,u⟩``, and ``u`` with its scale, in the `Outputs` of a solve."""
    distribution = u * b / _over_entries(bu, LAYOUT)
    scaled = u * _over_entries(bu / uh, LAYOUT)
    tl.store(found.alpha + place, distribution.to(found.alpha.dtype.element_ty), mask=inside)
    tl.store(found.u + place, scaled.to(found.u.dtype.element_ty), mask=inside)


@triton.jit
def store_bounds(found, sample, real, peak, bu, uh, gap, slack, iterations):
    """Store the bracket, wider by `slack` on both sides for rounding, and the iterations.

    ``b = exp((f - peak) / 2)``. `real` says which samples exist, None that all do.
    """
    value = peak.to(tl.float64) + tl.log(bu * (bu / uh)).to(tl.float64)
    tl.store(found.lower + sample, value - slack, mask=real)
    tl.store(found.upper + sample, value + tl.log(1.0 + gap).to(tl.float64) + slack, mask=real)
    tl.store(found.iterations + sample, iterations.to(tl.int64), mask=real)
