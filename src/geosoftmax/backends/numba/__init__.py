"""Numba twins of `reference` for CPUs: compiled, one row at a time, rows spread over threads.

Kernels release the interpreter lock and are spread over a thread pool of our own, so that calling
them from several threads, or after a fork, is safe, and ``torch.set_num_threads`` is obeyed. Rows
never share state: results do not depend on the batch or on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from geosoftmax.backends.numba import planes
from geosoftmax.backends.numba.active_set import active_set, active_set_whole
from geosoftmax.backends.numba.exchange import exchange
from geosoftmax.backends.numba.scans import matvec, prune, threshold
from geosoftmax.backends.numba.signals import distribution, obstacle, peaks
from geosoftmax.backends.numba.sinkhorn import sinkhorn
from geosoftmax.backends.reference import SINGLE_PRECISION_GAP
from geosoftmax.costs import DenseCost, GridCost, LineCost, TreeCost, ZeroOneCost
from geosoftmax.costs.base import Cost
from geosoftmax.costs.grid import is_absolute_line

__all__ = [
    "active_set",
    "distribution",
    "exchange",
    "matvec",
    "obstacle",
    "peaks",
    "prune",
    "sinkhorn",
    "supports",
    "threshold",
    "whole",
]

#: Grids with a side longer than this are left to torch.
LONGEST_SIDE = 96
#: Outputs beyond which exact solves on the support are left to LAPACK through torch.
LARGEST_EXCHANGE = 9216
#: The same for costs of which the whole matrix is needed.
LARGEST_MATRIX = 2048
#: Outputs beyond which Sinkhorn potentials of many rows are products of matrices, by torch.
LARGEST_SINKHORN = 128


def supports(operation: str, cost: Cost) -> bool:
    """Whether there is a compiled twin of the operation for this cost."""
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


def whole(method: str, cost: Cost, tol: float) -> Callable[..., Any] | None:
    """Return the kernel of a whole solve, if there is one."""
    if method == "active_set":
        return active_set_whole
    if method != "splitting" or tol >= SINGLE_PRECISION_GAP or not isinstance(cost, GridCost):
        return None
    if max(cost.shape) > LONGEST_SIDE:
        return None
    suits = cost._once("planes_suits", lambda: planes.suits(_plane_tables(cost)))
    return planes_whole if suits else None


def _plane_tables(cost: GridCost) -> planes.Tables:
    lines = cost.axes
    return cost._once("planes", lambda: planes.make_tables([x._kernel() for x in lines]))


def planes_whole(cost: Cost, scores: Tensor, tol: float, max_iter: int) -> tuple[Tensor, ...]:
    """From scores on a grid to the distribution, ``u``, its bracket and the rounds."""
    assert isinstance(cost, GridCost)
    tables = _plane_tables(cost)
    rows = scores.detach().contiguous().reshape(-1, cost.size).numpy()
    alpha, u, *rest = map(torch.from_numpy, planes.solve(tables, rows, tol, max_iter))
    batch = scores.shape[: scores.dim() - len(cost.shape)]
    return alpha.reshape(scores.shape), u.reshape(scores.shape), *(x.reshape(batch) for x in rest)
