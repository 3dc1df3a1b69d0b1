"""What others train heat maps with, each as its paper has it, on the same network.

Points are (row, column) in index units of the grid of the maps, NaN where they are missing; widths
are in pixels of that grid.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, huber_loss, log_softmax, softmax

from geosoftmax import GridCost, locate
from geosoftmax.nn import GeometricSoftmax
from geosoftmax_experiments.keypoints.heads import (
    Head,
    filled_target,
    gaussian_target,
    mean_of_present,
)
from geosoftmax_experiments.replay import constant

__all__ = ["DSNT", "MSE", "ScoreMap", "SimCC", "SoftArgmax", "Softmax", "Wasserstein"]

_TINY = 1e-12


def _normalised(maps: Tensor) -> Tensor:
    """Return maps from 0 as distributions; those that are 0 everywhere as uniform ones."""
    maps = maps.clamp(min=0) + _TINY
    return maps / maps.sum((-2, -1), keepdim=True)


def _map_softmax(maps: Tensor) -> Tensor:
    return softmax(maps.flatten(-2), -1).reshape(maps.shape)


class MSE(Head):
    """Squared error to Gaussian heat maps of height 1 (Tompson et al. 2014; Xiao et al. 2018)."""

    is_distribution = False

    def __init__(self, shape: tuple[int, int], parts: int, *, width: float) -> None:
        super().__init__(shape, parts)
        self.width = width

    def loss(self, maps: Tensor, points: Tensor) -> Tensor:
        """Return the mean squared error over the points that are there."""
        target, present = gaussian_target(points, self.shape, self.width)
        return mean_of_present(((maps - target) ** 2).sum((-2, -1)), present)

    def alpha(self, maps: Tensor) -> Tensor:
        """Return the maps, clamped at 0 and normalised."""
        return _normalised(maps)

    def likelihood(self, maps: Tensor, alpha: Tensor) -> Tensor:
        """Return the height of the largest peak, which is 1 for a target."""
        return maps.amax((-2, -1)).clamp(0, 1)


class Softmax(Head):
    """Softmax over pixels, with the divergence "kl" or "js" to a normalised Gaussian.

    Width 0 is the target of geosoftmax, `point_target`: then KL is the cross-entropy of a point.
    """

    def __init__(
        self, shape: tuple[int, int], parts: int, *, width: float, divergence: str = "kl"
    ) -> None:
        super().__init__(shape, parts)
        self.width = width
        self.divergence = divergence

    def loss(self, maps: Tensor, points: Tensor) -> Tensor:
        """Return the mean divergence of the points that are there."""
        if self.width > 0:
            target, present = gaussian_target(points, self.shape, self.width)
            target = target / target.sum((-2, -1), keepdim=True)
        else:
            target, present = filled_target(points, self.shape)
        logs, target = log_softmax(maps.flatten(-2), -1), target.flatten(-2)
        if self.divergence == "kl":
            losses = torch.special.xlogy(target, target).sum(-1) - (target * logs).sum(-1)
        else:
            losses = jensen_shannon(logs, target)
        return mean_of_present(losses, present)

    def alpha(self, maps: Tensor) -> Tensor:
        """Return the softmax."""
        return _map_softmax(maps)


def jensen_shannon(logs: Tensor, target: Tensor) -> Tensor:
    """Return the Jensen–Shannon divergence of ``exp(logs)`` and a target, over the last axis."""
    alpha = logs.exp()
    log_middle = torch.log((alpha + target) / 2 + _TINY)
    to_target = (torch.special.xlogy(target, target) - target * log_middle).sum(-1)
    return (to_target + (alpha * (logs - log_middle)).sum(-1)) / 2


class SoftArgmax(Head):
    """The mean of the softmax of `gain` times the maps, with the L1 or squared error of the point.

    As in integral regression (Sun et al. 2018).
    """

    def __init__(self, shape: tuple[int, int], parts: int, *, gain: float, power: int) -> None:
        super().__init__(shape, parts)
        self.gain = gain
        self.power = power

    def loss(self, maps: Tensor, points: Tensor) -> Tensor:
        """Return the mean error of the points that are there."""
        present = ~points.isnan().any(-1)
        apart = _mean(self.alpha(maps)) - torch.where(present[..., None], points, 0.0)
        return mean_of_present(apart.abs().pow(self.power).sum(-1), present)

    def alpha(self, maps: Tensor) -> Tensor:
        """Return the softmax of the maps times the gain."""
        return _map_softmax(self.gain * maps)


def _mean(alpha: Tensor) -> Tensor:
    rows, columns = (torch.arange(side, device=alpha.device) for side in alpha.shape[-2:])
    return torch.stack([(alpha.sum(-1) * rows).sum(-1), (alpha.sum(-2) * columns).sum(-1)], -1)


class DSNT(Head):
    """The mean of the softmax, its distance to the point, and JS to a Gaussian (Nibali 2018).

    Distances are in units of half a side, as there: rows and columns run from -1 to 1.
    """

    def __init__(self, shape: tuple[int, int], parts: int, *, width: float, weight: float) -> None:
        super().__init__(shape, parts)
        self.width = width
        self.weight = weight

    def loss(self, maps: Tensor, points: Tensor) -> Tensor:
        """Return the mean of distance and regulariser over the points that are there."""
        target, present = gaussian_target(points, self.shape, self.width)
        target = (target / target.sum((-2, -1), keepdim=True)).flatten(-2)
        half = constant(self.shape, maps) / 2
        at = torch.where(present[..., None], points, 0.0)
        apart = (_mean(self.alpha(maps)) - at) / half
        distance = (apart.square().sum(-1) + _TINY).sqrt()
        regulariser = jensen_shannon(log_softmax(maps.flatten(-2), -1), target)
        return mean_of_present(distance + self.weight * regulariser, present)

    def alpha(self, maps: Tensor) -> Tensor:
        """Return the softmax."""
        return _map_softmax(maps)


class SimCC(Head):
    """Two classifications, of row and of column, with Gaussian labels (Li et al. 2022).

    Parameters
    ----------
    shape, parts
    bins : int
        Classes for each pixel of the maps.
    width : float
        Of the labels, in classes.
    """

    def __init__(self, shape: tuple[int, int], parts: int, *, bins: int, width: float) -> None:
        super().__init__(shape, parts)
        self.resolution = bins
        self.width = width
        pixels = shape[0] * shape[1]
        self.axes = nn.ModuleList(nn.Linear(pixels, bins * side) for side in shape)

    def loss(self, maps: Tensor, points: Tensor) -> Tensor:
        """Return the mean divergence of both axes over the points that are there."""
        present = ~points.isnan().any(-1)
        at = (torch.where(present[..., None], points, 0.0) + 0.5) * self.resolution - 0.5
        total = torch.zeros_like(at[..., 0])
        for axis, logits in enumerate(self._logits(maps)):
            classes = torch.arange(logits.shape[-1], device=maps.device)
            label = softmax(-((at[..., axis, None] - classes) ** 2) / (2 * self.width**2), -1)
            total = total + torch.special.xlogy(label, label).sum(-1)
            total = total - (label * log_softmax(logits, -1)).sum(-1)
        return mean_of_present(total, present)

    def alpha(self, maps: Tensor) -> Tensor:
        """Return the product of both distributions."""
        rows, columns = (softmax(logits, -1) for logits in self._logits(maps))
        return rows[..., :, None] * columns[..., None, :]

    def _logits(self, maps: Tensor) -> list[Tensor]:
        return [axis(maps.flatten(-2)) for axis in self.axes]


class ScoreMap(Head):
    """A sigmoid score map and offsets to the point, as DeepLabCut trains them (Mathis et al. 2018).

    Parameters
    ----------
    shape, parts
    radius : float
        Pixels nearer to the point than this are to score 1; DeepLabCut's 17 pixels of the frame are
        2.1 of its maps.
    weight : float
        Of the offsets, whose Huber loss counts on those pixels; 0.05 there.
    """

    is_distribution = False
    #: What offsets are divided by; 7.28 pixels of the frame there, at a stride of 8.
    UNIT = 0.91

    def __init__(self, shape: tuple[int, int], parts: int, *, radius: float, weight: float) -> None:
        super().__init__(shape, parts)
        self.radius = radius
        self.weight = weight
        self.channels = 3 * parts

    def loss(self, maps: Tensor, points: Tensor) -> Tensor:
        """Return the mean of both losses over the points that are there."""
        scores, offsets = self._split(maps)
        present = ~points.isnan().any(-1)
        at = torch.where(present[..., None], points, 0.0)
        apart = at[..., None, None] - self._places(maps)  # (n, parts, 2, h, w)
        near = (apart.square().sum(-3) <= self.radius**2).to(maps.dtype)
        losses = binary_cross_entropy_with_logits(scores, near, reduction="none").mean((-2, -1))
        huber = huber_loss(offsets, apart / self.UNIT, reduction="none").sum(-3)
        count = near.sum((-2, -1)).clamp(min=1)
        losses = losses + self.weight * (near * huber).sum((-2, -1)) / count
        return mean_of_present(losses, present)

    def alpha(self, maps: Tensor) -> Tensor:
        """Return the scores, from 0 to 1, normalised."""
        return _normalised(torch.sigmoid(self._split(maps)[0]))

    def likelihood(self, maps: Tensor, alpha: Tensor) -> Tensor:
        """Return the largest score."""
        return torch.sigmoid(self._split(maps)[0]).amax((-2, -1))

    def own_points(self, maps: Tensor) -> dict[str, Tensor]:
        """Return the best pixel plus its offset: DeepLabCut's way."""
        scores, offsets = self._split(maps)
        pixel = locate(_normalised(torch.sigmoid(scores)), "mode")
        index = (pixel[..., 0] * self.shape[1] + pixel[..., 1]).long()
        places = index[..., None, None].expand(*index.shape, 2, 1)
        step = offsets.flatten(-2).gather(-1, places).squeeze(-1)
        return {"offset": pixel + self.UNIT * step}

    def _split(self, maps: Tensor) -> tuple[Tensor, Tensor]:
        scores, offsets = maps[:, : self.parts], maps[:, self.parts :]
        return scores, offsets.reshape(-1, self.parts, 2, *self.shape)

    def _places(self, maps: Tensor) -> Tensor:
        axes = (torch.arange(side, device=maps.device, dtype=maps.dtype) for side in self.shape)
        return torch.stack(torch.meshgrid(*axes, indexing="ij"))


