"""A cost, a solver and a backend function from outside the library pass every contract.

CONTRIBUTING's recipes are these classes. Nothing in ``src/`` knows of them.
"""

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from scipy.optimize import nnls

from geosoftmax import LineCost, geometric_logistic_loss, geometric_softmax, nn, solvers
from geosoftmax.backends import reference
from geosoftmax.costs.base import Cost, ScaledCost, unit_scale, wide
from geosoftmax.costs.linalg import gathered_solve
from geosoftmax.solvers.base import Plan, Solver
from geosoftmax.solvers.products import Products
from tests.conftest import compiles
from tests.contracts.backend import BackendContract
from tests.contracts.cost import CostContract
from tests.contracts.solver import RowsAreIndependent, SolverContract

# ------------------------------------------------------------------ a toy cost


class RingCost(ScaledCost):
    """The way along a ring: hours of a day, days of a week."""

    tensor_names = ("scale",)

    def __init__(self, d):
        self._set({"signature": f"RingCost|{d}", "shape": (d,), "scale": unit_scale()})

    @classmethod
    def read_signature(cls, signature, tensors):
        return {"shape": (int(signature.split("|")[1]),)}

    def __repr__(self):
        return f"RingCost({self.shape[0]}){self._scale_text()}"

    def matrix(self):
        d = self.shape[0]
        steps = torch.arange(d, device=self.device)
        apart = (steps[:, None] - steps).abs()
        return wide(self.scale) * torch.minimum(apart, d - apart)  # with all digits

    def matvec(self, u):
        return u @ self.kernel().to(u.dtype)

    def log_matvec(self, g):
        return torch.logsumexp(g[..., None, :] - self.matrix().to(g.dtype) / 2, -1)

    def solve(self, rhs, support):
        K, d = self.kernel(), self.shape[0]
        flat = rhs.reshape(-1, d), support.reshape(-1, d)
        return gathered_solve(lambda _, i, j: K[i, j], self.matvec, *flat).reshape(rhs.shape)


class TestRingCost(CostContract):
    variants: ClassVar = {
        "three": (lambda: RingCost(3), lambda: [[0, 1, 1], [1, 0, 1], [1, 1, 0]]),
        "week": (lambda: RingCost(7) / 2, lambda: ring(7) / 2),
        "day": (lambda: RingCost(24) * 0.3, lambda: 0.3 * ring(24)),
    }


def ring(d):
    apart = np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
    return np.minimum(apart, d - apart)


# ------------------------------------------------------------------ a toy backend function


def solve_rows(K, b):
    """Each row by scipy's NNLS: ``½ uᵀKu - bᵀu`` is ``½ ‖Lᵀu - L⁻¹b‖²``."""
    L = np.linalg.cholesky(K)
    return np.array([nnls(L.T, np.linalg.solve(L, row))[0] for row in b])


class TestToyBackend(BackendContract):
    method = "toy"
    backend = None
    sizes = (1, 3, 24)
    costs: ClassVar = {"ring": RingCost, "line": LineCost}

    def solve(self, cost, b):
        u = torch.from_numpy(solve_rows(cost.kernel().numpy(), b.numpy()))
        u, lower, upper = reference.certify(Products(cost), b, u)
        return u, lower, upper, torch.ones(len(b), dtype=torch.int64)


# ------------------------------------------------------------------ a toy solver


class ToySolver(Solver):
    method = "toy"
    backend = "scipy"

    def accepts(self, cost, request):
        if request.device.type != "cpu" or cost.batch_shape or cost.size > 30:
            return "it solves one cost with up to 30 outputs, on CPUs"
        return None if request.method == "toy" else "it runs only by name"

    def prepare(self, cost, request):
        kernel, K = Products(cost), cost.detach().kernel().numpy()

        def rows(b, start, max_iter):
            u = torch.from_numpy(solve_rows(K, b.flatten(1).numpy())).reshape(b.shape)
            u, lower, upper = reference.certify(kernel, b, u)
            return reference.Rows(u, lower, upper, torch.ones(len(b), dtype=torch.int64))

        return Plan(self.method, request, len(cost.shape), kernel, rows)


@pytest.fixture(autouse=True, scope="module")
def registered():
    toy = ToySolver()
    solvers.register(toy)
    yield
    solvers.unregister(toy)


class TestToySolver(RowsAreIndependent, SolverContract):
    method = "toy"
    costs: ClassVar = {
        "ring": lambda: RingCost(12) / 2,
        "line": lambda: LineCost(9, p=2) / 2,
    }


def test_a_method_that_does_not_fit_says_why():
    with pytest.raises(ValueError, match=r"'toy' does not accept .*: it solves one cost with"):
        geometric_softmax(torch.zeros(40), LineCost(40), method="toy")


# ------------------------------------------------------------------ all of it works with them


def test_the_recipes_name_all_that_must_be_written():
    text = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text(encoding="utf8")
    recipes = text[text.index("**A new cost**") : text.index("**A new backend function**")]
    written = {name for name in vars(RingCost) if not name.startswith("_")}
    for name in written | Cost.__abstractmethods__ | Solver.__abstractmethods__:
        assert f"`{name}" in recipes, name


@compiles
def test_the_library_takes_a_cost_that_it_does_not_know():
    torch._dynamo.reset()
    cost, target = RingCost(7) / 2, torch.tensor([6, 0])
    scores = torch.randn(2, 7, dtype=torch.float64, requires_grad=True)
    loss = geometric_logistic_loss(scores, target, cost)
    loss.backward()
    one_hot = torch.eye(7, dtype=torch.float64)[target]
    expected = (geometric_softmax(scores.detach(), cost) - one_hot) / 2
    torch.testing.assert_close(scores.grad, expected, rtol=0, atol=1e-9)
    assert torch.equal(nn.GeometricLogisticLoss(cost)(scores, target), loss)
    torch._dynamo.reset()  # what was compiled before, for other shapes, has dynamic ones
    compiled = torch.compile(geometric_logistic_loss, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(scores, target, cost), loss, rtol=1e-9, atol=1e-12)
