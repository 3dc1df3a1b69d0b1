"""Any cost: accelerated projected gradient, then exact solves on the support."""

from __future__ import annotations

from geosoftmax.backends import reference
from geosoftmax.costs.base import Cost
from geosoftmax.solvers.base import Plan, Request, Solver
from geosoftmax.solvers.polishing import CompiledPolish, Polish, no_compiled_polish, polished
from geosoftmax.solvers.products import Products


class AcceleratedNumba(Solver):
    """Products in torch, compiled exchanges."""

    method = "accelerated"
    backend = "numba"

    def accepts(self, cost: Cost, request: Request) -> str | None:
        return no_compiled_polish(cost, request)

    def prepare(self, cost: Cost, request: Request) -> Plan:
        return _plan(cost, request, CompiledPolish(cost))


class AcceleratedReference(Solver):
    """All in plain torch."""

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
