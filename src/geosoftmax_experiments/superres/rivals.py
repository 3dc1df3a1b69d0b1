"""What sliding is compared with: local maxima with Gaussian fits, and the paper's Frank–Wolfe."""

from __future__ import annotations

import torch
from torch import Tensor

from geosoftmax_experiments.superres.emitters import Settings, localise, violation
from geosoftmax_experiments.superres.gridded import FINER, counts_of_one, is_maximum
from geosoftmax_experiments.superres.measures import Emitters, compact, distances, merge, prune
from geosoftmax_experiments.superres.psf import Gaussian
from geosoftmax_experiments.superres.slide import slide

__all__ = ["METHODS", "fit_maxima", "plain_frank_wolfe"]

#: Half the side of the window in which a maximum is fitted, in standard deviations.
WINDOW = 2
#: Steps of each fit.
FIT_STEPS = 30
#: Rounds of Frank–Wolfe, each of which adds one spike to each frame.
PLAIN_ROUNDS = 1000
#: Spikes closer than this many standard deviations are one emitter.
CLUSTER = 0.5


def fit_maxima(frames: Tensor, background: Tensor, settings: Settings) -> tuple[Emitters, Tensor]:
    """Fit one Gaussian and a constant around each local maximum, each in a window of its own.

    Maxima are sought after a blur of half the point-spread function: more of it joins neighbours.
    """
    count, height, width = frames.shape
    unknown = torch.full_like(background, torch.nan)  # fits of windows certify nothing
    light = frames - background[:, None, None]
    psf = settings.psf
    half_as_wide = Gaussian(psf.sigma / 2, psf.sampled)
    gain, sharp = (counts_of_one(light, one) for one in (psf, half_as_wide))
    found = is_maximum(sharp, half_as_wide.sigma) & (gain > settings.threshold)
    frame, row, column = found.nonzero(as_tuple=True)
    half = min(round(WINDOW * psf.sigma), (min(height, width) - 1) // 2)
    if not len(frame):
        empty = frames.new_zeros(count, 1)
        return Emitters(frames.new_zeros(count, 1, 2), empty, background), unknown
    top = (row // FINER - half).clamp(0, height - 2 * half - 1)
    left = (column // FINER - half).clamp(0, width - 2 * half - 1)
    offsets = torch.arange(2 * half + 1, device=frames.device)
    windows = frames[
        frame[:, None, None],
        (top[:, None] + offsets)[:, :, None],
        (left[:, None] + offsets)[:, None, :],
    ]
    corner = torch.stack([left, top], -1).to(frames.dtype)
    start = (torch.stack([column, row], -1).to(frames.dtype) + 0.5) / FINER - corner
    state = Emitters(start[:, None], gain[frame, row, column][:, None], background[frame])
    fitted = slide(windows, state, psf, 0.0, steps=FIT_STEPS)
    most = int(torch.bincount(frame, minlength=count).max())
    place = torch.arange(len(frame), device=frames.device)
    place = place - torch.searchsorted(frame, frame)  # frames come in order
    points, counts = frames.new_zeros(count, most, 2), frames.new_zeros(count, most)
    points[frame, place] = fitted.points[:, 0] + corner
    counts[frame, place] = fitted.counts[:, 0]
    return prune(Emitters(points, counts, background), settings.threshold), unknown


def plain_frank_wolfe(
    frames: Tensor, background: Tensor, settings: Settings
) -> tuple[Emitters, Tensor]:
    """Frank–Wolfe with steps ``2/(t+2)`` over measures whose mass is the light of the frame.

    Each round moves towards one spike, at the maximum of ``b - h`` on the search grid. At the end
    spikes that lie together are one emitter.
    """
    psf = settings.psf
    count, height, width = frames.shape
    light = (frames - background[:, None, None]).sum((1, 2)).clamp_min(1.0)
    image = background[:, None, None].expand(frames.shape)
    rows = torch.arange(count, device=frames.device)
    points, counts = [], frames.new_zeros(count, 0)
    for round_ in range(PLAIN_ROUNDS):
        gain = counts_of_one(frames - image, psf)
        best = gain.flatten(1).argmax(-1)
        place = torch.stack([best % (width * FINER), best // (width * FINER)], -1)
        point = (place.to(frames.dtype) + 0.5) / FINER
        step = 2 / (round_ + 2)
        across, _ = psf.across(point[:, 0], width)
        down, _ = psf.down(point[:, 1], height)
        spike = (light[:, None, None] * down).mT @ across
        level = background[:, None, None]
        image = level + (1 - step) * (image - level) + step * spike
        points.append(point)
        counts = torch.cat([(1 - step) * counts, (step * light)[rows, None]], 1)
    state = compact(Emitters(torch.stack(points, 1), counts, background))
    uncovered = violation(frames, state, settings)
    while True:
        near = distances(state) < CLUSTER * psf.sigma
        fewer = compact(merge(state, near))
        if fewer.counts.shape == state.counts.shape:
            break
        state = fewer
    return prune(state, settings.threshold), uncovered


#: Each takes frames, a first background and settings, and returns emitters and violations.
METHODS = {"sliding": localise, "plain": plain_frank_wolfe, "maxima": fit_maxima}
