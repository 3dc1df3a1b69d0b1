"""Targets: labels, or distributions."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["as_distributions", "check_labels", "of_label"]


def as_distributions(target: Tensor, scores: Tensor) -> Tensor:
    """Return a target as distributions of the shape and dtype of the scores."""
    if target.is_floating_point():
        if target.shape != scores.shape:
            raise ValueError(
                f"target must hold labels of shape {tuple(scores.shape[:-1])}, or distributions of "
                f"shape {tuple(scores.shape)}, as the scores; got {tuple(target.shape)}."
            )
        return target.to(scores.dtype)
    check_labels(target, scores, scores.shape[-1])
    return torch.nn.functional.one_hot(target, scores.shape[-1]).to(scores.dtype)


def check_labels(target: Tensor, scores: Tensor, classes: int) -> None:
    """Refuse targets that are no labels 0, 1, …, `classes` - 1, one for each row of scores."""
    if target.is_floating_point() or target.shape != scores.shape[:-1]:
        raise ValueError(
            f"target must hold integer labels of shape {tuple(scores.shape[:-1])}; got "
            f"{target.dtype} of shape {tuple(target.shape)}. This loss takes no distributions."
        )
    if target.numel() and not 0 <= int(target.min()) <= int(target.max()) < classes:
        raise ValueError(
            f"labels must be 0 to {classes - 1}; got {int(target.min())} to {int(target.max())}."
        )


def of_label(values: Tensor, target: Tensor) -> Tensor:
    """Return the value at the label of each row."""
    return values.gather(-1, target[..., None])[..., 0]
