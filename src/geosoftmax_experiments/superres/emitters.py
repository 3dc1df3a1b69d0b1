r"""Sliding Frank–Wolfe for point emitters under a Gaussian point-spread function.

A frame is ``background + Σ_j a_j φ(· - x_j)`` plus noise. Least squares with the penalty
``λ Σ_j a_j`` is (QP) over measures,

    min  ½ ∬ K dμ dμ - ∫ b dμ,    K(x, x') = ⟨φ_x, φ_x'⟩,    b(x) = ⟨φ_x, frame - background⟩ - λ,

with all sums over pixels. All frames move together, padded to the same number of emitters:

1. `gridded` solves the problem on a grid, roughly, and reads emitters off it;
2. in rounds of the library's `search`, positions, counts and backgrounds slide together, then an
   emitter is added at every local maximum of ``b - h`` that is worth it, until there are none;
3. what is not light of one emitter is told apart: neighbours that noise does not separate become
   one, weak emitters go, and the rest slides without penalty, pixels weighted by their variance.
"""

from __future__ import annotations

import dataclasses

from torch import Tensor

from geosoftmax.continuous.search import search, settle, sliding
from geosoftmax_experiments.superres.brightness import Brightness, Pull, split
from geosoftmax_experiments.superres.frames import FrameProblem, slide
from geosoftmax_experiments.superres.gridded import read_off, solve_on_grid
from geosoftmax_experiments.superres.measures import Emitters, distances, merge, model, prune
from geosoftmax_experiments.superres.psf import Psf

__all__ = [
    "Settings",
    "localise",
    "minimise",
    "problem_of",
    "violation",
]

