"""Layers: from scores to distributions, to smoother scores, or to one value."""

from __future__ import annotations

from torch import Tensor

from geosoftmax import functional
from geosoftmax.nn.module import CostModule, SolvingModule


class GeometricSoftmax(SolvingModule):
    """``geometric_softmax`` as a layer.

    Parameters
    ----------
    cost : Cost, LearntPoints or LearntEmbeddings
    dim : int or tuple of int, optional
        The axes of the outputs, as for `geosoftmax.geometric_softmax`. By default the last ones.
    learn_scale : bool
        Learn a positive number that multiplies the cost.
    tol, max_iter
        As for `geosoftmax.solve`.

    Examples
    --------
    >>> import torch
    >>> from geosoftmax import LineCost
    >>> layer = torch.nn.Sequential(torch.nn.Linear(8, 5), GeometricSoftmax(LineCost(5)))
    >>> layer(torch.randn(3, 8)).shape
    torch.Size([3, 5])
    """

    def forward(self, scores: Tensor) -> Tensor:
        """Return distributions of the shape of the scores."""
        return functional.geometric_softmax(
            scores, self.cost, dim=self.dim, tol=self.tol, max_iter=self.max_iter
        )


class GeometricLogSumExp(SolvingModule):
    """``geometric_logsumexp`` as a layer. Parameters as for `GeometricSoftmax`."""

    def forward(self, scores: Tensor) -> Tensor:
        """Return one value per sample."""
        return functional.geometric_logsumexp(
            scores, self.cost, dim=self.dim, tol=self.tol, max_iter=self.max_iter
        )


class SmoothScores(CostModule):
    """``smooth_scores`` as the last layer of a network that outputs scores.

    Parameters
    ----------
    cost : Cost, LearntPoints or LearntEmbeddings
    dim : int or tuple of int, optional
        The axes of the outputs, as for `geosoftmax.geometric_softmax`. By default the last ones.
    learn_scale : bool
        Learn a positive number that multiplies the cost.

    Examples
    --------
    >>> import torch
    >>> from geosoftmax import GridCost
    >>> from geosoftmax.nn import GeometricLogisticLoss
    >>> cost = GridCost((28, 28), p=2) / 2
    >>> decoder = torch.nn.Sequential(
    ...     torch.nn.Linear(100, 784), torch.nn.Unflatten(1, (28, 28)), SmoothScores(cost)
    ... )
    >>> loss = GeometricLogisticLoss(cost)(decoder(torch.randn(2, 100)), torch.tensor([0, 783]))
    """

    def forward(self, scores: Tensor) -> Tensor:
        """Return scores of the same shape."""
        return functional.smooth_scores(scores, self.cost, dim=self.dim)


class PotentialSoftmax(CostModule):
    """``potential_softmax`` as a layer: no solver, no iterations.

    Parameters
    ----------
    cost : Cost, LearntPoints or LearntEmbeddings
    dim : int or tuple of int, optional
        The axes of the outputs, as for `geosoftmax.geometric_softmax`. By default the last ones.
    learn_scale : bool
        Learn a positive number that multiplies the cost.
    """

    def forward(self, logits: Tensor) -> Tensor:
        """Return distributions of the shape of the logits."""
        return functional.potential_softmax(logits, self.cost, dim=self.dim)
