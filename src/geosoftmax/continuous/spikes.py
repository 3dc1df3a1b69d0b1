"""Measures of many samples at once, as a solver moves them: who is dropped, who becomes one."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor
from torch.nn.functional import pad

__all__ = ["Spikes", "compact", "local_maxima", "merge", "peaks"]


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
    highest = values
    for axis in range(1, values.dim()):
        ends = [0, 0] * (values.dim() - 1 - axis) + [reach, reach]
        highest, seen = pad(highest, ends, value=-torch.inf), 1
        while seen < 2 * reach + 1:  # each is the largest of so many
            more = min(seen, 2 * reach + 1 - seen)
            left = highest.shape[axis] - more
            highest = torch.maximum(highest.narrow(axis, 0, left), highest.narrow(axis, more, left))
            seen += more
    return values >= highest


def peaks(values: Tensor, chosen: Tensor, most: int | None = None) -> tuple[Tensor, Tensor]:
    """Return the largest values ``(rows, n)`` on a grid where `chosen` holds: flat index and value.

    There are as many as some row has, and at most `most`. Rows that have fewer are padded with
    values of 0; their indices repeat that of the largest one.
    """
    count = max(1, int(chosen.flatten(1).sum(-1).max()))
    ranked = torch.where(chosen, values, -torch.inf).flatten(1)
    ranked = ranked.topk(count if most is None else min(count, most), -1)
    there = ranked.values > -torch.inf
    index = torch.where(there, ranked.indices, ranked.indices[:, :1])
    return index, torch.where(there, ranked.values, 0.0)
