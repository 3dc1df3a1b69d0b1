"""The geometric softmax against scipy's non-negative least squares.

With ``K = LLᵀ``, ``½uᵀKu - bᵀu`` is ``½‖Lᵀu - L⁻¹b‖²`` less a constant.
"""

import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
import torch

from geosoftmax import DenseCost, GridCost, LineCost, TreeCost, ZeroOneCost, extrapolate, solve
from tests.paper.examples import COSTS, each, flat, kernel


def oracle(scores, cost):
    """Return ``α``, ``g-LSE`` and ``f^E`` of flat rows, by nnls."""
    K = kernel(cost).numpy()
    L = scipy.linalg.cholesky(K, lower=True)
    alphas, values, envelopes = [], [], []
    for f in scores.numpy():
        b = np.exp((f - f.max()) / 2)
        u, _ = scipy.optimize.nnls(L.T, scipy.linalg.solve_triangular(L, b, lower=True))
        weighted = u * b
        alphas.append(weighted / weighted.sum())
        values.append(np.log(weighted.sum()) + f.max())
        envelopes.append(2 * np.log(K @ u) + f.max())
    return tuple(torch.from_numpy(np.array(x)) for x in (alphas, values, envelopes))


def check(cost, scores, tol=1e-8):
    solution = solve(scores, cost)
    alpha, value, envelope = oracle(flat(scores, cost), cost)
    variation = (flat(solution.alpha, cost) - alpha).abs().sum(-1) / 2
    assert float(variation.max()) <= tol
    assert bool((solution.lower <= value + 1e-12).all())
    assert bool((value <= solution.upper + 1e-12).all())
    assert float((flat(extrapolate(scores, cost), cost) - envelope).abs().max()) <= 10 * tol
    return solution


def random_scores(cost, rows, spread, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return spread * torch.randn(rows, *cost.shape, dtype=torch.float64, generator=generator)


@each()
@pytest.mark.parametrize("spread", [0.1, 1.0, 5.0])
def test_small_costs(cost, spread):
    solution = check(cost, random_scores(cost, 30, spread))
    assert float(solution.gap.max()) <= 1e-12


@pytest.mark.parametrize(
    "cost",
    [
        ZeroOneCost(41) * 0.7,
        LineCost(41),
        LineCost(torch.linspace(0, 1, 57).cumsum(0).double(), p=1),
        LineCost(41, p=2) / 2,
        LineCost(33, p=0.5),
        TreeCost([-1, *(k // 3 for k in range(60))], 0.7),
        GridCost((5, 7), p=1),
        GridCost((2, 3, 4), p=2) / 2,
        DenseCost.from_points(
            torch.randn(41, 4, generator=torch.Generator().manual_seed(2)).double()
        ),
    ],
    ids=repr,
)
def test_exact_methods_at_odd_sizes(cost):
    solution = check(cost, random_scores(cost, 10, 1.5))
    assert float(solution.gap.max()) <= 1e-12


@pytest.mark.parametrize("method", ["active_set", "splitting", "accelerated"])
def test_iterative_methods_agree(method):
    cost = COSTS["grid"]
    scores = random_scores(cost, 20, 1.5)
    alpha, _, _ = oracle(flat(scores, cost), cost)
    found = flat(solve(scores, cost, tol=1e-9, method=method).alpha, cost)
    assert float((found - alpha).abs().sum(-1).max()) / 2 <= 1e-8


def test_grid_beyond_the_exact_sizes():
    cost = GridCost((11, 13), p=2) / 2
    solution = check(cost, random_scores(cost, 4, 1.0), tol=1e-5)
    assert solution.method == "growing_set"
    assert bool(solution.converged.all())


def test_drawing_size():
    cost = GridCost((28, 28), p=2) / 2
    check(cost, random_scores(cost, 2, 1.0), tol=1e-5)


def test_masks():
    cost = COSTS["line p=2"]
    scores = random_scores(cost, 20, 2.0)
    scores[:, [0, 4]] = -torch.inf
    kept = [1, 2, 3, 5, 6]
    alpha, value, _ = oracle(scores[:, kept], DenseCost(cost.matrix()[kept][:, kept]))
    solution = solve(scores, cost)
    assert bool((solution.alpha[:, [0, 4]] == 0).all())
    torch.testing.assert_close(solution.alpha[:, kept], alpha, rtol=0, atol=1e-8)
    torch.testing.assert_close(solution.lower, value, rtol=0, atol=1e-12)
