"""Trees on a CPU: which outputs the first round leaves out, and both ways of elimination."""

import numpy as np
import pytest
import torch
from scipy.optimize import nnls

from geosoftmax import TreeCost, solve
from geosoftmax.backends.numba.tables import STIFF
from geosoftmax.solvers.plans import tree_tables


def random_tree(nodes: int, shortest: float, seed: int) -> TreeCost:
    """A tree whose nodes are all outputs, with edges from `shortest` on."""
    generator = torch.Generator().manual_seed(seed)
    earlier = (torch.rand(nodes - 1, generator=generator) * torch.arange(1, nodes)).long()
    lengths = shortest + torch.rand(nodes, generator=generator, dtype=torch.float64)
    return TreeCost(torch.cat([torch.tensor([-1]), earlier]), lengths)


def by_nnls(scores: torch.Tensor, cost: TreeCost) -> np.ndarray:
    """``u = argmin ½ uᵀKu - bᵀu`` by scipy, through the factor of K."""
    K = torch.exp(-cost.matrix() / 2)
    b = torch.exp((scores - scores.max()) / 2)
    factor = torch.linalg.cholesky(K)
    rhs = torch.linalg.solve_triangular(factor, b[:, None], upper=False)[:, 0]
    return nnls(factor.T.numpy(), rhs.numpy())[0]


@pytest.mark.parametrize(("shortest", "short"), [(0.5, False), (1e-3, True)])
def test_both_eliminations_agree_with_nnls(shortest, short):
    cost = random_tree(40, shortest, seed=3)
    assert tree_tables(cost).short is short
    scores = 2 * torch.randn(20, 40, dtype=torch.float64, generator=torch.manual_seed(0))
    found = solve(scores, cost)
    for row, u in zip(scores, found.u, strict=True):
        np.testing.assert_allclose(u, by_nnls(row, cost), atol=1e-10)


def test_a_tree_counts_as_short_from_its_stiffest_edge_on():
    at_the_limit = np.log1p(1 / STIFF)  # r² / D = STIFF, where r² = exp(-length)
    for factor, short in ((1.001, False), (0.999, True)):
        cost = TreeCost([-1, 0, 1], [0.0, 3.0, factor * at_the_limit])
        assert tree_tables(cost).short is short


@pytest.mark.parametrize("shortest", [0.5, 1e-3])
def test_outputs_that_another_covers_exactly_have_no_mass(shortest):
    """f_i = f_j - C_ij: the first round may leave i out, and its envelope still reaches it."""
    cost = random_tree(15, shortest, seed=5)
    scores = -cost.matrix()[4].clone()
    found = solve(scores, cost)
    assert int(found.alpha.argmax()) == 4
    torch.testing.assert_close(found.alpha[4], torch.tensor(1.0, dtype=torch.float64))
    assert float(found.gap) <= 1e-13


def test_a_score_far_above_all_others_takes_one_round():
    cost = random_tree(50, 0.5, seed=1)
    scores = torch.zeros(50, dtype=torch.float64)
    scores[7] = 100.0
    assert int(solve(scores, cost).iterations) == 1
