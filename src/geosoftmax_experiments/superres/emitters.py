r"""Sliding Frank–Wolfe for point emitters under a Gaussian point-spread function.

A frame is ``background + Σ_j a_j φ(· - x_j)`` plus noise, where ``φ`` is a Gaussian that each pixel
integrates. Least squares with the penalty ``λ Σ_j a_j`` is (QP) over measures,

    min  ½ ∬ K dμ dμ - ∫ b dμ,    K(x, x') = ⟨φ_x, φ_x'⟩,    b(x) = ⟨φ_x, frame - background⟩ - λ,

with all sums over pixels. ``φ`` is a product of two profiles, so every product needed is one of
small matrices. All frames move together, padded to the same number of emitters.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

__all__ = ["Emitters", "Settings", "guess_background", "guess_threshold", "localise", "model"]

#: Points of the search grid in a pixel, along each side.
FINER = 3
#: Damping of the least-squares steps at the start, and its bounds.
DAMPING, LEAST, MOST = 1e-3, 1e-9, 1e9
#: Longest step of an emitter, in pixels.
REACH = 0.5
#: How many standard deviations of the noise a maximum stands out, where no threshold is given.
STANDS_OUT = 5.0


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the search needs to know; lengths in pixels, intensities in counts.

    Attributes
    ----------
    sigma : float
        Standard deviation of the point-spread function.
    threshold : float
        Emitters with fewer counts are dropped at the end.
    base : float
        What a pixel counts without light; the variance of the noise grows from there.
    seek : float
        New emitters are sought where the violation of ``h ≥ b`` is that of an emitter of this
        share of the threshold.
    penalty : float
        ``λ``, as a share of what an emitter at the threshold adds to ``b``.
    gain : float
        Counts for each photon: the variance of a pixel is ``gain · (counts - base)``.
    merge : float
        Emitters closer than this many ``sigma`` become one.
    resolved : float
        At the end, so do neighbours if two explain the frame better than one by fewer standard
        deviations of the noise.
    rounds, steps : int
        Rounds of adding and sliding, and least-squares steps in each.
    polish : int
        Rounds at the end, without penalty, in which pixels weigh as the inverse of their variance.
    """

    sigma: float
    threshold: float
    base: float = 0.0
    gain: float = 1.0
    seek: float = 0.05
    penalty: float = 0.02
    merge: float = 0.2
    resolved: float = 2.5
    rounds: int = 16
    steps: int = 8
    polish: int = 3


@dataclasses.dataclass(frozen=True)
class Emitters:
    """Emitters of each frame: points ``(frames, n, 2)`` as (x, y) in pixels, counts, background."""

    points: Tensor
    counts: Tensor
    background: Tensor


def profiles(centres: Tensor, side: int, sigma: float) -> tuple[Tensor, Tensor]:
    """Return what each pixel of a row integrates of a unit Gaussian, and its derivative."""
    edges = torch.arange(side + 1, dtype=centres.dtype, device=centres.device)
    z = (edges - centres[..., None]) / sigma
    below = torch.special.erf(z / math.sqrt(2)) / 2
    density = torch.exp(-z.square() / 2) / (sigma * math.sqrt(2 * math.pi))
    return below.diff(dim=-1), -density.diff(dim=-1)


def localise(frames: Tensor, background: Tensor, settings: Settings) -> Emitters:
    """Find the emitters of frames ``(frames, height, width)``, given a first background of each."""
    penalty = settings.penalty * settings.threshold * _energy(settings.sigma)
    state = Emitters(
        frames.new_zeros(frames.shape[0], 1, 2), frames.new_zeros(frames.shape[0], 1), background
    )
    for _ in range(settings.rounds):
        state = _add(frames, state, settings, penalty)
        state = slide(frames, state, settings, penalty)
        near = settings.merge * settings.sigma > torch.cdist(state.points, state.points)
        state = prune(merge(state, near), 0.1 * settings.threshold)
    for _ in range(settings.polish):
        state = prune(merge(state, _unresolved(state, settings)), settings.threshold)
        variance = (model(state, frames, settings.sigma) - settings.base).clamp_min(1.0)
        weights = variance.amin((1, 2), keepdim=True) / variance
        state = slide(frames, state, settings, 0.0, weights)
    return prune(state, settings.threshold)


def guess_background(frames: Tensor) -> Tensor:
    """Return a low percentile of each frame, from which the fit of the background starts."""
    return torch.quantile(frames.flatten(1), 0.03, dim=1)


