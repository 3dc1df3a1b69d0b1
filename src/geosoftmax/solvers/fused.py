"""Plans whose solve is one call of a backend: a compiled kernel of numba, or a launch of Triton."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Tensor

from geosoftmax.backends.reference import Rows
from geosoftmax.costs.base import Cost
from geosoftmax.solvers.base import Fused, IndexLoss, Plan, Request, SolveRows
from geosoftmax.solvers.base import Kernel as Multiplies
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


def launched_plan(
    method: str,
    cost: Cost,
    request: Request,
    kernel: Multiplies,
    rows: SolveRows,
    fused: Callable[[Tensor, int], Fused],
    loss: Callable[[Tensor, Tensor, int, float], tuple[Tensor, Tensor]] | None = None,
) -> Plan:
    """Return a plan whose solve is one launch, `fused`; `rows` is for warm starts."""

    def index_loss(
        scores: Tensor, target: Tensor, ignored: int, reduction: str, max_iter: int
    ) -> IndexLoss:
        from geosoftmax.backends.triton import index_loss

        scores = scores.detach()
        alpha, _, lower, _, _ = fused(scores, max_iter)
        loss, slope = index_loss.finish(alpha, lower, scores, target, ignored, reduction)
        return loss, slope, 0.0, 0  # nothing is read from the device: invalid rows become NaN

    return Plan(
        method, request, len(cost.shape), kernel, rows, waits=False,
        fused=fused, loss=loss, index_loss=index_loss,
    )  # fmt: skip
