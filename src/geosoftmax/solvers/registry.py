"""The choice of the solver: the first one of an ordered list that accepts the request.

A new method is a new file and a line here, or a call of `register` from elsewhere.
"""

from __future__ import annotations

from typing import Any

import torch

from geosoftmax.costs.base import Cost
from geosoftmax.solvers.active_set import ActiveSetNumba, ActiveSetReference
from geosoftmax.solvers.base import OnnxPlan, Purpose, Request, Solver
from geosoftmax.solvers.descent import AcceleratedNumba, AcceleratedReference, Lbfgs
from geosoftmax.solvers.fitting import FitNumba, FitReference
from geosoftmax.solvers.growing_set import GrowingSetNumba
from geosoftmax.solvers.plans import PLANS
from geosoftmax.solvers.portable import (
    ADVICE,
    ActiveSetPortable,
    HullPortable,
    ThresholdPortable,
)
from geosoftmax.solvers.potential import PotentialTriton
from geosoftmax.solvers.sinkhorn import (
    SinkhornNumba,
    SinkhornReference,
    SinkhornScans,
    SinkhornTriton,
)
from geosoftmax.solvers.splitting import (
    RefinedTriton,
    SplittingNumba,
    SplittingReference,
    SplittingTriton,
)
from geosoftmax.solvers.structured import STRUCTURED
from geosoftmax.solvers.support import SupportNumba, SupportReference
from geosoftmax.validation import is_readable

SOLVERS: list[Solver] = [
    *STRUCTURED,
    SplittingTriton(), RefinedTriton(),
    ActiveSetNumba(), ActiveSetReference(),
    GrowingSetNumba(),
    SplittingNumba(), SplittingReference(),
    AcceleratedNumba(), AcceleratedReference(),
    Lbfgs(),
    SinkhornTriton(), SinkhornNumba(), SinkhornScans(), SinkhornReference(),
    SupportNumba(), SupportReference(),
    PotentialTriton(),
    FitNumba(), FitReference(),
    ThresholdPortable(), HullPortable(), ActiveSetPortable(),
]  # fmt: skip

#: The purposes for which users can choose a method by name.
_NAMED = ("value", "distribution", "loss")


def register(solver: Solver, *, last: bool = False) -> None:
    """Add a solver: first in the list, or last. This clears the plan cache."""
    SOLVERS.insert(len(SOLVERS) if last else 0, solver)
    PLANS.clear()


def unregister(solver: Solver) -> None:
    """Remove a solver. This clears the plan cache."""
    SOLVERS.remove(solver)
    PLANS.clear()


def methods() -> list[str]:
    """Return the names of the methods, in the order in which they are tried."""
    return list(dict.fromkeys(s.method for s in SOLVERS if set(s.purposes) & set(_NAMED)))


def find(cost: Cost, request: Request) -> Solver | None:
    """Return the first solver that accepts a request, or None."""
    for solver in SOLVERS:
        if request.purpose not in solver.purposes:
            continue
        if request.method not in ("auto", solver.method):
            continue
        if solver.accepts(cost, request) is None:
            return solver
    return None


def choose(cost: Cost, request: Request) -> Solver:
    """Return the first solver that accepts a request.

    Raises
    ------
    ValueError
        If the method that the request names does not accept it. The message gives the reason.
    """
    found = find(cost, request)
    if found is not None:
        return found
    named = [s for s in SOLVERS if s.method == request.method and request.purpose in s.purposes]
    if not named:
        raise ValueError(
            f"method must be 'auto' or one of {', '.join(methods())}; got {request.method!r}."
        )
    why = named[-1].accepts(cost, request)  # the reference is last; its reason is about the cost
    instead = choose(cost, request._replace(method="auto")).method
    raise ValueError(
        f"method {request.method!r} does not accept {cost!r}: {why}. "
        f"Use method='auto', which chooses {instead!r}."
    )


def plan(
    cost: Cost,
    purpose: Purpose,
    dtype: torch.dtype,
    tol: float = 0.0,
    method: str = "auto",
) -> Any:
    """Return the plan for a cost and a request; the first call prepares it.

    Return None if the purpose is ``"potential"`` and no solver accepts it: use plain torch then.
    """
    key = (purpose, dtype, tol, method)
    found = PLANS.find(cost, key)
    if found is not None:
        return found
    return PLANS.get(cost, key, lambda: _prepare(cost, purpose, dtype, tol, method))


def onnx_plan(cost: Cost, dtype: torch.dtype, method: str) -> OnnxPlan:
    """Return the plan for a cost that is exported to ONNX with its model.

    Raises
    ------
    ValueError
        If no solver made of ONNX operators accepts the cost.
    """
    request = Request("onnx", cost.device, dtype, method=method)
    solver = find(cost, request)
    if solver is not None:
        return solver.prepare(cost, request)
    if method != "auto":
        why = f"method {method!r} has no ONNX form for this cost. Use method='auto'"
    else:
        last = [s for s in SOLVERS if "onnx" in s.purposes][-1]
        why = f"{last.accepts(cost, request)}. {ADVICE}"
    raise ValueError(f"the geometric softmax of {cost!r} cannot be exported to ONNX: {why}.")


def _prepare(cost: Cost, purpose: Purpose, dtype: torch.dtype, tol: float, method: str) -> Any:
    if is_readable(*cost.tensors):
        cost.check()
    request = Request(purpose, cost.device, dtype, tol, method)
    if purpose == "potential":
        solver = find(cost, request)
        return None if solver is None else solver.prepare(cost, request)
    return choose(cost, request).prepare(cost, request)


def default_tolerance(dtype: torch.dtype, purpose: Purpose) -> float:
    """Return the default of ``tol`` for a dtype of the scores."""
    if dtype == torch.float64:
        return 1e-9
    return 1e-6 if purpose == "distribution" else 1e-4


def table() -> str:
    """Return the methods of (QP) in their order, as reStructuredText."""
    rows = [("cost", "outputs", "method", "exact, or iterates")]
    for solver in SOLVERS:
        if solver.row is not None:
            cost, outputs, exactness = solver.row
            rows.append((cost, outputs, f"``{solver.method}``", exactness))
    widths = [max(len(row[k]) for row in rows) for k in range(4)]
    rule = "  ".join("=" * width for width in widths)
    head, *body = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
    return "\n".join([rule, head, rule, *body, rule])
