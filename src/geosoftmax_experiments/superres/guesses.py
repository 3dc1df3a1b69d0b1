"""What is read off the frames before any fit: their background, noise and a first threshold."""

from __future__ import annotations

import math

from torch import Tensor

from geosoftmax_experiments.superres.gridded import counts_of_one, is_maximum
from geosoftmax_experiments.superres.psf import Psf

__all__ = ["guess_background", "guess_noise", "guess_threshold"]

#: How many standard deviations of the noise a maximum stands out, where no threshold is given.
STANDS_OUT = 5.0
#: How many the least threshold is: fits of many emitters to noise, and their merging, reach more.
SURE = 8.0


def guess_background(frames: Tensor) -> Tensor:
    """Return a low percentile of each frame, from which the fit of the background starts."""
    pixels = frames.flatten(1)  # torch.quantile takes no large tensors
    return pixels.kthvalue(1 + round(0.03 * (pixels.shape[1] - 1)), 1).values


def guess_threshold(frames: Tensor, background: Tensor, psf: Psf) -> float:
    """Return a fifth of the median count of maxima that stand out, and more than noise makes.

    Counts are those of one emitter, fitted to the frame at the maximum; to stand out, they are so
    much above the median of the frame.
    """
    noise = guess_noise(frames, psf)
    gain = counts_of_one(frames - background[:, None, None], psf)
    middle = gain.flatten(1).median(1).values[:, None, None]
    counts = gain[is_maximum(gain, psf.sigma) & (gain - middle > STANDS_OUT * noise)]
    typical = float(counts.median()) / 5 if counts.numel() else 0.0
    return max(typical, SURE * noise, 1.0)


def guess_noise(frames: Tensor, psf: Psf) -> float:
    """Return the standard deviation of the counts of one emitter that is fitted to noise.

    Second differences, across and down, leave the noise of nine pixels and little of what is
    smooth: emitters change few of them while they are few, and are dim in most where they are many.
    """
    rest = frames.diff(n=2, dim=1).diff(n=2, dim=2).flatten()
    some = rest[:: max(1, rest.numel() // 1_000_000)]
    pixel = 1.4826 * float(some.abs().median()) / 6 if len(some) else 0.0
    return pixel / math.sqrt(psf.energy)
