"""Iterations to a certified gap, then exact solves on the support where more digits are asked."""

from __future__ import annotations

import torch
from torch import Tensor

from geosoftmax.backends import reference, twin
from geosoftmax.backends.reference import SINGLE_PRECISION_GAP, Rows
from geosoftmax.costs._support import LARGEST_FACTOR
from geosoftmax.costs.base import Cost
from geosoftmax.solvers.solution import Options

#: Iterations before the first polish, and exchanges in a polish.
BEFORE_POLISH = 300
EXCHANGES = 60
#: Largest cost whose matrix is made for rows that nothing else solves.
LARGEST_DENSE = 1024


def accelerated(cost: Cost, b: Tensor, options: Options) -> Rows:
    """Any cost: accelerated projected gradient."""
    return _iterate_and_polish("accelerate", cost, b, options)


def splitting(cost: Cost, b: Tensor, options: Options) -> Rows:
    """Grids, and small costs: operator splitting in the eigenbasis of ``K``."""
    return _iterate_and_polish("split", cost, b, options)


def _iterate_and_polish(iterate: str, cost: Cost, b: Tensor, options: Options) -> Rows:
    """Iterate in the dtype of the scores; what is left is finished in float64."""
    loose = options.tol >= SINGLE_PRECISION_GAP
    steps = options.max_iter if loose else min(BEFORE_POLISH, options.max_iter)
    step = twin(iterate, cost, b.device)
    first = max(options.tol, SINGLE_PRECISION_GAP)
    rows = step(cost, b, options.init, first, steps, options.dtype)
    for _ in range(3):
        pending = ((rows.upper - rows.lower) > options.tol).nonzero()[:, 0]
        left = options.max_iter - int(rows.iterations.max())
        if pending.numel() == 0 or left <= 0:
            break
        part, bp = reference.part_of(cost, pending), b[pending]
        up = rows.u[pending]
        if int((up > 0).flatten(1).sum(1).max()) <= LARGEST_FACTOR:
            better = twin("exchange", cost, b.device)(
                part, bp, up > 0, options.tol, min(EXCHANGES, left)
            )
            reference.merge(rows, pending, better)
            _solve_singular(cost, b, rows, pending[torch.isinf(better.upper)])
        left = options.max_iter - int(rows.iterations.max())
        pending = ((rows.upper - rows.lower) > options.tol).nonzero()[:, 0]
        if pending.numel() == 0 or left <= 0:
            break
        part, bp = reference.part_of(cost, pending), b[pending]
        better = step(part, bp, rows.u[pending], options.tol, left, torch.float64)
        reference.merge(rows, pending, better)
    return rows


def _solve_singular(cost: Cost, b: Tensor, rows: Rows, index: Tensor) -> None:
    """Where ``K`` is singular on the support, add outputs one at a time instead."""
    if index.numel() and cost.size <= LARGEST_DENSE:
        part = reference.part_of(cost, index)
        reference.merge(rows, index, twin("active_set", cost, b.device)(part, b[index], None))
