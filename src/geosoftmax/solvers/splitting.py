"""Grids, and small costs: operator splitting in the eigenbasis of ``K``."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from geosoftmax.backends import reference
from geosoftmax.backends.reference import Rows
from geosoftmax.backends.settings import SINGLE_PRECISION_GAP, SPLIT_FIRST_STEPS
from geosoftmax.costs.base import Cost
from geosoftmax.solvers.base import (
    Fused,
    Plan,
    Request,
    Solver,
    SolveRows,
    SupportPlan,
    without_triton,
)
from geosoftmax.solvers.fused import launched_plan
from geosoftmax.solvers.plans import shared, spectrum
from geosoftmax.solvers.polishing import CompiledPolish, Polish, no_compiled_polish, polished
from geosoftmax.solvers.products import Products

#: The kernel is diagonalised up to this side of a grid, or this many outputs of any other cost.
LONGEST_SIDE = 1024
LARGEST_MATRIX = 1024


def _misfit(cost: Cost) -> str | None:
    if cost.is_separable:
        fits = max(cost.shape) <= LONGEST_SIDE
    else:
        fits = cost.size <= LARGEST_MATRIX and not cost.batch_shape
    if fits:
        return None
    return (
        f"it solves one cost for all samples: a GridCost with sides up to {LONGEST_SIDE}, "
        f"or up to {LARGEST_MATRIX} outputs"
    )


def is_plane(cost: Cost, longest: int) -> bool:
    """Return whether signals are planes with sides up to a limit, and ``K`` is separable."""
    return cost.is_separable and len(cost.shape) == 2 and max(cost.shape) <= longest


# ------------------------------------------------------------------ GPUs


class SplittingTriton(Solver):
    """Fused solves and losses in one launch, in float32, for ``tol`` of at least 1e-4."""

    method = "splitting"
    backend = "triton"

    def accepts(self, cost: Cost, request: Request) -> str | None:
        lacks = without_triton(request) or _misfit(cost)
        if lacks:
            return lacks
        if request.dtype != torch.float32 or request.tol < SINGLE_PRECISION_GAP:
            return f"its kernels are for float32 and tol of at least {SINGLE_PRECISION_GAP:g}"
        from geosoftmax.backends.triton import grid, rows

        if _on_grid(cost) or cost.size <= rows.LARGEST_MATRIX:
            return None
        return (
            f"its kernels are for planes with sides up to {grid.LONGEST_SIDE}, grids of three "
            f"dimensions with up to {grid.MOST_MERGED} outputs, and other costs with up to "
            f"{rows.LARGEST_MATRIX}"
        )

    def prepare(self, cost: Cost, request: Request) -> Plan:
        from geosoftmax.backends.triton import grid, rows

        parts = spectrum(cost)
        if not _on_grid(cost):
            made = shared(cost, "rows", lambda: rows.make_tables(*parts))
            return _launching(cost, request, functools.partial(_with_tol, rows.solve, made))
        power = cost.p or 2.0
        planes = shared(cost, "planes", lambda: grid.make_tables(*parts, power=power))

        def loss(
            scores: Tensor, target: Tensor, max_iter: int, share: float
        ) -> tuple[Tensor, Tensor]:
            return grid.loss(planes, scores, target, request.tol, max_iter, share)

        solve = functools.partial(_with_tol, grid.solve, planes)
        whole = len(cost.shape) == 2  # the matrices of longer sides leave no room for Sinkhorn's
        return _launching(cost, request, solve, loss=loss if whole else None)


def _on_grid(cost: Cost) -> bool:
    from geosoftmax.backends.triton import grid

    return cost.is_separable and grid.holds(cost.shape)


class RefinedTriton(Solver):
    """Predictions to full float32 precision; linear systems on a support. Neither waits."""

    method = "splitting"
    backend = "triton"
    purposes = ("value", "distribution", "loss", "support")

    def accepts(self, cost: Cost, request: Request) -> str | None:
        lacks = without_triton(request) or _misfit(cost)
        if lacks:
            return lacks
        from geosoftmax.backends.triton import predict, predict_batch, refine

        if request.dtype != torch.float32:
            return "its kernels are for float32"
        if request.purpose != "support" and request.tol < predict.SMALLEST_GAP:
            return f"its kernels are for tol of at least {predict.SMALLEST_GAP:g}"
        if request.method == "auto" and cost.structure is not None:
            return "another method is exact"
        if request.purpose == "support":
            longest, largest = refine.LONGEST_SIDE, refine.LARGEST_MATRIX
        else:
            longest, largest = predict.LONGEST_SIDE, predict_batch.LARGEST_MATRIX
        plane = cost.is_separable and len(cost.shape) == 2
        if is_plane(cost, longest) if plane else cost.size <= largest:
            return None
        return f"its kernels are for planes with sides up to {longest}, or up to {largest} outputs"

    def prepare(self, cost: Cost, request: Request) -> Any:
        from geosoftmax.backends.triton import predict, predict_batch, predict_rows, refine
        from geosoftmax.solvers.base import MAX_ITER

        parts = spectrum(cost)
        if request.purpose == "support":
            made = shared(cost, "refined", lambda: refine.make_tables(*parts))
            return SupportPlan(lambda support, rhs: refine.solve_on(made, rhs, support, MAX_ITER))
        if is_plane(cost, predict.LONGEST_SIDE):
            planes = shared(cost, "predicted", lambda: predict.make_tables(*parts))
            return _launching(cost, request, functools.partial(_with_tol, predict.solve, planes))
        rows = predict_rows if cost.size <= predict_rows.LARGEST_MATRIX else predict_batch
        made = shared(cost, "predicted", lambda: rows.make_tables(*parts))
        return _launching(cost, request, functools.partial(_with_tol, rows.solve, made))


def _with_tol(solve: Any, tables: Any, tol: float, scores: Tensor, max_iter: int) -> Fused:
    return solve(tables, scores, tol, max_iter)


def _launching(cost: Cost, request: Request, solve: Any, loss: Any = None) -> Plan:
    kernel, still = Products(cost), cost.detach()

    @functools.cache
    def in_steps() -> SolveRows:
        with torch.inference_mode(False), torch.no_grad():
            return splitting_rows(still, request, kernel, Polish(still))

    def rows(b: Tensor, start: Tensor | None, max_iter: int) -> Rows:
        return in_steps()(b, start, max_iter)  # used only with a warm start

    fused = functools.partial(solve, request.tol)
    return launched_plan("splitting", cost, request, kernel, rows, fused, loss)


# ------------------------------------------------------------------ CPUs, and other requests


class SplittingNumba(Solver):
    """Products in torch, compiled exchanges."""

    method = "splitting"
    backend = "numba"

    def accepts(self, cost: Cost, request: Request) -> str | None:
        return _misfit(cost) or _not_chosen(cost, request) or no_compiled_polish(cost, request)

    def prepare(self, cost: Cost, request: Request) -> Plan:
        kernel = Products(cost)
        rows = splitting_rows(cost, request, kernel, CompiledPolish(cost))
        return Plan(self.method, request, len(cost.shape), kernel, rows)


class SplittingReference(Solver):
    """All in plain torch."""

    method = "splitting"
    backend = "reference"
    row = (
        "``GridCost`` 2-D, 3-D",
        f"more, sides up to {LONGEST_SIDE}",
        "to ``tol``, certified",
    )

    def accepts(self, cost: Cost, request: Request) -> str | None:
        return _misfit(cost) or _not_chosen(cost, request)

    def prepare(self, cost: Cost, request: Request) -> Plan:
        kernel = Products(cost)
        rows = splitting_rows(cost, request, kernel, Polish(cost))
        return Plan(self.method, request, len(cost.shape), kernel, rows)


def _not_chosen(cost: Cost, request: Request) -> str | None:
    if request.method == "auto" and not cost.is_separable:
        return "it is chosen for grids only"
    return None


def splitting_rows(
    cost: Cost, request: Request, kernel: Products, polish: Polish | CompiledPolish
) -> SolveRows:
    """Return a solver by splitting, in the dtype of the scores, with a polish."""
    first_steps = SPLIT_FIRST_STEPS.get(cost.p or 0.0, 0) if cost.is_separable else 0
    parts = spectrum(cost)

    def iterate(
        kernel: Products, b: Tensor, start: Tensor | None, tol: float, max_iter: int,
        dtype: torch.dtype,
    ) -> Rows:  # fmt: skip
        return reference.split(kernel, parts, first_steps, b, start, tol, max_iter, dtype)

    return polished(iterate, polish, kernel, request)
