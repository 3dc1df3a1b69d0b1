"""The losses that are compared, each with the distributions over leaves that its scores mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from geosoftmax import geometric_logistic_loss, geometric_softmax
from geosoftmax.costs.base import Cost
from geosoftmax_experiments.rivals.hierarchical import (
    Hierarchy,
    hierarchical_cross_entropy,
    hierarchical_log_softmax,
)

__all__ = ["Loss", "cross_entropy", "geometric", "hierarchical_softmax", "hxe", "soft"]


class Loss(NamedTuple):
    """A loss of class indices."""

    outputs: int  # scores of a sample
    mean: Callable[[Tensor, Tensor], Tensor]  # of scores and targets
    probabilities: Callable[[Tensor], Tensor]  # of leaves


def cross_entropy(classes: int) -> Loss:
    """Return that of logistic regression."""
    return Loss(classes, F.cross_entropy, _softmax)


def geometric(cost: Cost) -> Loss:
    """Return the geometric logistic loss."""
    return Loss(
        cost.size,
        lambda scores, target: geometric_logistic_loss(scores, target, cost),
        lambda scores: geometric_softmax(scores, cost),
    )


def hierarchical_softmax(hierarchy: Hierarchy) -> Loss:
    """Return that of a softmax among the children of each node; every node has a score."""
    return Loss(
        len(hierarchy.parents),
        lambda scores, target: F.nll_loss(hierarchical_log_softmax(scores, hierarchy), target),
        lambda scores: hierarchical_log_softmax(scores, hierarchy).exp(),
    )


def hxe(hierarchy: Hierarchy, decay: float) -> Loss:
    """Return the hierarchical cross-entropy."""
    return Loss(
        len(hierarchy.leaves),
        lambda scores, target: hierarchical_cross_entropy(scores, target, hierarchy, decay).mean(),
        _softmax,
    )


def soft(labels: Tensor) -> Loss:
    """Return the cross-entropy with a distribution (a row) for each label."""
    return Loss(
        len(labels), lambda scores, target: F.cross_entropy(scores, labels[target]), _softmax
    )


def _softmax(scores: Tensor) -> Tensor:
    return torch.softmax(scores, -1)
