"""Outputs that are all equally far apart: one threshold, as for the sparsemax."""

from __future__ import annotations

from torch import Tensor

from geosoftmax.backends import reference
from geosoftmax.backends.reference import Rows
from geosoftmax.costs.base import Cost
from geosoftmax.solvers.base import Plan, Request, Solver, without_numba
from geosoftmax.solvers.compiled import compiled_plan
from geosoftmax.solvers.products import Products


def _misfit(cost: Cost) -> str | None:
    return "it solves a ZeroOneCost" if cost.structure != "equal" else None


class ThresholdNumba(Solver):
    """Drop what lies below the threshold of the rest, until nothing does."""

    method = "threshold"
    backend = "numba"

    def accepts(self, cost: Cost, request: Request) -> str | None:
        """Costs with one distance, on CPUs."""
        return without_numba(request) or _misfit(cost)

    def prepare(self, cost: Cost, request: Request) -> Plan:
        """Return a plan of one compiled call."""
        from geosoftmax.backends.numba import tables, threshold

        kernel = threshold.kernel(tables.zero_one_tables(*cost.as_equal()), cost.size)
        return compiled_plan(self.method, kernel, cost, request)


class ThresholdReference(Solver):
    """One sort. It reads nothing back from a device."""

    method = "threshold"
    backend = "reference"
    row = ("``ZeroOneCost``", "any", "exact, O(d)")

    def accepts(self, cost: Cost, request: Request) -> str | None:
        """Costs with one distance."""
        return _misfit(cost)

    def prepare(self, cost: Cost, request: Request) -> Plan:
        """Return a plan in plain torch."""
        kernel, equal = Products(cost), cost.as_equal()

        def rows(b: Tensor, start: Tensor | None, max_iter: int) -> Rows:
            return reference.threshold(kernel, *equal, b)

        return Plan(self.method, request, len(cost.shape), kernel, rows, waits=False)
