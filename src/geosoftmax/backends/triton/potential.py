"""The loss of the potential layer on grids, and its slope, in one launch.

With ``v = exp(g/2)`` and ``h = Kv`` the loss is ``Σα log⟨v,h⟩ + Ω(α) - 2⟨α, log h⟩`` and its slope
``Σα v h / ⟨v,h⟩ - v K(α/h)``. All terms of these products are positive, so even small entries are
precise: products have float32 precision, by three passes of TF32.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from geosoftmax.backends.triton.fp16_split import PlaneTile, fp16_split, load_plane
from geosoftmax.backends.triton.sinkhorn import WARPS, negentropy
from geosoftmax.backends.triton.tiles import on_device, padded, tile

#: Longest side of a plane: products in float32 need twice the shared memory of the fp16 split.
LONGEST_SIDE = 64
#: Below this a product has lost digits, and is done again in the log domain.
TINY = tl.constexpr(1e-37)
#: The logarithm of what is not there.
NOTHING = tl.constexpr(-1e30)


class PotentialTables(NamedTuple):
    """What `loss` reads: for each axis ``K`` as `fp16_split` returns it, and ``log K``, padded."""

    shape: tuple[int, int]
    row_kernel: Tensor
    column_kernel: Tensor
    row_logarithms: Tensor
    column_logarithms: Tensor


def make_tables(costs: list[Tensor]) -> PotentialTables:
    """Make the tables from the cost matrices ``C`` of both axes."""
    h, w = (len(C) for C in costs)
    kernels = (fp16_split(torch.exp(-C.to(torch.float64) / 2), padded(len(C))) for C in costs)
    return PotentialTables((h, w), *kernels, *(_logarithms(C) for C in costs))


def loss(
    tables: PotentialTables, logits: Tensor, target: Tensor, share: float = 1.0,
    warps: int | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """From logits and distributions to the loss of each sample and its slope, times `share`."""
    h, w = tables.shape
    sides = padded(h), padded(w)
    g, target = logits.contiguous(), target.contiguous()
    value, slope = g.new_empty(g.shape[:-2]), torch.empty_like(g)
    with on_device(g):
        _loss[(value.numel(),)](
            g, target, value, slope, share, *tables[1:], h, w,
            TILE=PlaneTile(*sides, RESIDENT=False, LEFT=sides[0] * sides[1] <= 4096),
            num_warps=warps or WARPS[sides[0] * sides[1]], num_stages=1,
        )  # fmt: skip
    return value, slope


def _logarithms(C: Tensor) -> Tensor:
    """Return ``log K`` of an axis, padded with the logarithm of nothing."""
    n, side = len(C), padded(len(C))
    table = C.new_full((side, side), NOTHING.value, dtype=torch.float32)
    table[:n, :n] = -C / 2
    return table


@triton.jit
def _product(x, kh, kw):
    """Return ``Kx``."""
    return tl.dot(tl.dot(kh, x, input_precision="tf32x3"), kw, input_precision="tf32x3")


@triton.jit
def _log_product(x, log_kh, log_kw, H: tl.constexpr, W: tl.constexpr):
    """Return ``log(K exp(x))``, row by row and column by column: slow, and right at any depth."""
    i, j = tl.arange(0, H)[:, None], tl.arange(0, W)[None, :]
    top, total = tl.full([H, W], NOTHING, tl.float32), tl.zeros([H, W], tl.float32)
    for k in range(H):
        row = tl.sum(tl.where(i == k, x, 0.0), 0)[None, :]
        top, total = _add_logarithm(top, total, row + tl.load(log_kh + i * H + k))
    x = top + tl.log(total)
    top, total = tl.full([H, W], NOTHING, tl.float32), tl.zeros([H, W], tl.float32)
    for k in range(W):
        column = tl.sum(tl.where(j == k, x, 0.0), 1)[:, None]
        top, total = _add_logarithm(top, total, column + tl.load(log_kw + k * W + j))
    return top + tl.log(total)


@triton.jit
def _add_logarithm(top, total, term):
    """Add ``exp(term)`` to ``exp(top) · total``, where ``top`` is the largest term."""
    higher = tl.maximum(top, term)
    return higher, total * tl.exp(top - higher) + tl.exp(term - higher)


@triton.jit
def _loss(
    logits, target, loss_out, slope_out, share,
    row_kernel, column_kernel, log_kh, log_kw, height, width,
    TILE: tl.constexpr,
):  # fmt: skip
    H: tl.constexpr = TILE.H
    W: tl.constexpr = TILE.W
    row, place, inside = tile(height, width, H, W)
    g = tl.load(logits + place, mask=inside, other=float("-inf"))
    log_v = (g - tl.max(g)) * 0.5
    v = tl.exp(log_v)
    rows = tl.arange(0, H)[:, None] * H + tl.arange(0, H)[None, :]
    columns = tl.arange(0, W)[:, None] * W + tl.arange(0, W)[None, :]
    kernel_h, kernel_w = tl.exp(tl.load(log_kh + rows)), tl.exp(tl.load(log_kw + columns))
    h = _product(v, kernel_h, kernel_w)
    a = tl.load(target + place, mask=inside, other=0.0)
    near = h > TINY
    log_h = tl.log(tl.where(near, h, 1.0))
    if tl.sum(tl.where((a > 0) & (h <= TINY), 1, 0)) > 0:
        log_h = tl.where(
            near, log_h, _log_product(tl.maximum(log_v, NOTHING), log_kh, log_kw, H, W)
        )
    mass, energy = tl.sum(a), tl.sum(v * h)
    back = v * _product(tl.where(near, a / h, 0.0), kernel_h, kernel_w)
    tl.store(slope_out + place, (v * h * (mass / energy) - back) * share, mask=inside)
    kernel = load_plane(row_kernel, column_kernel, TILE)
    omega = negentropy(a, mass, 1.0 * height * width, kernel, TILE)
    value = mass * tl.log(energy) + omega - 2 * tl.sum(a * log_h)
    tl.store(loss_out + row, tl.where(value < 0.0, 0.0, value) * share)
