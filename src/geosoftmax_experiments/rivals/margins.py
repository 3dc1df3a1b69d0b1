"""Cost-augmented losses: they read one row of the cost, that of the true label.

All are convex in the scores. They have no link: scores are no distribution, and the decision is
the largest score. In general that is not the decision of least expected cost, even with infinite
data: `tests/experiments/rivals/test_claims.py` shows where.
"""

from __future__ import annotations

import torch
from torch import Tensor

from geosoftmax.costs.base import Cost
from geosoftmax_experiments.rivals.targets import check_labels, of_label

__all__ = ["cost_augmented_hinge", "pairwise_hinge", "softmax_margin"]


def cost_augmented_hinge(scores: Tensor, target: Tensor, cost: Cost) -> Tensor:
    """``max_i C_yi + f_i - f_y``: structured SVM with margin rescaling (Tsochantaridis et al.)."""
    return (_rows(scores, target, cost) + scores).amax(-1) - of_label(scores, target)


def softmax_margin(scores: Tensor, target: Tensor, cost: Cost) -> Tensor:
    """``log Σ_i exp(C_yi + f_i) - f_y``: cost-augmented CRF (Gimpel and Smith)."""
    augmented = _rows(scores, target, cost) + scores
    return torch.logsumexp(augmented, -1) - of_label(scores, target)


def pairwise_hinge(scores: Tensor, target: Tensor, cost: Cost) -> Tensor:
    """``Σ_i C_yi max(0, 1 + f_i - f_y)``: cost-sensitive Weston and Watkins."""
    margins = (1 + scores - of_label(scores, target)[..., None]).clamp(min=0)
    return (_rows(scores, target, cost) * margins).sum(-1)


def _rows(scores: Tensor, target: Tensor, cost: Cost) -> Tensor:
    """Return the row ``C_y`` of each label."""
    check_labels(target, scores, cost.size)
    return cost.matrix().to(scores.dtype)[target]
