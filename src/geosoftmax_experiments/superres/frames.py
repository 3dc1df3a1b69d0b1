r"""The frames of a camera as a problem off the grid, for the library's search and sliding.

Least squares with the penalty ``λ Σ_j a_j`` is (QP) over measures, for ``K(x, x') = ⟨φ_x, φ_x'⟩``
and ``b(x) = ⟨φ_x, frame - background⟩ - λ``. Where ``b - h`` is positive, light is missing.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from geosoftmax.continuous.search import Found
from geosoftmax.continuous.sliding import Damping
from geosoftmax.continuous.sliding import slide as slide_spikes
from geosoftmax.continuous.spikes import Spikes, peaks
from geosoftmax_experiments.superres.brightness import Pull
from geosoftmax_experiments.superres.gridded import FINER, counts_of_one, is_maximum, points_at
from geosoftmax_experiments.superres.measures import Emitters, distances, light, prune
from geosoftmax_experiments.superres.psf import Psf
from geosoftmax_experiments.superres.views import FrameView

__all__ = ["FrameProblem", "slide"]

DAMPING = Damping(1e-3, 1e-9, 1e9)
#: Longest step of an emitter, in pixels.
REACH = 0.5


def slide(
    frames: Tensor,
    state: Emitters,
    psf: Psf,
    penalty: float,
    *,
    steps: int,
    weights: Tensor | None = None,
    pull: Pull | None = None,
) -> Emitters:
    """Return emitters that explain the frames better.

    `weights` are those of the pixels; `pull` draws counts to their mean.
    """
    problem = FrameProblem(frames, psf, penalty, weights, pull)
    return Emitters.of(slide_spikes(problem, state.spikes(), reach=problem.reach, steps=steps))


@dataclasses.dataclass(frozen=True)
class FrameProblem:
    """Frames ``(frames, height, width)`` to be explained by emitters and a background.

    Attributes
    ----------
    frames : Tensor
    psf : Psf
    penalty : float
        ``λ``.
    weights : Tensor, optional
        Those of the pixels.
    pull : Pull, optional
        Draws counts to their mean.
    sought, kept : float
        A search adds emitters of more counts than the first, and drops those of fewer than the
        second.
    together : float
        Emitters that are nearer, in pixels, become one.
    steps : int
        Steps of sliding in each round of a search.
    single : bool
        Whether a search seeks the best emitter of each frame only.
    """

    frames: Tensor
    psf: Psf
    penalty: float
    weights: Tensor | None = None
    pull: Pull | None = None
    sought: float = 0.0
    kept: float = 0.0
    together: float = 0.0
    steps: int = 0
    single: bool = False
    settled: float | None = None
    damping: Damping = DAMPING

    @property
    def reach(self) -> Tensor:
        """The longest step of an emitter."""
        return self.frames.new_full((), REACH)

    def view(self, state: Spikes) -> FrameView:
        """Return the frames as these emitters explain them."""
        return FrameView.at(self, state)

    def clip(self, points: Tensor) -> Tensor:
        """Return the nearest points of the frame."""
        corner = self.frames.new_tensor([self.frames.shape[2], self.frames.shape[1]])
        return torch.minimum(points.clamp_min(0), corner)

    def take(self, rows: Tensor) -> FrameProblem:
        """Return the problem of some frames."""
        weights = None if self.weights is None else self.weights[rows]
        pull = None if self.pull is None else self.pull._replace(weight=self.pull.weight[rows])
        return dataclasses.replace(self, frames=self.frames[rows], weights=weights, pull=pull)

    def show(self, state: Spikes) -> Tensor:
        """Return the light of emitters, without the background."""
        return light(Emitters.of(state), self.frames, self.psf)

    def look(self, state: Spikes, shown: Tensor, last: bool) -> Found:
        """Return the local maxima of ``b - h`` that are worth an emitter.

        The certificate is the largest ``b - h`` in counts, on a finer grid in frames that are done.
        """
        gain = self.uncovered(state, shown, FINER)
        worst, best = gain.flatten(1).max(-1, keepdim=True)
        if self.single:
            index, counts = best, torch.where(worst > self.sought, worst, 0.0)
        else:
            index, counts = peaks(gain, is_maximum(gain, self.psf.sigma) & (gain > self.sought))
        done = (counts == 0).all(-1)
        rows = (done | last).nonzero()[:, 0]
        if len(rows):
            part = self.take(rows).violation(state.take(rows), shown[rows])
            worst = worst.index_copy(0, rows, part[:, None])
        return Found(points_at(index, gain), counts, done, worst.clamp_min(0))

    def violation(self, state: Spikes, shown: Tensor) -> Tensor:
        """Return the largest ``b - h`` of each frame on a grid twice as fine as the search grid."""
        return self.uncovered(state, shown, 2 * FINER).flatten(1).amax(-1).clamp_min(0)

    def uncovered(self, state: Spikes, shown: Tensor, finer: int) -> Tensor:
        """Return ``b - h`` on a grid, in counts of one emitter."""
        residual = self.frames - (shown + state.level[..., None])
        return counts_of_one(residual, self.psf, finer) - self.penalty / self.psf.energy

    def weigh(self, state: Spikes) -> Spikes:
        """Drop weak emitters; the counts of the others slide."""
        return prune(Emitters.of(state), self.kept).spikes()

    def near(self, state: Spikes, turn: int) -> Tensor:
        """Return which neighbours become one."""
        return distances(Emitters.of(state)) < self.together

    def unit(self, points: Tensor, level: Tensor) -> Tensor:
        """Return all light of the frame."""
        return (self.frames - level[..., None]).sum((1, 2)).clamp_min(1.0)[:, None]
