"""Functions for fitting linear models: losses of class indices, their curvature, L-BFGS."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from geosoftmax.backends.reference import fitting as reference
from geosoftmax.costs.base import Cost
from geosoftmax.solvers.active_set import MOST_OUTPUTS
from geosoftmax.solvers.base import FitPlan, Request, Solver, without_numba
from geosoftmax.solvers.plans import dense_tables

#: Up to this many classes, every cost is treated as dense, to use the compiled losses.
FEW_CLASSES = 16


def _misfit(cost: Cost) -> str | None:
    return "fits need one cost for all samples" if cost.batch_shape else None


class FitNumba(Solver):
    """Compiled losses for small dense costs; each solve starts from the last support."""

    method = "fit"
    backend = "numba"
    purposes = ("fit",)

    def accepts(self, cost: Cost, request: Request) -> str | None:
        return _misfit(cost) or without_numba(request)

    def prepare(self, cost: Cost, request: Request) -> FitPlan:
        from geosoftmax.backends.numba import fitting

        workspace: Callable[[Any, Any], Any] | None = None
        if cost.size <= (FEW_CLASSES if cost.structure else MOST_OUTPUTS):
            workspace = functools.partial(fitting.Workspace, dense_tables(cost).kernels)
        loops = fitting.two_loop_first, fitting.two_loop_second
        return FitPlan(workspace, fitting.add_inverses, *loops)


class FitReference(Solver):
    """No losses of its own: it uses the solver of the cost."""

    method = "fit"
    backend = "reference"
    purposes = ("fit",)

    def accepts(self, cost: Cost, request: Request) -> str | None:
        return _misfit(cost)

    def prepare(self, cost: Cost, request: Request) -> FitPlan:
        loops = reference.two_loop_first, reference.two_loop_second
        return FitPlan(None, reference.add_inverses, *loops)
