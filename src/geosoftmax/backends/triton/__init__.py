"""Triton kernels for GPUs: a whole solve in one launch, without a word to the host.

Nothing here waits for the device: what went wrong shows as NaN, how exact an answer is in its
bracket. With ``TRITON_INTERPRET=1`` the same kernels run on CPU tensors, for tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from geosoftmax.backends import reference
from geosoftmax.backends.triton.grid import fit_grid, split_grid
from geosoftmax.backends.triton.line import prune_line
from geosoftmax.backends.triton.potential import fit_potential
from geosoftmax.backends.triton.refine import refine, solve_on
from geosoftmax.backends.triton.rows import split_rows
from geosoftmax.backends.triton.sinkhorn import sinkhorn_grid, sinkhorn_rows
from geosoftmax.backends.triton.tree import prune_tree
from geosoftmax.costs import GridCost, TreeCost, ZeroOneCost
from geosoftmax.costs.base import Cost
from geosoftmax.costs.grid import is_absolute_line

__all__ = [
    "fit_grid",
    "fit_potential",
    "prune_line",
    "prune_tree",
    "refine",
    "refines",
    "sinkhorn_grid",
    "sinkhorn_rows",
    "solve_on",
    "split_grid",
    "split_rows",
    "whole",
    "whole_fit",
    "whole_potential_fit",
    "whole_sinkhorn",
]

#: Longest side of a grid that fits into the registers of one program.
LONGEST_SIDE = 128
#: Outputs of which 16 rows fit into registers, with the dense matrix of any cost.
LARGEST_MATRIX = reference.SMALL_MATRIX
#: The same with products in float32: their matrices take twice the shared memory.
LONGEST_SINGLE_SIDE = 64
#: Longest side of a plane, and outputs of another cost, that one program holds in float64.
LONGEST_REFINED_SIDE = 64
LARGEST_REFINED_MATRIX = 128
#: Outputs of a line that fit into registers.
LONGEST_LINE = 8192
#: Nodes of a tree that fit into registers, and levels below the root: each takes its turn.
MOST_NODES = 4096
DEEPEST = 100


def whole(method: str, cost: Cost, dtype: torch.dtype, tol: float) -> Callable[..., Any] | None:
    """Return the kernel for a whole solve by this method, if there is one."""
    if method == "hull" and cost.size <= LONGEST_LINE:
        return prune_line
    if isinstance(cost, TreeCost) and method == "policy":
        fits = len(cost.parents) <= MOST_NODES and len(cost.levels) - 2 <= DEEPEST
        return prune_tree if fits else None
    if method == "splitting" and dtype == torch.float32 and tol < reference.SINGLE_PRECISION_GAP:
        return refine if refines(cost) and tol >= reference.REFINED_GAP else None
    if not _splits(method, dtype, tol):
        return None
    if _is_plane(cost):
        return split_grid
    return split_rows if _is_small(cost) else None


def whole_fit(method: str, cost: Cost, dtype: torch.dtype, tol: float) -> Callable[..., Any] | None:
    """Return the kernel for a whole loss by this method, if there is one."""
    return fit_grid if _splits(method, dtype, tol) and _is_plane(cost) else None


def whole_potential_fit(cost: Cost, dtype: torch.dtype) -> Callable[..., Any] | None:
    """Return the kernel for a whole loss of the potential layer, if there is one."""
    fits = _is_plane(cost) and max(cost.shape) <= LONGEST_SINGLE_SIDE
    return fit_potential if dtype == torch.float32 and fits else None


def _splits(method: str, dtype: torch.dtype, tol: float) -> bool:
    single = dtype == torch.float32 and tol >= reference.SINGLE_PRECISION_GAP
    return method == "splitting" and single


def whole_sinkhorn(cost: Cost) -> Callable[..., Any] | None:
    """Return the kernel for the Sinkhorn problem, if there is one."""
    if _is_plane(cost):
        return sinkhorn_grid
    return sinkhorn_rows if _is_small(cost) else None


def refines(cost: Cost) -> bool:
    """Whether `refine` and `solve_on` serve this cost; those with exact solves do not need them."""
    if isinstance(cost, (TreeCost, ZeroOneCost)) or is_absolute_line(cost):
        return False
    if isinstance(cost, GridCost) and len(cost.shape) == 2:
        return max(cost.shape) <= LONGEST_REFINED_SIDE
    return cost.size <= LARGEST_REFINED_MATRIX and not cost.batch_shape


def _is_small(cost: Cost) -> bool:
    return cost.size <= LARGEST_MATRIX and not cost.batch_shape


def _is_plane(cost: Cost) -> bool:
    """Whether a sample is a grid of two dimensions that one program holds."""
    return isinstance(cost, GridCost) and len(cost.shape) == 2 and max(cost.shape) <= LONGEST_SIDE
