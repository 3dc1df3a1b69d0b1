"""The loss of the potential layer in one launch on a GPU; elsewhere, plain torch computes it."""

from __future__ import annotations

import torch

from geosoftmax.costs.base import Cost
from geosoftmax.solvers.base import PotentialPlan, Request, Solver, without_triton
from geosoftmax.solvers.splitting import is_plane


class PotentialTriton(Solver):
    """Planes on GPUs."""

    method = "potential"
    backend = "triton"
    purposes = ("potential",)

    def accepts(self, cost: Cost, request: Request) -> str | None:
        lacks = without_triton(request)
        if lacks:
            return lacks
        from geosoftmax.backends.triton import potential

        if request.dtype != torch.float32:
            return "its kernel is for float32"
        if is_plane(cost, potential.LONGEST_SIDE):
            return None
        return f"its kernel is for planes with sides up to {potential.LONGEST_SIDE}"

    def prepare(self, cost: Cost, request: Request) -> PotentialPlan:
        from geosoftmax.backends.triton import potential

        made = potential.make_tables([factor.matrix() for factor in cost.detach().factors])
        return PotentialPlan(lambda g, target, share: potential.loss(made, g, target, share))
