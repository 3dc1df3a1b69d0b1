"""The two ends of the zero-one cost, against those who compute them directly.

g-softmax_{C/ε}(f) → softmax(f) (ε → 0),     g-softmax_{C/ε}(f/ε) → sparsemax(f) (ε → ∞)
"""

import entmax
import numpy as np
import pytest
import scipy.special
import torch

from geosoftmax import (
    DenseCost,
    LineCost,
    ZeroOneCost,
    geometric_logistic_loss,
    geometric_logsumexp,
    geometric_softmax,
    sinkhorn_negentropy,
    sinkhorn_potential,
)

# Off the diagonal, exp(-C/2) is 4e-44: zero beside the rounding of 1.
FAR = [
    ZeroOneCost(7) * 200,
    LineCost(7) * 200,
    LineCost(7, p=2) * 200,
    DenseCost(200 - 200 * torch.eye(7, dtype=torch.float64)),
]
far_costs = pytest.mark.parametrize("cost", FAR, ids=repr)


def draw(spread=2.0, rows=50, d=7):
    return spread * torch.randn(rows, d, dtype=torch.float64)


@far_costs
def test_torch_softmax(cost):
    f = draw()
    torch.testing.assert_close(geometric_softmax(f, cost), torch.softmax(f, -1))


@far_costs
def test_scipy_logsumexp(cost):
    f = draw(spread=10.0)
    expected = torch.from_numpy(scipy.special.logsumexp(f.numpy(), axis=-1))
    torch.testing.assert_close(geometric_logsumexp(f, cost), expected)


@far_costs
def test_scipy_entropy(cost):
    alpha = torch.softmax(draw(), -1)
    entropy = torch.from_numpy(np.asarray(scipy.special.entr(alpha.numpy()).sum(-1)))
    torch.testing.assert_close(sinkhorn_negentropy(alpha, cost), -entropy)
    torch.testing.assert_close(sinkhorn_potential(alpha, cost), alpha.log())


@far_costs
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_torch_cross_entropy(cost, reduction):
    f = draw().requires_grad_()
    g = f.detach().clone().requires_grad_()
    y = torch.arange(50) % 7
    ours = geometric_logistic_loss(f, y, cost, reduction=reduction)
    theirs = torch.nn.functional.cross_entropy(g, y, reduction=reduction)
    torch.testing.assert_close(ours, theirs)
    ours.sum().backward()
    theirs.sum().backward()
    torch.testing.assert_close(f.grad, g.grad)


@far_costs
def test_torch_kl_divergence(cost):
    f, alpha = draw(), torch.softmax(draw(), -1)
    kl = torch.nn.functional.kl_div(torch.log_softmax(f, -1), alpha, reduction="batchmean")
    torch.testing.assert_close(geometric_logistic_loss(f, alpha, cost), kl)


@pytest.mark.parametrize("epsilon", [1e4, 1e6])
def test_entmax_sparsemax(epsilon):
    f = draw(spread=0.7)
    ours = geometric_softmax(f / epsilon, ZeroOneCost(7) / epsilon)
    theirs = entmax.sparsemax(f, dim=-1)
    assert float((ours - theirs).abs().max()) < 10 / epsilon
    clear = (theirs - 0).abs() > 100 / epsilon
    assert bool((ours[clear] > 0).all())
    assert bool((theirs == 0).any())
    assert bool((ours[(theirs == 0) & (f < f.amax(-1, keepdim=True) - 1)] == 0).all())


def test_entmax_sparsemax_loss():
    """entmax's loss is Ω*(f) + Ω(δ_y) - f_y for Ω = ½(‖·‖² - 1), as ours in the limit."""
    epsilon, f, y = 1e6, draw(spread=0.7), torch.arange(50) % 7
    ours = geometric_logistic_loss(f / epsilon, y, ZeroOneCost(7) / epsilon, reduction="none")
    theirs = entmax.SparsemaxLoss(reduction="none")(f, y)
    torch.testing.assert_close(epsilon * ours, theirs, rtol=0, atol=1e-4)


def test_jacobian_of_sparsemax():
    epsilon, f = 1e6, draw(spread=0.7, rows=1)[0]

    def ours(x):
        return geometric_softmax(x / epsilon, ZeroOneCost(7) / epsilon)

    theirs = torch.autograd.functional.jacobian(lambda x: entmax.sparsemax(x, dim=-1), f)
    jacobian = torch.autograd.functional.jacobian(ours, f)
    torch.testing.assert_close(jacobian, theirs, rtol=0, atol=1e-4)
