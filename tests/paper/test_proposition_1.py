"""Prop. 1, asymptotics of Sinkhorn negentropies, with the rate at which each limit is approached.

    ε Ω_{C/ε}(α) → ½⟨α ⊗ α, -C⟩           as ε → ∞
    Ω_{C/ε}(α)   → ⟨α, log α⟩              as ε → 0,  C = 1 - I
    ε Ω_{C/ε}(α) → ½(‖α‖² - 1)             as ε → ∞,  C = 1 - I

By the envelope theorem ∂Ω/∂C = -½π, the next terms are known too:
⟨α ⊗ α, C̃²⟩/(8ε) with C̃ the cost centred under α, and k((Σ√α)² - 1) with k = exp(-1/2ε).
"""

import math

import torch

from geosoftmax import ZeroOneCost, sinkhorn_negentropy
from tests.paper.examples import draw_distributions, each, flat, quadratic


def centred_square(a, C):
    """⟨α ⊗ α, C̃²⟩ for C̃ = C - C_x - C_y + C_xy, the means taken under α."""
    row = a @ C
    total = (row * a).sum(-1)
    centred = C - row[:, :, None] - row[:, None, :] + total[:, None, None]
    return torch.einsum("ni,nij,nj->n", a, centred.square(), a)


@each()
def test_kernel_norm_limit(cost):
    alpha = draw_distributions(cost)
    a, C = flat(alpha, cost), cost.matrix()
    limit = -quadratic(a, a, C) / 2
    coefficient = centred_square(a, C) / 8
    size = float(C.max())

    def error(epsilon):
        return epsilon * sinkhorn_negentropy(alpha, cost / epsilon) - limit

    epsilon = 1e3 * size
    torch.testing.assert_close(epsilon * error(epsilon), coefficient, rtol=2e-2, atol=1e-6)
    ratio = error(epsilon).sum() / error(10 * epsilon).sum()
    assert 9.9 < ratio < 10.1  # first order in 1/ε


def test_shannon_limit():
    cost = ZeroOneCost(6)
    alpha = draw_distributions(cost)
    shannon = torch.special.xlogy(alpha, alpha).sum(-1)
    coefficient = alpha.sqrt().sum(-1).square() - 1

    def error(k):
        return sinkhorn_negentropy(alpha, cost / (-0.5 / math.log(k))) - shannon

    torch.testing.assert_close(error(1e-5) / 1e-5, coefficient, rtol=1e-3, atol=1e-8)
    ratio = error(1e-4).sum() / error(1e-5).sum()
    assert 9.9 < ratio < 10.1  # first order in exp(-1/2ε): faster than any power of ε


def test_gini_limit():
    cost = ZeroOneCost(6)
    alpha = draw_distributions(cost)
    gini = (alpha.square().sum(-1) - 1) / 2
    coefficient = centred_square(alpha, cost.matrix()) / 8

    def error(epsilon):
        return epsilon * sinkhorn_negentropy(alpha, cost / epsilon) - gini

    torch.testing.assert_close(1e3 * error(1e3), coefficient, rtol=1e-2, atol=1e-6)
    ratio = error(1e3).sum() / error(2e3).sum()
    assert 1.99 < ratio < 2.01  # first order in 1/ε
