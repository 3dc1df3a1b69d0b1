"""Lemma 1, inversion of the Sinkhorn potentials, and eq. (translation).

∀ α,      ∇Ω* ∘ ∇Ω(α) = α
∀ f ∈ F,  ∇Ω ∘ ∇Ω*(f) = f,  Ω*(f) = 0            F = {∇Ω(α)}
Ω*(f + c) = Ω*(f) + c,  ∇Ω*(f + c) = ∇Ω*(f)       (translation)
"""

import pytest
import torch

from geosoftmax import geometric_logsumexp, geometric_softmax, sinkhorn_potential
from tests.paper.examples import (
    COSTS,
    assert_close,
    draw_distributions,
    draw_scores,
    each,
)


@each()
def test_softmax_inverts_the_potential(cost):
    alpha = draw_distributions(cost)
    assert_close(geometric_softmax(sinkhorn_potential(alpha, cost), cost), alpha, atol=1e-9)


@each()
def test_potential_inverts_the_softmax_on_potentials(cost):
    f = sinkhorn_potential(draw_distributions(cost), cost)
    assert_close(sinkhorn_potential(geometric_softmax(f, cost), cost), f, atol=1e-8)


@each()
def test_conjugate_vanishes_on_potentials(cost):
    f = sinkhorn_potential(draw_distributions(cost), cost)
    value = geometric_logsumexp(f, cost)
    assert_close(value, torch.zeros_like(value))


def test_level_set_holds_more_than_potentials():
    """The inclusion of F in the 0-level set of Ω* is strict."""
    cost = COSTS["line p=1"]
    f = draw_scores(cost, spread=4.0)
    f = f - geometric_logsumexp(f, cost)[:, None]
    value = geometric_logsumexp(f, cost)
    assert_close(value, torch.zeros_like(value))
    again = sinkhorn_potential(geometric_softmax(f, cost), cost)
    assert float((again - f).abs().max()) > 0.1


@each()
@pytest.mark.parametrize("c", [-1e3, 0.7, 50.0])
def test_translation(cost, c):
    f = draw_scores(cost)
    atol = 1e-13 * abs(c) + 1e-11
    shifted = geometric_logsumexp(f + c, cost)
    assert_close(shifted, geometric_logsumexp(f, cost) + c, atol=atol)
    assert_close(geometric_softmax(f + c, cost), geometric_softmax(f, cost), atol=10 * atol)
