"""The paper's own method, log-space L-BFGS: only by name, for comparison."""

from __future__ import annotations

from torch import Tensor

from geosoftmax.backends import reference
from geosoftmax.backends.reference import Rows
from geosoftmax.costs.base import Cost
from geosoftmax.solvers.base import Plan, Request, Solver
from geosoftmax.solvers.products import Products


class Lbfgs(Solver):
    """All rows together. It stops when its value stalls, even if the gap is large."""

    method = "lbfgs"
    backend = "reference"

    def accepts(self, cost: Cost, request: Request) -> str | None:
        return "it runs only by name" if request.method == "auto" else None

    def prepare(self, cost: Cost, request: Request) -> Plan:
        kernel = Products(cost)

        def rows(b: Tensor, start: Tensor | None, max_iter: int) -> Rows:
            log_matvec, dtype = kernel.log_matvec, request.dtype
            return reference.lbfgs(kernel, log_matvec, b, start, request.tol, max_iter, dtype)

        per_row = bool(cost.batch_shape)
        return Plan(self.method, request, len(cost.shape), kernel, rows, per_row=per_row)
