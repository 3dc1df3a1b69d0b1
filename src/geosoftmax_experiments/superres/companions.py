r"""What positions lose where two emitters were found as one.

The Fisher information takes the number of emitters for granted. Where they are crowded that is what
is wrong most: one was found where there are two, and its position is between them. Pairs closer
than

    r² = 8 s/a sqrt(grain · light / ⟨φ'', φ''⟩)

are not told apart, for ``a`` counts of both together and ``s`` standard deviations that two must
explain more than one. With a density ``ρ`` of emitters, such a pair is ``ρ π r²`` times as frequent
as one emitter. It has the light of two: so the counts tell how probable it is, given those of all
others,

    q = ρ π r² f₂(a) / (f₁(a) + ρ π r² f₂(a)),

where ``f₁`` is log-normal with the median and the spread of the counts, and ``f₂`` is that of the
sum of two. The position is then off by half of the distance of the pair. So errors are a mixture of
two normal distributions, and the uncertainty is half of what holds 95 % of them: a standard
deviation where emitters stand alone.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from geosoftmax_experiments.superres.emitters import Settings
from geosoftmax_experiments.superres.measures import Emitters

__all__ = ["with_companions"]

#: The mean square of the error in a coordinate, of ``r²``. Pairs that are spread evenly up to ``r``
#: have 1/16; noise also hides wider ones. The better of two values that were tried, on simulated
#: frames of 1 to 6 emitters/µm².
SHARE = 1 / 8
#: The share of errors that lie within two standard deviations of a normal distribution.
WITHIN_TWO = math.erf(math.sqrt(2))
#: Bisections for it.
HALVINGS = 24
#: Emitters from which the counts of others are known, and the least spread of their logarithm.
ENOUGH, NARROWEST = 30, 0.05


def with_companions(
    sure: Tensor, frames: Tensor, state: Emitters, grain: Tensor, settings: Settings
) -> Tensor:
    """Return uncertainties of coordinates, ``(frames, n)``, in pixels, that know of hidden pairs.

    `sure` is the standard deviation if there are none, and `grain` the variance of the noise for
    each count of light, of each frame.
    """
    odds, square = _pairs(frames, state, grain, settings)
    share = odds / (1 + odds)
    wide = (sure.square() + SHARE * square).sqrt()
    low, high = sure, wide
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        one, two = (torch.special.erf(math.sqrt(2) * middle / width) for width in (sure, wide))
        enough = (1 - share) * one + share * two >= WITHIN_TWO
        low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
    return torch.where(share > 0, high, sure)


def _pairs(
    frames: Tensor, state: Emitters, grain: Tensor, settings: Settings
) -> tuple[Tensor, Tensor]:
    """Return how much more probable two emitters are than one, and ``r²``."""
    alive = state.counts > 0
    psf, counts = settings.psf, state.counts.clamp_min(1.0)
    known = torch.where(alive, counts.log(), torch.nan).flatten()
    light = counts * psf.peak + (state.background - settings.base).clamp_min(0)[:, None]
    noise = (grain[:, None] * light).clamp_min(1.0)
    square = 8 * settings.resolved / counts * (noise / psf.bend).sqrt()
    middle = known.nanmedian()
    spread = (1.4826 * (known - middle).abs().nanmedian()).clamp_min(NARROWEST)
    # The sum of two has twice the mean and twice the variance.
    spread_of_two = (((spread.square().exp() - 1) / 2).log1p()).sqrt()
    middle_of_two = middle + spread.square() / 2 + math.log(2) - spread_of_two**2 / 2
    number = alive.sum()
    density = number / frames.numel()
    excess = ((counts.log() - middle) / spread).square() - (
        (counts.log() - middle_of_two) / spread_of_two
    ).square()
    odds = density * torch.pi * square * spread / spread_of_two * (excess / 2).clamp(-80, 80).exp()
    return torch.where(alive & (number >= ENOUGH), odds, 0.0), square
