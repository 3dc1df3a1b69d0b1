"""Solvers of (QP), ``min ½ uᵀKu - bᵀu`` over ``u ≥ 0``, and of the Sinkhorn problem.

The first solver of one ordered list that accepts a cost and a request is taken (`registry`):

{table}

On a GPU, in float32, ``splitting`` comes before ``active_set``: for all costs up to 1024 outputs
and gaps from 1e-4 on, and up to 128 outputs for gaps from 1e-6 on. It does not wait for the device.

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

from geosoftmax.solvers.base import MAX_ITER, Plan, Request, Solver
from geosoftmax.solvers.registry import (
    choose,
    default_tolerance,
    methods,
    register,
    table,
    unregister,
)
from geosoftmax.solvers.solution import ConvergenceWarning, Solution

__all__ = [
    "MAX_ITER",
    "ConvergenceWarning",
    "Plan",
    "Request",
    "Solution",
    "Solver",
    "choose",
    "default_tolerance",
    "methods",
    "register",
    "table",
    "unregister",
]

if __doc__:  # python -OO has none
    __doc__ = __doc__.format(table=table())
