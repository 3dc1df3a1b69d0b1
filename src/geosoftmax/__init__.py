"""geosoftmax: a softmax, log-sum-exp and logistic loss that know the geometry of their outputs."""

from geosoftmax import costs, functional, nn, solvers
from geosoftmax.costs import Cost, DenseCost, GridCost, LineCost, TreeCost, ZeroOneCost
from geosoftmax.functional import (
    c_transform,
    decide,
    extrapolate,
    geometric_logistic_loss,
    geometric_logsumexp,
    geometric_softmax,
    hausdorff_divergence,
    locate,
    peaks,
    point_target,
    potential_logistic_loss,
    potential_softmax,
    sinkhorn_negentropy,
    sinkhorn_potential,
    smooth_scores,
    solve,
    spread,
)
from geosoftmax.solvers import ConvergenceWarning, Solution
from geosoftmax.warming import warm_up

__version__ = "0.1.0"

__all__ = [
    "ConvergenceWarning",
    "Cost",
    "DenseCost",
    "GridCost",
    "LineCost",
    "Solution",
    "TreeCost",
    "ZeroOneCost",
    "__version__",
    "c_transform",
    "costs",
    "decide",
    "extrapolate",
    "functional",
    "geometric_logistic_loss",
    "geometric_logsumexp",
    "geometric_softmax",
    "hausdorff_divergence",
    "locate",
    "nn",
    "peaks",
    "point_target",
    "potential_logistic_loss",
    "potential_softmax",
    "sinkhorn_negentropy",
    "sinkhorn_potential",
    "smooth_scores",
    "solve",
    "solvers",
    "spread",
    "warm_up",
]
