"""Losses for ordered classes that cut them in two at each threshold, or weigh by rank.

CORAL and CORN take ``d - 1`` logits, one for each question "is the label above k?". The decision
that belongs to both is how many answers are yes with probability above ½: the median.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from geosoftmax_experiments.rivals.targets import check_labels

__all__ = ["coral", "coral_link", "corn", "corn_link", "distance_weighted"]


def coral(logits: Tensor, target: Tensor) -> Tensor:
    """``-Σ_k log σ(±z_k)``, + where ``y > k``: all thresholds (Cao, Mirjalili, Raschka).

    Rank consistency, ``z_1 ≥ z_2 ≥ …``, comes from the layer below, which shares its weights among
    the thresholds.
    """
    above = _above(logits, target)
    return -(above * logsigmoid(logits) + (1 - above) * logsigmoid(-logits)).sum(-1)


def coral_link(logits: Tensor) -> Tensor:
    """Return the distribution whose ``P(y > k)`` is ``σ(z_k)``.

    Logits that rise are replaced by their running minimum: they are no distribution.
    """
    return _differences(torch.sigmoid(logits).cummin(-1).values)


def corn(logits: Tensor, target: Tensor) -> Tensor:
    """``-Σ_{k ≤ y} log σ(±z_k)``: ``σ(z_k) = P(y > k | y ≥ k)`` (Shi, Cao, Raschka).

    Questions whose condition does not hold for a sample are left out.
    """
    above = _above(logits, target)
    asked = torch.arange(logits.shape[-1], device=logits.device) <= target[..., None]
    terms = above * logsigmoid(logits) + (1 - above) * logsigmoid(-logits)
    return -(terms * asked).sum(-1)


def corn_link(logits: Tensor) -> Tensor:
    """Return the distribution with ``P(y > k) = Π_{j ≤ k} σ(z_j)``."""
    return _differences(torch.sigmoid(logits).cumprod(-1))


def distance_weighted(scores: Tensor, target: Tensor, power: float = 1.0) -> Tensor:
    """``-Σ_i |i - y|^power log(1 - softmax(f)_i)``: CDW-CE (Polat et al.). Not convex."""
    check_labels(target, scores, scores.shape[-1])
    ranks = torch.arange(scores.shape[-1], device=scores.device)
    weights = (ranks - target[..., None]).abs().to(scores.dtype) ** power
    # log(1 - p_i) = LSE of all others - LSE of all, without cancellation where p_i is near 1
    ends = torch.full_like(scores[..., :1], -torch.inf)
    before = torch.cat([ends, scores.logcumsumexp(-1)[..., :-1]], -1)
    after = torch.cat([scores.flip(-1).logcumsumexp(-1).flip(-1)[..., 1:], ends], -1)
    log_rest = torch.logaddexp(before, after) - torch.logsumexp(scores, -1, keepdim=True)
    return -(weights * log_rest).sum(-1)


def _above(logits: Tensor, target: Tensor) -> Tensor:
    """Return whether the label is above each threshold, as numbers."""
    check_labels(target, logits, logits.shape[-1] + 1)
    thresholds = torch.arange(logits.shape[-1], device=logits.device)
    return (target[..., None] > thresholds).to(logits.dtype)


def _differences(above: Tensor) -> Tensor:
    """Return the distribution with these ``P(y > k)``."""
    ends = torch.ones_like(above[..., :1]), torch.zeros_like(above[..., :1])
    return -torch.cat([ends[0], above, ends[1]], -1).diff(dim=-1)
