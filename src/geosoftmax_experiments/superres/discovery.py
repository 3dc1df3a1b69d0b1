r"""A threshold by the share of emitters that noise has made: the false-discovery rate.

What a fit makes of noise has no simple law: two emitters on one speck, or one beside a bright
neighbour, have more counts than a single one that is fitted to noise. So it is tried. The emitters
that some frames show are drawn again, with the noise that was measured, and sought again as they
were before. What is found then without a partner among what was drawn is false, and

    rate(T) = false emitters of at least T counts / emitters of at least T counts in the frames.

The threshold is the least ``T`` whose rate is at most what is allowed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from geosoftmax_experiments.superres.emitters import Settings, localise
from geosoftmax_experiments.superres.guesses import guess_background
from geosoftmax_experiments.superres.measures import Emitters, model, prune

__all__ = ["LEAST", "Threshold", "least_threshold", "measure_grain", "redraw", "threshold_at"]

#: Thresholds lie between so many standard deviations of the counts that one emitter gets in noise.
#: The least is that of the trial. Beyond the most it is not noise that makes false emitters.
LEAST, MOST = 4.0, 10.0
#: A partner lies within this many standard deviations of the point-spread function.
NEAR = 1.0
#: Emitters are drawn again that have at least this many: weaker ones may be noise.
DRAWN = 6.0
#: Frames are drawn again until they are so many.
FRAMES = 16
#: Thresholds that are tried.
STEPS = 49


class Threshold(NamedTuple):
    """Counts that an emitter has at least, and the share of false ones that is expected then."""

    counts: float
    rate: float


def measure_grain(frames: Tensor, found: Emitters, settings: Settings) -> float:
    """Return the variance of the noise for each count of light: the gain of an ideal camera."""
    light = (model(found, frames, settings.psf) - settings.base).clamp_min(1.0)
    rest = frames - model(found, frames, settings.psf)
    fitted = 3 * (found.counts > 0).sum(-1) + 1
    free = (frames[0].numel() - fitted).clamp_min(1)
    return float(((rest.square() / light).sum((1, 2)) / free).median())


def redraw(frames: Tensor, found: Emitters, settings: Settings) -> Tensor:
    """Return frames of the same emitters with other noise of the same strength."""
    grain = measure_grain(frames, found, settings)
    clean = model(found, frames, settings.psf)
    generator = torch.Generator().manual_seed(0)  # on the CPU: all devices draw the same
    noise = torch.randn(frames.shape, generator=generator).to(frames)
    return clean + (grain * (clean - settings.base).clamp_min(1.0)).sqrt() * noise


def unmatched(found: Emitters, drawn: Emitters, reach: float) -> Tensor:
    """Return which emitters, in order of their counts, get no partner of their own in `reach`."""
    alive = found.counts > 0
    distance = torch.cdist(found.points, drawn.points)
    distance = torch.where((drawn.counts > 0)[:, None, :], distance, torch.inf)
    alone = alive.clone()
    for place in range(alive.shape[1]):  # the brightest first, each to the nearest that is left
        nearest, partner = distance[:, place].min(-1)
        taken = alive[:, place] & (nearest <= reach)
        alone[:, place] &= ~taken
        frame = taken.nonzero()[:, 0]
        distance[frame, :, partner[frame]] = torch.inf
    return alone


def threshold_at(rate: float, frames: Tensor, found: Emitters, settings: Settings) -> Threshold:
    """Return the least threshold at which the share of false emitters is at most `rate`.

    `found` are the emitters of these frames with `settings`, whose threshold is that of a trial,
    ``LEAST * settings.noise``.
    """
    times = math.ceil(FRAMES / len(frames))
    drawn = prune(found, DRAWN * settings.noise).take(torch.arange(len(frames)).repeat(times))
    again = redraw(frames.repeat(times, 1, 1), drawn, settings)
    trial, _ = localise(again, guess_background(again), settings)
    alone = unmatched(trial, drawn, NEAR * settings.psf.sigma)
    every = found.counts[found.counts > 0]
    return least_threshold(rate, every, trial.counts[alone], settings, times)


def least_threshold(
    rate: float, every: Tensor, false: Tensor, settings: Settings, times: int = 1
) -> Threshold:
    """Return the least threshold whose rate of false emitters is allowed, or the best one.

    `every` are the counts of all that was found, `false` of the false ones in so many `times` the
    same frames.
    """
    thresholds = settings.noise * torch.linspace(LEAST, MOST, STEPS, dtype=torch.float64)
    above = (every.cpu() >= thresholds[:, None]).sum(-1)
    wrong = expected(thresholds, false.double().cpu()) / times / above.clamp_min(1)
    allowed = (wrong <= rate).nonzero()[:, 0]
    place = int(allowed[0]) if len(allowed) else int(wrong.argmin())
    return Threshold(max(1.0, float(thresholds[place])), min(1.0, float(wrong[place])))


def expected(thresholds: Tensor, false: Tensor) -> Tensor:
    """Return how many false emitters to expect above each threshold: as many as were seen.

    The stronger half of them also tells how the number falls, exponentially, where few were seen.
    """
    if not len(false):
        return torch.zeros_like(thresholds)
    seen = (false >= thresholds[:, None]).sum(-1).double()
    middle = false.median()
    strong = false[false >= middle]
    scale = (strong - middle).mean().clamp_min(1e-9)
    falling = len(strong) * torch.exp(-(thresholds - middle) / scale)
    return torch.where(thresholds > middle, torch.maximum(seen, falling), seen)
