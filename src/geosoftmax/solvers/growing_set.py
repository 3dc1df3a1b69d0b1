"""Grids, to full precision: an active set that grows by blocks of local maxima."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import torch
from torch import Tensor

from geosoftmax.backends.reference import Rows
from geosoftmax.backends.settings import SINGLE_PRECISION_GAP
from geosoftmax.costs.base import Cost
from geosoftmax.solvers.base import Fused, Plan, Request, Solver, SolveRows
from geosoftmax.solvers.plans import axis_kernels, shared
from geosoftmax.solvers.polishing import LONGEST_SIDE, CompiledPolish, no_compiled_polish
from geosoftmax.solvers.products import Products
from geosoftmax.solvers.running import solve_in_steps
from geosoftmax.solvers.splitting import splitting_rows


class GrowingSetNumba(Solver):
    """One row at a time, with an updated factor. Splitting solves the rows that it gives up."""

    method = "growing_set"
    backend = "numba"
    row = (
        "``GridCost`` 2-D, 3-D, on CPUs, ``tol`` below 1e-4",
        f"more, sides up to {LONGEST_SIDE}",
        "to ``tol``, certified",
    )

    def accepts(self, cost: Cost, request: Request) -> str | None:
        """Accept grids with small expected supports, for a small ``tol``."""
        if not cost.is_separable:
            return "it solves a GridCost of 2 or 3 dimensions"
        lacks = no_compiled_polish(cost, request)
        if lacks or request.method == self.method:
            return lacks
        if request.tol >= SINGLE_PRECISION_GAP:
            return f"it is chosen for gaps below {SINGLE_PRECISION_GAP:g}"
        from geosoftmax.backends.numba import growing_set

        if not growing_set.suits(_tables(cost)):
            return "the kernel is narrow, so an iterative method needs few steps"
        return None

    def prepare(self, cost: Cost, request: Request) -> Plan:
        """Return a plan of one compiled call, with splitting for the remaining rows."""
        from geosoftmax.backends.numba import growing_set

        kernel, still = Products(cost), cost.detach()
        tables = _tables(cost)
        shape, size = cost.shape, cost.size

        @functools.cache
        def splitting() -> SolveRows:
            with torch.inference_mode(False), torch.no_grad():
                return splitting_rows(still, request, kernel, CompiledPolish(still))

        def rows(b: Tensor, start: Tensor | None, max_iter: int) -> Rows:
            return splitting()(b, start, max_iter)

        rest = Plan(self.method, request, len(shape), kernel, rows)

        def fused(scores: Tensor, max_iter: int) -> Fused:
            flat = scores.detach().contiguous().reshape(-1, size)
            found = growing_set.solve(tables, flat.numpy(), request.tol, max_iter)
            alpha, u, lower, upper, iterations = map(torch.from_numpy, found)
            answer = Rows(u, lower, upper, iterations)
            _finish(rest, flat.reshape(-1, *shape), alpha, answer, max_iter)
            batch = scores.shape[: scores.dim() - len(shape)]
            bounds = lower.reshape(batch), upper.reshape(batch), iterations.reshape(batch)
            return alpha.reshape(scores.shape), u.reshape(scores.shape), *bounds

        return dataclasses.replace(rest, fused=fused)


def _tables(cost: Cost) -> Any:
    from geosoftmax.backends.numba import growing_set

    return shared(cost, "growing set", lambda: growing_set.make_tables(axis_kernels(cost)))


def _finish(plan: Plan, scores: Tensor, alpha: Tensor, rows: Rows, max_iter: int) -> None:
    """Solve the rows that were given up, in place, with the remaining iterations."""
    late = (rows.upper - rows.lower > plan.request.tol).nonzero()[:, 0]
    left = max_iter - int(rows.iterations[late].max()) if len(late) else 0
    if left <= 0:
        return
    better, u, lower, upper, iterations = solve_in_steps(plan, scores[late], None, left)
    rows.iterations[late] += iterations
    narrower = upper - lower < (rows.upper - rows.lower)[late]
    index = late[narrower]
    alpha[index], rows.u[index] = better.flatten(1)[narrower], u.flatten(1)[narrower]
    rows.lower[index], rows.upper[index] = lower[narrower], upper[narrower]
