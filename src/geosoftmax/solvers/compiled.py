"""Plans of the numba backend: each of its methods has the same four functions of tables."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from geosoftmax.backends.reference import Rows
from geosoftmax.costs.base import Cost
from geosoftmax.solvers.base import Fused, IndexLoss, Plan, Request
from geosoftmax.solvers.products import Products


def compiled_plan(method: str, module: Any, tables: Any, cost: Cost, request: Request) -> Plan:
    """Return a plan of ``module.solve``, ``softmax``, ``loss`` and ``solve_rows``."""
    d, shape = cost.size, cost.shape

    def rows(b: Tensor, start: Tensor | None, max_iter: int) -> Rows:
        return Rows(*module.solve_rows(tables, b, start))

    def fused(scores: Tensor, max_iter: int) -> Fused:
        if len(shape) == 1:
            return module.solve(tables, scores)
        batch = scores.shape[: scores.dim() - len(shape)]
        alpha, u, *others = module.solve(tables, scores.reshape(*batch, d))
        return alpha.reshape(scores.shape), u.reshape(scores.shape), *others

    def predict(scores: Tensor) -> tuple[Tensor, float]:
        return module.softmax(tables, scores)

    def index_loss(scores: Tensor, target: Tensor, ignored: int, reduction: str) -> IndexLoss:
        if scores.dim() == 2 and target.dim() == 1:
            return IndexLoss(*module.loss(tables, scores, target, ignored, reduction))
        flat = scores.reshape(-1, d), target.reshape(-1)
        loss, slope, *others = module.loss(tables, *flat, ignored, reduction)
        loss = loss.reshape(target.shape) if reduction == "none" else loss
        return IndexLoss(loss, slope.reshape(scores.shape), *others)

    per_row = bool(cost.batch_shape)
    return Plan(
        method, request, len(cost.shape), Products(cost), rows, per_row=per_row,
        fused=fused, predict=predict, index_loss=None if per_row else index_loss,
    )  # fmt: skip
