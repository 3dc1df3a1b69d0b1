"""The geometric logistic loss."""

from __future__ import annotations

import torch
from torch import Tensor

from geosoftmax import autograd, operators
from geosoftmax.costs.base import Cost
from geosoftmax.functional.axes import Dim, axes_of, outputs_last, target_last
from geosoftmax.functional.calls import computed, full_precision_loss, settle
from geosoftmax.functional.entropy import fenchel_young
from geosoftmax.functional.targets import (
    Target,
    is_plain_index,
    read_target,
    reduce_loss,
    share_of,
)
from geosoftmax.operators import Options
from geosoftmax.validation import (
    check_class_indices,
    check_ignored,
    check_index_shape,
    check_reduction,
    check_signal,
)


@full_precision_loss
def geometric_logistic_loss(
    scores: Tensor,
    target: Tensor,
    cost: Cost,
    *,
    dim: Dim = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    tol: float | None = None,
    max_iter: int | None = None,
    method: str = "auto",
) -> Tensor:
    r"""Geometric logistic loss: :math:`\Omega^*(f) + \Omega(\alpha) - \langle\alpha, f\rangle`.

    It is convex in the scores and at least 0. It is 0 exactly when
    ``target == geometric_softmax(scores)``. Its gradient is ``geometric_softmax(scores) - target``.

    Parameters
    ----------
    scores : Tensor, shape (*batch, *cost.shape)
    target : Tensor
        Class indices: integers of shape batch, on a grid counted row by row. Or distributions: of
        the shape of scores.
    cost : Cost
    dim : int or tuple of int, optional
        The axes of the outputs, as for `geometric_softmax`; batch is the shape of scores without
        them. ``dim=1`` is the layout of ``torch.nn.CrossEntropyLoss``. By default the last ones.
        With class indices and two or more batch axes, pass it explicitly.
    reduction : {"mean", "sum", "none"}
    weight : Tensor, shape cost.shape, optional
        The weight of each output. A sample has weight ``Σ_y target_y weight_y``, and the mean is
        weighted.
    ignore_index : int
        Samples with this class index do not count.
    label_smoothing : float
        The share ``s`` of the uniform distribution in the target: ``(1 - s) δ_y + s / d``.
    tol, max_iter, method
        As for `solve`.

    Returns
    -------
    Tensor, a scalar, or of shape batch for ``reduction="none"``

    Examples
    --------
    >>> import torch
    >>> from geosoftmax import LineCost, geometric_logistic_loss
    >>> scores = torch.tensor([[2.0, 1.0, -1.0]], dtype=torch.float64)
    >>> geometric_logistic_loss(scores, torch.tensor([0]), LineCost(3))
    tensor(0., dtype=torch.float64)
    >>> geometric_logistic_loss(scores, torch.tensor([2]), LineCost(3))
    tensor(3.0000, dtype=torch.float64)

    Scores as for ``torch.nn.CrossEntropyLoss``, with the classes in axis 1:

    >>> scores, target = torch.zeros(2, 3, 7), torch.zeros(2, 7, dtype=torch.int64)
    >>> geometric_logistic_loss(scores, target, LineCost(3), dim=1, reduction="none").shape
    torch.Size([2, 7])
    """
    if dim is not None:
        axes = axes_of("scores", scores, cost, dim)
        target = target_last(target, "scores", scores, axes)
        scores = outputs_last(scores, axes)
    check_signal("scores", scores, cost)
    check_reduction(reduction)
    f = computed(scores)
    options = settle("loss", scores.dtype, tol, max_iter, method)
    if type(ignore_index) is not int:
        check_ignored(ignore_index)
    if weight is None and label_smoothing == 0 and is_plain_index(target, f, cost):
        fused = _index_loss(f, target, cost, dim, reduction, ignore_index, options)
        if fused is not None:
            return fused if fused.dtype == scores.dtype else fused.to(scores.dtype)
    wanted = read_target(
        target, scores, cost, dim=dim, ignore_index=ignore_index, label_smoothing=label_smoothing
    )
    fused = _distribution_loss(f, wanted, weight, cost, reduction, options)
    if fused is not None:
        return fused.to(scores.dtype)
    finite = torch.finfo(f.dtype)  # all -inf, or any +inf, is an error, not NaN
    peak = f.detach().amax(autograd.signal_dims(cost), keepdim=True)
    f = f - peak.clamp(finite.min, finite.max)
    alpha, u, lower, _, _ = operators.solve(f.detach(), cost, options)
    conjugate = autograd.log_sum_exp(f, u, alpha, lower, cost)
    loss = fenchel_young(wanted, f, conjugate, cost)
    return reduce_loss(loss, wanted, weight, cost, reduction).to(scores.dtype)


def _index_loss(
    f: Tensor, target: Tensor, cost: Cost, dim: Dim, reduction: str, ignore_index: int,
    options: Options,
) -> Tensor | None:  # fmt: skip
    """Return the reduced loss of class indices from one backend call, or None if there is none."""
    plan = operators.plan_of(f, cost, options)
    if plan.index_loss is None or f.numel() == 0:
        return None
    check_index_shape(target, f, cost, dim)
    loss, slope, gap, bad = plan.index_loss(f, target, ignore_index, reduction, options.max_iter)
    if bad:
        check_class_indices(target, f, cost, ignore_index, dim)
    if not gap <= options.tol:
        operators.solve(f.detach(), cost, options)  # raises the error
    return autograd.fused_index_loss(f, target, loss, slope, cost, reduction, ignore_index, options)


def _distribution_loss(
    f: Tensor, target: Target, weight: Tensor | None, cost: Cost, reduction: str, options: Options
) -> Tensor | None:
    """Return the reduced loss of distributions from a fused kernel, or None if there is none."""
    alpha = target.alpha
    if alpha is None or f.numel() == 0:
        return None
    if not autograd.has_plain_gradient(f, alpha, cost.parameter):
        return None
    dtype = torch.promote_types(f.dtype, alpha.dtype)
    plan = operators.plan_of(f.to(dtype), cost, options)
    if plan.loss is None:
        return None
    share = share_of(f, target, weight, cost, reduction)
    alpha = alpha.to(f.dtype)
    loss, slope = plan.loss(f.detach(), alpha, options.max_iter, 1.0 if share is None else share)
    loss = autograd.fused_loss(f, alpha, loss, slope, cost, share, options)
    return loss if share is not None else reduce_loss(loss, target, weight, cost, reduction)
