"""From maps of a network to a loss and to distributions: what a head is, and those of geosoftmax.

Points are (row, column) in index units of the grid of the maps, NaN where they are missing.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from geosoftmax import (
    Cost,
    GridCost,
    ZeroOneCost,
    geometric_logistic_loss,
    geometric_softmax,
    point_target,
    smooth_scores,
)
from geosoftmax.nn import GeometricSoftmax

__all__ = ["Geometric", "Head", "ZeroOne", "filled_target", "gaussian_target", "mean_of_present"]

#: The certified gap of a training step, as for auto-encoders: steps need no more.
TOLERANCE = 1e-3
#: That of a prediction. Maps of networks that are not sure have supports of a thousand pixels; more
#: digits would take a hundred times as long, and move no point by a hundredth of a pixel.
PREDICTED = 1e-4
#: The side of the window whose mass is the likelihood of a point, in pixels of the maps.
WINDOW = 5


class Head(nn.Module, ABC):
    """A loss on the maps of a network, and what the maps say once it is trained.

    Attributes
    ----------
    channels : int
        Maps that the network has to output.
    is_distribution : bool
        Whether `alpha` is a prediction of where the point may be, and not a map normalised.
    resolution : int
        Pixels of `alpha` for each pixel of the maps, along each side.
    """

    is_distribution = True
    resolution = 1

    def __init__(self, shape: tuple[int, int], parts: int) -> None:
        super().__init__()
        self.shape = shape
        self.parts = parts
        self.channels = parts

    @abstractmethod
    def loss(self, maps: Tensor, points: Tensor) -> Tensor:
        """Return the mean loss of the points that are there.

        Parameters
        ----------
        maps : Tensor, shape (n, channels, h, w)
        points : Tensor, shape (n, parts, 2)
        """

    @abstractmethod
    def alpha(self, maps: Tensor) -> Tensor:
        """Return a distribution for each point, of shape (n, parts, h, w) times `resolution`."""

    def likelihood(self, maps: Tensor, alpha: Tensor) -> Tensor:
        """Return from 0 to 1 how sure each point is: the mass of the best window of 5 pixels."""
        side = WINDOW * self.resolution
        return max_mass(alpha, min(side, *alpha.shape[-2:]))

    def own_points(self, maps: Tensor) -> dict[str, Tensor]:
        """Return points by the ways of reading that this head alone has, by name."""
        return {}


def max_mass(alpha: Tensor, side: int) -> Tensor:
    """Return the largest mass of a square window with so many pixels a side."""
    sums = alpha.unfold(-2, side, 1).sum(-1).unfold(-1, side, 1).sum(-1)
    return sums.amax((-2, -1)).clamp(0, 1)


def mean_of_present(losses: Tensor, present: Tensor) -> Tensor:
    """Return the mean of the losses of points that are there; 0 if none is."""
    return torch.where(present, losses, 0.0).sum() / present.sum().clamp(min=1)


def filled_target(points: Tensor, shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Return points as distributions, and which are there; those that are missing are uniform.

    Nothing is selected, so that shapes stay the same; `mean_of_present` leaves these losses out.
    """
    target, present = point_target(points, shape)
    return torch.where(present[..., None, None], target, 1 / math.prod(shape)), present


def gaussian_target(points: Tensor, shape: tuple[int, int], width: float) -> tuple[Tensor, Tensor]:
    """Return Gaussians of standard deviation `width` around points, each with largest value 1.

    The second tensor says which points are there. The values lie on a pixel at or between pixels,
    as the point does: nothing is rounded.
    """
    present = ~points.isnan().any(-1)
    at = torch.where(present[..., None], points, 0.0)
    rows, columns = (
        torch.exp(
            -((at[..., axis, None] - torch.arange(side, device=at.device)) ** 2) / (2 * width**2)
        )
        for axis, side in enumerate(shape)
    )
    return rows[..., :, None] * columns[..., None, :], present


class Geometric(Head):
    """The geometric logistic loss with points as targets; the geometric softmax predicts.

    Parameters
    ----------
    shape, parts
    p, scale : float
        The cost between pixels is ``scale (|Δrow|^p + |Δcolumn|^p)``.
    smooth : bool
        Whether scores are smoothed first, as in auto-encoders of drawings.
    """

    def __init__(
        self, shape: tuple[int, int], parts: int, *, p: int, scale: float, smooth: bool = False
    ) -> None:
        super().__init__(shape, parts)
        # The module moves the cost with the network.
        self.link = GeometricSoftmax(GridCost(shape, p=p) * scale)
        self.smooth = smooth

    def loss(self, maps: Tensor, points: Tensor) -> Tensor:
        """Return the mean loss of the points that are there."""
        target, present = filled_target(points, self.shape)
        losses = geometric_logistic_loss(
            self._scores(maps), target, self.link.cost, reduction="none", tol=TOLERANCE
        )
        return mean_of_present(losses, present)

    def alpha(self, maps: Tensor) -> Tensor:
        """Return the geometric softmax."""
        return geometric_softmax(self._scores(maps), self.link.cost, tol=PREDICTED)

    def _scores(self, maps: Tensor) -> Tensor:
        return smooth_scores(maps, self.link.cost) if self.smooth else maps


class ZeroOne(Head):
    """The control: the same loss and targets, with a cost that knows no geometry."""

    def __init__(self, shape: tuple[int, int], parts: int, *, scale: float) -> None:
        super().__init__(shape, parts)
        self.link = GeometricSoftmax(ZeroOneCost(shape[0] * shape[1]) * scale)

    def loss(self, maps: Tensor, points: Tensor) -> Tensor:
        """Return the mean loss of the points that are there."""
        target, present = filled_target(points, self.shape)
        cost: Cost = self.link.cost
        losses = geometric_logistic_loss(
            maps.flatten(-2), target.flatten(-2), cost, reduction="none", tol=TOLERANCE
        )
        return mean_of_present(losses, present)

    def alpha(self, maps: Tensor) -> Tensor:
        """Return the sparse distribution of the zero-one cost."""
        return geometric_softmax(maps.flatten(-2), self.link.cost).reshape(maps.shape)
