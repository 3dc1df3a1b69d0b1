"""Emitters of many frames at once: what they look like, who is dropped, who becomes one."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from geosoftmax.continuous import spikes
from geosoftmax.continuous.spikes import Spikes
from geosoftmax_experiments.superres.psf import Psf

__all__ = ["Emitters", "compact", "distances", "light", "merge", "model", "prune"]


@dataclasses.dataclass(frozen=True)
class Emitters:
    """Emitters of each frame: points ``(frames, n, 2)`` as (x, y) in pixels, counts, background.

    Frames are padded to the same number with emitters of 0 counts.
    """

    points: Tensor
    counts: Tensor
    background: Tensor

    @classmethod
    def of(cls, spikes: Spikes) -> Emitters:
        """Return emitters from what the library's solvers move."""
        return cls(spikes.points, spikes.u, spikes.level[:, 0])

    def spikes(self) -> Spikes:
        """Return what the library's solvers move."""
        return Spikes(self.points, self.counts, self.background[:, None])

    def take(self, index: Tensor) -> Emitters:
        """Return those of some frames."""
        return Emitters.of(self.spikes().take(index))

    def put(self, index: Tensor, other: Emitters) -> Emitters:
        """Return these, but in some frames `other`."""
        return Emitters.of(self.spikes().put(index, other.spikes()))


def model(state: Emitters, frames: Tensor, psf: Psf) -> Tensor:
    """Return the frames that the emitters and the background explain."""
    return light(state, frames, psf) + state.background[:, None, None]


def light(state: Emitters, frames: Tensor, psf: Psf) -> Tensor:
    """Return what the emitters add to the frames."""
    across, _ = psf.across(state.points[..., 0], frames.shape[2])
    down, _ = psf.down(state.points[..., 1], frames.shape[1])
    return (down * state.counts[..., None, None]).flatten(1, 2).mT @ across.flatten(1, 2)


def distances(state: Emitters) -> Tensor:
    """Return the distances between the emitters of each frame, ``(frames, n, n)``."""
    # Not from squares and inner products, which leave no digits of a small distance in float32.
    if state.points.is_cuda:  # where cdist would take a third of the whole search
        x, y = state.points.unbind(-1)
        return torch.hypot(x[:, :, None] - x[:, None], y[:, :, None] - y[:, None])
    mode = "donot_use_mm_for_euclid_dist"
    return torch.cdist(state.points, state.points, compute_mode=mode)


def merge(state: Emitters, near: Tensor) -> Emitters:
    """Join neighbours at their centre: each to the heaviest one near it that joins nobody."""
    return Emitters.of(spikes.merge(state.spikes(), near))


def prune(state: Emitters, least: float) -> Emitters:
    """Drop emitters with fewer counts."""
    counts = torch.where(state.counts >= least, state.counts, 0.0)
    return compact(Emitters(state.points, counts, state.background))


def compact(state: Emitters) -> Emitters:
    """Drop padding that no frame needs; emitters are in order of their counts then."""
    return Emitters.of(spikes.compact(state.spikes()))
