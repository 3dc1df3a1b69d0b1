"""Solvers of the linear system on a support, ``K_SS x = rhs_S``, for derivatives."""

from __future__ import annotations

import torch
from torch import Tensor

from geosoftmax.backends import reference
from geosoftmax.costs.base import Cost
from geosoftmax.solvers.base import Request, Solver, SupportPlan, without_numba
from geosoftmax.solvers.plans import tree_tables


class SupportNumba(Solver):
    """``K_SS x = rhs_S`` on trees of any depth: one elimination along the tree."""

    method = "support"
    backend = "numba"
    purposes = ("support",)

    def accepts(self, cost: Cost, request: Request) -> str | None:
        if cost.structure != "tree":
            return "it solves a TreeCost"
        return without_numba(request)

    def prepare(self, cost: Cost, request: Request) -> SupportPlan:
        from geosoftmax.backends.numba import policy

        tables, d = tree_tables(cost), cost.size

        def solve_on(support: Tensor, rhs: Tensor) -> Tensor:
            rows = rhs.detach().to(torch.float64).reshape(-1, d).contiguous()
            inside = support.expand(rhs.shape).reshape(-1, d).contiguous()
            x = torch.from_numpy(policy.solve_on(tables, inside.numpy(), rows.numpy()))
            return x.to(rhs.dtype).reshape(rhs.shape)

        return SupportPlan(solve_on)


class SupportReference(Solver):
    """``K_SS x = rhs_S`` in float64."""

    method = "support"
    backend = "reference"
    purposes = ("support",)

    def accepts(self, cost: Cost, request: Request) -> str | None:
        return None

    def prepare(self, cost: Cost, request: Request) -> SupportPlan:
        double = reference.certificate_dtype(request.device)
        still = cost.detach().to(dtype=double)

        def solve_on(support: Tensor, rhs: Tensor) -> Tensor:
            return still.solve(rhs.to(double), support).to(rhs.dtype).contiguous()

        return SupportPlan(solve_on)
