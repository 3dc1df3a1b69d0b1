"""Lines with the absolute value as cost: the smallest concave majorant, by one scan."""

from __future__ import annotations

from torch import Tensor

from geosoftmax.costs.base import Cost
from geosoftmax.solvers.base import Fused, Plan, Request, Solver, without_numba, without_triton
from geosoftmax.solvers.compiled import compiled_plan
from geosoftmax.solvers.policy import pruning_plan
from geosoftmax.solvers.tables import line_tables


def _misfit(cost: Cost) -> str | None:
    if cost.structure != "line":
        return "it solves a LineCost with p=1"
    return None


class HullNumba(Solver):
    """A stack of vertices, from left to right."""

    method = "hull"
    backend = "numba"

    def accepts(self, cost: Cost, request: Request) -> str | None:
        """Lines with p = 1, on CPUs."""
        return without_numba(request) or _misfit(cost)

    def prepare(self, cost: Cost, request: Request) -> Plan:
        """Return a plan of one compiled call."""
        from geosoftmax.backends.numba import hull

        return compiled_plan(self.method, hull.kernel(line_tables(cost)), cost, request)


class HullTriton(Solver):
    """Rounds of pruning by parallel scans, in one launch."""

    method = "hull"
    backend = "triton"

    def accepts(self, cost: Cost, request: Request) -> str | None:
        """Lines with p = 1 that fit into registers, on GPUs."""
        lacks = without_triton(request) or _misfit(cost)
        if lacks:
            return lacks
        from geosoftmax.backends.triton import hull

        if cost.size > hull.LONGEST_LINE:
            return f"its kernel holds up to {hull.LONGEST_LINE} classes"
        return None

    def prepare(self, cost: Cost, request: Request) -> Plan:
        """Return a plan of one launch."""
        from geosoftmax.backends.triton import hull

        line = cost.as_line()

        def fused(scores: Tensor, max_iter: int) -> Fused:
            return hull.solve(line.x, scores)

        return pruning_plan(self.method, cost, request, fused)


class HullReference(Solver):
    """Pruning: what is negative on the support leaves it."""

    method = "hull"
    backend = "reference"
    row = ("``LineCost`` p = 1, ``GridCost`` 1-D p = 1", "any", "exact, O(d)")

    def accepts(self, cost: Cost, request: Request) -> str | None:
        """Lines with p = 1."""
        return _misfit(cost)

    def prepare(self, cost: Cost, request: Request) -> Plan:
        """Return a plan in plain torch."""
        return pruning_plan(self.method, cost, request)
