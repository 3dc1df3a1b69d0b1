"""Trees: policy iteration over supports, each round one elimination along the tree."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from geosoftmax.backends import reference
from geosoftmax.backends.reference import Rows
from geosoftmax.costs.base import Cost
from geosoftmax.solvers.base import Fused, Plan, Request, Solver, without_numba, without_triton
from geosoftmax.solvers.compiled import compiled_plan
from geosoftmax.solvers.launched import launched_plan
from geosoftmax.solvers.products import Products
from geosoftmax.solvers.tables import shared, tree_tables


def _misfit(cost: Cost) -> str | None:
    return "it solves a TreeCost" if cost.structure != "tree" else None


class PolicyNumba(Solver):
    """One row at a time."""

    method = "policy"
    backend = "numba"

    def accepts(self, cost: Cost, request: Request) -> str | None:
        """Trees, on CPUs."""
        return without_numba(request) or _misfit(cost)

    def prepare(self, cost: Cost, request: Request) -> Plan:
        """Return a plan of one compiled call."""
        from geosoftmax.backends.numba import policy

        return compiled_plan(self.method, policy.kernel(tree_tables(cost)), cost, request)


class PolicyTriton(Solver):
    """One program per row, level by level, in one launch."""

    method = "policy"
    backend = "triton"

    def accepts(self, cost: Cost, request: Request) -> str | None:
        """Trees that are not too deep, on GPUs."""
        lacks = without_triton(request) or _misfit(cost)
        if lacks:
            return lacks
        from geosoftmax.backends.triton import policy

        tree = cost.as_tree()
        if cost.size < policy.MOST_OUTPUTS and len(tree.levels) - 1 <= policy.DEEPEST:
            return None
        return f"its kernel is for {policy.DEEPEST} levels and {policy.MOST_OUTPUTS - 1} outputs"

    def prepare(self, cost: Cost, request: Request) -> Plan:
        """Return a plan of one launch."""
        from geosoftmax.backends.triton import policy

        tree = cost.as_tree()
        arrays = tree.parents, tree.levels, tree.outputs, tree.r, tree.D
        made = shared(cost, "policy on GPUs", lambda: policy.make_tables(*arrays))

        def fused(scores: Tensor, max_iter: int) -> Fused:
            return policy.solve(made, scores)

        return pruning_plan(self.method, cost, request, fused)


class PolicyReference(Solver):
    """All rows together, each round one solve on the supports."""

    method = "policy"
    backend = "reference"
    row = ("``TreeCost``", "any", "exact, O(d) a round")

    def accepts(self, cost: Cost, request: Request) -> str | None:
        """Trees."""
        return _misfit(cost)

    def prepare(self, cost: Cost, request: Request) -> Plan:
        """Return a plan in plain torch."""
        return pruning_plan(self.method, cost, request)


def pruning_plan(
    method: str,
    cost: Cost,
    request: Request,
    fused: Callable[[Tensor, int], Fused] | None = None,
) -> Plan:
    """Return a plan in plain torch, or of one launch for what it solves whole: `fused`."""
    kernel = Products(cost)

    def rows(b: Tensor, start: Tensor | None, max_iter: int) -> Rows:
        return reference.policy(kernel, b)

    if fused is not None:
        return launched_plan(method, cost, request, kernel, rows, fused)
    return Plan(method, request, len(cost.shape), kernel, rows)
