"""The point-spread function: what each pixel sees of an emitter."""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

__all__ = ["Psf"]


@dataclasses.dataclass(frozen=True)
class Psf:
    """A Gaussian, the product of a profile across and one down.

    Attributes
    ----------
    sigma : float
        Its standard deviation, in pixels.
    sampled : bool
        Whether pixels see its value at their centre, as many simulations have it; cameras
        integrate it over their area.
    """

    sigma: float
    sampled: bool = False

    @property
    def energy(self) -> float:
        """``⟨φ, φ⟩``, far from the border."""
        return 1 / (4 * math.pi * self.sigma**2)

    def profiles(self, centres: Tensor, side: int) -> tuple[Tensor, Tensor]:
        """Return what each pixel of a row sees of unit profiles, and its derivatives."""
        if self.sampled:
            middles = torch.arange(side, dtype=centres.dtype, device=centres.device) + 0.5
            z = (middles - centres[..., None]) / self.sigma
            density = self._density(z)
            return density, density * z / self.sigma
        edges = torch.arange(side + 1, dtype=centres.dtype, device=centres.device)
        z = (edges - centres[..., None]) / self.sigma
        below = torch.special.erf(z / math.sqrt(2)) / 2
        return below.diff(dim=-1), -self._density(z).diff(dim=-1)

    def on_grid(self, like: Tensor, finer: int) -> tuple[Tensor, Tensor]:
        """Return the profiles down and across of all points of a grid `finer` than the pixels.

        Point ``i`` lies at ``(i + ½) / finer``; `like` has the shape of frames.
        """
        down, across = (
            self.profiles(grid_points(side * finer, finer, like), side)[0]
            for side in like.shape[1:]
        )
        return down, across

    def _density(self, z: Tensor) -> Tensor:
        # Far away it would be a denormal number, which processors take very long to multiply.
        return torch.exp(-(z.square() / 2).clamp_max(40)) / (self.sigma * math.sqrt(2 * math.pi))


def grid_points(count: int, finer: int, like: Tensor) -> Tensor:
    """Return where the points of a grid lie, in pixels."""
    return (torch.arange(count, dtype=like.dtype, device=like.device) + 0.5) / finer
