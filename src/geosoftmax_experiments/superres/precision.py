r"""How precise positions are: the Fisher information of the joint fit.

With pixels of variance ``v`` and the Jacobian ``J`` of the model in the positions and counts of all
emitters and the background, the covariance of the fit is at best

    (Jᵀ diag(1/v) J)⁻¹,

the bound of Cramér and Rao, which a fit weighted by ``1/v`` reaches where emitters are told apart.
An emitter depends on its neighbours, hardly on theirs: its part of the inverse is computed from a
patch around it and the emitters there. The rest of the frame tells the background.

It has no limit for two emitters that nearly meet. But light was seen where they were found, so no
deviation is larger than that of the spread function.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from geosoftmax_experiments.superres.brightness import Brightness
from geosoftmax_experiments.superres.measures import Emitters, distances, model
from geosoftmax_experiments.superres.psf import Psf

__all__ = ["deviations", "measure_grain", "variances"]

#: Half the side of a patch, in standard deviations of the spread function.
PATCH = 4.0
#: Neighbours within this many standard deviations are fitted along, and so many at most.
REACH, MOST = 5.0, 16
#: Numbers of a Jacobian that are made at once.
TOGETHER = {"cpu": 2**24, "cuda": 2**28}
#: Added to the information, relative to its diagonal: pairs that nearly meet have almost none.
RIDGE = 1e-6


def measure_grain(frames: Tensor, state: Emitters, psf: Psf, base: float) -> Tensor:
    """Return the variance of the noise for each count of light, in what the fit of a frame leaves.

    It is the gain of an ideal camera.
    """
    clean = model(state, frames, psf)
    light = (clean - base).clamp_min(1.0)
    free = frames[0].numel() - 3 * (state.counts > 0).sum(-1) - 1
    return ((frames - clean).square() / light).sum((1, 2)) / free.clamp_min(1)


def variances(frames: Tensor, state: Emitters, psf: Psf, base: float) -> Tensor:
    """Return the variance of each pixel: the light there, times what each count of it has."""
    light = (model(state, frames, psf) - base).clamp_min(1.0)
    return light * measure_grain(frames, state, psf, base).clamp_min(1e-12)[:, None, None]


def deviations(
    state: Emitters, variance: Tensor, psf: Psf, brightness: Brightness | None = None
) -> Tensor:
    """Return the standard deviation of a coordinate of each emitter, ``(frames, n)``, in pixels.

    It is the root of the mean of the variances of x and y, at most the deviation of the
    point-spread function. `variance` is that of the pixels; a known `brightness` tells as much
    about counts as its spread is small.
    """
    frame, emitter = (state.counts > 0).nonzero(as_tuple=True)
    found = torch.full_like(state.counts, torch.nan)
    if not len(frame):
        return found
    near = _neighbours(state, psf)
    side = [min(2 * math.ceil(PATCH * psf.sigma) + 1, length) for length in variance.shape[1:]]
    size = side[0] * side[1] * (3 * near.shape[-1] + 1)
    for part in torch.arange(len(frame), device=frame.device).split(
        max(1, TOGETHER[frame.device.type] // size)
    ):
        one, which = frame[part], emitter[part]
        found[one, which] = _patch(state, variance, psf, brightness, one, which, near, side)
    return found


def _neighbours(state: Emitters, psf: Psf) -> Tensor:
    """Return the nearest emitters of each, itself first, ``(frames, n, most)``; -1 for none."""
    alive = state.counts > 0
    distance = torch.where(alive[:, None, :], distances(state), torch.inf)
    own = torch.eye(alive.shape[1], dtype=torch.bool, device=alive.device)
    distance = torch.where(own, -1.0, distance)
    within = distance <= REACH * psf.sigma
    most = min(MOST, int(within.sum(-1).max()))
    nearest = distance.topk(most, -1, largest=False)
    return torch.where(nearest.values <= REACH * psf.sigma, nearest.indices, -1)


def _patch(
    state: Emitters,
    variance: Tensor,
    psf: Psf,
    brightness: Brightness | None,
    frame: Tensor,
    emitter: Tensor,
    near: Tensor,
    side: list[int],
) -> Tensor:
    """Return the deviations of some emitters, each from its own patch."""
    others = near[frame, emitter]
    there = (others >= 0).to(variance.dtype)
    points = state.points[frame[:, None], others.clamp_min(0)]
    counts = state.counts[frame[:, None], others.clamp_min(0)].clamp_min(1e-6)
    height, width = variance.shape[1:]
    middle = state.points[frame, emitter].floor().long()
    left = (middle[:, 0] - side[1] // 2).clamp(0, width - side[1])
    top = (middle[:, 1] - side[0] // 2).clamp(0, height - side[0])
    rows = top[:, None] + torch.arange(side[0], device=top.device)
    columns = left[:, None] + torch.arange(side[1], device=top.device)
    weight = 1 / variance[frame[:, None, None], rows[:, :, None], columns[:, None, :]]
    across, across_slope = psf.across(points[..., 0] - left[:, None], side[1])
    down, down_slope = psf.down(points[..., 1] - top[:, None], side[0])
    pairs = ((down, across), (down, across_slope), (down_slope, across))
    # Displacements are measured as counts times positions: all columns are of a size then.
    J = torch.cat([_outer(a * there[..., None, None], b).flatten(2) for a, b in pairs], 1)
    J = torch.cat([J, J.new_ones(len(J), 1, J.shape[-1])], 1)
    information = ((J * weight.flatten(1)[:, None]) @ J.mT).double()
    number = others.shape[1]
    diagonal = information.diagonal(dim1=1, dim2=2)
    extra = RIDGE * diagonal
    extra = extra + (diagonal == 0)
    whole = (1 / variance).sum((1, 2), dtype=torch.float64)[frame]
    extra[:, -1] += (whole - diagonal[:, -1]).clamp_min(0)
    if brightness is not None:
        extra[:, :number] += 1 / brightness.spread**2
    # The emitter's own displacements last: their part of the inverse is that of the last block.
    own = [number, 2 * number]
    order = [place for place in range(J.shape[1]) if place not in own] + own
    total = (information + torch.diag_embed(extra))[:, order][:, :, order]
    found = _last_variance(total).sqrt() / counts[:, 0]
    return found.clamp_max(psf.sigma).to(variance.dtype)


def _last_variance(information: Tensor) -> Tensor:
    """Return the mean of the last two diagonal entries of each inverse, infinite if it has none."""
    factor, broken = torch.linalg.cholesky_ex(information)
    a, b, c = factor[:, -2, -2], factor[:, -1, -2], factor[:, -1, -1]
    both = (a.square() + b.square() + c.square()) / (a * c).square()
    return torch.where(broken == 0, both / 2, torch.inf)


def _outer(down: Tensor, across: Tensor) -> Tensor:
    """Return ``Σ_r down_r(y) across_r(x)`` of profiles ``(*emitters, rank, side)``."""
    parts = zip(down.unbind(-2), across.unbind(-2), strict=True)
    return functools.reduce(torch.add, (a[..., None] * b[..., None, :] for a, b in parts))
