"""Plans of the Triton backend."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from geosoftmax.costs.base import Cost
from geosoftmax.solvers.base import Fused, IndexLoss, Kernel, Plan, Request, SolveRows


def launched_plan(
    method: str,
    cost: Cost,
    request: Request,
    kernel: Kernel,
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
