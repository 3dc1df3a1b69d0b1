"""The separate peaks of a distribution on a grid."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from geosoftmax.functional.calls import computed, full_precision
from geosoftmax.functional.points import pixels, read_mass
from geosoftmax.validation import check_shares

_MAX_POOL = (
    torch.nn.functional.max_pool1d,
    torch.nn.functional.max_pool2d,
    torch.nn.functional.max_pool3d,
)


class Peaks(NamedTuple):
    """Peaks of distributions, the heaviest first.

    Attributes
    ----------
    points : Tensor, shape (*batch, k, n)
        **(row, column)**, in index units; ``k`` is the largest number of peaks of a distribution.
        Where one has fewer, the points are NaN: missing, as for `point_target`.
    mass : Tensor, shape (*batch, k)
        The probability of each peak; 0 where there is none.
    """

    points: Tensor
    mass: Tensor


@full_precision
def peaks(
    alpha: Tensor,
    *,
    least: float = 0.05,
    faint: float = 1e-3,
    dim: int | tuple[int, ...] = (-2, -1),
) -> Peaks:
    r"""Return the separate peaks of distributions on a grid, and the probability of each.

    A sparse distribution falls apart into patches of pixels that touch, also at corners. Each is a
    peak: its point is the mean of the patch, its mass the confidence. A softmax is positive
    everywhere, so most often it is one patch.

    Parameters
    ----------
    alpha : Tensor, shape (*batch, *sides)
        Distributions. Gradients flow through points and masses; the patches are constants.
    least : float
        Peaks with less mass are left out.
    faint : float
        Pixels with less than this share of the largest mass of a pixel join no peak.
    dim : int or tuple of int
        The axes of the grid, 1 to 3; by default the last two.

    Returns
    -------
    Peaks
        As many as the data have, so this function waits for a GPU and cannot be compiled.

    See Also
    --------
    locate : One point for each distribution.

    Examples
    --------
    >>> import torch
    >>> from geosoftmax import peaks, point_target
    >>> one, other = point_target(torch.tensor([[3.25, 7.5], [10.0, 2.0]]), (12, 16)).alpha
    >>> peaks(0.8 * one + 0.2 * other)
    Peaks(points=tensor([[ 3.2500,  7.5000],
            [10.0000,  2.0000]]), mass=tensor([0.8000, 0.2000]))
    """
    check_shares(least, faint)
    mass, sides, valid = read_mass(alpha, dim)
    batch, n = mass.shape[: mass.dim() - len(sides)], len(sides)
    mass = mass.reshape(-1, *sides)
    flat = mass.flatten(1)
    if flat.shape[0] == 0:
        nothing = torch.zeros(*batch, 0, dtype=computed(alpha).dtype, device=alpha.device)
        return Peaks(nothing[..., None].expand(*nothing.shape, n), nothing)
    patch = _patches(mass.detach(), faint).flatten(1)
    sums = mass.new_zeros(patch.shape[0], patch.shape[1] + 1)
    total = sums.scatter_add(1, patch, flat)[:, 1:]  # the patch 0 is what is faint
    places = torch.stack(torch.meshgrid(*(pixels(s, mass) for s in sides), indexing="ij"), -1)
    moments = [sums.scatter_add(1, patch, flat * x)[:, 1:] for x in places.reshape(-1, n).T]
    counted = total >= least
    most = int(counted.sum(1).amax())
    order = torch.where(counted, total, 0.0).argsort(dim=1, descending=True, stable=True)[:, :most]
    there = counted.gather(1, order)
    weight = torch.where(there, total.gather(1, order), 0.0)
    # A quotient with NaN would have NaN as its gradient, also where its value is not used.
    divisor, there = torch.where(there, weight, 1.0)[..., None], there[..., None]
    points = torch.stack([moment.gather(1, order) for moment in moments], -1) / divisor
    points = torch.where(there, points, torch.nan)
    if valid is not None:
        weight = torch.where(valid.reshape(-1, 1), weight, torch.nan)
    dtype = computed(alpha).dtype
    return Peaks(points.reshape(*batch, most, n).to(dtype), weight.reshape(*batch, most).to(dtype))


def _patches(mass: Tensor, faint: float) -> Tensor:
    """Number the patches of each map: by the last pixel of a patch, counted from 1; else 0."""
    sides, pool = mass.shape[1:], _MAX_POOL[mass.dim() - 2]
    largest = mass.flatten(1).amax(1).reshape(-1, *[1] * len(sides))
    inside = (mass > faint * largest).to(torch.float64)
    number = torch.arange(1, sides.numel() + 1, dtype=torch.float64, device=mass.device)
    labels = inside * number.reshape(sides)
    while True:
        grown = inside * pool(labels[:, None], 3, 1, 1)[:, 0]
        if torch.equal(grown, labels):
            return labels.long()
        labels = grown
