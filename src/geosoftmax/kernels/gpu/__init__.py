"""Triton kernels for GPUs: a whole solve in one launch, without a word to the host.

Nothing here waits for the device: what went wrong shows as NaN, how exact an answer is in its
bracket. With ``TRITON_INTERPRET=1`` the same kernels run on CPU tensors, for tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from geosoftmax.costs import GridCost
from geosoftmax.costs.base import Cost
from geosoftmax.kernels import reference
from geosoftmax.kernels.gpu.fit import fit
from geosoftmax.kernels.gpu.grid import split_grid
from geosoftmax.kernels.gpu.line import prune_line
from geosoftmax.kernels.gpu.rows import split_rows
from geosoftmax.kernels.gpu.sinkhorn import sinkhorn_grid, sinkhorn_rows

__all__ = [
    "fit",
    "prune_line",
    "sinkhorn_grid",
    "sinkhorn_rows",
    "split_grid",
    "split_rows",
    "whole",
    "whole_sinkhorn",
]

#: Longest side of a grid that fits into the registers of one program.
LONGEST_SIDE = 128
#: Outputs of a cost of which the matrix fits into shared memory.
LARGEST_MATRIX = 128
#: Outputs of a line that fit into registers.
LONGEST_LINE = 8192


def whole(method: str, cost: Cost, dtype: torch.dtype, tol: float) -> Callable[..., Any] | None:
    """Return the kernel for a whole solve by this method, if there is one."""
    if method == "hull" and cost.size <= LONGEST_LINE:
        return prune_line
    if method != "splitting" or dtype != torch.float32 or tol < reference.SINGLE_PRECISION_GAP:
        return None
    if is_plane(cost):
        return split_grid
    return split_rows if _is_small(cost) else None


def whole_sinkhorn(cost: Cost) -> Callable[..., Any] | None:
    """Return the kernel for the Sinkhorn problem, if there is one."""
    if is_plane(cost):
        return sinkhorn_grid
    return sinkhorn_rows if _is_small(cost) else None


def _is_small(cost: Cost) -> bool:
    return cost.size <= LARGEST_MATRIX and not cost.batch_shape


def is_plane(cost: Cost) -> bool:
    """Whether a sample is a grid of two dimensions that one program holds."""
    return isinstance(cost, GridCost) and len(cost.shape) == 2 and max(cost.shape) <= LONGEST_SIDE
