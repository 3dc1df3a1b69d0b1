"""Emitters of many frames at once: what they look like, who is dropped, who becomes one."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor
from torch.nn.functional import pad

from geosoftmax_experiments.superres.psf import Psf

__all__ = ["Emitters", "compact", "distances", "merge", "model", "prune"]


@dataclasses.dataclass(frozen=True)
class Emitters:
    """Emitters of each frame: points ``(frames, n, 2)`` as (x, y) in pixels, counts, background.

    Frames are padded to the same number with emitters of 0 counts.
    """

    points: Tensor
    counts: Tensor
    background: Tensor

    def take(self, index: Tensor) -> Emitters:
        """Return those of some frames."""
        return Emitters(self.points[index], self.counts[index], self.background[index])

    def put(self, index: Tensor, other: Emitters) -> Emitters:
        """Return these, but in some frames `other`."""
        size = max(self.counts.shape[1], other.counts.shape[1])
        mine, theirs = (
            Emitters(
                pad(one.points, (0, 0, 0, size - one.counts.shape[1])),
                pad(one.counts, (0, size - one.counts.shape[1])),
                one.background,
            )
            for one in (self, other)
        )
        return Emitters(
            mine.points.index_copy(0, index, theirs.points),
            mine.counts.index_copy(0, index, theirs.counts),
            mine.background.index_copy(0, index, theirs.background),
        )


def model(state: Emitters, frames: Tensor, psf: Psf) -> Tensor:
    """Return the frames that the emitters and the background explain."""
    across, _ = psf.profiles(state.points[..., 0], frames.shape[2])
    down, _ = psf.profiles(state.points[..., 1], frames.shape[1])
    image = (down * state.counts[..., None]).mT @ across
    return image + state.background[:, None, None]


def distances(state: Emitters) -> Tensor:
    """Return the distances between the emitters of each frame, ``(frames, n, n)``."""
    # Not from squares and inner products, which leave no digits of a small distance in float32.
    mode = "donot_use_mm_for_euclid_dist"
    return torch.cdist(state.points, state.points, compute_mode=mode)


def merge(state: Emitters, near: Tensor) -> Emitters:
    """Join neighbours at their centre: each to the heaviest one near it that joins nobody."""
    counts, points = state.counts, state.points
    own = torch.arange(counts.shape[1], device=counts.device)
    one, other = counts[:, :, None], counts[:, None, :]
    heavier = (other > one) | ((other == one) & (own < own[:, None]))
    above = near & heavier & (one > 0) & (other > 0)
    leads = ~above.any(-1)
    above = above & leads[:, None, :]
    target = torch.where(above, other, 0.0).argmax(-1)
    leader = torch.where(above.any(-1), target, own)
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
    counts, order = state.counts.topk(min(size, state.counts.shape[1]), -1)
    points = state.points.gather(1, order[..., None].expand(*order.shape, 2))
    return Emitters(points, counts, state.background)