def guess_threshold(frames: Tensor, background: Tensor, sigma: float) -> float:
    """Return a fifth of the median count of maxima that stand out, and more than noise makes.

    Counts are those of one emitter, fitted to the frame at the maximum. The noise is what their
    lower half shows: fluctuations around the background.
    """
    gain = counts_of_one(frames - background[:, None, None], sigma)
    low = gain.flatten()[:: max(1, gain.numel() // 1_000_000)]
    noise = 1.4826 * (low - low.median()).clamp_max(0).abs().quantile(0.5) * 2**0.5
    counts = gain[is_maximum(gain, sigma) & (gain > STANDS_OUT * noise)]
    typical = float(counts.median()) / 5 if counts.numel() else 0.0
    return max(typical, float(STANDS_OUT * noise), 1.0)


def model(state: Emitters, frames: Tensor, sigma: float) -> Tensor:
    """Return the frames that the emitters and the background explain."""
    across, _ = profiles(state.points[..., 0], frames.shape[2], sigma)
    down, _ = profiles(state.points[..., 1], frames.shape[1], sigma)
    image = (down * state.counts[..., None]).mT @ across
    return image + state.background[:, None, None]


def _energy(sigma: float) -> float:
    """``⟨φ, φ⟩``."""
    return 1 / (4 * math.pi * sigma**2)


def counts_of_one(residual: Tensor, sigma: float) -> Tensor:
    """Return the counts of one emitter fitted to the residual, on the search grid."""
    sides = []
    for side in residual.shape[1:]:
        grid = torch.arange(side * FINER, dtype=residual.dtype, device=residual.device)
        sides.append(profiles((grid + 0.5) / FINER, side, sigma)[0])
    return sides[0] @ residual @ sides[1].mT / _energy(sigma)


def is_maximum(gain: Tensor, sigma: float) -> Tensor:
    """Return where the search grid has its largest value within a standard deviation."""
    reach = max(1, round(sigma * FINER))
    return gain >= torch.max_pool2d(gain[:, None], 2 * reach + 1, 1, reach)[:, 0]


def _add(frames: Tensor, state: Emitters, settings: Settings, penalty: float) -> Emitters:
    """Add an emitter at each local maximum of ``b - h`` that is worth it."""
    sigma, columns = settings.sigma, frames.shape[2] * FINER
    gain = counts_of_one(frames - model(state, frames, sigma), sigma) - penalty / _energy(sigma)
    found = is_maximum(gain, sigma) & (gain > settings.seek * settings.threshold)
    most = max(1, int(found.flatten(1).sum(-1).max()))
    ranked = torch.where(found, gain, 0.0).flatten(1).topk(most, -1)
    place = torch.stack([ranked.indices % columns, ranked.indices // columns], -1)
    return compact(
        Emitters(
            torch.cat([state.points, (place.to(frames.dtype) + 0.5) / FINER], 1),
            torch.cat([state.counts, ranked.values], 1),
            state.background,
        )
    )


def slide(
    frames: Tensor,
    state: Emitters,
    settings: Settings,
    penalty: float,
    weights: Tensor | None = None,
) -> Emitters:
    """Levenberg–Marquardt steps on points, counts and background together."""
    damping = torch.full_like(state.background, DAMPING)
    loss, slope, bend = _system(frames, state, settings.sigma, penalty, weights)
    corner = frames.new_tensor([frames.shape[2], frames.shape[1]])
    n = state.counts.shape[1]
    for _ in range(settings.steps):
        diagonal = bend.diagonal(dim1=-2, dim2=-1)
        damped = bend + torch.diag_embed(damping[:, None] * diagonal)
        factor, failed = torch.linalg.cholesky_ex(damped)
        step = torch.cholesky_solve(slope[..., None], factor)[..., 0]
        step = torch.where((failed == 0)[:, None], step, 0.0).nan_to_num(0, 0, 0)
        alive = state.counts > 0
        size = torch.where(alive, state.counts, 1.0)[..., None]
        shift = step[:, n : 3 * n].unflatten(-1, (2, n)).mT / size
        moved = state.points + torch.where(alive[..., None], shift.clamp(-REACH, REACH), 0.0)
        moved = torch.minimum(moved.clamp_min(0), corner)
        counts = torch.maximum(state.counts + step[:, :n], 0.1 * state.counts)
        counts = torch.where(alive, counts, 0.0)
        trial = Emitters(moved, counts, state.background + step[:, -1])
        trial_loss, trial_slope, trial_bend = _system(
            frames, trial, settings.sigma, penalty, weights
        )
        better = trial_loss < loss
        state = Emitters(
            torch.where(better[:, None, None], trial.points, state.points),
            torch.where(better[:, None], trial.counts, state.counts),
            torch.where(better, trial.background, state.background),
        )
        loss = torch.where(better, trial_loss, loss)
        slope = torch.where(better[:, None], trial_slope, slope)
        bend = torch.where(better[:, None, None], trial_bend, bend)
        damping = torch.where(better, damping / 10, damping * 10).clamp(LEAST, MOST)
    return state


def _system(
    frames: Tensor, state: Emitters, sigma: float, penalty: float, weights: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the loss, minus its gradient, and the Gauss–Newton matrix.

    The unknowns are counts, counts · x, counts · y of all emitters, and the background.
    """
    _, height, width = frames.shape
    across, across_slope = profiles(state.points[..., 0], width, sigma)
    down, down_slope = profiles(state.points[..., 1], height, sigma)
    alive = (state.counts > 0).to(frames.dtype)
    image = (down * state.counts[..., None]).mT @ across + state.background[:, None, None]
    residual = frames - image
    weighted = residual if weights is None else residual * weights
    loss = (residual * weighted).sum((1, 2)) / 2 + penalty * state.counts.sum(-1)
    # The columns of the Jacobian are products of a profile down and one across.
    a = torch.cat([across, across_slope, across], 1)
    d = torch.cat([down, down, down_slope], 1)
    free = alive.repeat(1, 3)
    slope = ((d @ weighted) * a).sum(-1)
    slope[:, : state.counts.shape[1]] -= penalty
    if weights is None:
        bend = (a @ a.mT) * (d @ d.mT)
        edge = a.sum(-1) * d.sum(-1) * free
        total = torch.full_like(state.background, float(height * width))
    else:
        columns = (d[..., :, None] * a[..., None, :]).flatten(2)
        scaled = columns * weights.flatten(1)[:, None, :]
        bend = scaled @ columns.mT
        edge = scaled.sum(-1) * free
        total = weights.sum((1, 2))
    bend = bend * free[:, :, None] * free[:, None, :] + torch.diag_embed(1 - free)
    bend = torch.cat(
        [
            torch.cat([bend, edge[:, :, None]], 2),
            torch.cat([edge[:, None, :], total[:, None, None]], 2),
        ],
        1,
    )
    return loss, torch.cat([slope * free, weighted.sum((1, 2))[:, None]], 1), bend


def _unresolved(state: Emitters, settings: Settings) -> Tensor:
    """Return which neighbours might as well be one emitter, ``(frames, n, n)``.

    To second order in their distance ``d``, the frame changes by ``m d²/2 φ''`` if both move to
    their centre, where ``1/m`` is the sum of their inverse counts.
    """
    distance = torch.cdist(state.points, state.points)
    one, other = state.counts[:, :, None], state.counts[:, None, :]
    both = (one + other).clamp_min(1.0)
    light = both / (2 * math.pi * settings.sigma**2)
    light = light + (state.background - settings.base).clamp_min(0)[:, None, None]
    change = (one * other / both * distance.square() / 2).square()
    bend = 0.75 * _energy(settings.sigma) / settings.sigma**4  # the energy of φ''
    seen = change * bend / (settings.gain * light.clamp_min(1.0))
    return (seen < settings.resolved**2) & (distance < 2 * settings.sigma)


def merge(state: Emitters, near: Tensor) -> Emitters:
    """Join pairs of neighbours at their centre."""
    order = state.counts.argsort(-1, descending=True)
    counts = state.counts.gather(-1, order)
    points = state.points.gather(1, order[..., None].expand(state.points.shape))
    near = near.gather(1, order[..., None].expand(near.shape))
    near = near.gather(2, order[:, None, :].expand(near.shape))
    near = near & (counts > 0)[:, None, :] & (counts > 0)[:, :, None]
    earlier = near.tril(-1)
    # Only pairs: the lighter one of each joins the heaviest neighbour that joins nobody itself.
    joins = earlier.any(-1)
    target = (earlier & ~joins[:, None, :]).to(torch.int8).argmax(-1)
    joins = (earlier & ~joins[:, None, :]).any(-1)
    own = torch.arange(counts.shape[1], device=counts.device).expand(counts.shape)
    leader = torch.where(joins, target, own)
    mass = torch.zeros_like(counts).scatter_add(-1, leader, counts)
    moment = torch.zeros_like(points).scatter_add(
        1, leader[..., None].expand(points.shape), points * counts[..., None]
    )
    centre = moment / torch.where(mass > 0, mass, 1.0)[..., None]
    return Emitters(torch.where((mass > 0)[..., None], centre, points), mass, state.background)


def prune(state: Emitters, least: float) -> Emitters:
    """Drop emitters with fewer counts."""
    counts = torch.where(state.counts >= least, state.counts, 0.0)
    return compact(Emitters(state.points, counts, state.background))


def compact(state: Emitters) -> Emitters:
    """Drop padding that no frame needs; emitters are in order of their counts then."""
    size = max(1, int((state.counts > 0).sum(-1).max()))
    order = state.counts.argsort(-1, descending=True)[:, :size]
    points = state.points.gather(1, order[..., None].expand(*order.shape, 2))
    return Emitters(points, state.counts.gather(-1, order), state.background)
