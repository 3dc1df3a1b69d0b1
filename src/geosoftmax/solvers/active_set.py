"""Any cost, through its dense matrix: principal pivoting with Cholesky on the support."""

from __future__ import annotations

from torch import Tensor

from geosoftmax.backends import reference
from geosoftmax.backends.reference import Rows
from geosoftmax.costs import DenseCost
from geosoftmax.costs.base import Cost
from geosoftmax.solvers.base import Plan, Request, Solver, without_numba
from geosoftmax.solvers.fused import compiled_plan
from geosoftmax.solvers.plans import dense_tables
from geosoftmax.solvers.products import Products

#: The largest number of outputs for which it is chosen. By name, it solves any number.
MOST_OUTPUTS = 128


def _too_large(cost: Cost, request: Request) -> str | None:
    if request.method == "auto" and cost.size > MOST_OUTPUTS:
        return f"it is chosen for up to {MOST_OUTPUTS} outputs"
    return None


def _flat(cost: Cost) -> Cost:
    return DenseCost(cost.detach().matrix(), validate=False)


class ActiveSetNumba(Solver):
    """Many rows at once in SIMD registers, then the remaining rows one by one."""

    method = "active_set"
    backend = "numba"

    def accepts(self, cost: Cost, request: Request) -> str | None:
        return without_numba(request) or _too_large(cost, request)

    def prepare(self, cost: Cost, request: Request) -> Plan:
        from geosoftmax.backends.numba import active_set

        kernel = active_set.kernel(dense_tables(cost))
        return compiled_plan(self.method, kernel, cost, request)


class ActiveSetReference(Solver):
    """Exchanges for all rows together."""

    method = "active_set"
    backend = "reference"
    row = ("any other", f"up to {MOST_OUTPUTS}", "exact")

    def accepts(self, cost: Cost, request: Request) -> str | None:
        return _too_large(cost, request)

    def prepare(self, cost: Cost, request: Request) -> Plan:
        kernel, flat = Products(cost), Products(_flat(cost))

        def rows(b: Tensor, start: Tensor | None, max_iter: int) -> Rows:
            begin = None if start is None else start.flatten(1)
            found = reference.active_set(flat, b.flatten(1), begin)
            return found._replace(u=found.u.reshape(b.shape))

        per_row = bool(cost.batch_shape)
        return Plan(self.method, request, len(cost.shape), kernel, rows, per_row=per_row)
