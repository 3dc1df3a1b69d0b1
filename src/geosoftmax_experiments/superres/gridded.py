"""The same problem with emitters on a grid: where all frames start from at once.

Accelerated projected gradient with restarts; a product with the point-spread function of all points
of the grid is two products of small matrices.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from geosoftmax.backends.reference import descend
from geosoftmax.continuous.spikes import local_maxima, peaks
from geosoftmax_experiments.superres.measures import Emitters, compact
from geosoftmax_experiments.superres.psf import Psf

__all__ = ["FINER", "counts_of_one", "is_maximum", "points_at", "read_off", "solve_on_grid"]

#: Points of the search grid in a pixel, along each side.
FINER = 3


def counts_of_one(residual: Tensor, psf: Psf, finer: int = FINER) -> Tensor:
    """Return the counts of one emitter fitted to the residual, at all points of the grid."""
    return _seen(psf.on_grid(residual, finer), residual) / psf.energy


def is_maximum(gain: Tensor, sigma: float) -> Tensor:
    """Return where the search grid has its largest value within a standard deviation."""
    return local_maxima(gain, max(1, round(sigma * FINER)))


def points_at(index: Tensor, grid: Tensor, shift: Tensor | float = 0.0) -> Tensor:
    """Return the points in pixels, (x, y), of indices into the flat values of a grid.

    `shift` is in points of the grid.
    """
    columns = grid.shape[-1]
    place = torch.stack([index % columns, torch.div(index, columns, rounding_mode="floor")], -1)
    return (place.to(grid.dtype) + 0.5 + shift) / FINER


def solve_on_grid(
    frames: Tensor, background: Tensor, psf: Psf, penalty: float, iterations: int
) -> tuple[Tensor, Tensor]:
    """Return the counts at all points of the grid, and the background that fits them best."""
    profiles = psf.on_grid(frames, FINER)
    norm = torch.linalg.matrix_norm
    step = 1 / _sum(norm(down, 2) * norm(across, 2) for down, across in profiles).square()
    size = (profiles[0][0].shape[0], profiles[0][1].shape[0])
    light = frames - background[:, None, None]

    def rest(u: Tensor) -> Tensor:
        return light - _sum(down.mT @ u @ across for down, across in profiles)

    def slope(u: Tensor) -> Tensor:
        residual = rest(u)
        residual = residual - residual.mean((1, 2), keepdim=True)  # the best background
        return penalty - _seen(profiles, residual)

    u = descend(slope, frames.new_zeros(frames.shape[0], *size), step, iterations)
    return u, background + rest(u).mean((1, 2))


def _seen(profiles: Sequence[tuple[Tensor, Tensor]], image: Tensor) -> Tensor:
    """Return the image as the point-spread function at each point of a grid sees it."""
    return _sum(down @ image @ across.mT for down, across in profiles)


def _sum(parts: Iterable[Tensor]) -> Tensor:
    return functools.reduce(torch.add, parts)


def read_off(u: Tensor, background: Tensor, least: float) -> Emitters:
    """Put an emitter at the centre of mass of each local maximum and its eight neighbours."""
    mass = _three(_three(u, 1), 2)
    index, counts = peaks(mass, local_maxima(mass, 1) & (mass > least))
    size = torch.where(counts > 0, counts, 1.0)
    right, below = (
        moment.flatten(1).gather(1, index) / size
        for moment in (_three(_slope(u, 2), 1), _three(_slope(u, 1), 2))
    )
    points = points_at(index, u, torch.stack([right, below], -1))
    return compact(Emitters(points, counts, background))


def _three(u: Tensor, axis: int) -> Tensor:
    """Return the sum of each value and its two neighbours."""
    before, after = _neighbours(u, axis)
    return u + before + after


def _slope(u: Tensor, axis: int) -> Tensor:
    """Return the next value minus the last one."""
    before, after = _neighbours(u, axis)
    return after - before


def _neighbours(u: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    edge = torch.zeros_like(u.narrow(axis, 0, 1))
    inner = u.shape[axis] - 1
    before = torch.cat([edge, u.narrow(axis, 0, inner)], axis)
    after = torch.cat([u.narrow(axis, 1, inner), edge], axis)
    return before, after
