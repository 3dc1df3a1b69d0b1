"""A point-spread function from beads that stand alone.

Beads are fitted with a Gaussian first. Then in turns the spline ``φ`` is fitted to all their pixels
at the offsets that they have, by least squares weighted by the inverse of their light, and the
beads are fitted with it. Beads at many places in their pixels show what is between the pixels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.superres.frames import slide
from geosoftmax_experiments.superres.measured import MeasuredPsf, basis, knots
from geosoftmax_experiments.superres.measures import Emitters, model
from geosoftmax_experiments.superres.psf import Gaussian, Psf
from geosoftmax_experiments.superres.width import lone_patches, measure_width

__all__ = ["Beads", "measure_psf"]

#: How far the function reaches, and how far the next bead is at least, in standard deviations.
REACH, ALONE = 4.5, 7.0
#: Turns, steps of each fit, and beads that are needed.
TURNS, FIT_STEPS, ENOUGH = 6, 12, 10
#: A bead that leaves so many times what most leave is something else.
ODD = 2.0
#: How strongly second differences are kept small, as a share of what the pixels say.
SMOOTH = 1e-4
#: Numbers of a design that are made at once.
TOGETHER = 2**22


class Beads(NamedTuple):
    """A measured function, and by how many beads."""

    psf: MeasuredPsf
    number: int


def measure_psf(frames: Tensor, base: float) -> Beads:
    """Return the point-spread function of beads in frames ``(frames, height, width)``."""
    width = measure_width(frames, base, roughly=True)
    if width is None:
        raise UserError(
            "The stack of --psf has too few beads that stand alone.",
            "Take more frames of sparse, bright beads in focus, with the same camera.",
        )
    psf: Psf = Gaussian(width.sigma)
    patches, state = lone_patches(frames, psf, reach=REACH, alone=ALONE)
    for turn in range(TURNS):
        weights = 1 / (model(state, patches, psf) - base).clamp_min(1.0)
        state = slide(patches, state, psf, 0.0, steps=FIT_STEPS, weights=weights)
        rest = ((patches - model(state, patches, psf)).square() * weights).mean((1, 2))
        good = state.counts[:, 0] > 0
        if turn >= 2:  # a Gaussian leaves most of the brightest
            good &= rest <= ODD * rest.median()
        if int(good.sum()) < ENOUGH:
            raise UserError(
                f"The stack of --psf has {int(good.sum())} beads that stand alone and look alike; "
                f"{ENOUGH} are needed.",
                "Take more frames of sparse, bright beads in focus, with the same camera.",
            )
        chosen = good.nonzero()[:, 0]
        patches, state, weights = patches[chosen], state.take(chosen), weights[chosen]
        grain = float(rest[chosen].median())
        psf = _spline(patches, state, weights, width.sigma, grain)
    assert isinstance(psf, MeasuredPsf)
    return Beads(psf, len(patches))


def _spline(
    patches: Tensor, state: Emitters, weights: Tensor, sigma: float, grain: float
) -> MeasuredPsf:
    """Fit the spline to all beads, whose places and light are known."""
    side = patches.shape[1]
    spacing, half = knots(sigma, side / 2)
    size = 2 * half + 1
    points = state.points[:, 0].cpu().double().numpy()
    offsets = np.arange(side) + 0.5 - points[..., None]  # beads, (x, y), side
    across, down = (torch.from_numpy(basis(offsets[:, axis], spacing, half)) for axis in (0, 1))
    light = (patches - state.background[:, None, None]).cpu().double().flatten(1)
    weight, counts = weights.cpu().double().flatten(1), state.counts[:, 0].cpu().double()
    normal = torch.zeros(size**2, size**2, dtype=torch.float64)
    right = torch.zeros(size**2, dtype=torch.float64)
    for part in torch.arange(len(patches)).split(max(1, TOGETHER // (side * size) ** 2)):
        design = torch.einsum("mik,mjl->mijkl", down[part], across[part])
        design = design.reshape(len(part), side**2, -1) * counts[part, None, None]
        weighted = (design * weight[part][..., None]).flatten(0, 1)
        normal += weighted.T @ design.flatten(0, 1)
        right += weighted.T @ light[part].flatten()
    diff = torch.from_numpy(np.diff(np.eye(size + 2), 2, axis=0)[:, 1:-1])  # 0 beyond the ends
    eye = torch.eye(size, dtype=torch.float64)
    rough = torch.kron(diff.T @ diff, eye) + torch.kron(eye, diff.T @ diff)
    normal += SMOOTH * float(normal.diagonal().mean()) * rough
    found = torch.linalg.solve(normal, right)
    noise = (grain * float(torch.linalg.inv(normal).diagonal().sum())) ** 0.5
    return MeasuredPsf(found.reshape(size, size).numpy(), spacing, noise)
