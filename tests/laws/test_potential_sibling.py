"""The solver-free sibling: with v = exp(g/2) and f = 2 log(Kv), u = v solves (QP) exactly.

g-LSE(f) = log vᵀKv,  g-softmax(f) = v·Kv / vᵀKv,  ℓ(α, f) = D(α | g-softmax(f))
"""

import torch
from hypothesis import given

from geosoftmax import (
    extrapolate,
    geometric_logistic_loss,
    geometric_logsumexp,
    geometric_softmax,
    hausdorff_divergence,
    potential_logistic_loss,
    potential_softmax,
    sinkhorn_potential,
)
from tests.laws.strategies import cost_and, distributions, law, signals
from tests.paper.examples import assert_close, flat, kernel


def logits(cost):
    return signals(cost, low=-4.0, high=4.0)


def scores(g, cost):
    h = flat(torch.exp(g / 2), cost) @ kernel(cost)
    return 2 * torch.log(h).reshape(g.shape)


@law
@given(cost_and(logits))
def test_softmax_of_the_potential(drawn):
    cost, g = drawn
    f = scores(g, cost)
    assert_close(potential_softmax(g, cost), geometric_softmax(f, cost), atol=1e-8)
    v = flat(torch.exp(g / 2), cost)
    value = torch.log(torch.einsum("ni,ij,nj->n", v, kernel(cost), v))
    assert_close(geometric_logsumexp(f, cost), value)
    assert_close(extrapolate(f, cost), f)


@law
@given(cost_and(logits, distributions))
def test_loss_is_the_divergence(drawn):
    cost, g, alpha = drawn
    loss = potential_logistic_loss(g, alpha, cost, reduction="none")
    by_scores = geometric_logistic_loss(scores(g, cost), alpha, cost, reduction="none")
    assert_close(loss, by_scores)
    divergence = hausdorff_divergence(alpha, potential_softmax(g, cost), cost)
    assert_close(loss, divergence)
    assert bool((loss >= 0).all())


@law
@given(cost_and(logits))
def test_shift_of_the_logits(drawn):
    cost, g = drawn
    assert_close(potential_softmax(g + 5.0, cost), potential_softmax(g, cost), atol=1e-12)


@law
@given(cost_and(lambda cost: distributions(cost)))
def test_every_potential_is_reached(drawn):
    """g = 2 log v with v = α e^{-f/2} gives α back, where α has no zeros."""
    cost, alpha = drawn
    alpha = 0.9 * alpha + 0.1 / cost.size
    f = sinkhorn_potential(alpha, cost)
    g = 2 * torch.log(alpha) - f
    assert_close(potential_softmax(g, cost), alpha)
    y = torch.zeros(alpha.shape[0], dtype=torch.long)
    by_index = potential_logistic_loss(g, y, cost, reduction="none")
    assert_close(by_index, -flat(f, cost)[:, 0])
