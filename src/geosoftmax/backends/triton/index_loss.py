"""Losses of class indices, from the distributions and brackets that a solve returned."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from geosoftmax.backends.triton.tiles import on_device

#: Outputs that a program looks at together, at most.
BLOCK = 1024


def finish(
    alpha: Tensor, lower: Tensor, scores: Tensor, target: Tensor, ignored: int, reduction: str
) -> tuple[Tensor, Tensor]:
    """Return losses, reduced, and their slope in the scores, which takes the place of `alpha`.

    NaN where a class does not exist.
    """
    rows = lower.numel()
    size = alpha.numel() // rows
    f, y = scores.contiguous(), target.contiguous()
    loss = f.new_empty(lower.shape)
    mean = reduction == "mean"
    counted = (y != ignored).sum() if mean else y
    block = min(BLOCK, max(16, triton.next_power_of_2(size)))
    with on_device(f):
        _finish[(rows,)](
            alpha, lower, f, y, counted, loss, size, ignored,
            MEAN=mean, BLOCK=block, num_warps=max(1, block // 256),
        )  # fmt: skip
    return (loss if reduction == "none" else loss.sum()), alpha


@triton.jit
def _finish(
    alpha, lower, scores, target, counted, loss, size, ignored,
    MEAN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    alpha += row * size
    y = tl.load(target + row)
    counts = y != ignored
    real = (y >= 0) & (y < size)
    share = tl.full([], 1.0, tl.float64)
    if MEAN:
        share = 1.0 / tl.load(counted).to(tl.float64)
    score = tl.load(scores + row * size + y, mask=real, other=float("nan")).to(tl.float64)
    gap = tl.load(lower + row) - score
    value = tl.where(counts, tl.where(gap < 0.0, 0.0, gap), 0.0) * share  # NaN stays NaN
    tl.store(loss + row, value.to(loss.dtype.element_ty))
    for start in range(0, size, BLOCK):
        i = start + tl.arange(0, BLOCK)
        slope = tl.load(alpha + i, mask=i < size, other=0.0).to(tl.float64)
        slope = (slope - tl.where(i == y, 1.0, 0.0)) * tl.where(real, share, float("nan"))
        slope = tl.where(counts, slope, 0.0).to(alpha.dtype.element_ty)
        tl.store(alpha + i, slope, mask=i < size)
