"""Fenchel-Young losses without geometry: cross-entropy, sparsemax, 1.5-entmax.

``ℓ(α, f) = Ω*(f) + Ω(α) - ⟨α, f⟩`` for an entropy ``Ω``: Shannon's, Gini's, and Tsallis' of order
1.5. All are convex, and their links recover the distribution at the optimum.
"""

from __future__ import annotations

import entmax
import torch
from torch import Tensor

from geosoftmax_experiments.rivals.targets import as_distributions

__all__ = ["cross_entropy", "entmax15_loss", "sparsemax_loss"]


def cross_entropy(scores: Tensor, target: Tensor) -> Tensor:
    """``log Σ exp f - ⟨α, f⟩``; its link is the softmax.

    Of distributions it is the cross-entropy, which is not 0 at the optimum but the entropy of the
    target.
    """
    alpha = as_distributions(target, scores)
    return torch.logsumexp(scores, -1) - (alpha * scores).sum(-1)


def sparsemax_loss(scores: Tensor, target: Tensor) -> Tensor:
    """``½ ‖α - f‖² - ½ ‖sparsemax(f) - f‖²``; its link is the sparsemax (Martins, Astudillo)."""
    alpha = as_distributions(target, scores)
    nearest = entmax.sparsemax(scores, dim=-1)
    return ((alpha - scores) ** 2).sum(-1) / 2 - ((nearest - scores) ** 2).sum(-1) / 2


def entmax15_loss(scores: Tensor, target: Tensor) -> Tensor:
    """``Ω*(f) + Ω(α) - ⟨α, f⟩``, ``Ω(α) = 4/3 (Σ α^1.5 - 1)``; its link is the 1.5-entmax."""
    alpha = as_distributions(target, scores)
    with torch.no_grad():  # by the envelope theorem, no gradient flows through the maximiser
        best = entmax.entmax15(scores, dim=-1)
    conjugate = (best * scores).sum(-1) - _tsallis(best)
    return conjugate + _tsallis(alpha) - (alpha * scores).sum(-1)


def _tsallis(alpha: Tensor) -> Tensor:
    return 4 / 3 * ((alpha**1.5).sum(-1) - 1)