#: How many an emitter has at least that is added or kept, even before the end.
NOISE = 2.0
#: How many ``λ`` takes off an emitter at least: with less, emitters explain noise and background.
SHRINK = 0.25


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the search needs to know; lengths in pixels, intensities in counts.

    Attributes
    ----------
    psf : Psf
        The point-spread function.
    threshold : float
        Emitters with fewer counts are dropped at the end.
    false : float, optional
        The share of false emitters that is expected with this threshold, where it was chosen by
        that.
    base : float
        What a pixel counts without light; the variance of its noise is proportional to the rest.
    brightness : Brightness, optional
        What is known about the counts of emitters, if they are alike.
    seek : float
        Emitters are added where the violation of ``h ≥ b`` is that of an emitter of more than this
        share of the threshold.
    keep : float
        Until the end, emitters stay that have at least this share of the threshold.
    noise : float
        Standard deviation of the counts of an emitter that is fitted to noise: what has fewer than
        `NOISE` times as many is neither added nor kept.
    penalty : float
        ``λ``, as a share of what an emitter at the threshold adds to ``b``; at least what one of
        `SHRINK` times the `noise` adds.
    merge : float
        Emitters closer than this many ``sigma`` become one.
    resolved : float
        At the end, so do neighbours if two explain the frame better than one by fewer standard
        deviations of the noise.
    start : int
        Iterations on the grid.
    rounds, steps : int
        Most rounds of sliding and adding, and steps in each.
    polish, polish_steps : int
        Rounds at the end, and steps in each.
    """

    psf: Psf
    threshold: float
    false: float | None = None
    base: float = 0.0
    brightness: Brightness | None = None
    seek: float = 0.1
    keep: float = 0.1
    noise: float = 0.0
    penalty: float = 0.02
    merge: float = 0.2
    resolved: float = 2.5
    start: int = 150
    rounds: int = 6
    steps: int = 8
    polish: int = 3
    polish_steps: int = 10

    @property
    def weight(self) -> float:
        """``λ``."""
        return max(self.penalty * self.threshold, SHRINK * self.noise) * self.psf.energy

    @property
    def sought(self) -> float:
        """Emitters of more counts are added."""
        return max(self.seek * self.threshold, NOISE * self.noise)

    @property
    def kept(self) -> float:
        """Emitters of fewer counts go, also before the end."""
        return max(self.keep * self.threshold, NOISE * self.noise)


def localise(frames: Tensor, background: Tensor, settings: Settings) -> tuple[Emitters, Tensor]:
    """Find the emitters of frames ``(frames, height, width)``, given a first background of each.

    Also return the `violation` of each frame at the solution of (QP), before weak emitters went.
    """
    solution, uncovered = minimise(frames, background, settings)
    return _told_apart(frames, solution, settings), uncovered


def minimise(frames: Tensor, background: Tensor, settings: Settings) -> tuple[Emitters, Tensor]:
    """Solve (QP), until nothing is worth adding or all rounds are done.

    Also return the `violation` of each frame.
    """
    problem = problem_of(frames, settings)
    start = solve_on_grid(frames, background, settings.psf, settings.weight, settings.start)
    state = settle(problem, read_off(*start, settings.kept).spikes(), 0)
    result = search(problem, state, sliding, settings.rounds - 1)
    return Emitters.of(result.spikes), result.certificate[:, 0]


def problem_of(frames: Tensor, settings: Settings) -> FrameProblem:
    """Return the frames as a problem that is searched."""
    return FrameProblem(
        frames,
        settings.psf,
        settings.weight,
        sought=settings.sought,
        kept=settings.kept,
        together=settings.merge * settings.psf.sigma,
        steps=settings.steps,
    )


def violation(frames: Tensor, state: Emitters, settings: Settings) -> Tensor:
    """Return the largest ``b - h`` of each frame on a grid twice as fine as the search grid.

    In counts: where it is 0 no emitter can be added, and counts cannot grow, at a gain. It is a
    check on a grid, not a proof.
    """
    problem = problem_of(frames, settings)
    return problem.violation(state.spikes(), problem.show(state.spikes()))


def _told_apart(frames: Tensor, state: Emitters, settings: Settings) -> Emitters:
    """Merge and drop what noise explains; slide the rest, pixels weighted by their variance."""
    brightness, psf = settings.brightness, settings.psf
    for _ in range(settings.polish):
        light = (model(state, frames, psf) - settings.base).clamp_min(1.0)
        darkest = light.amin((1, 2), keepdim=True)
        weights = darkest / light
        residual = frames - model(state, frames, psf)
        noise = (residual.square() * weights).mean((1, 2))  # the variance of the darkest pixel
        if brightness is not None:
            state = split(frames, residual * weights, state, psf, brightness)
        grain = noise / darkest[:, 0, 0]
        state = prune(merge(state, _unresolved(state, grain, settings)), settings.threshold)
        pull = None
        if brightness is not None:
            pull = Pull(brightness.mean, noise[:, None] / brightness.spread**2)
        state = slide(
            frames, state, psf, 0.0, steps=settings.polish_steps, weights=weights, pull=pull
        )
    return prune(state, settings.threshold)


def _unresolved(state: Emitters, grain: Tensor, settings: Settings) -> Tensor:
    """Return which neighbours might as well be one emitter, ``(frames, n, n)``.

    To second order in their distance ``d``, the frame changes by ``m d²/2 φ''`` if both move to
    their centre, where ``1/m`` is the sum of their inverse counts. `grain` is the variance of the
    noise for each count of light.
    """
    sigma = settings.psf.sigma
    distance = distances(state)
    one, other = state.counts[:, :, None], state.counts[:, None, :]
    both = (one + other).clamp_min(1.0)
    light = both * settings.psf.peak
    light = light + (state.background - settings.base).clamp_min(0)[:, None, None]
    change = (one * other / both * distance.square() / 2).square()
    seen = change * settings.psf.bend / (grain[:, None, None] * light).clamp_min(1.0)
    if settings.brightness is not None:
        seen = seen + settings.brightness.surprise_of_one(one, other)
    return (seen < settings.resolved**2) & (distance < 2 * sigma)
