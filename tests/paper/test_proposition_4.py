"""Prop. 4: the loss is an upper bound of the Hausdorff divergence.

D(α | β) = Ω(α) - Ω(β) - ⟨∇Ω(β), α - β⟩                            (Bregman)
D(α | ∇Ω*(f)) = ℓ(α, f^E) = ℓ(α, f) - ⟨α, f^E - f⟩ ≤ ℓ(α, f)
with equality if supp ∇Ω*(f) = supp α
"""

import torch

from geosoftmax import (
    ZeroOneCost,
    extrapolate,
    geometric_logistic_loss,
    geometric_logsumexp,
    geometric_softmax,
    hausdorff_divergence,
    sinkhorn_negentropy,
    sinkhorn_potential,
)
from tests.paper.examples import assert_close, dot, draw_distributions, draw_scores, each


def loss(f, alpha, cost):
    return geometric_logistic_loss(f, alpha, cost, reduction="none")


@each()
def test_divergence_is_the_bregman_one(cost):
    alpha, beta = draw_distributions(cost), draw_distributions(cost, seed=8)
    slope = dot(sinkhorn_potential(beta, cost), alpha - beta, cost)
    bregman = sinkhorn_negentropy(alpha, cost) - sinkhorn_negentropy(beta, cost) - slope
    assert_close(hausdorff_divergence(alpha, beta, cost), bregman)
    swapped = hausdorff_divergence(beta, alpha, cost)
    both = hausdorff_divergence(alpha, beta, cost, symmetric=True)
    assert_close(both, (bregman + swapped) / 2)


@each()
def test_loss_is_the_fenchel_young_one(cost):
    f, alpha = draw_scores(cost), draw_distributions(cost)
    value = geometric_logsumexp(f, cost) + sinkhorn_negentropy(alpha, cost) - dot(alpha, f, cost)
    assert_close(loss(f, alpha, cost), value)


@each()
def test_loss_bounds_the_divergence(cost):
    f, alpha = draw_scores(cost), draw_distributions(cost)
    divergence = hausdorff_divergence(alpha, geometric_softmax(f, cost), cost)
    assert bool((divergence <= loss(f, alpha, cost) + 1e-10).all())
    assert bool((divergence < loss(f, alpha, cost) - 1e-3).any())


@each()
def test_divergence_is_the_loss_of_the_extrapolation(cost):
    f, alpha = draw_scores(cost), draw_distributions(cost)
    divergence = hausdorff_divergence(alpha, geometric_softmax(f, cost), cost)
    extended = extrapolate(f, cost)
    assert_close(divergence, loss(extended, alpha, cost), atol=1e-9)
    assert_close(divergence, loss(f, alpha, cost) - dot(alpha, extended - f, cost), atol=1e-9)


@each()
def test_equality_on_equal_supports(cost):
    f = draw_scores(cost)
    predicted = geometric_softmax(f, cost)
    weights = torch.where(predicted > 0, draw_distributions(cost, sparse=False), 0.0)
    alpha = weights / weights.flatten(1).sum(1).reshape(-1, *[1] * len(cost.shape))
    divergence = hausdorff_divergence(alpha, predicted, cost)
    assert float(divergence.max()) > 1e-2
    assert_close(divergence, loss(f, alpha, cost), atol=1e-9)


@each()
def test_loss_vanishes_only_at_the_softmax(cost):
    f = draw_scores(cost)
    predicted = geometric_softmax(f, cost)
    zero = loss(f, predicted, cost)
    assert_close(zero, torch.zeros_like(zero))
    assert bool((zero >= 0).all())
    assert bool((loss(f, draw_distributions(cost), cost) > 1e-4).all())


def test_shannon_case_is_kullback_leibler():
    """With the Shannon entropy (C → ∞ off the diagonal) both are KL(α | softmax(f))."""
    cost = ZeroOneCost(6) * 200
    f, alpha = draw_scores(cost), draw_distributions(cost)
    beta = torch.softmax(f, -1)
    kl = (torch.special.xlogy(alpha, alpha) - alpha * beta.log()).sum(-1)
    assert_close(hausdorff_divergence(alpha, beta, cost), kl)
    assert_close(loss(f, alpha, cost), kl)


@each()
def test_divergence_is_finite_on_disjoint_supports(cost):
    """D(δ_x | δ_y) = C(x, y)."""
    diracs = torch.eye(cost.size, dtype=torch.float64).reshape(-1, *cost.shape)
    moved = hausdorff_divergence(diracs, diracs.roll(1, 0), cost)
    expected = cost.matrix()[torch.arange(cost.size), torch.arange(cost.size) - 1]
    assert_close(moved, expected)
