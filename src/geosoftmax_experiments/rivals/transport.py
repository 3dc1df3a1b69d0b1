"""Distances between distributions that know the geometry, and losses made of them by a softmax.

None of the losses is convex in the scores: the softmax breaks it.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from geosoftmax.costs.base import Cost
from geosoftmax.costs.traits import Tree
from geosoftmax_experiments.rivals.targets import as_distributions, of_label

__all__ = [
    "energy_distance",
    "energy_softmax",
    "ranked_probability_score",
    "sinkhorn_distance",
    "squared_emd",
    "squared_emd_softmax",
    "wasserstein",
    "wasserstein_softmax",
]


# ------------------------------------------------------------------ Wasserstein


def wasserstein(alpha: Tensor, beta: Tensor, cost: Cost, epsilon: float = 0.01) -> Tensor:
    """Return the optimal transport cost of distributions, of shape (n, d) each.

    On lines (with p = 1), trees and zero-one costs it is exact, ``Σ length · |flow|`` over the
    edges. Other costs take `sinkhorn_distance`, with `epsilon` relative to the largest cost.
    """
    if cost.structure == "equal":
        largest = cost.matrix().max().to(beta.dtype)
        return largest * (alpha - beta).abs().sum(-1) / 2
    if cost.structure == "line":
        gaps = 2 * cost.as_line().gaps[1:].to(beta.dtype)  # K = exp(-C/2)
        return (gaps * (alpha - beta).cumsum(-1)[..., :-1].abs()).sum(-1)
    if cost.structure == "tree":
        tree = cost.as_tree()
        below = _sums_below(alpha - beta, tree)
        lengths = -2 * torch.log(tree.r[1:]).to(beta.dtype)
        return (lengths * below[..., 1:].abs()).sum(-1)
    return sinkhorn_distance(alpha, beta, cost, epsilon * float(cost.matrix().max()))


def wasserstein_softmax(
    scores: Tensor, target: Tensor, cost: Cost, epsilon: float = 0.01
) -> Tensor:
    """``OT_C(α, softmax(f))`` (Frogner et al.).

    For labels all mass goes to one place, so it is the expected cost ``⟨C_y, softmax(f)⟩``,
    exactly and for every cost.
    """
    beta = torch.softmax(scores, -1)
    if not target.is_floating_point():
        as_distributions(target, scores)
        return of_label(cost.expected(beta), target)
    return wasserstein(as_distributions(target, scores), beta, cost, epsilon)


def sinkhorn_distance(
    alpha: Tensor, beta: Tensor, cost: Cost, epsilon: float, max_iter: int = 2000
) -> Tensor:
    """``min_π ⟨π, C⟩ + ε KL(π | α ⊗ β)`` for marginals ``α`` and ``β``, by Sinkhorn's iterations.

    Differentiable in both: by the envelope theorem the potentials are the gradients. It stops once
    no potential moves by more than 1e-9 times ε, and says so if that does not happen.
    """
    if not epsilon > 0:
        raise ValueError(f"epsilon must be positive; got {epsilon}.")
    C = cost.matrix().to(beta.dtype) / epsilon
    with torch.no_grad():
        log_alpha, log_beta = alpha.log(), beta.log()
        f, g = torch.zeros_like(alpha), torch.zeros_like(beta)
        for _ in range(max_iter):
            new = -torch.logsumexp((g + log_beta)[..., None, :] - C, -1)
            g = -torch.logsumexp((new + log_alpha)[..., None, :] - C, -1)
            moved, f = float((new - f).abs().max()), new
            if moved <= 1e-9:
                break
        else:
            raise RuntimeError(
                f"Sinkhorn's potentials still move by {moved:.1e} after {max_iter} iterations; "
                "raise epsilon or max_iter."
            )
    return epsilon * ((alpha * f).sum(-1) + (beta * g).sum(-1))


def _sums_below(signal: Tensor, tree: Tree) -> Tensor:
    """Return the sum of a signal over each node of a tree and all that is below it."""
    nodes = signal.new_zeros(*signal.shape[:-1], len(tree.parents))
    nodes = nodes.index_add(-1, tree.outputs, signal)
    for start, end in reversed(list(itertools.pairwise(tree.levels[1:]))):
        nodes = nodes.index_add(-1, tree.parents[start:end], nodes[..., start:end])
    return nodes


# ------------------------------------------------------------------ cumulative distributions


def squared_emd(alpha: Tensor, beta: Tensor) -> Tensor:
    """``Σ_k (A_k - B_k)²`` of the cumulative distributions (Hou, Yu, Samaras)."""
    return ((alpha - beta).cumsum(-1)[..., :-1] ** 2).sum(-1)


def squared_emd_softmax(scores: Tensor, target: Tensor) -> Tensor:
    """The squared EMD of a softmax; for labels it is the ranked probability score."""
    return squared_emd(as_distributions(target, scores), torch.softmax(scores, -1))


def ranked_probability_score(beta: Tensor, target: Tensor) -> Tensor:
    """``Σ_k (B_k - 1[y ≤ k])²`` of predicted distributions; strictly proper."""
    return squared_emd(as_distributions(target, beta), beta)


# ------------------------------------------------------------------ energy


def energy_distance(alpha: Tensor, beta: Tensor, cost: Cost) -> Tensor:
    """``2 αᵀCβ - αᵀCα - βᵀCβ``: twice the CRPS on a line with p = 1 (Székely, Rizzo).

    With a squared cost it sees the means alone: ``2 (mean(α) - mean(β))²``.
    """
    return ((alpha - beta) * (cost.expected(beta) - cost.expected(alpha))).sum(-1)


def energy_softmax(scores: Tensor, target: Tensor, cost: Cost) -> Tensor:
    """The energy distance of a target and a softmax."""
    return energy_distance(as_distributions(target, scores), torch.softmax(scores, -1), cost)
