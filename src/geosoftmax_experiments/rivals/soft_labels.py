"""Cross-entropy with labels that are spread over their neighbours.

All are convex. The softmax recovers the *spread* distribution ``Sᵀp`` at the optimum, not ``p``;
decisions are its mode.
"""

from __future__ import annotations

import torch
from torch import Tensor

from geosoftmax.costs.base import Cost
from geosoftmax_experiments.rivals.entropies import cross_entropy
from geosoftmax_experiments.rivals.targets import as_distributions

__all__ = ["binomial_labels", "label_smoothing", "smoothed_labels", "soft_labels", "sord"]


def soft_labels(cost: Cost, tau: float) -> Tensor:
    """Return ``S = softmax(-C/τ)``, a row for each label (SORD, Díaz and Marathe).

    On a line with ``p = 1`` these are the exponential soft labels of dlordinal.
    """
    if not tau > 0:
        raise ValueError(f"tau must be positive; got {tau}.")
    return torch.softmax(-cost.matrix() / tau, -1)


def sord(scores: Tensor, target: Tensor, cost: Cost, tau: float = 1.0) -> Tensor:
    """Cross-entropy with the labels ``softmax(-C_y/τ)``."""
    return _spread(scores, target, soft_labels(cost, tau))


def smoothed_labels(classes: int, epsilon: float) -> Tensor:
    """Return ``S = (1 - ε) I + ε/d``."""
    if not 0 <= epsilon < 1:
        raise ValueError(f"epsilon must be at least 0 and below 1; got {epsilon}.")
    eye = torch.eye(classes, dtype=torch.float64)
    return (1 - epsilon) * eye + epsilon / classes


def label_smoothing(scores: Tensor, target: Tensor, epsilon: float = 0.1) -> Tensor:
    """Cross-entropy with the labels ``(1 - ε) δ_y + ε/d`` (Szegedy et al.)."""
    return _spread(scores, target, smoothed_labels(scores.shape[-1], epsilon))


def binomial_labels(classes: int) -> Tensor:
    """Return binomial soft labels (Liu et al.): ``S_yk = P(k)``, ``k ~ B(d - 1, q_y)``.

    ``q_y`` goes from 0.1 for the first label to 0.9 for the last, as in dlordinal.
    """
    q = torch.linspace(0.1, 0.9, classes, dtype=torch.float64)[:, None]
    counts = torch.arange(classes, dtype=torch.float64)
    trials = torch.distributions.Binomial(classes - 1, q)
    return trials.log_prob(counts).exp()


def _spread(scores: Tensor, target: Tensor, S: Tensor) -> Tensor:
    alpha = as_distributions(target, scores)
    return cross_entropy(scores, alpha @ S.to(scores))
