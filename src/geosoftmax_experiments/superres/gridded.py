"""The same problem with emitters on a grid: where all frames start from at once.

Accelerated projected gradient with restarts; a product with the point-spread function of all points
of the grid is two products of small matrices.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from geosoftmax.continuous.spikes import local_maxima
from geosoftmax_experiments.superres.measures import Emitters, compact
from geosoftmax_experiments.superres.psf import Psf

__all__ = ["FINER", "counts_of_one", "is_maximum", "read_off", "solve_on_grid", "strongest"]

#: Points of the search grid in a pixel, along each side.
FINER = 3


def counts_of_one(residual: Tensor, psf: Psf, finer: int = FINER) -> Tensor:
    """Return the counts of one emitter fitted to the residual, at all points of the grid."""
    return _seen(psf.on_grid(residual, finer), residual) / psf.energy


def is_maximum(gain: Tensor, sigma: float) -> Tensor:
    """Return where the search grid has its largest value within a standard deviation."""
    return local_maxima(gain, max(1, round(sigma * FINER)))


def strongest(values: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Return indices ``(frames, n)`` into the flat grid where `chosen` holds, and the values.

    Frames with fewer are padded with values of 0.
    """
    most = max(1, int(chosen.flatten(1).sum(-1).max()))
    ranked = torch.where(chosen, values, 0.0).flatten(1).topk(most, -1)
    return ranked.indices, ranked.values


def solve_on_grid(
    frames: Tensor, background: Tensor, psf: Psf, penalty: float, iterations: int
) -> tuple[Tensor, Tensor]:
    """Return the counts at all points of the grid, and the background that fits them best."""
    profiles = psf.on_grid(frames, FINER)
    norm = torch.linalg.matrix_norm
    step = 1 / _sum(norm(down, 2) * norm(across, 2) for down, across in profiles).square()
    size = (profiles[0][0].shape[0], profiles[0][1].shape[0])
    light = frames - background[:, None, None]
    u = ahead = frames.new_zeros(frames.shape[0], *size)
    image = image_ahead = torch.zeros_like(frames)
    pace = 1.0
    for _ in range(iterations):
        residual = light - image_ahead
        residual = residual - residual.mean((1, 2), keepdim=True)  # the best background
        new = (ahead + step * (_seen(profiles, residual) - penalty)).clamp_min(0)
        new_image = _sum(down.mT @ new @ across for down, across in profiles)
        faster = (1 + math.sqrt(1 + 4 * pace * pace)) / 2
        uphill = ((ahead - new) * (new - u)).sum((1, 2), keepdim=True) > 0
        momentum = torch.where(uphill, 0.0, (pace - 1) / faster)
        pace = faster
        ahead = new + momentum * (new - u)
        image_ahead = new_image + momentum * (new_image - image)
        u, image = new, new_image
    return u, background + (light - image).mean((1, 2))


def _seen(profiles: Sequence[tuple[Tensor, Tensor]], image: Tensor) -> Tensor:
    """Return the image as the point-spread function at each point of a grid sees it."""
    return _sum(down @ image @ across.mT for down, across in profiles)


def _sum(parts: Iterable[Tensor]) -> Tensor:
    return functools.reduce(torch.add, parts)


def read_off(u: Tensor, background: Tensor, least: float) -> Emitters:
    """Put an emitter at the centre of mass of each local maximum and its eight neighbours."""
    mass = _three(_three(u, 1), 2)
    index, counts = strongest(mass, local_maxima(mass, 1) & (mass > least))
    size = torch.where(counts > 0, counts, 1.0)
    right, below = (
        moment.flatten(1).gather(1, index) / size
        for moment in (_three(_slope(u, 2), 1), _three(_slope(u, 1), 2))
    )
    columns = u.shape[2]
    x = (index % columns + 0.5 + right) / FINER
    y = (index // columns + 0.5 + below) / FINER
    return compact(Emitters(torch.stack([x, y], -1), counts, background))


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
