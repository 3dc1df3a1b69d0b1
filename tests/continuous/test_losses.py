"""Values, losses, potentials and divergences off the grid, and their gradients."""

import math

import pytest
import torch
from torch.autograd import gradcheck

import geosoftmax
from geosoftmax import DenseCost
from geosoftmax.continuous import (
    Box,
    Measure,
    PowerCost,
    geometric_logistic_loss,
    geometric_logsumexp,
    geometric_softmax,
    hausdorff_divergence,
    sinkhorn_negentropy,
    sinkhorn_potential,
)
from tests.continuous.examples import separated_spikes, unit_box

DOUBLE = torch.float64


def bumps(centres, heights):
    """Scores with a bump at each centre, of shapes (rows, n, dim) and (rows, n)."""

    def score(x):
        squared = (x[..., :, None, :] - centres[..., None, :, :]).square().sum(-1)
        return (heights[..., None, :] * torch.exp(-8 * squared)).sum(-1)

    return score


@pytest.mark.parametrize(("dim", "count"), [(1, 3), (2, 2)])
def test_gradients_of_the_value(dim, count):
    centres = torch.rand(2, count, dim, dtype=DOUBLE, requires_grad=True)
    heights = 4 + torch.rand(2, count, dtype=DOUBLE)
    scale = torch.tensor(15.0, dtype=DOUBLE, requires_grad=True)

    def value(centres, heights, scale):
        score = bumps(centres, heights)
        return geometric_logsumexp(score, unit_box(dim), PowerCost(scale=scale), tol=1e-12, grid=33)

    assert gradcheck(
        value, (centres, heights.requires_grad_(), scale), eps=1e-5, atol=1e-6, rtol=1e-5
    )


def test_gradients_of_the_loss():
    centres = torch.rand(2, 3, 1, dtype=DOUBLE, requires_grad=True)
    points = torch.rand(2, 4, 1, dtype=DOUBLE, requires_grad=True)
    logits = torch.randn(2, 4, dtype=DOUBLE, requires_grad=True)
    scale = torch.tensor(15.0, dtype=DOUBLE, requires_grad=True)

    def loss(centres, points, logits, scale):
        target = Measure(points, torch.softmax(logits, -1))
        return geometric_logistic_loss(
            bumps(centres, torch.full((2, 3), 5.0, dtype=DOUBLE)),
            target, Box(0, 1), PowerCost(scale=scale), tol=1e-12, grid=33,
        )  # fmt: skip

    assert gradcheck(loss, (centres, points, logits, scale), eps=1e-5, atol=1e-6, rtol=1e-5)


def test_gradient_with_respect_to_values_on_a_grid():
    """It is the measure minus the target, spread over the neighbours on the grid."""
    values = torch.randn(9, dtype=DOUBLE, requires_grad=True)
    target = Measure([[0.5]])
    loss = geometric_logistic_loss(values, target, Box(0, 1), PowerCost(scale=20.0))
    (slope,) = torch.autograd.grad(loss, values)
    assert float(slope.sum()) == pytest.approx(0.0, abs=1e-12)
    measure, _ = geometric_softmax(values.detach(), Box(0, 1), PowerCost(scale=20.0), tol=1e-6)
    nodes = torch.linspace(0, 1, 9, dtype=DOUBLE)  # Keys' weights reproduce linear functions
    assert float(slope @ nodes) == pytest.approx(float(measure.mean() - 0.5), abs=1e-6)


def test_loss_vanishes_at_the_potential_and_only_there():
    spikes, cost = separated_spikes(3, 5, 2, 0.2), PowerCost(scale=200.0)
    field = sinkhorn_potential(spikes, cost)
    domain = unit_box(2)
    loss = geometric_logistic_loss(field, spikes, domain, cost, reduction="none")
    assert loss.shape == (3,)
    assert float(loss.max()) < 1e-9
    other = separated_spikes(3, 5, 2, 0.2, seed=1)
    loss = geometric_logistic_loss(field, other, domain, cost, reduction="none")
    # equality in Prop. 4, since the score is a potential
    torch.testing.assert_close(loss, hausdorff_divergence(other, spikes, cost))
    assert float(loss.min()) > 0.01
    total = geometric_logistic_loss(field, other, domain, cost, reduction="sum")
    assert float(total) == pytest.approx(float(loss.sum()))


