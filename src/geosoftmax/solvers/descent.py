"""Methods for any cost, by products with ``K``: accelerated projected gradient, and L-BFGS."""

from __future__ import annotations

from torch import Tensor

from geosoftmax.backends import reference
from geosoftmax.backends.reference import Rows
from geosoftmax.costs.base import Cost
from geosoftmax.solvers.base import Plan, Request, Solver
from geosoftmax.solvers.polishing import CompiledPolish, Polish, no_compiled_polish, polished
from geosoftmax.solvers.products import Products


class AcceleratedNumba(Solver):
    """Then exact solves on the support: products in torch, compiled exchanges."""

    method = "accelerated"
    backend = "numba"

    def accepts(self, cost: Cost, request: Request) -> str | None:
        return no_compiled_polish(cost, request)

    def prepare(self, cost: Cost, request: Request) -> Plan:
        return _plan(cost, request, CompiledPolish(cost))


class AcceleratedReference(Solver):
    """The same, all in plain torch."""

    method = "accelerated"
    backend = "reference"
    row = ("any other", "more", "to ``tol``, certified")

    def accepts(self, cost: Cost, request: Request) -> str | None:
        return None

    def prepare(self, cost: Cost, request: Request) -> Plan:
        return _plan(cost, request, Polish(cost))


def _plan(cost: Cost, request: Request, polish: Polish | CompiledPolish) -> Plan:
    kernel = Products(cost)
    rows = polished(reference.accelerate, polish, kernel, request)
    per_row = bool(cost.batch_shape)
    return Plan("accelerated", request, len(cost.shape), kernel, rows, per_row=per_row)


class Lbfgs(Solver):
    """The paper's own method, in log-space: only by name, for comparison.

    All rows together. It stops when its value stalls, even if the gap is large.
    """

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
