"""Lemma 2, first-order conditions: ∇Ω*(f) is the only distribution α with, for a constant A,

    (f(y) + T(-f, α)(y)) / 2 = A  for y in supp α,     ≤ A elsewhere.

The constant is A = Ω*(f) (the paper's text says 2Ω*(f); its proof gives Ω*(f)).
"""

import torch

from geosoftmax import c_transform, geometric_logsumexp, geometric_softmax
from tests.paper.examples import assert_close, draw_distributions, draw_scores, each, flat


def condition(f, alpha, cost):
    return flat((f + c_transform(-f, alpha, cost)) / 2, cost)


def violation(f, alpha, cost):
    """Distance from ``= A on the support, ≤ A elsewhere``, for the best A."""
    values = condition(f, alpha, cost)
    inside = flat(alpha, cost) > 0
    lowest = torch.where(inside, values, torch.inf).amin(-1)
    return values.amax(-1) - lowest


@each()
def test_softmax_meets_the_conditions(cost):
    f = draw_scores(cost)
    alpha = geometric_softmax(f, cost)
    assert bool((violation(f, alpha, cost) < 1e-10).all())


@each()
def test_constant_is_the_conjugate(cost):
    f = draw_scores(cost)
    alpha = geometric_softmax(f, cost)
    values = condition(f, alpha, cost)
    A = geometric_logsumexp(f, cost)[:, None].expand(values.shape)
    inside = flat(alpha, cost) > 0
    assert bool(inside.any(-1).all())
    assert bool((~inside).any())
    assert_close(values[inside], A[inside])
    assert bool((values <= A + 1e-10).all())


@each()
def test_no_other_distribution_meets_them(cost):
    f = draw_scores(cost)
    best = geometric_softmax(f, cost)
    for seed in range(5):
        other = draw_distributions(cost, seed=seed)
        for t in (1.0, 1e-2):
            mixed = (1 - t) * best + t * other
            assert bool((violation(f, mixed, cost) > 1e-5).all())
