"""The kernels behind functions that take a cost. To be deleted when plans call the kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from geosoftmax.backends import reference
from geosoftmax.backends.triton import grid, hull, policy, potential, rows, sinkhorn
from geosoftmax.backends.triton import refine as refinement
from geosoftmax.costs import GridCost, TreeCost, ZeroOneCost
from geosoftmax.costs.base import Cost
from geosoftmax.costs.grid import is_absolute_line


def split_grid(
    cost: Cost, scores: Tensor, tol: float, max_iter: int, tuning: grid.Tuning | None = None
) -> tuple[Tensor, ...]:
    """Call `grid.solve`."""
    return grid.solve(_plane_tables(cost), scores, tol, max_iter, tuning)


def fit_grid(
    cost: Cost, scores: Tensor, target: Tensor, tol: float, max_iter: int, share: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Call `grid.loss`."""
    return grid.loss(_plane_tables(cost), scores, target, tol, max_iter, share)


def _plane_tables(cost: Cost) -> grid.SplittingPlaneTables:
    assert isinstance(cost, GridCost)
    return cost._once("split_matrices", lambda: grid.make_tables(*reference.spectrum(cost), cost.p))


def split_rows(
    cost: Cost, scores: Tensor, tol: float, max_iter: int, warps: int | None = None
) -> tuple[Tensor, ...]:
    """Call `rows.solve`."""
    tables = cost._once("row_matrices", lambda: rows.make_tables(*reference.spectrum(cost)))
    return rows.solve(tables, scores, tol, max_iter, warps)


def refine(cost: Cost, scores: Tensor, tol: float, max_iter: int) -> tuple[Tensor, ...]:
    """Call `refine.solve`."""
    return refinement.solve(_refine_tables(cost), scores, tol, max_iter)


def solve_on(cost: Cost, rhs: Tensor, support: Tensor, max_iter: int) -> Tensor:
    """Call `refine.solve_on`."""
    return refinement.solve_on(_refine_tables(cost), rhs, support, max_iter)


def _refine_tables(cost: Cost) -> refinement.RefineTables:
    return cost._once("refine_tables", lambda: refinement.make_tables(*reference.spectrum(cost)))


def prune_line(cost: Cost, scores: Tensor, tol: float, max_iter: int) -> tuple[Tensor, ...]:
    """Call `hull.solve`."""
    line = getattr(cost, "axes", [cost])[0]
    places = cost._once("half_distances64", lambda: line._half_distances(torch.float64).detach())
    return hull.solve(places, scores)


def prune_tree(cost: Cost, scores: Tensor, tol: float, max_iter: int) -> tuple[Tensor, ...]:
    """Call `policy.solve`."""
    assert isinstance(cost, TreeCost)

    def build() -> policy.PolicyTables:
        edges = cost.edges(torch.float64)
        return policy.make_tables(cost.parents, cost.levels, cost.outputs, *edges)

    return policy.solve(cost._once("tree_tables", build), scores)


def sinkhorn_grid(cost: Cost, alpha: Tensor, warps: int | None = None) -> Tensor:
    """Call `sinkhorn.solve_plane`."""
    assert isinstance(cost, GridCost)

    def build() -> sinkhorn.SinkhornPlaneTables:
        return sinkhorn.make_tables([reference.dense_kernel(line) for line in cost.axes])

    return sinkhorn.solve_plane(cost._once("axis_kernels", build), alpha, warps)


def sinkhorn_rows(cost: Cost, alpha: Tensor) -> Tensor:
    """Call `sinkhorn.solve_rows`."""

    def build() -> sinkhorn.SinkhornRowTables:
        return sinkhorn.make_row_tables(reference.dense_kernel(cost))

    return sinkhorn.solve_rows(cost._once("row_kernel", build), alpha)


def fit_potential(
    cost: Cost, logits: Tensor, target: Tensor, share: float = 1.0, warps: int | None = None
) -> tuple[Tensor, Tensor]:
    """Call `potential.loss`."""
    assert isinstance(cost, GridCost)

    def build() -> potential.PotentialTables:
        return potential.make_tables([line.matrix().detach() for line in cost.axes])

    return potential.loss(cost._once("potential_tables", build), logits, target, share, warps)


# ------------------------------------------------------------------ which kernel a cost has


def whole(method: str, cost: Cost, dtype: torch.dtype, tol: float) -> Callable[..., Any] | None:
    """Return the kernel for a solve by this method, if there is one."""
    if method == "hull" and cost.size <= hull.LONGEST_LINE:
        return prune_line
    if isinstance(cost, TreeCost) and method == "policy":
        fits = len(cost.parents) <= policy.MOST_NODES and len(cost.levels) - 2 <= policy.DEEPEST
        return prune_tree if fits else None
    if method == "splitting" and dtype == torch.float32 and tol < reference.SINGLE_PRECISION_GAP:
        return refine if refines(cost) and tol >= refinement.SMALLEST_GAP else None
    if not _splits(method, dtype, tol):
        return None
    if _is_plane(cost, grid.LONGEST_SIDE):
        return split_grid
    return split_rows if _is_small(cost) else None


def whole_fit(method: str, cost: Cost, dtype: torch.dtype, tol: float) -> Callable[..., Any] | None:
    """Return the kernel for a loss by this method, if there is one."""
    fits = _splits(method, dtype, tol) and _is_plane(cost, grid.LONGEST_SIDE)
    return fit_grid if fits else None


def whole_potential_fit(cost: Cost, dtype: torch.dtype) -> Callable[..., Any] | None:
    """Return the kernel for a loss of the potential layer, if there is one."""
    fits = dtype == torch.float32 and _is_plane(cost, potential.LONGEST_SIDE)
    return fit_potential if fits else None


def whole_sinkhorn(cost: Cost) -> Callable[..., Any] | None:
    """Return the kernel for the Sinkhorn problem, if there is one."""
    if _is_plane(cost, sinkhorn.LONGEST_SIDE):
        return sinkhorn_grid
    return sinkhorn_rows if _is_small(cost) else None


def refines(cost: Cost) -> bool:
    """Whether `refine` and `solve_on` serve this cost; those with exact solves do not need them."""
    if isinstance(cost, (TreeCost, ZeroOneCost)) or is_absolute_line(cost):
        return False
    if isinstance(cost, GridCost) and len(cost.shape) == 2:
        return max(cost.shape) <= refinement.LONGEST_SIDE
    return cost.size <= refinement.LARGEST_MATRIX and not cost.batch_shape


def _splits(method: str, dtype: torch.dtype, tol: float) -> bool:
    single = dtype == torch.float32 and tol >= reference.SINGLE_PRECISION_GAP
    return method == "splitting" and single


def _is_small(cost: Cost) -> bool:
    return cost.size <= rows.LARGEST_MATRIX and not cost.batch_shape


def _is_plane(cost: Cost, longest: int) -> bool:
    """Whether a sample is a plane whose sides are not longer than this."""
    return isinstance(cost, GridCost) and len(cost.shape) == 2 and max(cost.shape) <= longest
