"""Convexity along segments, non-negativity, monotonicity, bounds."""

import torch
from hypothesis import given

from geosoftmax import (
    c_transform,
    extrapolate,
    geometric_logistic_loss,
    geometric_logsumexp,
    geometric_softmax,
    hausdorff_divergence,
    sinkhorn_negentropy,
)
from tests.generators import kernel
from tests.laws.strategies import cost_and, distributions, law, signals, unit
from tests.paper.examples import assert_close, dot, flat


def loss(f, alpha, cost):
    return geometric_logistic_loss(f, alpha, cost, reduction="none")


@law
@given(cost_and(signals, signals, distributions), unit)
def test_convexity_in_the_scores(drawn, t):
    cost, f, g, alpha = drawn
    mixed = (1 - t) * f + t * g
    chord = (1 - t) * geometric_logsumexp(f, cost) + t * geometric_logsumexp(g, cost)
    assert bool((geometric_logsumexp(mixed, cost) <= chord + 1e-11).all())
    chord = (1 - t) * loss(f, alpha, cost) + t * loss(g, alpha, cost)
    assert bool((loss(mixed, alpha, cost) <= chord + 1e-11).all())


@law
@given(cost_and(distributions, distributions, distributions), unit)
def test_convexity_in_the_distribution(drawn, t):
    cost, alpha, beta, other = drawn
    mixed = (1 - t) * alpha + t * beta
    chord = (1 - t) * sinkhorn_negentropy(alpha, cost) + t * sinkhorn_negentropy(beta, cost)
    assert bool((sinkhorn_negentropy(mixed, cost) <= chord + 1e-11).all())
    ends = [hausdorff_divergence(x, other, cost) for x in (alpha, beta)]
    between = hausdorff_divergence(mixed, other, cost)
    assert bool((between <= (1 - t) * ends[0] + t * ends[1] + 1e-11).all())


@law
@given(cost_and(signals, signals))
def test_conjugate_is_monotone_and_lipschitz(drawn):
    cost, f, g = drawn
    upper = torch.maximum(f, g)
    assert bool((geometric_logsumexp(upper, cost) >= geometric_logsumexp(f, cost) - 1e-12).all())
    inverse = torch.linalg.inv(kernel(cost))
    if bool((inverse - torch.diag(inverse.diag()) <= 1e-12).all()):  # an M-matrix: line, tree, …
        assert bool((extrapolate(upper, cost) >= extrapolate(f, cost) - 1e-9).all())
    apart = flat((f - g).abs(), cost).amax(-1)
    change = (geometric_logsumexp(f, cost) - geometric_logsumexp(g, cost)).abs()
    assert bool((change <= apart + 1e-12).all())


@law
@given(cost_and(signals))
def test_conjugate_lies_between_max_and_logsumexp(drawn):
    cost, f = drawn
    value, scores = geometric_logsumexp(f, cost), flat(f, cost)
    assert bool((value >= scores.amax(-1) - 1e-12).all())
    assert bool((value <= torch.logsumexp(scores, -1) + 1e-12).all())


@law
@given(cost_and(signals, signals))
def test_softmax_is_monotone(drawn):
    """⟨∇Ω*(f) - ∇Ω*(g), f - g⟩ ≥ 0."""
    cost, f, g = drawn
    change = geometric_softmax(f, cost) - geometric_softmax(g, cost)
    assert bool((dot(change, f - g, cost) >= -1e-9).all())


@law
@given(cost_and(distributions, distributions))
def test_divergence_is_not_negative(drawn):
    cost, alpha, beta = drawn
    divergence = hausdorff_divergence(alpha, beta, cost)
    same = (alpha == beta).flatten(1).all(1)
    assert bool((divergence >= 0).all())
    assert bool((divergence[~same] > 0).all())
    none = hausdorff_divergence(alpha, alpha, cost)
    assert_close(none, torch.zeros_like(none), atol=1e-12)
    both = hausdorff_divergence(alpha, beta, cost, symmetric=True)
    swapped = hausdorff_divergence(beta, alpha, cost)
    assert_close(both, (divergence + swapped) / 2)
    assert bool((divergence <= float(cost.matrix().max()) + 1e-12).all())


@law
@given(cost_and(signals, distributions))
def test_loss_bounds(drawn):
    """0 ≤ D(α | g-softmax(f)) ≤ ℓ(α, f), and ℓ vanishes at its own softmax."""
    cost, f, alpha = drawn
    value, predicted = loss(f, alpha, cost), geometric_softmax(f, cost)
    divergence = hausdorff_divergence(alpha, predicted, cost)
    assert bool((divergence <= value + 1e-10).all())
    zero = loss(f, predicted, cost)
    assert bool((zero >= 0).all())
    assert_close(zero, torch.zeros_like(zero))


@law
@given(cost_and(signals))
def test_class_index_is_a_one_hot_target(drawn):
    cost, f = drawn
    for y in range(cost.size):
        one_hot = torch.zeros(f.shape[0], cost.size, dtype=torch.float64)
        one_hot[:, y] = 1
        index = torch.full((f.shape[0],), y)
        by_index = loss(f, index, cost)
        assert_close(by_index, loss(f, one_hot.reshape(f.shape), cost))
        assert bool((by_index >= 0).all())


@law
@given(cost_and(signals, signals, distributions))
def test_c_transform_is_monotone(drawn):
    """Larger f, smaller T(f, α); and T(f + c, α) = T(f, α) - c."""
    cost, f, g, alpha = drawn
    upper = torch.maximum(f, g)
    assert bool((c_transform(upper, alpha, cost) <= c_transform(f, alpha, cost) + 1e-12).all())
    assert_close(c_transform(f + 3.5, alpha, cost), c_transform(f, alpha, cost) - 3.5)
