r"""How wide the point-spread function is, from emitters that stand alone.

Around each maximum that has no other near it, one emitter and a constant are fitted, for a range of
widths. The width that leaves least tells that of the emitter; the median of many is the answer. Two
emitters that look like one leave more than one does: those are put aside. Whether pixels integrate
the function, or sample it at their centres, hardly changes its shape, only its width: bright
emitters tell, dim ones do not.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from geosoftmax_experiments.superres.emitters import Settings, localise
from geosoftmax_experiments.superres.frames import slide
from geosoftmax_experiments.superres.gridded import FINER, counts_of_one, is_maximum
from geosoftmax_experiments.superres.guesses import guess_background, guess_noise
from geosoftmax_experiments.superres.measures import Emitters, distances, model
from geosoftmax_experiments.superres.psf import Gaussian, Psf

__all__ = ["Width", "explains_better", "lone_patches", "measure_width"]

#: The width that maxima are first sought with, and the least, in pixels.
USUAL, NARROWEST = 1.3, 0.4
#: Widths of the first look, as shares of that.
WIDTHS = tuple(float(share) for share in np.geomspace(0.45, 2.5, 12))
#: Widths of the second look, as shares of what the first one found.
CLOSER = (0.8, 0.87, 0.93, 1.0, 1.07, 1.15, 1.25)
#: How many standard deviations of the noise a maximum has at least, and half of it a neighbour.
STANDS_OUT = 8.0
#: How far the next maximum is at least, and half the side of a patch, in standard deviations.
ALONE, PATCH = 6.0, 3.5
#: Emitters that are needed, that are plenty, and most that are taken.
ENOUGH, PLENTY, MOST = 15, 40, 400
#: How far others are at least whose light is taken away, and how often that is done.
PARTED, JOINT = 2.5, 4
#: Frames of which it is done.
JOINT_FRAMES = 8
#: Steps of each fit.
FIT_STEPS = 12
#: By how much the better kind of pixels explains emitters, in log-likelihood, to be told.
TELLING = 3.0
#: Two widths differ if they do so by this share, and by this many standard errors.
SHARE, ERRORS = 0.08, 4.0


@dataclasses.dataclass(frozen=True)
class Width:
    """The standard deviation of the spread function in pixels, its standard error, from how many.

    `sampled` says whether pixels sample it; None where the emitters do not tell, and `sigma` is
    that of a function which pixels integrate.
    """

    sigma: float
    error: float
    number: int
    sampled: bool | None

    @property
    def psf(self) -> Gaussian:
        """The point-spread function."""
        return Gaussian(self.sigma, bool(self.sampled))

    def differs(self, given: Psf) -> bool:
        """Return whether emitters are wider, or narrower, than a given function."""
        mine, other = self.sigma_if(sampled=True), _apparent(given)
        return abs(mine - other) > max(SHARE * other, ERRORS * self.error)

    def sigma_if(self, *, sampled: bool) -> float:
        """Return the width that pixels show, of a function which they sample or integrate."""
        return math.sqrt(_apparent(self.psf) ** 2 - (0 if sampled else 1 / 12))


def _apparent(psf: Psf) -> float:
    """Return the standard deviation of what pixels show; one that integrates has ``1/12``."""
    return math.sqrt(psf.sigma**2 + (0 if psf.sampled else 1 / 12))


def measure_width(frames: Tensor, base: float = 0.0, *, roughly: bool = False) -> Width | None:
    """Return the width of the emitters that stand alone, or None if they are too few.

    Where few do, frames are fitted, and from what is around each emitter the light of others is
    taken away; `roughly`, that is done less often.
    """
    widest = min(frames.shape[1:]) / 6
    usual = min(USUAL, widest)
    found = _fitted(*lone_patches(frames, Gaussian(usual)), Gaussian(usual), WIDTHS, base)
    for _ in range(2):
        if found is None or not NARROWEST <= found.sigma <= widest:
            break
        found = _fitted(*lone_patches(frames, found.psf), found.psf, CLOSER, base)
    if (
        found is not None
        and (found.number >= PLENTY or roughly)
        and NARROWEST <= found.sigma <= widest
    ):
        return _kind(*lone_patches(frames, found.psf), found, base)
    some = frames[:: -(-len(frames) // JOINT_FRAMES)]
    psf = found.psf if found else Gaussian(usual)
    for _ in range(2 if roughly else JOINT):
        patches, state = _parted(some, psf, base)
        found = _fitted(patches, state, psf, CLOSER, base)
        if found is None or not NARROWEST <= found.sigma <= widest:
            return None
        psf = found.psf
    return found and _kind(patches, state, found, base)


def explains_better(frames: Tensor, found: Width, given: Psf, base: float) -> bool:
    """Return whether emitters that stand alone look more like that Gaussian than like `given`.

    A Gaussian fitted to another shape has the width that the light and the weights make of it, so
    widths alone do not tell.
    """
    patches, state = lone_patches(frames, found.psf)
    if len(patches) < ENOUGH:
        return False
    rests = _rests(patches, state, found.psf, [found.psf, given], base)
    good = _good(rests)
    noise = float(rests.amin(0)[good].median()) / (patches[0].numel() - 4)
    gaussian, other = rests[:, good].sum(1).tolist()
    return other - gaussian > 2 * TELLING * noise


def _fitted(
    patches: Tensor, state: Emitters, psf: Gaussian, shares: Sequence[float], base: float
) -> Width | None:
    """Return the median of the widths, as shares of that of `psf`, at which patches leave least."""
    if len(patches) < ENOUGH:
        return None
    tried = [dataclasses.replace(psf, sigma=psf.sigma * share) for share in shares]
    rests = _rests(patches, state, psf, tried, base)
    sigma = torch.tensor([one.sigma for one in tried], dtype=torch.float64).log()
    good = _good(rests)
    if int(good.sum()) < ENOUGH:
        return None
    bottoms = torch.stack([_bottom(sigma, rests[:, j])[0] for j in good.nonzero()[:, 0]])
    best = bottoms.clamp(sigma[0], sigma[-1]).exp()
    middle = best.median()
    spread = 1.4826 * (best - middle).abs().median()
    error = 1.2533 * float(spread) / math.sqrt(len(best))
    return Width(float(f"{float(middle):.4g}"), error, len(best), None)


def _good(rests: Tensor) -> Tensor:
    """Return which patches one emitter explains about as well as most."""
    least = rests.amin(0)
    return least < 1.3 * least.quantile(0.3)


def _kind(patches: Tensor, state: Emitters, found: Width, base: float) -> Width:
    """Return the same width, for pixels that integrate or that sample, as the patches tell."""
    if len(patches) < ENOUGH:
        return found
    ways = [Gaussian(found.sigma), Gaussian(_apparent(found.psf), sampled=True)]
    # All emitters together fix the width much better than one: the range is as narrow as that.
    step = max(found.error / found.sigma, 1e-3)
    shares = [1 + k * step for k in range(-4, 5)]
    rests = [
        _rests(
            patches, state, ways[0],
            [dataclasses.replace(way, sigma=way.sigma * share) for share in shares], base,
        )
        for way in ways
    ]  # fmt: skip
    good = _good(torch.cat(rests))
    grid = torch.tensor(shares, dtype=torch.float64)
    bottoms = [_bottom(grid, part[:, good].sum(1)) for part in rests]
    # In units of the noise, whose variance what is left over measures.
    noise = float(rests[0].amin(0)[good].median()) / (patches[0].numel() - 4)
    gain = float(bottoms[0][1] - bottoms[1][1]) / noise / 2
    if abs(gain) < TELLING:
        return found
    chosen, share = ways[gain > 0], float(bottoms[gain > 0][0])
    sigma = float(f"{chosen.sigma * min(max(share, shares[0]), shares[-1]):.4g}")
    return dataclasses.replace(found, sigma=sigma, sampled=gain > 0)


def _rests(patches: Tensor, state: Emitters, psf: Psf, tried: Sequence[Psf], base: float) -> Tensor:
    """Return what fits of each patch with each of the functions leave, weighted by its light."""
    first = slide(patches, state, psf, 0.0, steps=FIT_STEPS)
    weights = 1 / (model(first, patches, psf) - base).clamp_min(1.0)
    rests = []
    for one in tried:
        fitted = slide(patches, first, one, 0.0, steps=FIT_STEPS, weights=weights)
        rest = patches - model(fitted, patches, one)
        rests.append((rest.square() * weights).sum((1, 2), dtype=torch.float64))
    return torch.stack(rests)


def lone_patches(
    frames: Tensor, psf: Psf, *, reach: float = PATCH, alone: float = ALONE
) -> tuple[Tensor, Emitters]:
    """Return windows around maxima without others near, and an emitter in each to start from.

    `reach` is half the side of a window, and the next maximum is farther than `alone`, both in
    standard deviations of the spread function.
    """
    height, width = frames.shape[1:]
    background = guess_background(frames)
    gain = counts_of_one(frames - background[:, None, None], psf)
    gain = gain - gain.flatten(1).median(1).values[:, None, None]
    noise = guess_noise(frames, psf)
    peak = is_maximum(gain, psf.sigma) & (gain > STANDS_OUT / 2 * noise)
    frame, row, column = peak.nonzero(as_tuple=True)
    counts = gain[frame, row, column]
    place = (torch.stack([column, row], -1).to(frames.dtype) + 0.5) / FINER
    half = math.ceil(reach * psf.sigma)
    lone = _apart(frame, place, alone * psf.sigma) & (counts > STANDS_OUT * noise)
    inside = (place.floor() >= half) & (place.floor() < place.new_tensor([width, height]) - half)
    chosen = (lone & inside.all(-1)).nonzero()[:, 0]
    chosen = chosen[counts[chosen].argsort(descending=True)[:MOST]]
    corner = place[chosen].floor().long() - half
    start = Emitters(
        (place[chosen] - corner)[:, None], counts[chosen][:, None], background[frame[chosen]]
    )
    return _cut(frames, frame[chosen], corner, 2 * half + 1), start


def _cut(frames: Tensor, frame: Tensor, corner: Tensor, side: int) -> Tensor:
    """Return square windows of frames, from their upper left corners on."""
    offsets = torch.arange(side, device=frames.device)
    rows, columns = corner[:, 1, None] + offsets, corner[:, 0, None] + offsets
    return frames[frame[:, None, None], rows[:, :, None], columns[:, None, :]]


def _parted(frames: Tensor, psf: Psf, base: float) -> tuple[Tensor, Emitters]:
    """Return windows around emitters that are not too near to others, without the others' light."""
    noise = guess_noise(frames, psf)
    settings = Settings(psf=psf, threshold=max(1.0, STANDS_OUT * noise), base=base, noise=noise)
    found, _ = localise(frames, guess_background(frames), settings)
    own = torch.eye(found.counts.shape[1], dtype=torch.bool, device=frames.device)
    near = torch.where(own | ~(found.counts > 0)[:, None], torch.inf, distances(found))
    half = math.ceil(PATCH * psf.sigma)
    size = found.points.new_tensor([frames.shape[2], frames.shape[1]])
    inside = (found.points.floor() >= half) & (found.points.floor() < size - half)
    alone = (found.counts > 0) & (near.amin(-1) > PARTED * psf.sigma) & inside.all(-1)
    frame, place = alone.nonzero(as_tuple=True)
    frame, place = frame[:MOST], place[:MOST]
    corner = found.points[frame, place].floor().long() - half
    start = Emitters(
        (found.points[frame, place] - corner)[:, None],
        found.counts[frame, place][:, None],
        found.background[frame],
    )
    rest = _cut(frames - model(found, frames, psf), frame, corner, 2 * half + 1)
    return rest + model(start, rest, psf), start


def _apart(frame: Tensor, place: Tensor, least: float) -> Tensor:
    """Return which points have no other of the same frame within a distance."""
    alone = torch.ones(len(frame), dtype=torch.bool, device=frame.device)
    for number in frame.unique():
        mine = (frame == number).nonzero()[:, 0]
        distance = torch.cdist(place[mine], place[mine]).fill_diagonal_(torch.inf)
        alone[mine] = distance.amin(-1) > least
    return alone


def _bottom(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return where a parabola through the least value and its neighbours has its bottom."""
    place = int(y.argmin().clamp(1, len(y) - 2))
    a, b, c = x[place - 1 : place + 2]
    p, q, r = y[place - 1 : place + 2]
    left, right = (q - p) / (b - a), (r - q) / (c - b)
    bend = ((right - left) / (c - a)).clamp_min(1e-12)
    where = (a + b) / 2 - left / (2 * bend)
    return where, q - bend * (b - where).square()
