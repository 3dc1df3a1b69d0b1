"""No d × d array for structured costs: large problems in a few hundred MB.

Each runs in a process of its own: the peak of resident memory is compared with what it was after
the imports and a first small solve (which loads the compiled kernels).
"""

import subprocess
import sys
import textwrap

import pytest

SCRIPT = """
import resource
import torch
import geosoftmax as gs

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

def known(u, cost):
    "Scores whose solution is u: 2 log(Ku) on its support, and 1 less elsewhere."
    h = cost.matvec(u)
    return 2 * torch.log(h) - (u == 0).to(u.dtype), u * h / (u * h).sum()

{warm_up}
before = peak()
{body}
print(peak() - before)
"""

LINE = """
cost = gs.LineCost(100_000, p={p}) / 2
u = torch.zeros(1, 100_000, dtype=torch.float64)
u[:, ::3] = 1 + torch.rand(1, 33_334, dtype=torch.float64)
scores, alpha = known(u, cost)
solution = gs.solve(scores, cost, tol=1e-6)
assert solution.converged.all(), solution
assert (solution.alpha - alpha).abs().sum() / 2 < {tv}
scores.requires_grad_()
gs.geometric_logistic_loss(scores, torch.tensor([7]), cost).backward()
assert torch.isfinite(scores.grad).all()
"""

TREE = """
parents = [-1] + [i // 2 for i in range(99_999)]
cost = gs.TreeCost(parents)
u = torch.zeros(1, 100_000, dtype=torch.float64)
u[:, ::3] = 1 + torch.rand(1, 33_334, dtype=torch.float64)
scores, alpha = known(u, cost)
assert (gs.geometric_softmax(scores, cost) - alpha).abs().sum() / 2 < 1e-8
"""

GRID = """
cost = gs.GridCost((512, 512), p=2) / 2
scores = 2 * torch.randn(1, 512, 512)
solution = gs.solve(scores, cost, tol=1e-3)
assert solution.converged.all(), solution
scores.requires_grad_()
gs.geometric_logsumexp(scores, cost, tol=1e-3).sum().backward()
assert abs(float(scores.grad.sum()) - 1) < 1e-3
"""

GRID_POTENTIAL = """
cost = gs.GridCost((512, 512), p=2) / 2
alpha = torch.zeros(1, 512, 512)
alpha[0, 100:400, 200] = 1 / 300
assert torch.isfinite(gs.sinkhorn_potential(alpha, cost)).all()
"""

POTENTIAL = """
cost = gs.LineCost(100_000)
alpha = torch.zeros(100_000, dtype=torch.float64)
alpha[0] = 1
assert torch.equal(gs.sinkhorn_potential(alpha, cost), -torch.arange(100_000).double())
"""


def extra_megabytes(body, warm_up):
    warm_up = f"gs.geometric_softmax(torch.zeros(2, *({warm_up}).shape), {warm_up})"
    script = SCRIPT.format(body=textwrap.dedent(body), warm_up=warm_up)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return float(done.stdout.split()[-1])


@pytest.mark.parametrize(
    ("body", "warm_up"),
    [
        pytest.param(LINE.format(p=1, tv=1e-8), "gs.LineCost(5)", id="line-p1"),
        pytest.param(
            LINE.format(p=2, tv=1e-2), "gs.LineCost(5, p=2)", id="line-p2", marks=pytest.mark.slow
        ),
        pytest.param(POTENTIAL, "gs.LineCost(5)", id="line-potential", marks=pytest.mark.slow),
        pytest.param(TREE, "gs.TreeCost([-1, 0])", id="tree"),
        pytest.param(GRID, "gs.GridCost((12, 11))", id="grid", marks=pytest.mark.slow),
        pytest.param(
            GRID_POTENTIAL, "gs.GridCost((12, 11))", id="grid-potential", marks=pytest.mark.slow
        ),
    ],
)
def test_large_problems_fit_in_a_few_hundred_megabytes(body, warm_up):
    assert extra_megabytes(body, warm_up) < 400
