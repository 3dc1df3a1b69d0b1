"""Definition, dual, gradient and convexity of Ω.

Ω(α) = -½ OT_{C,2}(α, α) = -½ min_π ⟨π, C⟩ + 2 KL(π | α ⊗ α)         (Sinkhorn negentropy)
-Ω(α) = max_f ⟨α, f⟩ - log⟨α ⊗ α, exp((f ⊕ f - C)/2)⟩                 (dual)
Ω(α + t(ξ₂ - ξ₁)) = Ω(α) + t⟨ξ₂ - ξ₁, ∇Ω(α)⟩ + o(t)                   (displacement)
f = ∇Ω(α) is the only function with -f = T(-f, α)
"""

import torch

from geosoftmax import c_transform, sinkhorn_negentropy, sinkhorn_potential
from tests.paper.examples import (
    assert_close,
    dot,
    draw_distributions,
    draw_scores,
    each,
    flat,
    kernel,
    quadratic,
)


def dual_objective(f, alpha, cost):
    weighted = flat(alpha * torch.exp(f / 2), cost)
    return dot(alpha, f, cost) - torch.log(quadratic(weighted, weighted, kernel(cost)))


@each()
def test_definition_by_the_optimal_plan(cost):
    """π = u ⊗ u · K with u = α e^{-f/2} is a coupling of α with itself, at the cost -2Ω(α)."""
    alpha = draw_distributions(cost)
    a = flat(alpha, cost)
    u = a * torch.exp(-flat(sinkhorn_potential(alpha, cost), cost) / 2)
    plan = u[:, :, None] * kernel(cost) * u[:, None, :]
    assert_close(plan.sum(1), a)
    outer = a[:, :, None] * a[:, None, :]
    ratio = torch.where(plan > 0, plan / outer, 1.0)
    transport = (plan * cost.matrix()).sum((1, 2)) + 2 * (plan * ratio.log()).sum((1, 2))
    assert_close(sinkhorn_negentropy(alpha, cost), -transport / 2)


@each()
def test_no_other_coupling_is_cheaper(cost):
    """The independent coupling α ⊗ α costs ⟨α ⊗ α, C⟩: Ω is at least minus half of that."""
    alpha = draw_distributions(cost)
    a = flat(alpha, cost)
    independent = quadratic(a, a, cost.matrix())
    assert bool((sinkhorn_negentropy(alpha, cost) >= -independent / 2 - 1e-12).all())


@each()
def test_dual_is_reached_at_minus_the_potential(cost):
    alpha = draw_distributions(cost)
    f = -sinkhorn_potential(alpha, cost)
    value = -sinkhorn_negentropy(alpha, cost)
    assert_close(dual_objective(f, alpha, cost), value)
    for seed in range(5):
        other = f + 0.3 * draw_scores(cost, seed=seed)
        assert bool((dual_objective(other, alpha, cost) <= value + 1e-12).all())


@each()
def test_potential_is_the_fixed_point_of_the_c_transform(cost):
    alpha = draw_distributions(cost)
    f = sinkhorn_potential(alpha, cost)
    assert_close(c_transform(-f, alpha, cost), -f)


@each()
def test_potential_extrapolates_from_the_support(cost):
    """f = -T(-g, α) for any g that is a dual solution α-almost everywhere."""
    alpha = draw_distributions(cost)
    f = sinkhorn_potential(alpha, cost)
    g = torch.where(alpha > 0, f, 7.0 * draw_scores(cost))
    assert_close(-c_transform(-g, alpha, cost), f)


@each()
def test_gradient_in_the_sense_of_measures(cost):
    """One-sided at the boundary: the next term is O(t²) inside, o(t) anywhere."""
    inner = draw_distributions(cost, sparse=False)
    towards, away = draw_distributions(cost, seed=5), inner
    slope = dot(towards - away, sinkhorn_potential(inner, cost), cost)

    def error(t):
        moved = sinkhorn_negentropy(inner + t * (towards - away), cost)
        return (moved - sinkhorn_negentropy(inner, cost) - t * slope).abs()

    assert bool((error(1e-4) < 1e-6).all())
    ratio = error(2e-3).sum() / error(1e-3).sum()
    assert 3.8 < ratio < 4.2


@each()
def test_negentropy_is_strictly_convex(cost):
    alpha, beta = draw_distributions(cost), draw_distributions(cost, seed=7)
    ends = sinkhorn_negentropy(torch.stack([alpha, beta]), cost)
    for t in (0.1, 0.5, 0.8):
        between = sinkhorn_negentropy((1 - t) * alpha + t * beta, cost)
        assert bool((between < (1 - t) * ends[0] + t * ends[1]).all())


@each()
def test_negentropy_is_continuous_at_the_boundary(cost):
    """Unlike its gradient in the Shannon case: mass t on a new point changes Ω by O(t)."""
    alpha = draw_distributions(cost)
    beta = draw_distributions(cost, seed=3)
    for t in (1e-3, 1e-6, 1e-9):
        change = sinkhorn_negentropy((1 - t) * alpha + t * beta, cost)
        bound = t * float(cost.matrix().max()) + 1e-13
        assert bool(((change - sinkhorn_negentropy(alpha, cost)).abs() <= bound).all())


@each()
def test_single_output_has_no_entropy(cost):
    """Ω(δ_y) = -C_yy/2 = 0, and ∇Ω(δ_y) = -C(y, ·)."""
    diracs = torch.eye(cost.size, dtype=torch.float64).reshape(-1, *cost.shape)
    assert_close(sinkhorn_negentropy(diracs, cost), torch.zeros(cost.size, dtype=torch.float64))
    assert_close(flat(sinkhorn_potential(diracs, cost), cost), -cost.matrix())
