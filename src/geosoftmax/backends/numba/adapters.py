"""The kernels for callers that still have a cost in hand, rather than a plan with tables.

To be deleted once plans make the tables.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from geosoftmax.backends import numba as kernels
from geosoftmax.backends.numba import tables
from geosoftmax.backends.reference import Rows, dense_kernel
from geosoftmax.backends.sinkhorn import SinkhornRows
from geosoftmax.costs import DenseCost, GridCost, LineCost, TreeCost, ZeroOneCost
from geosoftmax.costs.base import Cost
from geosoftmax.costs.grid import is_absolute_line

#: Grids with a side longer than this are left to torch.
LONGEST_SIDE = 96
#: Outputs beyond which exact solves on the support are left to LAPACK through torch.
LARGEST_EXCHANGE = 9216
#: The same for costs of which the full matrix is needed.
LARGEST_MATRIX = 2048
#: Outputs beyond which Sinkhorn potentials of many rows are products of matrices, by torch.
LARGEST_SINKHORN = 128


def supports(operation: str, cost: Cost) -> bool:
    """Whether there is a compiled kernel of the operation for this cost."""
    if operation == "matvec":
        return isinstance(cost, TreeCost) or (isinstance(cost, LineCost) and cost.p == 1)
    if operation == "prune":
        return isinstance(cost, (TreeCost, ZeroOneCost)) or is_absolute_line(cost)
    if operation == "exchange":
        if isinstance(cost, GridCost):
            return max(cost.shape) <= LONGEST_SIDE and cost.size <= LARGEST_EXCHANGE
        return isinstance(cost, (DenseCost, LineCost)) and cost.size <= LARGEST_MATRIX
    if operation == "sinkhorn":
        return cost.size <= LARGEST_SINKHORN
    return operation in {"threshold", "active_set", "peaks", "obstacle", "distribution"}


# ------------------------------------------------------------------ tables


def dense(cost: Cost) -> tables.DenseTables:
    """Return the dense kernel of any cost."""
    return cost._once("numba dense", lambda: tables.dense_tables(dense_kernel(cost)))


def dense_kernels(cost: Cost) -> np.ndarray:
    """Return the same as an array."""
    return dense(cost).kernels


def line(cost: Cost) -> tables.LineTables:
    """Return the decays of a line."""
    axis = cost.axes[0] if isinstance(cost, GridCost) else cost
    assert isinstance(axis, LineCost)

    def build() -> tables.LineTables:
        x = axis.positions.detach().to(torch.float64)
        gaps = axis.scale.detach().to(torch.float64) / 2 * x.diff(prepend=x[:1])
        return tables.line_tables(gaps, axis.even)

    return cost._once("numba line", build)


def tree(cost: Cost) -> tables.TreeTables:
    """Return the edges of a tree."""
    assert isinstance(cost, TreeCost)

    def build() -> tables.TreeTables:
        r, D = cost.edges(torch.float64)
        return tables.tree_tables(r, D, cost.parents, cost.outputs)

    return cost._once("numba tree", build)


def zero_one(cost: Cost) -> tables.ZeroOneTables:
    """Return the two affinities."""
    assert isinstance(cost, ZeroOneCost)
    return cost._once(
        "numba zero-one", lambda: tables.zero_one_tables(*cost.affinities(torch.float64))
    )


def _factors(cost: Cost) -> tables.FactorTables:
    if isinstance(cost, GridCost):
        return tables.factor_tables([axis._kernel() for axis in cost.axes])
    return tables.factor_tables([torch.exp(-cost.matrix().detach() / 2)])


# ------------------------------------------------------------------ operations


def threshold(cost: Cost, b: Tensor) -> Rows:
    """Zero-one cost, from b."""
    return Rows(*kernels.threshold.solve_rows(zero_one(cost), b))


def prune(cost: Cost, b: Tensor) -> Rows:
    """Line with p = 1, tree or zero-one cost, from b."""
    if isinstance(cost, TreeCost):
        return Rows(*kernels.policy.solve_rows(tree(cost), b))
    if isinstance(cost, ZeroOneCost):
        return threshold(cost, b)
    return Rows(*kernels.hull.solve_rows(line(cost), b))


def active_set(cost: Cost, b: Tensor, start: Tensor | None) -> Rows:
    """Any small cost, from b."""
    return Rows(*kernels.active_set.solve_rows(dense(cost), b, start))


def exchange(cost: Cost, b: Tensor, support: Tensor, tol: float, max_iter: int) -> Rows:
    """Grid or dense cost, from b and a support."""
    return Rows(*kernels.exchange(_factors(cost), b, support, tol, max_iter))


def matvec(cost: Cost, u: Tensor) -> Tensor:
    """``K u`` on lines and trees."""
    return kernels.matvec(tree(cost) if isinstance(cost, TreeCost) else line(cost), u)


def sinkhorn(cost: Cost, alpha: Tensor, tol: float, max_iter: int) -> SinkhornRows:
    """Small costs."""
    return kernels.sinkhorn(dense(cost), alpha, tol, max_iter)


def peaks(cost: Cost, scores: Tensor) -> Tensor:
    """Return the largest score of each row."""
    return kernels.peaks(scores.reshape(-1, *cost.shape))


def obstacle(cost: Cost, scores: Tensor, peak: Tensor) -> Tensor:
    """``b = exp((f - peak) / 2)``, as rows."""
    return kernels.obstacle(scores.reshape(-1, *cost.shape), peak)


def distribution(cost: Cost, b: Tensor, u: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """``α = u b / ⟨b,u⟩``, and ``u``."""
    return kernels.distribution(b, u, dtype)


# ------------------------------------------------------------------ fused solves


def _fused_active_set(cost: Cost, scores: Tensor, tol: float, max_iter: int) -> Any:
    return kernels.active_set.solve(dense(cost), scores, dims=len(cost.shape))


#: Methods of which a solve is one kernel. The others have one too, for plans to use.
FUSED = {"active_set": _fused_active_set}
