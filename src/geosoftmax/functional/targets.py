"""Targets of a loss: class indices or distributions, their weights, and the reduction."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from geosoftmax import autograd
from geosoftmax.costs.base import Cost
from geosoftmax.functional.axes import Dim
from geosoftmax.validation import (
    check_class_indices,
    check_not_floating_indices,
    check_same_shape,
    check_smoothing,
    check_weight,
    is_concrete,
)


@dataclasses.dataclass(frozen=True)
class Target:
    """Class indices, or distributions; which samples count (None: all); the dtype of the input."""

    indices: Tensor | None
    alpha: Tensor | None
    counted: Tensor | None
    dtype: torch.dtype


def read_target(
    target: Any,
    scores: Tensor,
    cost: Cost,
    *,
    dim: Dim,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
) -> Target:
    """Distinguish class indices from distributions, check them, and smooth them.

    The outputs are last here. `dim` is the caller's argument, None if it was not given.
    """
    check_smoothing(label_smoothing)
    if not isinstance(target, Tensor):
        raise TypeError(
            f"target must be a torch.Tensor; got {type(target).__name__}. "
            "Convert it with torch.as_tensor(target)."
        )
    if target.is_floating_point():
        outputs = tuple(range(scores.dim() - len(cost.shape), scores.dim()))
        check_not_floating_indices(target, scores, outputs)
        check_same_shape("target", target, "scores", scores)
        mixed = _smooth(target, label_smoothing, cost)
        return Target(None, mixed, None, target.dtype)
    if target.dtype == torch.bool or target.is_complex():
        raise TypeError(
            f"target must hold class indices (integers) or distributions; got {target.dtype}."
        )
    indices = target.long()
    check_class_indices(indices, scores, cost, ignore_index, dim)
    counted = None
    if ignore_index is not None:
        counted = indices != ignore_index
        indices = torch.where(counted, indices, 0)
    if label_smoothing == 0:
        return Target(indices, None, counted, scores.dtype)
    one_hot = torch.nn.functional.one_hot(indices, cost.size).to(torch.float64)
    mixed = _smooth(one_hot.reshape(*indices.shape, *cost.shape), label_smoothing, cost)
    return Target(None, mixed, counted, scores.dtype)


def is_plain_index(target: Any, f: Tensor, cost: Cost) -> bool:
    """Return whether a target is class indices, and only the scores may need derivatives."""
    if not isinstance(target, Tensor) or target.dtype != torch.int64:
        return False
    parameter = cost.parameter
    if parameter.requires_grad and torch.is_grad_enabled():
        return False
    return is_concrete(f, target, parameter) and not autograd.is_forward_mode()


def share_of(
    f: Tensor, target: Target, weight: Tensor | None, cost: Cost, reduction: str
) -> float | None:
    """Return the weight of each sample in a plain mean or sum; None for other reductions."""
    if reduction == "none" or weight is not None or target.counted is not None:
        return None
    return cost.size / f.numel() if reduction == "mean" else 1.0


def reduce_loss(
    loss: Tensor, target: Target, weight: Tensor | None, cost: Cost, reduction: str
) -> Tensor:
    """Reduce with weights: a sample has weight ``Σ_y target_y weight_y``, or 0 if ignored."""
    check_weight(weight, cost)
    weights = None if target.counted is None else target.counted.to(loss.dtype)
    if weight is not None:
        of_sample = _weight_of(target, weight.to(loss.dtype), cost)
        weights = of_sample if weights is None else of_sample * weights
    if weights is not None:
        loss = torch.where(weights == 0, 0.0, loss * weights)
    if reduction == "none":
        return loss
    if reduction == "sum":
        return loss.sum()
    return loss.mean() if weights is None else loss.sum() / weights.sum()


def _weight_of(target: Target, weight: Tensor, cost: Cost) -> Tensor:
    if target.indices is not None:
        return weight.reshape(-1)[target.indices]
    assert target.alpha is not None
    dims = tuple(range(-len(cost.shape), 0))
    return (target.alpha.to(weight.dtype) * weight).sum(dims)


def _smooth(alpha: Tensor, label_smoothing: float, cost: Cost) -> Tensor:
    if label_smoothing == 0:
        return alpha
    return (1 - label_smoothing) * alpha.to(torch.float64) + label_smoothing / cost.size
