"""The potential layer, a solver-free sibling of the geometric softmax; and smoothed scores."""

from __future__ import annotations

import torch
from torch import Tensor

from geosoftmax import autograd
from geosoftmax.costs.base import Cost
from geosoftmax.functional.axes import Dim, axes_of, outputs_back, outputs_last, target_last
from geosoftmax.functional.calls import (
    check_learnt,
    computed,
    full_precision,
    full_precision_loss,
)
from geosoftmax.functional.entropy import fenchel_young
from geosoftmax.functional.targets import Target, read_target, reduce_loss, share_of
from geosoftmax.solvers import registry
from geosoftmax.validation import check_finite, check_reduction, check_signal

_NO_MASKS = (
    "The potential layer has no masks: every output has positive probability. "
    "Use geometric_softmax with -inf scores instead."
)


@full_precision
def potential_softmax(logits: Tensor, cost: Cost, *, dim: Dim = None) -> Tensor:
    r"""Solver-free sibling of the geometric softmax: :math:`v \, Kv / v^\top K v`, ``v = e^{g/2}``.

    It equals ``geometric_softmax(2 log(Kv))`` exactly, and takes two products with ``K``. Every
    Sinkhorn potential has the form ``2 log(Kv)``. The price is that the result has no exact zeros,
    and that the loss is not convex in the logits.

    Parameters
    ----------
    logits : Tensor, shape (*batch, *cost.shape)
        Finite.
    cost : Cost
    dim : int or tuple of int, optional
        The axes of the outputs, as for `geometric_softmax`.

    Returns
    -------
    Tensor, the shape of logits

    Examples
    --------
    >>> import torch
    >>> from geosoftmax import LineCost, potential_softmax
    >>> potential_softmax(torch.tensor([0.0, 2.0, 1.0]), LineCost(3))
    tensor([0.1546, 0.5584, 0.2870])
    """
    if dim is not None:
        axes = axes_of("logits", logits, cost, dim)
        return outputs_back(potential_softmax(outputs_last(logits, axes), cost), axes)
    check_signal("logits", logits, cost)
    check_finite("logits", logits, _NO_MASKS)
    check_learnt(cost)
    v, _ = autograd.half_exponential(computed(logits), cost)
    weighted = v * autograd.product(v, cost)
    alpha = weighted / weighted.sum(autograd.signal_dims(cost), keepdim=True)
    return alpha.to(logits.dtype)


@full_precision_loss
def potential_logistic_loss(
    logits: Tensor, target: Tensor, cost: Cost, *, dim: Dim = None, reduction: str = "mean"
) -> Tensor:
    r"""Loss of the solver-free sibling: :math:`D(\alpha \,|\, \text{potential-softmax}(g))`.

    Equal to ``geometric_logistic_loss(2 log(Kv), target, cost)`` with ``v = exp(g/2)``.

    Parameters
    ----------
    logits : Tensor, shape (*batch, *cost.shape)
        Finite.
    target : Tensor
        Class indices or distributions, as for `geometric_logistic_loss`.
    cost : Cost
    dim : int or tuple of int, optional
        The axes of the outputs, as for `geometric_logistic_loss`.
    reduction : {"mean", "sum", "none"}

    Returns
    -------
    Tensor, a scalar, or of shape batch for ``reduction="none"``

    Examples
    --------
    >>> import torch
    >>> from geosoftmax import LineCost, potential_logistic_loss
    >>> potential_logistic_loss(torch.tensor([[0.0, 2.0, 1.0]]), torch.tensor([1]), LineCost(3))
    tensor(0.1184)
    """
    if dim is not None:
        axes = axes_of("logits", logits, cost, dim)
        target = target_last(target, "logits", logits, axes)
        logits = outputs_last(logits, axes)
    check_signal("logits", logits, cost)
    check_finite("logits", logits, _NO_MASKS)
    check_learnt(cost)
    check_reduction(reduction)
    wanted = read_target(target, logits, cost, dim=dim)
    g = computed(logits)
    fused = _fused(g, wanted, cost, reduction)
    if fused is not None:
        return fused.to(logits.dtype)
    v, peak = autograd.half_exponential(g, cost)
    f = 2 * autograd.log_product(v, cost, (g - peak) / 2)
    conjugate = torch.log(autograd.inner(v, autograd.product(v, cost), cost))
    loss = fenchel_young(wanted, f, conjugate, cost)
    return reduce_loss(loss, wanted, None, cost, reduction).to(logits.dtype)


def _fused(g: Tensor, target: Target, cost: Cost, reduction: str) -> Tensor | None:
    """Return the reduced loss from a fused kernel, or None if there is none."""
    alpha = target.alpha
    if alpha is None or g.numel() == 0:
        return None
    if not autograd.has_plain_gradient(g, alpha, cost.parameter):
        return None
    plan = registry.plan(cost, "potential", torch.promote_types(g.dtype, alpha.dtype))
    if plan is None:
        return None
    share = share_of(g, target, None, cost, reduction)
    alpha = alpha.to(g.dtype)
    loss, slope = plan.loss(g.detach(), alpha, 1.0 if share is None else share)
    loss = autograd.potential_loss(g, alpha, loss, slope, cost, share)
    return loss if share is not None else reduce_loss(loss, target, None, cost, reduction)


@full_precision
def smooth_scores(scores: Tensor, cost: Cost, *, dim: Dim = None) -> Tensor:
    r"""Smooth scores before the geometric softmax: means with weights :math:`e^{-C}`.

    Networks then train faster, to a lower loss. The geometric softmax inverts a kernel, so its loss
    is steep in rough directions of the scores and flat in smooth ones; without smoothing, scores
    first fit noise. Sinkhorn potentials are smooth, so smoothing loses nothing that matters. For
    the ordinary softmax it made little difference.

    Parameters
    ----------
    scores : Tensor, shape (*batch, *cost.shape)
        Finite. Mask outputs with ``-inf`` afterwards.
    cost : Cost
    dim : int or tuple of int, optional
        The axes of the outputs, as for `geometric_softmax`.

    Returns
    -------
    Tensor, the shape of scores

    Examples
    --------
    >>> import torch
    >>> from geosoftmax import LineCost, geometric_softmax, smooth_scores
    >>> cost = LineCost(4)
    >>> smooth = smooth_scores(torch.tensor([0.0, 8.0, 0.0, 4.0]), cost)
    >>> smooth
    tensor([2.0233, 4.5649, 2.3593, 3.2728])
    >>> geometric_softmax(smooth, cost)
    tensor([0.0000, 0.9079, 0.0000, 0.0921])
    """
    if dim is not None:
        axes = axes_of("scores", scores, cost, dim)
        return outputs_back(smooth_scores(outputs_last(scores, axes), cost), axes)
    check_signal("scores", scores, cost)
    check_finite(
        "scores", scores, "Smoothing would spread them. Smooth first, then mask with -inf."
    )
    check_learnt(cost)
    return autograd.average(computed(scores), cost).to(scores.dtype)
