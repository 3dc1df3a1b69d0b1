"""What is read off the frames before any fit: their background and noise."""

from __future__ import annotations

import math

from torch import Tensor

from geosoftmax_experiments.superres.psf import Psf

__all__ = ["guess_background", "guess_noise"]


def guess_background(frames: Tensor) -> Tensor:
    """Return a low percentile of each frame, from which the fit of the background starts."""
    pixels = frames.flatten(1)  # torch.quantile takes no large tensors
    return pixels.kthvalue(1 + round(0.03 * (pixels.shape[1] - 1)), 1).values


def guess_noise(frames: Tensor, psf: Psf) -> float:
    """Return the standard deviation of the counts of one emitter that is fitted to noise.

    Second differences, across and down, leave the noise of nine pixels and little of what is
    smooth: emitters change few of them while they are few, and are dim in most where they are many.
    """
    rest = frames.diff(n=2, dim=1).diff(n=2, dim=2).flatten()
    some = rest[:: max(1, rest.numel() // 1_000_000)]
    pixel = 1.4826 * float(some.abs().median()) / 6 if len(some) else 0.0
    return pixel / math.sqrt(psf.energy)
