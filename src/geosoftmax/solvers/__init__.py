"""Solvers of (QP), ``min ½ uᵀKu - bᵀu`` over ``u ≥ 0``, and of the Sinkhorn problem.

The solvers are in one ordered list (`registry`). The first one that accepts a cost and a request
solves it:

{table}

On a GPU, in float32, ``splitting`` comes before ``active_set``. It then solves costs with up to
1024 outputs if ``tol`` is at least 1e-4, and with up to 128 outputs if ``tol`` is at least 1e-6. It
needs no host synchronisation.

You can also choose a method by name, if it accepts the cost. ``active_set`` and ``accelerated``
accept any cost. One more method runs only by name, for comparison: ``lbfgs``, the paper's own
(log-space L-BFGS).

The last two methods of the table iterate until the certified gap is at most ``tol``. If ``tol`` is
below 1e-4, they finish with exact solves on the support, because the distribution converges more
slowly than the value.

The default of ``tol`` depends on the dtype of the scores:

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
