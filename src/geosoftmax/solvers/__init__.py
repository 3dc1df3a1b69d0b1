"""Solvers of (QP), ``min ½ uᵀKu - bᵀu`` over ``u ≥ 0``, and the one table that chooses.

===========================================  ============  ===============  ======================
cost                                         outputs       method           exact, or iterates
===========================================  ============  ===============  ======================
``ZeroOneCost``                              any           ``threshold``    exact, O(d)
``LineCost`` p = 1, ``GridCost`` 1-D p = 1   any           ``hull``         exact, O(d)
``TreeCost``                                 any           ``policy``       exact, O(d) a round
any other                                    up to 128     ``active_set``   exact
``GridCost`` 2-D, 3-D, sides up to 1024      more          ``splitting``    to ``tol``, certified
any other                                    more          ``accelerated``  to ``tol``, certified
===========================================  ============  ===============  ======================

On a GPU, in float32, ``splitting`` serves all others up to 1024 outputs for gaps from 1e-4 on, and
up to 128 outputs for gaps from 1e-6 on: it does not wait for the device.

Each can be asked for by name wherever it is defined: ``active_set`` and ``accelerated`` are for any
cost. One more is never chosen: ``lbfgs``, the paper's own method (log-space L-BFGS), to compare.

The last two iterate until the certified gap is at most ``tol``. Below 1e-4 they finish with exact
solves on the support (the distribution converges more slowly than the value does).

Where ``tol`` is not given it is, by the dtype of the scores:

=======================  ==========================  ====================
dtype                    log-sum-exp, loss           softmax, extrapolate
=======================  ==========================  ====================
float64                  1e-9                        1e-9
float32, half precision  1e-4                        1e-6
=======================  ==========================  ====================
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from geosoftmax.backends.reference import (
    REFINED_GAP,
    SINGLE_PRECISION_GAP,
    SMALL_MATRIX,
    Rows,
    certify,
    merge,
    part_of,
)
from geosoftmax.costs import GridCost, TreeCost, ZeroOneCost
from geosoftmax.costs.base import Cost
from geosoftmax.costs.grid import is_absolute_line
from geosoftmax.solvers.exact import active_set, hull, policy, threshold
from geosoftmax.solvers.iterative import accelerated, splitting
from geosoftmax.solvers.lbfgs import lbfgs
from geosoftmax.solvers.solution import ConvergenceWarning, Options, Solution

__all__ = ["ConvergenceWarning", "Options", "Solution", "choose", "default_tolerance", "run"]

#: Up to this many outputs, a cost without structure is solved exactly.
SMALL = 128
#: Longest side of a grid of which the kernel is diagonalised.
LONGEST_SIDE = 1024
MAX_ITER = 5000
#: Methods of which even the plain torch form reads nothing back from a device.
NEVER_WAIT = ("threshold",)

METHODS: dict[str, Callable[[Cost, Tensor, Options], Rows]] = {
    "threshold": threshold,
    "hull": hull,
    "policy": policy,
    "active_set": active_set,
    "splitting": splitting,
    "accelerated": accelerated,
    "lbfgs": lbfgs,
}


def choose(cost: Cost, dtype: torch.dtype = torch.float64, tol: float = 0.0) -> str:
    """Return the method for a cost: the table above."""
    if isinstance(cost, ZeroOneCost):
        return "threshold"
    if is_absolute_line(cost):
        return "hull"
    if isinstance(cost, TreeCost):
        return "policy"
    if cost.device.type == "cuda" and dtype != torch.float64 and _can_split(cost):
        small = cost.size <= SMALL and tol >= REFINED_GAP
        if small or tol >= SINGLE_PRECISION_GAP:
            return "splitting"
    if cost.size <= SMALL:
        return "active_set"
    large_grid = isinstance(cost, GridCost) and len(cost.shape) > 1
    return "splitting" if large_grid and _can_split(cost) else "accelerated"


def _can_split(cost: Cost) -> bool:
    if isinstance(cost, GridCost) and len(cost.shape) > 1:
        return max(cost.shape) <= LONGEST_SIDE
    return cost.size <= SMALL_MATRIX and not cost.batch_shape


def check_method(method: str, cost: Cost, dtype: torch.dtype, tol: float) -> str:
    """Return the method to run, or say why the one that was asked for cannot."""
    if method == "auto":
        return choose(cost, dtype, tol)
    if method not in METHODS:
        raise ValueError(f"method must be 'auto' or one of {', '.join(METHODS)}; got {method!r}.")
    needs = {
        "threshold": "a ZeroOneCost",
        "hull": "a LineCost with p=1",
        "policy": "a TreeCost",
        "splitting": f"one cost for all samples: a GridCost with sides up to {LONGEST_SIDE}, "
        f"or up to {SMALL_MATRIX} outputs",
    }
    fits = _can_split(cost) if method == "splitting" else choose(cost) == method
    if method in needs and not fits:
        raise ValueError(
            f"method {method!r} solves {needs[method]}; got {cost!r}. "
            f"Leave method='auto' for {choose(cost)!r}."
        )
    return method


def default_tolerance(dtype: torch.dtype, *, distribution: bool) -> float:
    """Return the tolerance of the second table above."""
    if dtype == torch.float64:
        return 1e-9
    return 1e-6 if distribution else 1e-4


def run(method: str, cost: Cost, b: Tensor, options: Options) -> Rows:
    """Solve rows ``b`` of shape ``(rows, *cost.shape)``, in float64."""
    if b.shape[0] == 0:
        return _no_rows(b)
    if options.init is None:
        return METHODS[method](cost, b, options)
    u, lower, upper = certify(cost, b, options.init)
    rows = Rows(u, lower, upper, torch.zeros(lower.shape, dtype=torch.int64, device=b.device))
    pending = (upper - lower > options.tol).nonzero()[:, 0]
    if pending.numel():
        rest = dataclasses.replace(options, init=u[pending])
        merge(rows, pending, METHODS[method](part_of(cost, pending), b[pending], rest))
    return rows


def _no_rows(b: Tensor) -> Rows:
    empty = torch.zeros(0, dtype=torch.float64, device=b.device)
    return Rows(torch.zeros_like(b), empty, empty, torch.zeros_like(empty, dtype=torch.int64))
