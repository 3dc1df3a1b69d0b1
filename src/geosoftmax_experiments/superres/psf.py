"""The point-spread function: what each pixel sees of an emitter."""

from __future__ import annotations

import abc
import dataclasses
import math
from typing import Any

import torch
from torch import Tensor

__all__ = ["Gaussian", "Psf", "grid_points"]


class Psf(abc.ABC):
    """A sum of few products, ``φ(x, y) = Σ_r down_r(y) across_r(x)``.

    So images and their derivatives are products of small matrices. `rank` says how many products
    there are: one for a Gaussian.
    """

    rank: int = 1
    #: The standard deviation, in pixels, of the Gaussian that is most alike.
    sigma: float
    #: Whether that Gaussian is sampled at the centres of pixels, or integrated over them.
    sampled: bool

    @property
    @abc.abstractmethod
    def energy(self) -> float:
        """``⟨φ, φ⟩``, far from the border."""

    @property
    @abc.abstractmethod
    def bend(self) -> float:
        """``⟨φ'', φ''⟩``, with second derivatives along a line."""

    @property
    @abc.abstractmethod
    def peak(self) -> float:
        """The largest share of the light that one pixel sees."""

    @abc.abstractmethod
    def down(self, centres: Tensor, side: int) -> tuple[Tensor, Tensor]:
        """Return ``down_r`` in all rows of pixels, ``(*centres, rank, side)``, and its slopes."""

    @abc.abstractmethod
    def across(self, centres: Tensor, side: int) -> tuple[Tensor, Tensor]:
        """Return ``across_r`` in all columns of pixels, and its slopes."""

    @abc.abstractmethod
    def words(self) -> dict[str, Any]:
        """Return what tells it from others, for a JSON file."""

    def on_grid(self, like: Tensor, finer: int) -> list[tuple[Tensor, Tensor]]:
        """Return the profiles down and across of all points of a grid `finer` than the pixels.

        Point ``i`` lies at ``(i + ½) / finer``; `like` has the shape of frames.
        """
        down, across = (
            one(grid_points(side * finer, finer, like), side)[0].unbind(1)
            for one, side in zip((self.down, self.across), like.shape[1:], strict=True)
        )
        return list(zip(down, across, strict=True))


@dataclasses.dataclass(frozen=True)
class Gaussian(Psf):
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

    @property
    def bend(self) -> float:
        """``⟨φ'', φ''⟩``."""
        return 0.75 * self.energy / self.sigma**4

    @property
    def peak(self) -> float:
        """The value in the middle."""
        return 1 / (2 * math.pi * self.sigma**2)

    def words(self) -> dict[str, Any]:
        """Return what tells it from others, for a JSON file."""
        return dataclasses.asdict(self)

    def down(self, centres: Tensor, side: int) -> tuple[Tensor, Tensor]:
        """Return what each pixel of a column sees of unit profiles, and its derivatives."""
        return self.across(centres, side)

    def across(self, centres: Tensor, side: int) -> tuple[Tensor, Tensor]:
        """Return what each pixel of a row sees of unit profiles, and its derivatives."""
        centres = centres[..., None, None]
        if self.sampled:
            z = (grid_points(side, 1, centres) - centres) / self.sigma
            density = self._density(z)
            return density, density * z / self.sigma
        edges = torch.arange(side + 1, dtype=centres.dtype, device=centres.device)
        z = (edges - centres) / self.sigma
        below = torch.special.erf(z / math.sqrt(2)) / 2
        return below.diff(dim=-1), -self._density(z).diff(dim=-1)

    def _density(self, z: Tensor) -> Tensor:
        # Far away it would be a denormal number, which processors take very long to multiply.
        return torch.exp(-(z.square() / 2).clamp_max(40)) / (self.sigma * math.sqrt(2 * math.pi))


def grid_points(count: int, finer: int, like: Tensor) -> Tensor:
    """Return where the points of a grid lie, in pixels."""
    return (torch.arange(count, dtype=like.dtype, device=like.device) + 0.5) / finer
