"""Prop. 5, calibration, on a finite problem: 3 inputs, 4 possible targets each.

E(β) = E[D(α | β(x))],  R(g) = E[ℓ(α, g(x))],  β*, g* their minimisers
E(β*) = R(g*)  with  g* = ∇Ω ∘ β*                         (Fisher consistency)
E(∇Ω* ∘ g) - E(β*) ≤ R(g) - R(g*)  for all g               (excess of risk)
"""

import pytest
import torch

from geosoftmax import (
    geometric_logistic_loss,
    geometric_softmax,
    hausdorff_divergence,
    sinkhorn_potential,
)
from tests.paper.examples import COSTS, assert_close, draw_distributions, draw_scores, each

INPUTS, TARGETS = 3, 4


class Problem:
    """A distribution of (x, α): `weights` of shape (3, 4), `alpha` of (3, 4, *shape)."""

    def __init__(self, cost):
        self.cost = cost
        generator = torch.Generator().manual_seed(3)
        weights = torch.rand(INPUTS, TARGETS, dtype=torch.float64, generator=generator)
        self.weights = weights / weights.sum()
        drawn = draw_distributions(cost, n=INPUTS * TARGETS)
        self.alpha = drawn.reshape(INPUTS, TARGETS, *cost.shape)

    def _spread(self, signal):
        return signal[:, None].expand(self.alpha.shape)

    def hausdorff_risk(self, beta):
        divergence = hausdorff_divergence(self.alpha, self._spread(beta), self.cost)
        return (self.weights * divergence).sum()

    def loss_risk(self, g):
        loss = geometric_logistic_loss(self._spread(g), self.alpha, self.cost, reduction="none")
        return (self.weights * loss).sum()

    def bayes(self):
        """The mean of a Bregman divergence's first argument minimises over the second."""
        conditional = self.weights / self.weights.sum(1, keepdim=True)
        shape = (INPUTS, TARGETS, *[1] * len(self.cost.shape))
        return (conditional.reshape(shape) * self.alpha).sum(1)


@each()
def test_risks_agree_at_the_bayes_estimators(cost):
    problem = Problem(cost)
    best = problem.bayes()
    g = sinkhorn_potential(best, cost)
    assert_close(problem.hausdorff_risk(best), problem.loss_risk(g))
    assert_close(geometric_softmax(g, cost), best, atol=1e-9)


@each()
def test_bayes_estimators_minimise_the_risks(cost):
    problem = Problem(cost)
    best = problem.bayes()
    g = sinkhorn_potential(best, cost)
    lowest = problem.hausdorff_risk(best)
    for seed in range(10):
        for t in (1e-2, 0.3, 1.0):
            other = (1 - t) * best + t * draw_distributions(cost, n=INPUTS, seed=seed)
            assert float(problem.hausdorff_risk(other)) > float(lowest)
            moved = g + t * draw_scores(cost, n=INPUTS, seed=seed)
            assert float(problem.loss_risk(moved)) > float(lowest)


@each()
def test_excess_of_risk(cost):
    problem = Problem(cost)
    best = problem.bayes()
    lowest = problem.hausdorff_risk(best)
    g_best = sinkhorn_potential(best, cost)
    strict = 0
    for seed in range(20):
        g = g_best + (0.1 + seed / 5) * draw_scores(cost, n=INPUTS, spread=1.0, seed=seed)
        excess = problem.hausdorff_risk(geometric_softmax(g, cost)) - lowest
        surrogate = problem.loss_risk(g) - problem.loss_risk(g_best)
        assert float(excess) <= float(surrogate) + 1e-10
        strict += float(excess) < float(surrogate) - 1e-3
    assert strict > 5


@pytest.mark.parametrize("name", ["zero-one", "line p=1", "grid", "dense"])
def test_minimising_the_loss_finds_the_bayes_estimator(name):
    cost = COSTS[name]
    problem = Problem(cost)
    g = torch.zeros(INPUTS, *cost.shape, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [g],
        max_iter=100,
        tolerance_grad=1e-9,
        tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )

    def closure():
        optimiser.zero_grad()
        risk = problem.loss_risk(g)
        risk.backward()
        return risk

    optimiser.step(closure)
    found = geometric_softmax(g.detach(), cost)
    assert_close(found, problem.bayes(), atol=1e-5)
    assert_close(problem.loss_risk(g).detach(), problem.hausdorff_risk(problem.bayes()), atol=1e-8)
