"""Prop. 3, the extrapolation effect of ∇Ω ∘ ∇Ω*, and the lemma on the properties of f^E.

f^E = -T(-(f - Ω*(f)), ∇Ω*(f)) + Ω*(f)                     (definition)
∇Ω ∘ ∇Ω*(f) = f^E - Ω*(f)                                  (Prop. 3)
f ≤ f^E,  f = f^E on supp ∇Ω*(f)                           (lemma, i)
f^EE = f^E,  Ω*(f^E) = Ω*(f),  ∇Ω*(f^E) = ∇Ω*(f)           (lemma, ii)
"""

import torch

from geosoftmax import (
    c_transform,
    extrapolate,
    geometric_logsumexp,
    geometric_softmax,
    sinkhorn_potential,
)
from tests.paper.examples import assert_close, draw_scores, each, flat


def conjugate(f, cost):
    """Ω*(f), with the dimensions of a signal."""
    return geometric_logsumexp(f, cost).reshape(-1, *[1] * len(cost.shape))


@each()
def test_definition(cost):
    f = draw_scores(cost)
    level = conjugate(f, cost)
    by_transform = -c_transform(-(f - level), geometric_softmax(f, cost), cost) + level
    assert_close(extrapolate(f, cost), by_transform)


@each()
def test_potential_of_the_softmax(cost):
    f = draw_scores(cost)
    there_and_back = sinkhorn_potential(geometric_softmax(f, cost), cost)
    assert_close(there_and_back, extrapolate(f, cost) - conjugate(f, cost), atol=1e-9)


@each()
def test_lies_above(cost):
    f = draw_scores(cost)
    assert bool((extrapolate(f, cost) >= f).all())


@each()
def test_equals_on_the_support_and_only_there(cost):
    f = draw_scores(cost)
    inside = geometric_softmax(f, cost) > 0
    difference = extrapolate(f, cost) - f
    assert float(difference[inside].abs().max()) < 1e-10
    assert float(difference[~inside].min()) > 1e-8
    assert bool((~inside).flatten(1).any(1).any())


@each()
def test_is_idempotent(cost):
    once = extrapolate(draw_scores(cost), cost)
    assert_close(extrapolate(once, cost), once)


@each()
def test_keeps_the_conjugate(cost):
    f = draw_scores(cost)
    extended = geometric_logsumexp(extrapolate(f, cost), cost)
    assert_close(extended, geometric_logsumexp(f, cost))


@each()
def test_keeps_the_softmax(cost):
    f = draw_scores(cost)
    extended = geometric_softmax(extrapolate(f, cost), cost)
    assert_close(extended, geometric_softmax(f, cost), atol=1e-9)


@each()
def test_is_defined_where_scores_are_masked(cost):
    f = draw_scores(cost)
    masked = flat(f, cost).clone()
    masked[:, 1] = -torch.inf
    masked = masked.reshape(f.shape)
    extended = extrapolate(masked, cost)
    assert bool(torch.isfinite(extended).all())
    assert_close(geometric_softmax(extended, cost), geometric_softmax(masked, cost), atol=1e-9)
