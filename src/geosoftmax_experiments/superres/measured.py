r"""A point-spread function that was measured: a spline, as a sum of few products.

What a pixel sees of an emitter at an offset ``(dx, dy)`` from its centre is a cubic spline,

    φ(dx, dy) = Σ_kl C_kl B(dy/s - k) B(dx/s - l),

with knots at distance ``s``. It is the function that pixels show, so whether they sample or
integrate it does not matter. The singular vectors of ``C`` make a sum of products of it, each a
profile down and one across: one for a Gaussian, two to four for most microscopes.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geosoftmax_experiments.superres.psf import Psf, grid_points

__all__ = ["MeasuredPsf", "basis", "knots"]

#: Knots in a standard deviation of the Gaussian that is most alike.
KNOTS = 2
#: Products are left out that are less than this share of the first one; so many stay.
NEGLIGIBLE, MOST = 0.005, 6
#: The pieces of a cubic B-spline, of the knot before to the third after: powers of the offset.
_PIECES = np.array([[1, -3, 3, -1], [4, 0, -6, 3], [1, 3, 3, -3], [0, 0, 0, 1]]) / 6


def knots(sigma: float, half: float) -> tuple[float, int]:
    """Return the distance of the knots, and how many there are on each side of the middle."""
    spacing = sigma / KNOTS
    return spacing, max(2, int(half / spacing) - 1)


def basis(offsets: np.ndarray, spacing: float, half: int, derivative: int = 0) -> np.ndarray:
    """Return ``B(offset/s - k)``, or a derivative, for the knots from ``-half`` to ``half``."""
    t = np.asarray(offsets)[..., None] / spacing - np.arange(-half, half + 1)
    whole = np.floor(t)
    place, f = (1 - whole).astype(int), t - whole  # the last piece is from -2 to -1
    inside = (place >= 0) & (place <= 3)
    pieces = _PIECES[np.where(inside, place, 0)]
    for _ in range(derivative):
        pieces = pieces[..., 1:] * np.arange(1, pieces.shape[-1])
    values = np.polynomial.polynomial.polyval(f, np.moveaxis(pieces, -1, 0), tensor=False)
    return np.where(inside, values, 0.0) / spacing**derivative


class MeasuredPsf(Psf):
    """A spline with the `coefficients` ``(down, across)``, whose middle one is at offset 0.

    Its light is made 1, and its middle moved to that of the Gaussian which is most alike. `noise`
    is the standard deviation of all coefficients together: products below it are left out. Whoever
    read it from a file sets `source`, which tells that file from others.
    """

    sampled = False

    def __init__(self, coefficients: np.ndarray, spacing: float, noise: float = 0.0) -> None:
        self.spacing, self.source = spacing, ""
        left, size, right = np.linalg.svd(coefficients, full_matrices=False)
        # The largest singular value of noise is twice what all have on average.
        least = max(NEGLIGIBLE * size[0], 2 * noise / len(size) ** 0.5)
        self.rank = int(np.clip((size > least).sum(), 1, MOST))
        root = np.sqrt(size[: self.rank])
        down, across = (left[:, : self.rank] * root).T, right[: self.rank] * root[:, None]
        light = (down.sum(-1) * across.sum(-1)).sum() * spacing**2
        self.profiles = np.stack([down / light, across])
        self.sigma, self.middle, self.unlike = self._most_alike()

    @property
    def half(self) -> int:
        """Knots on each side of the middle."""
        return self.profiles.shape[-1] // 2

    @property
    def energy(self) -> float:
        """``⟨φ, φ⟩``, far from the border."""
        return self._integral(0, 0)

    @property
    def bend(self) -> float:
        """``⟨φ'', φ''⟩``, the mean of across and down."""
        return (self._integral(2, 0) + self._integral(0, 2)) / 2

    @property
    def peak(self) -> float:
        """The largest share of the light that one pixel sees."""
        fine = self._fine()
        return float(self.values(fine, fine).max())

    def words(self) -> dict[str, Any]:
        """Return what tells it from others, for a JSON file: where it is from, and its width.

        Not all of its digits: a run that is continued measures it again.
        """
        return {"sigma": float(f"{self.sigma:.3g}"), "digest": self.source}

    def values(
        self, y: np.ndarray, x: np.ndarray, down: int = 0, across: int = 0
    ) -> np.ndarray:  # fmt: skip
        """Return the spline, or a derivative, at all pairs of offsets from its first middle."""
        one = basis(y, self.spacing, self.half, down) @ self.profiles[0].T
        return one @ (basis(x, self.spacing, self.half, across) @ self.profiles[1].T).T

    def down(self, centres: Tensor, side: int) -> tuple[Tensor, Tensor]:
        """Return the profiles down in all rows of pixels, and their slopes."""
        return self._along(0, centres - self.middle[1], side)

    def across(self, centres: Tensor, side: int) -> tuple[Tensor, Tensor]:
        """Return the profiles across in all columns of pixels, and their slopes."""
        return self._along(1, centres - self.middle[0], side)

    def _along(self, axis: int, centres: Tensor, side: int) -> tuple[Tensor, Tensor]:
        table = _table(self, axis, centres.device, centres.dtype)
        t = (grid_points(side, 1, centres) - centres[..., None]) / self.spacing
        whole = t.floor()
        place = (whole.long() + self.half + 3).clamp(0, len(table) - 1)
        f = (t - whole)[..., None]
        a, b, c, d = table[place].unbind(-1)  # each (*centres, side, rank)
        values = ((d * f + c) * f + b) * f + a
        slopes = -((3 * d * f + 2 * c) * f + b) / self.spacing
        return values.mT, slopes.mT

    def _fine(self) -> np.ndarray:
        """Offsets at half the distance of the knots, as far as the function reaches."""
        reach = 2 * (self.half + 2)
        return np.arange(-reach, reach + 1) * (self.spacing / 2)

    def _integral(self, down: int, across: int) -> float:
        """Return the integral of the square of a derivative."""
        fine = self._fine()
        return float(np.square(self.values(fine, fine, down, across)).sum() * self.spacing**2 / 4)

    def _most_alike(self) -> tuple[float, tuple[float, float], float]:
        """Return width and middle (x, y) of the Gaussian that is most alike, and what it misses.

        The latter is the norm of the difference, as a share of that of the function.
        """
        from scipy.optimize import least_squares
        from scipy.special import erf

        fine = self._fine()
        values = self.values(fine, fine)

        def rest(parameters: np.ndarray) -> np.ndarray:
            x, y, log_sigma, light = parameters
            width = np.exp(log_sigma) * np.sqrt(2)
            across, down = (
                (erf((fine - at + 0.5) / width) - erf((fine - at - 0.5) / width)) / 2
                for at in (x, y)
            )
            return (light * down[:, None] * across - values).ravel()

        row, column = np.unravel_index(values.argmax(), values.shape)
        guess = np.log(KNOTS * self.spacing)
        found = least_squares(rest, [fine[column], fine[row], guess, 1.0], method="lm")
        x, y, log_sigma, _ = found.x
        missed = np.linalg.norm(found.fun) / np.linalg.norm(values)
        return float(np.exp(log_sigma)), (float(x), float(y)), float(missed)


@functools.lru_cache(maxsize=16)
def _table(psf: MeasuredPsf, axis: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return the powers of each piece of the profiles, ``(pieces, rank, 4)``; 0 at both ends."""
    padded = np.pad(psf.profiles[axis], ((0, 0), (3, 3)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, 4, -1)  # rank, pieces, 4
    table = np.pad(windows @ _PIECES, ((0, 0), (1, 1), (0, 0)))
    return torch.from_numpy(table.transpose(1, 0, 2).copy()).to(device, dtype)