def test_a_score_learns_its_target():
    """Gradient descent on the loss: the measure moves to the target."""
    target = Measure([[[0.25]], [[0.7]]])
    centres = torch.full((2, 1, 1), 0.5, dtype=DOUBLE, requires_grad=True)
    heights = torch.full((2, 1), 4.0, dtype=DOUBLE)
    optimiser = torch.optim.SGD([centres], lr=0.02)
    for _ in range(40):
        optimiser.zero_grad()
        score = bumps(centres, heights)
        geometric_logistic_loss(score, target, Box(0, 1), PowerCost(scale=4.0), grid=33).backward()
        optimiser.step()
    torch.testing.assert_close(centres.detach(), target.points, rtol=0, atol=1e-3)


def test_sinkhorn_side_agrees_with_that_of_fixed_outputs():
    alpha, cost = separated_spikes(2, 6, 2, 0.1), PowerCost(p=1.5, scale=7.0)
    dense = DenseCost(cost.matrix(alpha.points, alpha.points))
    expected = geosoftmax.sinkhorn_negentropy(alpha.weights, dense)
    torch.testing.assert_close(sinkhorn_negentropy(alpha, cost), expected)
    field = sinkhorn_potential(alpha, cost)
    expected = geosoftmax.sinkhorn_potential(alpha.weights, dense)
    torch.testing.assert_close(field(alpha.points), expected)
    beta = Measure(alpha.points, alpha.weights.flip(-1))
    expected = geosoftmax.hausdorff_divergence(alpha.weights, beta.weights, dense)
    torch.testing.assert_close(hausdorff_divergence(alpha, beta, cost), expected)


def test_potential_is_differentiable_everywhere():
    cost = PowerCost(scale=6.0)
    points = torch.rand(3, 2, dtype=DOUBLE, requires_grad=True)
    logits = torch.randn(3, dtype=DOUBLE, requires_grad=True)
    x = 3 * torch.randn(4, 2, dtype=DOUBLE, requires_grad=True)

    def field(x, points, logits):
        return sinkhorn_potential(Measure(points, torch.softmax(logits, -1)), cost)(x)

    assert gradcheck(field, (x, points, logits))
    far = sinkhorn_potential(Measure([[0.0, 0.0]]), cost)(torch.tensor([[100.0, 0.0]]))
    assert float(far) == pytest.approx(-60000.0)


def test_divergence_of_ragged_measures():
    one, two = Measure([[0.0]]), Measure([[0.0], [0.4]], [0.9, 0.1])
    batch, swapped = Measure.stack([one, two]), Measure.stack([two, one])
    divergence = hausdorff_divergence(batch, swapped, PowerCost())
    alone = hausdorff_divergence(one, two, PowerCost())
    assert float(divergence[0]) == pytest.approx(float(alone), abs=1e-14)
    assert bool((divergence > 0).all())
    assert float(hausdorff_divergence(batch, batch, PowerCost()).max()) < 1e-12


@pytest.mark.parametrize(
    ("target", "error", "says"),
    [
        (Measure([[1.5]]), ValueError, "lie in the domain"),
        (Measure([[0.5, 0.5]]), ValueError, "2-D"),
        (Measure([[0.5]], [0.7]), ValueError, "must have mass 1"),
        (Measure([[[0.5]], [[0.6]]]), ValueError, "batch shape of the scores"),
        (torch.zeros(3), TypeError, "must be a Measure"),
    ],
)
def test_bad_targets(target, error, says):
    with pytest.raises(error, match=says):
        geometric_logistic_loss(lambda x: -x[..., 0], target, Box(0, 1), PowerCost())


def test_bad_arguments():
    good = Measure([[0.5]])
    with pytest.raises(ValueError, match="reduction"):
        geometric_logistic_loss(
            lambda x: -x[..., 0], good, Box(0, 1), PowerCost(), reduction="most"
        )
    with pytest.raises(ValueError, match="same batch shape"):
        hausdorff_divergence(good, Measure([[0.5, 0.5]]), PowerCost())
    with pytest.raises(ValueError, match="points must have shape"):
        sinkhorn_potential(good, PowerCost())(torch.zeros(3, 2))
    with pytest.raises(ValueError, match="mass 1"):
        sinkhorn_negentropy(Measure([[0.5]], [math.pi]), PowerCost())
