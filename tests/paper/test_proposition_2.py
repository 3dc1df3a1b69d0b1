"""Prop. 2, the conjugate of the Sinkhorn negentropy, and its special cases.

Ω*(f) = max_α ⟨α, f⟩ - Ω(α)                                            (definition)
g-LSE(f)     = Ω*(f)  = -log min_α Φ(α, f)
g-softmax(f) = ∇Ω*(f) = argmin_α Φ(α, f)
Φ(α, f) = ⟨α ⊗ α, exp(-(f ⊕ f + C)/2)⟩
"""

import math

import pytest
import torch

from geosoftmax import (
    DenseCost,
    LineCost,
    ZeroOneCost,
    geometric_logistic_loss,
    geometric_logsumexp,
    geometric_softmax,
    sinkhorn_negentropy,
)
from tests.paper.examples import (
    TINY_COSTS,
    assert_close,
    dot,
    draw_distributions,
    draw_scores,
    each,
    flat,
    kernel,
    lattice,
    quadratic,
)


def phi(alpha, f, cost):
    weighted = flat(alpha * torch.exp(-f / 2), cost)
    return quadratic(weighted, weighted, kernel(cost))


@each(TINY_COSTS)
def test_conjugate_by_brute_force(cost):
    """No point of the simplex does better, and some point of a lattice nearly as well."""
    steps = 60 if cost.size == 3 else 30
    alphas = lattice(cost, steps)
    negentropy = sinkhorn_negentropy(alphas, cost)
    for f in draw_scores(cost, n=5, spread=1.0):
        value = float(geometric_logsumexp(f, cost))
        by_definition = dot(alphas, f, cost) - negentropy
        by_phi = -torch.log(phi(alphas, f, cost))
        for candidates in (by_definition, by_phi):
            assert float(candidates.max()) <= value + 1e-12
            assert float(candidates.max()) >= value - 20 / steps**2
        best = alphas[by_phi.argmax()]
        assert float((best - geometric_softmax(f, cost)).abs().max()) < 4 / steps


@each()
def test_conjugate_is_minus_log_min_phi(cost):
    f = draw_scores(cost)
    value = geometric_logsumexp(f, cost)
    best = geometric_softmax(f, cost)
    assert_close(-torch.log(phi(best, f, cost)), value)
    for seed in range(5):
        other = draw_distributions(cost, seed=seed)
        for t in (1.0, 0.1, 1e-3):
            assert bool((-torch.log(phi((1 - t) * best + t * other, f, cost)) < value).all())


@each()
def test_fenchel_young_equality(cost):
    """Ω*(f) + Ω(α) = ⟨α, f⟩ exactly at α = g-softmax(f), and is larger elsewhere."""
    f = draw_scores(cost)
    value = geometric_logsumexp(f, cost)
    best = geometric_softmax(f, cost)
    assert_close(dot(best, f, cost) - sinkhorn_negentropy(best, cost), value)
    other = draw_distributions(cost)
    assert bool((dot(other, f, cost) - sinkhorn_negentropy(other, cost) < value).all())


@each()
def test_softmax_is_the_gradient_of_the_conjugate(cost):
    f, direction = draw_scores(cost), draw_scores(cost, spread=1.0, seed=9)
    t = 1e-5
    ahead, behind = (geometric_logsumexp(f + s * direction, cost) for s in (t, -t))
    slope = dot(geometric_softmax(f, cost), direction, cost)
    assert_close((ahead - behind) / (2 * t), slope, atol=1e-7)


@each()
def test_softmax_is_a_distribution(cost):
    alpha = geometric_softmax(draw_scores(cost, spread=5.0), cost)
    assert bool((alpha >= 0).all())
    assert_close(flat(alpha, cost).sum(-1), torch.ones(20, dtype=torch.float64), atol=1e-14)


