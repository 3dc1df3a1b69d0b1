"""Ω, ∇Ω and D against the Sinkhorn algorithm of POT.

``ot.sinkhorn(a, b, C, reg=2)`` minimises ``⟨π, C⟩ + 2 Σ π log π``: its plan is ours, since
``KL(π | α ⊗ α)`` differs from ``Σ π log π`` by a constant of the marginals. The value with
``KL`` is computed here from the plan.
"""

import numpy as np
import ot
import pytest
import torch

from geosoftmax import hausdorff_divergence, sinkhorn_negentropy, sinkhorn_potential
from tests.paper.examples import draw_distributions, each, flat


def run(a, C, method):
    plan, log = ot.sinkhorn(
        a, a, C, reg=2.0, method=method, numItermax=100_000, stopThr=1e-14, log=True
    )
    return plan, log


def negentropy(a, C, method="sinkhorn_log"):
    """-½ (⟨π, C⟩ + 2 KL(π | α ⊗ α))."""
    plan, _ = run(a, C, method)
    kl = np.sum(plan * np.log(plan / np.outer(a, a)))
    return -0.5 * (np.sum(plan * C) + 2 * kl)


def potential(a, C):
    """2 log(Kw) for the symmetric scaling w = √(uv) of a plan diag(u) K diag(v)."""
    plan, _ = run(a, C, "sinkhorn_log")
    w = np.sqrt(np.diag(plan))  # K has a unit diagonal
    return 2 * np.log(np.exp(-C / 2) @ w)


@each()
@pytest.mark.parametrize("method", ["sinkhorn", "sinkhorn_log"])
def test_negentropy(cost, method):
    alpha = draw_distributions(cost, n=4, sparse=False)
    C = cost.matrix().numpy()
    theirs = [negentropy(a, C, method) for a in flat(alpha, cost).numpy()]
    ours = sinkhorn_negentropy(alpha, cost)
    torch.testing.assert_close(ours, torch.tensor(theirs), rtol=0, atol=1e-9, check_dtype=False)


@each()
def test_negentropy_with_zeros(cost):
    """Outputs without mass do not count."""
    alpha = draw_distributions(cost, n=4)[::2]
    C = cost.matrix().numpy()
    for row, value in zip(flat(alpha, cost), sinkhorn_negentropy(alpha, cost), strict=True):
        inside = row.numpy() > 0
        theirs = negentropy(row.numpy()[inside], C[inside][:, inside])
        assert abs(theirs - float(value)) < 1e-9


@each()
def test_potential(cost):
    alpha = draw_distributions(cost, n=4, sparse=False)
    C = cost.matrix().numpy()
    theirs = np.stack([potential(a, C) for a in flat(alpha, cost).numpy()])
    ours = flat(sinkhorn_potential(alpha, cost), cost)
    torch.testing.assert_close(ours, torch.from_numpy(theirs), rtol=0, atol=1e-8)


@each()
def test_divergence(cost):
    """D(α | β) = Ω(α) - Ω(β) - ⟨∇Ω(β), α - β⟩."""
    alpha = draw_distributions(cost, n=3, sparse=False)
    beta = draw_distributions(cost, n=3, sparse=False, seed=6)
    C = cost.matrix().numpy()
    ours = hausdorff_divergence(alpha, beta, cost)
    for a, b, value in zip(flat(alpha, cost).numpy(), flat(beta, cost).numpy(), ours, strict=True):
        theirs = negentropy(a, C) - negentropy(b, C) - potential(b, C) @ (a - b)
        assert abs(theirs - float(value)) < 1e-8
