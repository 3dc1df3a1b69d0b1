"""Trees: policy iteration over supports, each round one elimination along the tree."""

from __future__ import annotations

import torch
from torch import Tensor

from geosoftmax.backends import reference
from geosoftmax.backends.reference import Rows
from geosoftmax.costs.base import Cost
from geosoftmax.solvers.base import (
    Fused,
    Plan,
    Request,
    Solver,
    SupportPlan,
    without_numba,
    without_triton,
)
from geosoftmax.solvers.compiled import compiled_plan
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


class SupportNumba(Solver):
    """``K_SS x = rhs_S`` on trees: one elimination along the tree, however deep it is."""

    method = "support"
    backend = "numba"
    purposes = ("support",)

    def accepts(self, cost: Cost, request: Request) -> str | None:
        """Trees, on CPUs."""
        return without_numba(request) or _misfit(cost)

    def prepare(self, cost: Cost, request: Request) -> SupportPlan:
        """Return a plan of one compiled call."""
        from geosoftmax.backends.numba import policy

        tables, d = tree_tables(cost), cost.size

        def solve_on(support: Tensor, rhs: Tensor) -> Tensor:
            rows = rhs.detach().to(torch.float64).reshape(-1, d).contiguous()
            inside = support.expand(rhs.shape).reshape(-1, d).contiguous()
            x = torch.from_numpy(policy.solve_on(tables, inside.numpy(), rows.numpy()))
            return x.to(rhs.dtype).reshape(rhs.shape)

        return SupportPlan(solve_on)


class PolicyTriton(Solver):
    """One program per row, level by level, in one launch."""

    method = "policy"
    backend = "triton"

    def accepts(self, cost: Cost, request: Request) -> str | None:
        """Trees that fit into registers, on GPUs."""
        lacks = without_triton(request) or _misfit(cost)
        if lacks:
            return lacks
        from geosoftmax.backends.triton import policy

        tree = cost.as_tree()
        nodes, deepest = len(tree.parents), len(tree.levels) - 2
        if nodes > policy.MOST_NODES or deepest > policy.DEEPEST:
            return f"its kernel holds up to {policy.MOST_NODES} nodes in {policy.DEEPEST} levels"
        return None

    def prepare(self, cost: Cost, request: Request) -> Plan:
        """Return a plan of one launch."""
        from geosoftmax.backends.triton import policy

        kernel, tree = Products(cost), cost.as_tree()
        arrays = tree.parents, tree.levels, tree.outputs, tree.r, tree.D
        made = shared(cost, "policy on GPUs", lambda: policy.make_tables(*arrays))

        def fused(scores: Tensor, max_iter: int) -> Fused:
            return policy.solve(made, scores)

        def rows(b: Tensor, start: Tensor | None, max_iter: int) -> Rows:
            return reference.policy(kernel, b)

        return Plan(
            self.method, request, len(cost.shape), kernel, rows, waits=False, fused=fused
        )  # fmt: skip


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
        kernel = Products(cost)

        def rows(b: Tensor, start: Tensor | None, max_iter: int) -> Rows:
            return reference.policy(kernel, b)

        return Plan(self.method, request, len(cost.shape), kernel, rows)
