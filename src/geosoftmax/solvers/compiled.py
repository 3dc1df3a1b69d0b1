"""Plans of the numba backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from geosoftmax.backends.reference import Rows
from geosoftmax.costs.base import Cost
from geosoftmax.solvers.base import Fused, IndexLoss, Plan, Request
from geosoftmax.solvers.products import Products

if TYPE_CHECKING:
    from geosoftmax.backends.numba.calls import Kernel


def compiled_plan(method: str, kernel: Kernel, cost: Cost, request: Request) -> Plan:
    """Return a plan that calls a compiled kernel."""
    d, shape = cost.size, cost.shape

    def rows(b: Tensor, start: Tensor | None, max_iter: int) -> Rows:
        return Rows(*kernel.solve_rows(b, start))

    def fused(scores: Tensor, max_iter: int) -> Fused:
        if len(shape) == 1:
            return kernel.solve(scores)
        batch = scores.shape[: scores.dim() - len(shape)]
        alpha, u, lower, upper, steps = kernel.solve(scores.reshape(*batch, d))
        return alpha.reshape(scores.shape), u.reshape(scores.shape), lower, upper, steps

    def index_loss(
        scores: Tensor, target: Tensor, ignored: int, reduction: str, max_iter: int
    ) -> IndexLoss:
        if scores.dim() == 2 and target.dim() == 1:
            return kernel.loss(scores, target, ignored, reduction)
        flat = scores.detach().reshape(-1, d), target.reshape(-1)
        loss, slope, gap, bad = kernel.loss(*flat, ignored, reduction)
        loss = loss.reshape(target.shape) if reduction == "none" else loss
        return loss, slope.reshape(scores.shape), gap, bad

    per_row = bool(cost.batch_shape)
    return Plan(
        method, request, len(cost.shape), Products(cost), rows, per_row=per_row,
        fused=fused, predict=kernel.softmax, index_loss=None if per_row else index_loss,
    )  # fmt: skip