@each()
def test_conjugate_is_convex(cost):
    f, g = draw_scores(cost), draw_scores(cost, seed=4)
    ends = geometric_logsumexp(torch.stack([f, g]), cost)
    for t in (0.1, 0.5, 0.8):
        between = geometric_logsumexp((1 - t) * f + t * g, cost)
        assert bool((between <= (1 - t) * ends[0] + t * ends[1] + 1e-12).all())


# ------------------------------------------------------------------ special cases


def test_softmax_is_the_limit_of_large_costs():
    """C = 1 - I, ε → 0: g-softmax_{C/ε} → softmax at the rate k = exp(-1/2ε)."""
    cost = ZeroOneCost(6)
    f = draw_scores(cost)

    def error(k):
        return geometric_softmax(f, cost / (-0.5 / math.log(k))) - torch.softmax(f, -1)

    assert float(error(1e-6).abs().max()) < 1e-4
    ratio = error(1e-6).abs().sum() / error(1e-7).abs().sum()
    assert 9.8 < ratio < 10.2


def test_logistic_loss_is_the_limit_of_large_costs():
    """ε → 0: ℓ(α, f) → KL(α | softmax(f))."""
    cost = ZeroOneCost(6) * 200
    f, alpha = draw_scores(cost), draw_distributions(cost)
    divergence = torch.special.xlogy(alpha, alpha) - alpha * torch.log_softmax(f, -1)
    loss = geometric_logistic_loss(f, alpha, cost, reduction="none")
    assert_close(loss, divergence.sum(-1))


def sparsemax(f):
    """argmin ‖α - f‖² over the simplex."""
    ordered = f.sort(-1, descending=True).values
    count = torch.arange(1, f.shape[-1] + 1, dtype=f.dtype)
    tau = (ordered.cumsum(-1) - 1) / count
    kept = (ordered > tau).sum(-1, keepdim=True)
    return (f - tau.gather(-1, kept - 1)).clamp_min(0)


def test_sparsemax_is_the_limit_of_small_costs():
    """C = 1 - I, ε → ∞: g-softmax_{C/ε}(f/ε) → sparsemax(f) at the rate 1/ε."""
    cost = ZeroOneCost(6)
    f = draw_scores(cost, spread=0.5)

    def error(epsilon):
        return geometric_softmax(f / epsilon, cost / epsilon) - sparsemax(f)

    assert float(error(1e4).abs().max()) < 1e-3
    ratio = error(1e4).abs().sum() / error(2e4).abs().sum()
    assert 1.99 < ratio < 2.01


def test_sparsemax_loss_is_the_limit_of_small_costs():
    """ε ℓ_{C/ε}(α, f/ε) → ½‖α - f‖² - ½‖sparsemax(f) - f‖², the Fenchel–Young loss of ½‖·‖²."""
    cost, epsilon = ZeroOneCost(6), 1e5
    f, alpha = draw_scores(cost, spread=0.5), draw_distributions(cost)
    loss = geometric_logistic_loss(f / epsilon, alpha, cost / epsilon, reduction="none")
    squared = (alpha - f).square().sum(-1) - (sparsemax(f) - f).square().sum(-1)
    assert_close(epsilon * loss, squared / 2, atol=1e-4)


@pytest.mark.parametrize(
    "cost", [LineCost(3), LineCost(3, p=2), DenseCost.from_points([0.0, 1.0, 1.7], p=1.5)]
)
def test_deconvolution_is_the_limit_of_small_costs(cost):
    """ε Ω*_{C/ε}(f/ε) → max_α ⟨α, f⟩ + ½⟨α ⊗ α, C⟩."""
    epsilon, steps = 1e5, 100
    alphas = lattice(cost, steps)
    reward = quadratic(alphas, alphas, cost.matrix()) / 2
    for f in draw_scores(cost, n=5, spread=0.7):
        best = float((dot(alphas, f, cost) + reward).max())
        value = epsilon * float(geometric_logsumexp(f / epsilon, cost / epsilon))
        assert best - 1e-4 <= value <= best + 4 / steps**2 + 1e-4