class Wasserstein(Head):
    """The transport cost ``Σ |Δ|^p`` from the softmax to the target, by Sinkhorn's algorithm.

    As in Yan et al. (2020), to a Gaussian, and in Qu et al. (2022), to the pixels around the point
    (width 0). The expected cost to the point itself would be least at the nearest pixel.
    """

    ITERATIONS = 30

    def __init__(
        self, shape: tuple[int, int], parts: int, *, p: int, epsilon: float, width: float = 0.0
    ) -> None:
        super().__init__(shape, parts)
        self.p = p
        self.width = width
        self.epsilon = epsilon
        self.link = GeometricSoftmax(GridCost(shape, p=p) * (2 / epsilon))

    def loss(self, maps: Tensor, points: Tensor) -> Tensor:
        """Return the mean cost of the points that are there."""
        alpha = self.alpha(maps)
        if self.width == 0:
            return mean_of_present(*self._to_corners(alpha, points))
        target, present = gaussian_target(points, self.shape, self.width)
        target = target / target.sum((-2, -1), keepdim=True)

        def smooth(log: Tensor) -> Tensor:
            return self.link.cost.log_matvec(log)

        flat = _transport(alpha, target, smooth, smooth, self.epsilon, self.ITERATIONS)
        return mean_of_present(flat.sum((-2, -1)), present)

    def alpha(self, maps: Tensor) -> Tensor:
        """Return the softmax."""
        return _map_softmax(maps)

    def _to_corners(self, alpha: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
        """Return the costs to the four pixels around each point, and which points are there."""
        present = ~points.isnan().any(-1)
        at = torch.where(present[..., None], points, 0.0)
        sides = constant(self.shape, at)
        low = torch.minimum(at.floor().clamp(min=0), sides - 2.0)
        both = torch.arange(2, device=at.device)
        corners = torch.cartesian_prod(both, both)
        atoms = low[..., None, :] + corners  # (n, parts, 4, 2)
        weights = (1 - (at[..., None, :] - atoms).abs()).clamp(min=0).prod(-1)
        axes = (torch.arange(side, device=at.device) for side in self.shape)
        pixels = torch.cartesian_prod(*axes)
        cost = ((pixels - atoms[..., None, :]).abs() ** self.p).sum(-1)  # (n, parts, 4, h w)
        log_kernel = -cost / self.epsilon
        total = _transport(
            alpha.flatten(-2),
            weights,
            lambda log: torch.logsumexp(log[..., None] + log_kernel, -2),
            lambda log: torch.logsumexp(log[..., None, :] + log_kernel, -1),
            self.epsilon,
            self.ITERATIONS,
        )
        return total, present


def _transport(
    alpha: Tensor,
    target: Tensor,
    to_pixels: Callable[[Tensor], Tensor],
    to_target: Callable[[Tensor], Tensor],
    epsilon: float,
    iterations: int,
) -> Tensor:
    """Return ``⟨f, α⟩ + ⟨g, target⟩``: its gradient in α is the potential f, held fixed.

    `to_pixels` and `to_target` are ``log K exp`` from the places of the target to the pixels, and
    back. Where both are grids, the result has the axes of the grid, whose sum is meant.
    """
    with torch.no_grad():
        log_alpha, log_target = (alpha + _TINY).log(), (target + _TINY).log()
        f = torch.zeros_like(alpha)
        for _ in range(iterations):
            g = -epsilon * to_target(log_alpha + f / epsilon)
            f = -epsilon * to_pixels(log_target + g / epsilon)
    if alpha.shape == target.shape:
        return alpha * f + target * g
    return (alpha * f).sum(-1) + (target * g).sum(-1)
