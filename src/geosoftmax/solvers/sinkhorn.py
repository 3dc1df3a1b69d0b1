"""Solvers of the symmetric Sinkhorn problem, ``v · Kv = α``."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from geosoftmax.backends import reference
from geosoftmax.costs.base import Cost
from geosoftmax.solvers.base import (
    Request,
    SinkhornPlan,
    Solver,
    without_numba,
    without_triton,
)
from geosoftmax.solvers.plans import axis_kernels, dense_tables, line_tables, tree_tables
from geosoftmax.solvers.products import Products
from geosoftmax.solvers.splitting import is_plane

#: The target of the residual log(v · Kv / α), and the largest number of iterations.
AIM = 1e-14
MAX_ITER = 200
#: Up to this many outputs the compiled kernel is used; beyond, matrix products in torch.
LARGEST_COMPILED = 128


class SinkhornTriton(Solver):
    """A fixed number of averaged steps in one launch, to float32 precision."""

    method = "sinkhorn"
    backend = "triton"
    purposes = ("sinkhorn",)

    def accepts(self, cost: Cost, request: Request) -> str | None:
        lacks = without_triton(request)
        if lacks:
            return lacks
        if request.dtype == torch.float64:
            return "its kernels have float32 precision"
        from geosoftmax.backends.triton import grid, rows

        if is_plane(cost, grid.LONGEST_SIDE):
            return None
        if cost.size <= rows.LARGEST_MATRIX and not cost.batch_shape:
            return None
        return f"its kernels are for up to {rows.LARGEST_MATRIX} outputs, or a plane"

    def prepare(self, cost: Cost, request: Request) -> SinkhornPlan:
        from geosoftmax.backends.triton import grid, sinkhorn

        still = cost.detach()
        if is_plane(cost, grid.LONGEST_SIDE):
            matrices = [factor.matrix() for factor in still.factors]
            planes = sinkhorn.make_tables(axis_kernels(cost), matrices)
            return SinkhornPlan(
                lambda a: (sinkhorn.solve_plane(planes, a).to(a.dtype), None),
                potential=functools.partial(sinkhorn.potential_plane, planes),
                negentropy=functools.partial(sinkhorn.negentropy_plane, planes),
            )
        rows = sinkhorn.make_row_tables(still.kernel())
        return SinkhornPlan(lambda a: (sinkhorn.solve_rows(rows, a).to(a.dtype), None))


class SinkhornNumba(Solver):
    """One row at a time, on its support."""

    method = "sinkhorn"
    backend = "numba"
    purposes = ("sinkhorn",)

    def accepts(self, cost: Cost, request: Request) -> str | None:
        if cost.size > LARGEST_COMPILED:
            return f"its kernel is for up to {LARGEST_COMPILED} outputs"
        return without_numba(request)

    def prepare(self, cost: Cost, request: Request) -> SinkhornPlan:
        from geosoftmax.backends.numba.sinkhorn import sinkhorn

        made, shape = dense_tables(cost), cost.shape

        def solve(alpha: Tensor) -> tuple[Tensor, Tensor | None]:
            found = sinkhorn(made, alpha.reshape(-1, *shape), AIM, MAX_ITER)
            return found[0].reshape(alpha.shape), found[1]

        return SinkhornPlan(solve)


class SinkhornScans(Solver):
    """The reference's iteration, with compiled products along a line or a tree."""

    method = "sinkhorn"
    backend = "numba"
    purposes = ("sinkhorn",)

    def accepts(self, cost: Cost, request: Request) -> str | None:
        if cost.structure not in ("line", "tree"):
            return "its products are for lines and trees"
        return without_numba(request)

    def prepare(self, cost: Cost, request: Request) -> SinkhornPlan:
        from geosoftmax.backends.numba import products

        made = line_tables(cost) if cost.structure == "line" else tree_tables(cost)
        return _plain(lambda v: products.matvec(made, v), cost.shape)


class SinkhornReference(Solver):
    """The averaged fixed point, then Newton's method, in plain torch."""

    method = "sinkhorn"
    backend = "reference"
    purposes = ("sinkhorn",)

    def accepts(self, cost: Cost, request: Request) -> str | None:
        return None

    def prepare(self, cost: Cost, request: Request) -> SinkhornPlan:
        return _plain(Products(cost).matvec, cost.shape)


def _plain(multiply: reference.Multiply, shape: tuple[int, ...]) -> SinkhornPlan:
    def solve(alpha: Tensor) -> tuple[Tensor, Tensor | None]:
        rows = alpha.to(reference.certificate_dtype(alpha.device)).reshape(-1, *shape).contiguous()
        found = reference.sinkhorn(multiply, rows, AIM, MAX_ITER)
        return found.v.to(alpha.dtype).reshape(alpha.shape), found.residual

    return SinkhornPlan(solve)
