"""Losses on scores, and a divergence between distributions."""

from __future__ import annotations

from torch import Tensor

from geosoftmax import functional
from geosoftmax.costs.base import Cost
from geosoftmax.functional.axes import Dim
from geosoftmax.learnt import LearntCost
from geosoftmax.nn.module import CostModule, SolvingModule, described, unless
from geosoftmax.validation import check_reduction, check_smoothing, check_weight


class GeometricLogisticLoss(SolvingModule):
    """``geometric_logistic_loss`` with the arguments of ``torch.nn.CrossEntropyLoss``.

    Parameters
    ----------
    cost : Cost, LearntPoints or LearntEmbeddings
    weight : Tensor, shape cost.shape, optional
        The weight of each output.
    ignore_index : int
        Samples with this class index do not count.
    reduction : {"mean", "sum", "none"}
    label_smoothing : float
    dim : int or tuple of int, optional
        The axes of the outputs. ``dim=1`` is the layout of ``torch.nn.CrossEntropyLoss``: scores
        ``(N, C, d1, …)`` and class indices ``(N, d1, …)``. By default the last ones. With class
        indices and two or more batch axes, pass it explicitly.
    learn_scale, tol, max_iter
        As for `GeometricSoftmax`.

    Examples
    --------
    >>> import torch
    >>> from geosoftmax import LineCost
    >>> loss = GeometricLogisticLoss(LineCost(5, p=2) / 2)  # was torch.nn.CrossEntropyLoss()
    >>> scores = torch.zeros(2, 5, requires_grad=True)
    >>> loss(scores, torch.tensor([0, 4])).backward()
    >>> scores.grad.shape
    torch.Size([2, 5])
    """

    weight: Tensor | None

    def __init__(
        self,
        cost: Cost | LearntCost,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        *,
        dim: Dim = None,
        learn_scale: bool = False,
        tol: float | None = None,
        max_iter: int | None = None,
    ) -> None:
        super().__init__(cost, dim=dim, learn_scale=learn_scale, tol=tol, max_iter=max_iter)
        check_reduction(reduction)
        check_smoothing(label_smoothing)
        check_weight(weight, self.cost)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.label_smoothing = label_smoothing

    def extra_repr(self) -> str:
        """Describe the cost, and what differs from the defaults."""
        weight = None
        if self.weight is not None:
            few = self.weight.numel() <= 10
            weight = self.weight.tolist() if few else f"tensor of shape {tuple(self.weight.shape)}"
        return described(
            super().extra_repr(),
            weight=weight,
            ignore_index=unless(self.ignore_index, -100),
            reduction=unless(self.reduction, "mean"),
            label_smoothing=self.label_smoothing or None,
        )

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss of scores against class indices or distributions."""
        cost, buffers = self.cost, self._buffers
        loss = functional.geometric_logistic_loss(
            scores,
            target,
            cost,
            dim=self.dim,
            reduction=self.reduction,
            weight=buffers["weight"] if "weight" in buffers else self.weight,  # noqa: SIM401 (slow)
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            tol=self.tol,
            max_iter=self.max_iter,
        )
        if self.label_smoothing == 0:
            self._warn_of_collapse(cost, target)
        return loss


class PotentialLogisticLoss(CostModule):
    """``potential_logistic_loss`` as a module.

    Parameters
    ----------
    cost : Cost, LearntPoints or LearntEmbeddings
    reduction : {"mean", "sum", "none"}
    dim : int or tuple of int, optional
        The axes of the outputs, as for `GeometricLogisticLoss`.
    learn_scale : bool
        Learn a positive number that multiplies the cost.
    """

    def __init__(
        self,
        cost: Cost | LearntCost,
        reduction: str = "mean",
        *,
        dim: Dim = None,
        learn_scale: bool = False,
    ) -> None:
        super().__init__(cost, dim=dim, learn_scale=learn_scale)
        check_reduction(reduction)
        self.reduction = reduction

    def extra_repr(self) -> str:
        """Describe the cost, and what differs from the defaults."""
        return described(super().extra_repr(), reduction=unless(self.reduction, "mean"))

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss of logits against class indices or distributions."""
        cost = self.cost
        loss = functional.potential_logistic_loss(
            logits, target, cost, dim=self.dim, reduction=self.reduction
        )
        self._warn_of_collapse(cost, target)
        return loss


class HausdorffDivergence(CostModule):
    """``hausdorff_divergence`` as a module, reduced over the batch.

    Parameters
    ----------
    cost : Cost, LearntPoints or LearntEmbeddings
    symmetric : bool
    reduction : {"mean", "sum", "none"}
    dim : int or tuple of int, optional
        The axes of the outputs, as for `GeometricSoftmax`.
    learn_scale : bool
        Learn a positive number that multiplies the cost.
    """

    def __init__(
        self,
        cost: Cost | LearntCost,
        *,
        dim: Dim = None,
        symmetric: bool = False,
        reduction: str = "mean",
        learn_scale: bool = False,
    ) -> None:
        super().__init__(cost, dim=dim, learn_scale=learn_scale)
        check_reduction(reduction)
        self.symmetric = symmetric
        self.reduction = reduction

    def extra_repr(self) -> str:
        """Describe the cost, and what differs from the defaults."""
        return described(
            super().extra_repr(),
            reduction=unless(self.reduction, "mean"),
            symmetric=self.symmetric or None,
        )

    def forward(self, alpha: Tensor, beta: Tensor) -> Tensor:
        """Return ``D(alpha|beta)``."""
        value = functional.hausdorff_divergence(
            alpha, beta, self.cost, dim=self.dim, symmetric=self.symmetric
        )
        if self.reduction == "none":
            return value
        return value.mean() if self.reduction == "mean" else value.sum()
