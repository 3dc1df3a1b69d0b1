"""Points on a grid of pixels: as targets of a loss, and as the reading of a distribution.

The coordinates of a point follow the order of the axes: (row, column) in pictures, not (x, y). They
are in index units: the centre of pixel ``alpha[..., 3, 7]`` is ``(3.0, 7.0)``, as for `GridCost`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from geosoftmax.costs.base import wide
from geosoftmax.functional.calls import computed, full_precision
from geosoftmax.functional.decisions import first_of_largest
from geosoftmax.validation import (
    SUM_TOLERANCE,
    check_grid,
    check_map,
    check_points,
    check_reading,
    is_readable,
)

#: The side of the window of a local mean, in pixels.
WINDOW = 5


class PointTarget(NamedTuple):
    """Points as distributions, and which of them are present.

    Attributes
    ----------
    alpha : Tensor, shape (*batch, *shape)
        Distributions on the grid. If a point is missing, all entries are NaN, and losses reject it.
    present : Tensor, shape batch, bool
        Whether the point is present. Leave missing points out before a loss.
    """

    alpha: Tensor
    present: Tensor


def point_target(points: Tensor, shape: Sequence[int]) -> PointTarget:
    r"""Return points as distributions on a grid: :math:`\sum_i \alpha_i x_i` is the point, exactly.

    The mass lies on the 2, 4 or 8 pixels around the point, with multilinear weights. Of all
    distributions on the grid with this mean, this one has the least variance along each axis. A
    point on a pixel centre has all its mass on that pixel. Moving a point by an integer number of
    pixels moves its mass with it.

    Parameters
    ----------
    points : Tensor, shape (*batch, n)
        **(row, column)**, not (x, y), in index units: the centre of the first pixel is (0, 0), that
        of the last one is (h - 1, w - 1). Points outside the grid are refused. A point whose
        coordinates are all NaN is missing. Gradients flow to the points, and jump at pixel centres.
    shape : tuple of int
        The sides of the grid, 1 to 3 of them.

    Returns
    -------
    PointTarget
        The distributions, in the dtype and on the device of the points, and which points are
        present. Half precision becomes float32. Points outside the grid give NaN where values are
        not checked: on GPUs, and under ``torch.compile`` and ``torch.func``.

    See Also
    --------
    locate : The inverse, from distributions to points.

    Examples
    --------
    >>> import torch
    >>> from geosoftmax import GridCost, geometric_logistic_loss, point_target
    >>> points = torch.tensor([[0.25, 2.0], [float("nan"), float("nan")]])
    >>> target = point_target(points, (2, 4))
    >>> target.alpha[0]
    tensor([[0.0000, 0.0000, 0.7500, 0.0000],
            [0.0000, 0.0000, 0.2500, 0.0000]])
    >>> scores, seen = torch.zeros(2, 2, 4), target.present  # leave missing points out
    >>> loss = geometric_logistic_loss(scores[seen], target.alpha[seen], GridCost((2, 4)))
    """
    sides = check_grid(shape)
    check_points("points", points, sides)
    points = computed(points)
    present = ~points.isnan().any(-1)
    at = torch.where(present[..., None], points, 0.0)
    factors = []
    for axis, side in enumerate(sides):
        hat = (1 - (at[..., axis, None] - pixels(side, points)).abs()).clamp(min=0)
        if not is_readable(points):
            inside = (at[..., axis] >= 0) & (at[..., axis] <= side - 1)
            hat = torch.where(inside[..., None], hat, torch.nan)
        factors.append(hat)
    there = present[(..., *([None] * len(sides)))]
    return PointTarget(torch.where(there, _outer(factors), torch.nan), present)


def _outer(factors: list[Tensor]) -> Tensor:
    """Return the outer product of one factor per axis, each of shape (*batch, side)."""
    product, n = factors[0], len(factors)
    for k in range(1, n):
        product = product[..., None] * factors[k][(..., *([None] * k), slice(None))]
    return product


@full_precision
def locate(
    alpha: Tensor,
    rule: str = "local mean",
    *,
    window: int | None = None,
    dim: int | tuple[int, ...] = (-2, -1),
) -> Tensor:
    r"""Read distributions on a grid as points between its pixels.

    ============ ========================================================== ======================
    rule         the point                                                  use it where
    ============ ========================================================== ======================
    "local mean" mean inside the window of ``window`` pixels a side with    there is one point, and
                 the largest mass                                           perhaps stray mass
    "mode"       the pixel of the largest mass                              pixels are fine enough
    "mean"       :math:`\sum_i \alpha_i x_i`                                nothing is astray
    "median"     where each marginal has half of its mass on either side    much is astray
    ============ ========================================================== ======================

    Each rule inverts `point_target`, except the mode, which gives the nearest pixel. If the
    distribution moves by an integer number of pixels, the point moves with it. For the median, the
    cumulative mass is linear between pixel centres, with half of a pixel's mass before its centre.
    Where several places halve a marginal, the median is the middle of them. Of equal modes and
    windows, the first is used.

    Parameters
    ----------
    alpha : Tensor, shape (*batch, *sides)
        Distributions. Gradients flow through all rules but the mode; they treat the position of the
        window as a constant.
    rule : {"local mean", "mode", "mean", "median"}
    window : int, optional
        The side of the window of a local mean, in pixels. By default 5, or less if a side of the
        grid is shorter.
    dim : int or tuple of int
        The axes of the grid, 1 to 3; by default the last two.

    Returns
    -------
    Tensor, shape (*batch, n)
        Points as for `point_target`: **(row, column)**, in index units, in the dtype of `alpha`.
        Half precision becomes float32. Rows that are not distributions give NaN where values are
        not checked: on GPUs, and under ``torch.compile`` and ``torch.func``.

    See Also
    --------
    spread : How sure a distribution is of its point.
    decide : The best pixel for a measure of mistakes.

    Examples
    --------
    >>> import torch
    >>> from geosoftmax import locate, point_target
    >>> here = point_target(torch.tensor([3.25, 7.5], dtype=torch.float64), (12, 16)).alpha
    >>> astray = point_target(torch.tensor([11.0, 0.0], dtype=torch.float64), (12, 16)).alpha
    >>> alpha = 0.8 * here + 0.2 * astray
    >>> for rule in ("local mean", "mean"):
    ...     print(rule, [round(x, 3) for x in locate(alpha, rule).tolist()])
    local mean [3.25, 7.5]
    mean [4.8, 6.0]
    """
    mass, sides, valid = read_mass(alpha, dim)
    check_reading(rule, window, sides)
    if rule == "local mean":
        asked = [min(WINDOW, side) if window is None else window for side in sides]
        points = _local_mean(mass, sides, asked)
    elif rule == "mode":
        points = _mode(mass, sides, torch.finfo(alpha.dtype).eps)
    else:
        find = _mean if rule == "mean" else _median
        points = torch.stack([find(marginal) for marginal in _marginals(mass, sides)], -1)
    if valid is not None:
        points = torch.where(valid[..., None], points, torch.nan)
    return points.to(computed(alpha).dtype)


@full_precision
def spread(alpha: Tensor, *, dim: int | tuple[int, ...] = (-2, -1)) -> Tensor:
    r"""Return the spread of distributions on a grid: 0 for a point, also between pixels.

    .. math:: \Big(\sum_i \alpha_i |x_i - m|^2 - \sum_k t_k (1 - t_k)\Big)^{1/2},
              \quad m = \sum_i \alpha_i x_i, \quad t_k = m_k - \lfloor m_k \rfloor

    The first sum is the variance of the distribution. The second sum is the least variance of any
    distribution on the grid with the same mean, so that the grid itself adds nothing. For a
    calibrated distribution, the spread is the root mean square error of the mean.

    Parameters
    ----------
    alpha : Tensor, shape (*batch, *sides)
        Distributions. Gradients flow through the spread; they are 0 where it is 0.
    dim : int or tuple of int
        The axes of the grid, 1 to 3; by default the last two.

    Returns
    -------
    Tensor, shape batch
        In pixels. Rows that are not distributions are treated as in `locate`.

    Notes
    -----
    Another measure of confidence is Shannon's entropy, ``torch.special.entr(alpha).sum((-2, -1))``.
    Its exponential is the effective number of pixels that share the mass. `sinkhorn_negentropy` is
    minus the entropy for a cost.

    Examples
    --------
    >>> import torch
    >>> from geosoftmax import point_target, spread
    >>> here = point_target(torch.tensor([3.25, 7.5], dtype=torch.float64), (12, 16)).alpha
    >>> there = point_target(torch.tensor([3.25, 13.5], dtype=torch.float64), (12, 16)).alpha
    >>> round(float(spread(here)), 6), round(float(spread((here + there) / 2)), 6)
    (0.0, 3.0)
    """
    mass, sides, valid = read_mass(alpha, dim)
    total = torch.zeros((), dtype=mass.dtype, device=mass.device)
    for marginal in _marginals(mass, sides):
        mean = _mean(marginal)
        apart = pixels(marginal.shape[-1], marginal) - mean[..., None]
        fraction = mean - mean.detach().floor()
        total = total + (marginal * apart**2).sum(-1) - fraction * (1 - fraction)
    # Below the floor, the difference is rounding of the input, and its square root means nothing.
    floor = 16 * torch.finfo(alpha.dtype).eps * max(sides)
    positive = total > floor
    distance = torch.where(positive, total.clamp(min=floor).sqrt(), 0.0)
    if valid is not None:
        distance = torch.where(valid, distance, torch.nan)
    return distance.to(computed(alpha).dtype)


# ------------------------------------------------------------------ the rules


def read_mass(
    alpha: Tensor, dim: int | tuple[int, ...]
) -> tuple[Tensor, tuple[int, ...], Tensor | None]:
    """Return the mass, normalised, in float64, with its grid last; its sides; the valid rows.

    The last is None where values were checked.
    """
    axes = check_map(alpha, dim, SUM_TOLERANCE)
    n = len(axes)
    mass = wide(alpha.movedim(axes, tuple(range(-n, 0))))
    total = mass.sum(tuple(range(-n, 0)), keepdim=True)
    valid = None
    if not is_readable(alpha):
        flat = mass.flatten(-n)
        valid = (flat >= 0).all(-1) & ((flat.sum(-1) - 1).abs() <= SUM_TOLERANCE[alpha.dtype])
    return mass / total, tuple(mass.shape[mass.dim() - n :]), valid


def _marginals(mass: Tensor, sides: tuple[int, ...]) -> list[Tensor]:
    axes = range(-len(sides), 0)
    others = ([other for other in axes if other != axis] for axis in axes)
    return [mass.sum(dims) if dims else mass for dims in others]


def pixels(side: int, like: Tensor) -> Tensor:
    """Return the positions of the pixels along an axis, of the kind of `like`."""
    return torch.arange(side, dtype=like.dtype, device=like.device)


def _mean(marginal: Tensor) -> Tensor:
    return (marginal * pixels(marginal.shape[-1], marginal)).sum(-1)


def _median(marginal: Tensor) -> Tensor:
    """Return the middle of all places that halve the mass."""
    last = marginal.shape[-1] - 1
    return (_first_half(marginal) + last - _first_half(marginal.flip(-1))) / 2


def _first_half(marginal: Tensor) -> Tensor:
    """Return the first place with half of the mass before it, linear between pixel centres."""
    before = marginal.cumsum(-1) - marginal / 2
    slack = 4 * torch.finfo(marginal.dtype).eps * marginal.shape[-1]
    after = (before >= 0.5 - slack).to(torch.uint8).argmax(-1, keepdim=True)
    start = (after - 1).clamp(min=0)
    low, high = before.gather(-1, start), before.gather(-1, after)
    step = torch.where(high > low, high - low, 1.0)
    share = ((0.5 - low) / step).clamp(0, 1)
    return (start + torch.where(after > 0, share, 0.0)).squeeze(-1)


def _mode(mass: Tensor, sides: tuple[int, ...], slack: float) -> Tensor:
    index = first_of_largest(mass.detach().flatten(-len(sides)), slack)
    return torch.stack(torch.unravel_index(index, sides), -1).to(mass.dtype)


def _local_mean(mass: Tensor, sides: tuple[int, ...], window: list[int]) -> Tensor:
    sums, n = mass.detach(), len(sides)
    for axis in range(n):
        sums = sums.unfold(axis - n, window[axis], 1).sum(-1)
    slack = 1e-12 * math.prod(window)  # equal masses differ by the order of summation
    starts = _mode(sums, tuple(sums.shape[sums.dim() - n :]), slack)
    chosen = []
    for axis, side in enumerate(sides):
        ahead = pixels(side, mass) - starts[..., axis, None]
        chosen.append(((ahead >= 0) & (ahead < window[axis])).to(mass.dtype))
    inside = mass * _outer(chosen)
    inside = inside / inside.sum(tuple(range(-len(sides), 0)), keepdim=True)
    return torch.stack([_mean(marginal) for marginal in _marginals(inside, sides)], -1)
