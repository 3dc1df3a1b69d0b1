"""What calls take besides signals: options, rules of decisions, class indices and reductions."""

from __future__ import annotations

import math
import numbers
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from geosoftmax.validation.reading import is_readable
from geosoftmax.validation.signals import format_dim

if TYPE_CHECKING:
    from geosoftmax.costs.base import Cost


REDUCTIONS = ("none", "mean", "sum")
#: The rules of a decision.
RULES = ("mode", "median", "mean", "cost")


def check_options(tol: float | None, max_iter: int | None) -> None:
    """Check solver options."""
    if tol is not None and not (isinstance(tol, (int, float)) and tol > 0 and math.isfinite(tol)):
        raise ValueError(f"tol must be a positive number; got {tol!r}.")
    if max_iter is not None and (isinstance(max_iter, bool) or not isinstance(max_iter, int)):
        raise TypeError(f"max_iter must be an integer; got {max_iter!r}.")
    if max_iter is not None and max_iter < 1:
        raise ValueError(f"max_iter must be at least 1; got {max_iter}.")


def check_rule(rule: str, cost: Cost) -> None:
    """Check the rule of a decision. Medians and means need outputs on a line or a grid."""
    if rule not in RULES:
        raise ValueError(f"rule must be one of {', '.join(RULES)}; got {rule!r}.")
    if rule in ("median", "mean") and any(axis.positions is None for axis in cost.factors):
        raise ValueError(
            f"the {rule} is not defined for {cost!r}: its outputs have no positions on a line or a "
            "grid. Use rule='cost', which returns the output of least expected cost. On a tree, it "
            "is the median."
        )


def check_index_shape(target: Tensor, scores: Tensor, cost: Cost, dim: Any) -> None:
    """Check that there is one class index per sample, on the device of the scores.

    With several batch axes, `dim` is required, because torch's losses have another layout.
    """
    leading = scores.dim() - len(cost.shape)
    batch = scores.shape[:leading]
    if leading > 1 and dim is None and target.dim() == leading:
        _ask_for_dim(scores, cost)
    if target.shape != batch:
        remedy = "For distributions, pass a floating-point target with the shape of scores."
        if target.shape == scores.shape:
            remedy = "If it holds distributions or one-hot rows, pass target.float()."
        elif target.shape == (*batch, 1):
            remedy = "Pass target.squeeze(-1)."
        raise ValueError(
            f"class-index target must have shape {tuple(batch)}, the batch shape of scores "
            f"{tuple(scores.shape)}; got {tuple(target.shape)}. {remedy}"
        )
    if target.device != scores.device:
        raise ValueError(
            f"target is on {target.device} but scores are on {scores.device}. Move one of them."
        )


def _ask_for_dim(scores: Tensor, cost: Cost) -> None:
    """Explain both layouts of class indices with several batch axes: ours, and that of torch."""
    n = len(cost.shape)
    letters = [chr(ord("i") + k) for k in range(scores.dim() - n)]
    outputs = [":"] * n
    sample = f"target[{', '.join(letters)}] belongs to scores"
    last, second = tuple(range(-n, 0)), tuple(range(1, n + 1))
    ways = f"dim={format_dim(last)}: {sample}[{', '.join(letters + outputs)}]."
    if tuple(scores.shape[1 : n + 1]) == cost.shape:
        ways += (
            f" dim={format_dim(second)}, as in torch.nn.CrossEntropyLoss: "
            f"{sample}[{', '.join(letters[:1] + outputs + letters[1:])}]."
        )
    raise ValueError(
        f"class indices with {len(letters)} batch axes need dim, the axes of scores "
        f"{tuple(scores.shape)} that hold the outputs of {cost!r}. {ways}"
    )


def check_not_floating_indices(
    target: Tensor, scores: Tensor, axes: tuple[int, ...], name: str = "scores"
) -> None:
    """Refuse class indices in a floating dtype: one number per sample, or a column of them.

    `axes` are those of the outputs, counted from 0.
    """
    shape, given = tuple(scores.shape), tuple(target.shape)
    batch = tuple(size for k, size in enumerate(shape) if k not in axes)
    if given == batch:
        remedy = "target.long()"
    elif given == (*batch, 1):
        remedy = "target.squeeze(-1).long()"
    elif len(axes) == 1 and given == (*batch[: axes[0]], 1, *batch[axes[0] :]):
        remedy = f"target.squeeze({axes[0]}).long()"
    else:
        return
    if given != shape:
        raise ValueError(
            f"target has shape {given} and dtype {target.dtype}, but class indices are expected as "
            f"integers of shape {batch}: pass {remedy}. Distributions are expected with the shape "
            f"of {name}, {shape}."
        )


def check_class_indices(
    target: Tensor, scores: Tensor, cost: Cost, ignore_index: int | None, dim: Any
) -> None:
    """Check integer targets: one index per sample, within the number of outputs."""
    check_index_shape(target, scores, cost, dim)
    if not is_readable(target) or target.numel() == 0:
        return
    valid = target if ignore_index is None else target[target != ignore_index]
    if valid.numel() == 0:
        return
    low, high, d = int(valid.min()), int(valid.max()), math.prod(cost.shape)
    if low < 0 or high >= d:
        raise ValueError(
            f"class indices must lie in 0…{d - 1} for {cost!r}; got {low}…{high}. "
            "Indices count outputs from 0, and row by row on a grid."
        )


def are_classes(target: Tensor, cost: Cost, dim: int | tuple[int, ...] | None = None) -> bool:
    """Return whether targets are single classes: indices or, if readable, one-hot rows."""
    if not target.is_floating_point():
        return True
    if target.numel() == 0 or not is_readable(target):
        return False
    axes = tuple(range(-len(cost.shape), 0)) if dim is None else dim
    return bool((target.detach().amax(axes) > 1 - 1e-6).all())


def check_reduction(reduction: str) -> None:
    """Check how a loss is reduced over the batch."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be one of {', '.join(REDUCTIONS)}; got {reduction!r}.")


def check_ignored(ignore_index: Any) -> None:
    """Check the class index that marks samples to leave out."""
    if isinstance(ignore_index, bool) or not isinstance(ignore_index, numbers.Integral):
        raise TypeError(
            f"ignore_index must be an integer; got {ignore_index!r}. The default is -100, which "
            "is no class."
        )


def check_smoothing(label_smoothing: float) -> None:
    """Check the share of the uniform distribution in a target."""
    try:
        valid = 0 <= label_smoothing <= 1
    except TypeError:
        raise TypeError(f"label_smoothing must be a number; got {label_smoothing!r}.") from None
    if not valid:
        raise ValueError(f"label_smoothing must lie in 0…1; got {label_smoothing}.")


def check_weight(weight: Any, cost: Cost) -> None:
    """Check the weights of the outputs in a loss."""
    if weight is None:
        return
    if not isinstance(weight, Tensor) or not weight.is_floating_point():
        kind = weight.dtype if isinstance(weight, Tensor) else type(weight).__name__
        raise TypeError(f"weight must be a floating-point torch.Tensor; got {kind}.")
    if tuple(weight.shape) != cost.shape:
        raise ValueError(f"weight must have shape {cost.shape}; got {tuple(weight.shape)}.")
    if is_readable(weight) and not bool((torch.isfinite(weight) & (weight >= 0)).all()):
        raise ValueError("weight must be finite and at least 0 for every output; got other values.")
