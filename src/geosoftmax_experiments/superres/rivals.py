"""What sliding is compared with: local maxima with Gaussian fits, and the paper's Frank–Wolfe."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from geosoftmax.continuous.search import plain, search
from geosoftmax.continuous.spikes import Spikes
from geosoftmax_experiments.superres.emitters import Settings, localise, problem_of
from geosoftmax_experiments.superres.frames import slide
from geosoftmax_experiments.superres.gridded import FINER, counts_of_one, is_maximum, points_at
from geosoftmax_experiments.superres.measures import Emitters, compact, distances, merge, prune
from geosoftmax_experiments.superres.psf import Gaussian

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
    problem = dataclasses.replace(problem_of(frames, settings), single=True)
    gain = counts_of_one(frames - background[:, None, None], settings.psf)
    points = points_at(gain.flatten(1).argmax(-1, keepdim=True), gain)
    level = background[:, None]
    start = Spikes(points, problem.unit(points, level), level)
    result = search(problem, start, plain, PLAIN_ROUNDS - 1)
    state = Emitters.of(result.spikes)
    while True:
        near = distances(state) < CLUSTER * settings.psf.sigma
        fewer = compact(merge(state, near))
        if fewer.counts.shape == state.counts.shape:
            break
        state = fewer
    return prune(state, settings.threshold), result.certificate[:, 0]


#: Each takes frames, a first background and settings, and returns emitters and violations.
METHODS = {"sliding": localise, "plain": plain_frank_wolfe, "maxima": fit_maxima}
