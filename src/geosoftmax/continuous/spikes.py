"""Measures of many samples at once, as a solver moves them: who is dropped, who becomes one."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor
from torch.nn.functional import pad

__all__ = ["Spikes", "compact", "local_maxima", "merge"]


@dataclasses.dataclass(frozen=True)
class Spikes:
    """Spikes of each sample, padded to the same number with spikes of weight 0.

    Attributes
    ----------
    points : Tensor, shape (rows, n, dim)
    u : Tensor, shape (rows, n)
        Their weights.
    level : Tensor, shape (rows, k)
        What a problem fits besides spikes, such as the background of a picture. Most have none.
    """

    points: Tensor
    u: Tensor
    level: Tensor

    @classmethod
    def without_level(cls, points: Tensor, u: Tensor) -> Spikes:
        """Return spikes alone."""
        return cls(points, u, u[:, :0])

    def where(self, mask: Tensor, other: Spikes) -> Spikes:
        """Return these in the samples that `mask` marks, else `other`."""
        size = max(self.u.shape[-1], other.u.shape[-1])
        mine, theirs = self.padded(size), other.padded(size)
        return Spikes(
            torch.where(mask[:, None, None], mine.points, theirs.points),
            torch.where(mask[:, None], mine.u, theirs.u),
            torch.where(mask[:, None], mine.level, theirs.level),
        )

    def take(self, index: Tensor) -> Spikes:
        """Return those of some samples."""
        return Spikes(self.points[index], self.u[index], self.level[index])

    def put(self, index: Tensor, other: Spikes) -> Spikes:
        """Return these, but in some samples `other`."""
        size = max(self.u.shape[-1], other.u.shape[-1])
        mine, theirs = self.padded(size), other.padded(size)
        return Spikes(
            mine.points.index_copy(0, index, theirs.points),
            mine.u.index_copy(0, index, theirs.u),
            mine.level.index_copy(0, index, theirs.level),
        )

    def join(self, points: Tensor, u: Tensor) -> Spikes:
        """Return these and more."""
        return Spikes(torch.cat([self.points, points], 1), torch.cat([self.u, u], 1), self.level)

    def padded(self, size: int) -> Spikes:
        """Return these with spikes of weight 0, at the first point, up to a number."""
        missing = size - self.u.shape[-1]
        more = self.points[:, :1].expand(-1, missing, -1)
        return Spikes(torch.cat([self.points, more], 1), pad(self.u, (0, missing)), self.level)


def compact(state: Spikes) -> Spikes:
    """Drop padding that no sample needs; spikes are in order of their weights then."""
    size = max(1, int((state.u > 0).sum(-1).max())) if state.u.numel() else 1
    u, order = state.u.topk(min(size, state.u.shape[-1]), -1)
    points = state.points.gather(1, order[..., None].expand(*order.shape, state.points.shape[-1]))
    return Spikes(points, u, state.level)


def merge(state: Spikes, near: Tensor) -> Spikes:
    """Join neighbours at their centre: each to the heaviest one near it that joins nobody.

    `near`, of shape (rows, n, n), says who is a neighbour.
    """
    u, points = state.u, state.points
    own = torch.arange(u.shape[1], device=u.device)
    one, other = u[:, :, None], u[:, None, :]
    heavier = (other > one) | ((other == one) & (own < own[:, None]))
    above = near & heavier & (one > 0) & (other > 0)
    leads = ~above.any(-1)
    above = above & leads[:, None, :]
    target = torch.where(above, other, 0.0).argmax(-1)
    leader = torch.where(above.any(-1), target, own)
    mass = torch.zeros_like(u).scatter_add(-1, leader, u)
    index = leader[..., None].expand(points.shape)
    moment = torch.zeros_like(points).scatter_add(1, index, points * u[..., None])
    centre = moment / torch.where(mass > 0, mass, 1.0)[..., None]
    return Spikes(torch.where((mass > 0)[..., None], centre, points), mass, state.level)


def local_maxima(values: Tensor, reach: int) -> Tensor:
    """Return where values ``(rows, *sides)`` on a grid are the largest within `reach` points."""
    dim = values.dim() - 1
    pool = (torch.max_pool1d, torch.max_pool2d, torch.max_pool3d)[dim - 1]
    return values >= pool(values[:, None], 2 * reach + 1, 1, reach)[:, 0]
