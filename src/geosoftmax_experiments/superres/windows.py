"""Large frames as many small ones: what a fit costs grows with the area, not with its square."""

from __future__ import annotations

import dataclasses
import itertools
import math

import torch
from torch import Tensor

from geosoftmax_experiments.superres.measures import Emitters

__all__ = ["Windows"]

#: Sides of windows, in pixels; frames that are a little larger stay whole.
SIDE, WHOLE = 64, 96
#: An emitter this many standard deviations of the spread function away does not matter.
MARGIN = 6.0


@dataclasses.dataclass(frozen=True)
class _Interval:
    """A window along one side: its first and last pixel, and the part that is its own."""

    start: int
    stop: int
    lower: float
    upper: float


class Windows:
    """Overlapping windows of frames ``(frames, height, width)``, each with a part of its own."""

    def __init__(self, frames: Tensor, sigma: float) -> None:
        self.count = frames.shape[0]
        down, across = (_intervals(side, sigma) for side in frames.shape[1:])
        self.places = [(row, column) for row in down for column in across]
        self.pixels = torch.cat(
            [frames[:, r.start : r.stop, c.start : c.stop] for r, c in self.places]
        )

    def own(self, found: Emitters) -> tuple[Tensor, Tensor, Tensor]:
        """Return frame, window and emitter of those that lie in the window's own part."""
        bounds = found.points.new_tensor(
            [[[c.lower - c.start, r.lower - r.start], [c.upper - c.start, r.upper - r.start]]
             for r, c in self.places]
        ).repeat_interleave(self.count, 0)[:, :, None]  # fmt: skip
        inside = (found.points >= bounds[:, 0]) & (found.points < bounds[:, 1])
        window, emitter = (inside.all(-1) & (found.counts > 0)).nonzero(as_tuple=True)
        return window % self.count, window, emitter

    def corner(self, window: Tensor, like: Tensor) -> Tensor:
        """Return where windows begin in their frames, as (x, y)."""
        corners = like.new_tensor([[c.start, r.start] for r, c in self.places])
        return corners[torch.div(window, self.count, rounding_mode="floor")]


def _intervals(side: int, sigma: float) -> list[_Interval]:
    margin = math.ceil(MARGIN * sigma)
    size = max(SIDE, 4 * margin)
    if side <= max(WHOLE, size):
        return [_Interval(0, side, -math.inf, math.inf)]
    count = math.ceil((side - 2 * margin) / (size - 2 * margin))
    starts = [round(i * (side - size) / (count - 1)) for i in range(count)]
    edges = [(a + size + b) / 2 for a, b in itertools.pairwise(starts)]
    edges = [-math.inf, *edges, math.inf]
    return [_Interval(s, s + size, edges[i], edges[i + 1]) for i, s in enumerate(starts)]
