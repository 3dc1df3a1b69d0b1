"""Methods that end after finitely many steps with the exact answer."""

from __future__ import annotations

from torch import Tensor

from geosoftmax.backends import twin
from geosoftmax.backends.reference import Rows
from geosoftmax.costs.base import Cost
from geosoftmax.solvers.solution import Options


def threshold(cost: Cost, b: Tensor, options: Options) -> Rows:
    """Zero-one cost: one threshold, as for the sparsemax."""
    return twin("threshold", cost, b.device)(cost, b)


def hull(cost: Cost, b: Tensor, options: Options) -> Rows:
    """Line with the absolute value: a concave majorant by one scan (pruning in parallel)."""
    return twin("prune", cost, b.device)(cost, b)


def policy(cost: Cost, b: Tensor, options: Options) -> Rows:
    """Tree: policy iteration over supports, each round one elimination along the tree."""
    return twin("prune", cost, b.device)(cost, b)


def active_set(cost: Cost, b: Tensor, options: Options) -> Rows:
    """Any cost, through its dense matrix: principal pivoting with Cholesky on the support."""
    return twin("active_set", cost, b.device)(cost, b, options.init)
