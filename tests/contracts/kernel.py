"""What every compiled kernel must do: agree with the plain definition in `backends.reference`."""

from typing import ClassVar

import pytest
import torch

from geosoftmax.backends import reference, twin
from geosoftmax.backends.numba import adapters as cpu
from tests.conftest import TOLERANCES, assert_close
from tests.generators import randn


class KernelContract:
    operation: str
    #: name -> constructor of a cost with about so many outputs
    costs: ClassVar = {}
    sizes = (1, 2, 3, 41, 401)
    dtypes = (torch.float64,)  # exact solvers are called with float64 only

    def pytest_generate_tests(self, metafunc):
        if "cost" in metafunc.fixturenames:
            costs = {
                f"{name}-{size}": make(size)
                for name, make in metafunc.cls.costs.items()
                for size in metafunc.cls.sizes
            }
            metafunc.parametrize("cost", costs.values(), ids=costs)
        if "dtype" in metafunc.fixturenames:
            metafunc.parametrize("dtype", metafunc.cls.dtypes)

    def arguments(self, cost, b):
        """What the operation takes after the cost."""
        return (b,)

    def rows(self, cost, batch, dtype):
        """``b = exp(f/2)`` with its maximum at 1 and, in the second row, masks."""
        f = 2 * randn(batch, cost.size, seed=cost.size)
        if cost.size > 2:
            f[1:2, ::3] = -torch.inf
        b = torch.exp((f - f.amax(-1, keepdim=True)) / 2)
        return b.reshape(batch, *cost.shape).to(dtype)

    def test_it_is_what_runs_on_cpus(self, cost):
        assert cpu.supports(self.operation, cost)
        assert twin(self.operation, cost, torch.device("cpu")) is getattr(cpu, self.operation)
        plain = twin(self.operation, cost, torch.device("meta"))
        assert plain is getattr(reference, self.operation)

    @pytest.mark.parametrize("batch", [1, 7])
    def test_it_agrees_with_the_reference(self, cost, batch, dtype):
        b = self.rows(cost, batch, dtype)
        before = b.clone()
        arguments = self.arguments(cost, b)
        compiled = getattr(cpu, self.operation)(cost, *arguments)
        plain = getattr(reference, self.operation)(cost, *arguments)
        assert torch.equal(b, before)
        self.compare(cost, b, compiled, plain)

    def compare(self, cost, b, compiled, plain):
        assert compiled.u.shape == plain.u.shape == b.shape
        assert compiled.iterations.shape == compiled.lower.shape == b.shape[:1]
        assert (compiled.lower <= plain.upper).all()
        assert (plain.lower <= compiled.upper).all()
        assert (compiled.upper - compiled.lower <= 1e-12).all()
        alpha, expected = (self.distribution(rows.u, b) for rows in (compiled, plain))
        assert_close(alpha, expected, atol=1e-9, rtol=0)

    def distribution(self, u, b):
        weighted = (u * b).flatten(1).double()
        return weighted / weighted.sum(1, keepdim=True)


class ProductKernelContract(KernelContract):
    dtypes = (torch.float64, torch.float32)

    def compare(self, cost, b, compiled, plain):
        assert compiled.dtype == plain.dtype == b.dtype
        assert_close(compiled, plain, **TOLERANCES[b.dtype]._asdict())
