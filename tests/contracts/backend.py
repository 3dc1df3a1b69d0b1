"""What every function of a backend must do: agree with the plain definition in the reference."""

from typing import ClassVar

import pytest
import torch

from geosoftmax import DenseCost
from geosoftmax.backends import reference
from geosoftmax.solvers import base, registry
from geosoftmax.solvers.base import Request
from geosoftmax.solvers.products import Products
from tests.conftest import assert_close
from tests.generators import randn


def plain_solution(cost, b):
    """Exchanges on the dense matrix, in plain torch."""
    kernel = Products(DenseCost(cost.matrix(), validate=False))
    rows = reference.active_set(kernel, b.flatten(1), None)
    return rows._replace(u=rows.u.reshape(b.shape))


class BackendContract:
    """A function that solves rows of (QP) for the tables of a cost."""

    method: str
    #: name -> constructor of a cost with about so many outputs
    costs: ClassVar = {}
    sizes = (1, 2, 3, 41, 401)
    #: The backend of which a solver with this name calls the function, on CPUs.
    backend: str | None = "numba"

    def pytest_generate_tests(self, metafunc):
        if "cost" in metafunc.fixturenames:
            costs = {
                f"{name}-{size}": make(size)
                for name, make in metafunc.cls.costs.items()
                for size in metafunc.cls.sizes
            }
            metafunc.parametrize("cost", costs.values(), ids=costs)

    def solve(self, cost, b):
        """Return what the function finds: u, lower, upper, iterations."""
        raise NotImplementedError

    def reference(self, cost, b):
        """Return what it must agree with."""
        return plain_solution(cost, b)

    def rows(self, cost, batch):
        """``b = exp(f/2)`` with its maximum at 1 and, in the second row, masks."""
        f = 2 * randn(batch, cost.size, seed=cost.size)
        if cost.size > 2:
            f[1:2, ::3] = -torch.inf
        b = torch.exp((f - f.amax(-1, keepdim=True)) / 2)
        return b.reshape(batch, *cost.shape)

    def test_it_is_what_runs_on_cpus(self, cost, monkeypatch):
        if self.backend is None:
            pytest.skip("no solver of the library calls it")
        request = Request("value", torch.device("cpu"), torch.float64, 1e-9, self.method)
        assert registry.choose(cost, request).backend == self.backend
        monkeypatch.setattr(base, "numba_installed", lambda: False)
        assert registry.choose(cost, request).backend == "reference"

    @pytest.mark.parametrize("batch", [1, 7])
    def test_it_agrees_with_the_reference(self, cost, batch):
        b = self.rows(cost, batch)
        before = b.clone()
        found, plain = self.solve(cost, b), self.reference(cost, b)
        assert torch.equal(b, before)
        u, lower, upper, iterations = found
        assert u.shape == plain.u.shape == b.shape
        assert iterations.shape == lower.shape == b.shape[:1]
        assert (lower <= plain.upper).all()
        assert (plain.lower <= upper).all()
        assert (upper - lower <= 1e-12).all()
        alpha, expected = (reference.distribution(b, rows) for rows in (u, plain.u))
        assert_close(alpha, expected, atol=1e-9, rtol=0)
