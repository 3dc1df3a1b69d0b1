"""(QP) for ONNX models: solvers made of standard ONNX operators.

`torch.onnx.export` records them. Costs are traced with the model, so nothing is prepared ahead or
cached.
"""

from __future__ import annotations

from geosoftmax.costs.base import Cost
from geosoftmax.solvers.base import OnnxPlan, Request, Solver

#: The most classes of a line. Each row of scores takes memory for each pair of classes.
LONGEST_LINE = 1024
#: The most outputs of any other cost, whose matrix becomes part of the model.
MOST_OUTPUTS = 128
#: What to do, if a cost cannot be exported to ONNX.
ADVICE = (
    f"A ZeroOneCost exports at any size, a LineCost with p=1 with up to {LONGEST_LINE} classes, "
    f"and other costs with up to {MOST_OUTPUTS} outputs. geosoftmax.nn.PotentialSoftmax needs no "
    "solver, and exports for every cost"
)


class ThresholdPortable(Solver):
    """One sort."""

    method = "threshold"
    backend = "portable"
    purposes = ("onnx",)

    def accepts(self, cost: Cost, request: Request) -> str | None:
        return None if cost.structure == "equal" else "it solves a ZeroOneCost"

    def prepare(self, cost: Cost, request: Request) -> OnnxPlan:
        from geosoftmax.backends import portable

        equal = cost.as_equal()
        return OnnxPlan(lambda b: portable.threshold(*equal, b))


class HullPortable(Solver):
    """Comparisons of slopes, between all pairs of outputs."""

    method = "hull"
    backend = "portable"
    purposes = ("onnx",)

    def accepts(self, cost: Cost, request: Request) -> str | None:
        if cost.structure != "line":
            return "it solves a LineCost with p=1"
        return _too_large(cost, LONGEST_LINE)

    def prepare(self, cost: Cost, request: Request) -> OnnxPlan:
        from geosoftmax.backends import portable

        line = cost.as_line()
        return OnnxPlan(lambda b: portable.hull(line.x, b))


class ActiveSetPortable(Solver):
    """Pivots in a loop, one output at a time."""

    method = "active_set"
    backend = "portable"
    purposes = ("onnx",)

    def accepts(self, cost: Cost, request: Request) -> str | None:
        if cost.batch_shape:
            return "there is one cost per sample"
        return _too_large(cost, MOST_OUTPUTS)

    def prepare(self, cost: Cost, request: Request) -> OnnxPlan:
        from geosoftmax.backends import portable

        K = cost.kernel()
        return OnnxPlan(lambda b: portable.pivoting(K, b))


def _too_large(cost: Cost, most: int) -> str | None:
    return f"it has {cost.size} outputs" if cost.size > most else None
