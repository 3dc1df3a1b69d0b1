"""Iterations to a certified gap; for a small ``tol``, then exact solves on the support."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from geosoftmax.backends import reference
from geosoftmax.backends.reference import Rows
from geosoftmax.backends.settings import SINGLE_PRECISION_GAP
from geosoftmax.costs import DenseCost
from geosoftmax.costs.base import Cost
from geosoftmax.costs.linalg import LARGEST_FACTOR
from geosoftmax.solvers.base import Request, SolveRows, without_numba
from geosoftmax.solvers.plans import axis_kernels, dense_tables
from geosoftmax.solvers.products import Products

#: ``(kernel, b, start, tol, max_iter, dtype)``: an iterative method of the reference backend.
Iterate = Callable[[Products, Tensor, Tensor | None, float, int, torch.dtype], Rows]

#: Iterations before the first polish, and exchanges in a polish.
BEFORE_POLISH = 300
EXCHANGES = 60
#: The largest cost whose dense matrix is made, as a last resort.
LARGEST_DENSE = 1024
#: Limits of the compiled exchange: longest side and outputs of a grid, outputs of other costs.
LONGEST_SIDE = 96
LARGEST_GRID = 9216
LARGEST_MATRIX = 2048


class Polish:
    """Exact solves on the support, in plain torch."""

    def __init__(self, cost: Cost) -> None:
        self.kernel = Products(cost)

    @functools.cached_property
    def dense(self) -> Products:
        """The same kernel as a dense matrix, for flattened signals."""
        with torch.inference_mode(False), torch.no_grad():
            return Products(DenseCost(self.kernel.cost.matrix(), validate=False))

    def exchange(
        self, index: Tensor, b: Tensor, support: Tensor, tol: float, max_iter: int
    ) -> Rows:
        """Solve the rows with these indices."""
        return reference.exchange(self.kernel.select(index), b, support, tol, max_iter)

    def solve_singular(self, index: Tensor, b: Tensor) -> Rows | None:
        """Where ``K`` is singular on the support, add outputs one at a time instead."""
        if self.kernel.size > LARGEST_DENSE:
            return None
        found = reference.active_set(self.dense.select(index), b.flatten(1), None)
        return found._replace(u=found.u.reshape(b.shape))


class CompiledPolish:
    """Exact solves on the support with the numba backend, without the dense matrix of a grid."""

    def __init__(self, cost: Cost) -> None:
        self.cost, self.per_row = cost.detach(), bool(cost.batch_shape)

    @functools.cached_property
    def factors(self) -> Any:
        """The tables of the exchange."""
        from geosoftmax.backends.numba import tables

        return tables.factor_tables(axis_kernels(self.cost))

    def exchange(
        self, index: Tensor, b: Tensor, support: Tensor, tol: float, max_iter: int
    ) -> Rows:
        """Solve the rows with these indices."""
        from geosoftmax.backends.numba.exchange import exchange

        factors = self.factors
        if self.per_row:
            *others, last = factors.kernels
            factors = factors._replace(kernels=(*others, last[index.numpy()]))
        return Rows(*exchange(factors, b, support, tol, max_iter))

    def solve_singular(self, index: Tensor, b: Tensor) -> Rows | None:
        """Where ``K`` is singular on the support, add outputs one at a time instead."""
        from geosoftmax.backends.numba import active_set

        if self.cost.size > LARGEST_DENSE:
            return None
        dense = dense_tables(self.cost)
        if self.per_row:
            dense = dense._replace(kernels=dense.kernels[index.numpy()])
        return Rows(*active_set.kernel(dense).solve_rows(b))


def no_compiled_polish(cost: Cost, request: Request) -> str | None:
    """Return why the compiled exchange cannot polish solves of a cost, or None."""
    lacks = without_numba(request)
    if lacks or cost.has_linear_product:
        return lacks or f"{cost!r} has no kernel in matrix form"
    if cost.is_separable:
        fits = max(cost.shape) <= LONGEST_SIDE and cost.size <= LARGEST_GRID
    else:
        fits = cost.size <= LARGEST_MATRIX
    if fits:
        return None
    return (
        f"its kernel is for grids of up to {LARGEST_GRID} outputs with sides up to "
        f"{LONGEST_SIDE}, and for other costs with up to {LARGEST_MATRIX} outputs"
    )


def polished(
    iterate: Iterate, polish: Polish | CompiledPolish, kernel: Products, request: Request
) -> SolveRows:
    """Iterate in the dtype of the scores, then finish the remaining rows in float64."""
    tol = request.tol
    first = max(tol, SINGLE_PRECISION_GAP)
    limit = BEFORE_POLISH if tol < SINGLE_PRECISION_GAP else None

    def rows(b: Tensor, start: Tensor | None, max_iter: int) -> Rows:
        steps = max_iter if limit is None else min(limit, max_iter)
        found = iterate(kernel, b, start, first, steps, request.dtype)
        for _ in range(3):
            pending, left = _pending(found, tol, max_iter)
            if left <= 0:
                break
            support = found.u[pending] > 0
            if int(support.flatten(1).sum(1).max()) <= LARGEST_FACTOR:
                better = polish.exchange(pending, b[pending], support, tol, min(EXCHANGES, left))
                reference.merge(found, pending, better)
                singular = pending[torch.isinf(better.upper)]
                better = polish.solve_singular(singular, b[singular]) if len(singular) else None
                if better is not None:
                    reference.merge(found, singular, better)
            pending, left = _pending(found, tol, max_iter)
            if left <= 0:
                break
            part = kernel.select(pending)
            better = iterate(part, b[pending], found.u[pending], tol, left, torch.float64)
            reference.merge(found, pending, better)
        return found

    return rows


def _pending(rows: Rows, tol: float, max_iter: int) -> tuple[Tensor, int]:
    """Return the unsolved rows and the remaining iterations (0 if all rows are solved)."""
    pending = ((rows.upper - rows.lower) > tol).nonzero()[:, 0]
    return pending, max_iter - int(rows.iterations.max()) if len(pending) else 0
