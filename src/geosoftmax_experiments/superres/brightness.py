"""How bright emitters are, where they are alike: learnt from those that stand alone.

Two emitters closer than the point-spread function look like one that is twice as bright. Where the
emitters of a stack are alike that tells them apart: counts are drawn from a normal distribution,
whose mean and spread those emitters show that have no neighbours.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import torch
from torch import Tensor

from geosoftmax_experiments.superres.measures import Emitters, compact, distances
from geosoftmax_experiments.superres.psf import Psf

__all__ = ["Brightness", "Pull", "learn", "split"]

#: Emitters stand alone if no other is within this many standard deviations of the spread function.
ALONE = 3.0
#: So many are needed to learn from.
ENOUGH = 30
#: They are alike if their counts spread by no more than this share of their mean.
ALIKE = 0.25
#: An emitter has at least this share of the mean counts.
WEAKEST = 0.4
#: An emitter of more than this many times the mean counts is tried as two.
HEAVY = 1.5
#: Half the distance at which the two start, in standard deviations of the spread function.
APART = 0.5


@dataclasses.dataclass(frozen=True)
class Brightness:
    """Mean and standard deviation of the counts of an emitter, and from how many they are known."""

    mean: float
    spread: float
    number: int = 0

    @property
    def interval(self) -> tuple[float, float]:
        """Where the mean is, with 95 %: that of a median of so many."""
        half = 1.96 * 1.2533 * self.spread / max(1, self.number) ** 0.5
        return self.mean - half, self.mean + half

    @property
    def alike(self) -> bool:
        """Whether knowing the counts of others says much about those of an emitter."""
        return self.spread <= ALIKE * self.mean

    def surprise(self, counts: Tensor) -> Tensor:
        """Return the squared number of standard deviations from the mean."""
        return ((counts - self.mean) / self.spread).square()

    def surprise_of_one(self, one: Tensor, other: Tensor) -> Tensor:
        """Return how much more surprising it is if the light of two comes from one."""
        return self.surprise(one + other) - self.surprise(one) - self.surprise(other)


class Pull(NamedTuple):
    """The term ``weight/2 Σ_j (a_j - mean)²`` of the loss; a weight ``(frames, 1)`` for each."""

    mean: float
    weight: Tensor


def learn(state: Emitters, psf: Psf) -> Brightness | None:
    """Return median and spread (from the median deviation) of emitters that stand alone."""
    alive = state.counts > 0
    own = torch.eye(alive.shape[1], dtype=torch.bool, device=alive.device)
    others = torch.where(alive[:, None, :] & ~own, distances(state), torch.inf)
    counts = state.counts[alive & (others.amin(-1) > ALONE * psf.sigma)]
    if len(counts) < ENOUGH:
        return None
    middle = counts.median()
    spread = 1.4826 * (counts - middle).abs().median()
    # Three digits: a run that is continued finds the same, though sums come in another order.
    rounded = (float(f"{float(value):.3g}") for value in (middle, spread + middle / 1e3))
    return Brightness(*rounded, number=len(counts))


def split(
    frames: Tensor, residual: Tensor, state: Emitters, psf: Psf, brightness: Brightness
) -> Emitters:
    """Make two of each heavy emitter, along the axis that the residual shows.

    A pair that is seen as one leaves too much light at its two ends: seen through ``φ``, the
    residual bends upwards most along its axis.
    """

    def seen(right: float, below: float) -> Tensor:
        across, _ = psf.across(state.points[..., 0] + right, frames.shape[2])
        down, _ = psf.down(state.points[..., 1] + below, frames.shape[1])
        rows = (down.flatten(1, 2) @ residual).unflatten(1, (-1, psf.rank))
        return (rows * across).sum(-1).sum(-1)

    h = psf.sigma / 2
    middle = 2 * seen(0, 0)
    xx, yy = seen(h, 0) + seen(-h, 0) - middle, seen(0, h) + seen(0, -h) - middle
    xy = (seen(h, h) + seen(-h, -h) - seen(h, -h) - seen(-h, h)) / 4
    angle = torch.atan2(2 * xy, xx - yy) / 2
    heavy = state.counts > HEAVY * brightness.mean
    shift = APART * psf.sigma * torch.stack([angle.cos(), angle.sin()], -1)
    half = torch.where(heavy, state.counts / 2, 0.0)
    first = torch.where(heavy[..., None], state.points + shift, state.points)
    return compact(
        Emitters(
            torch.cat([first, state.points - shift], 1),
            torch.cat([state.counts - half, half], 1),
            state.background,
        )
    )
