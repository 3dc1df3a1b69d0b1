"""The geometric softmax off the grid: scores are functions on a box, distributions are spikes.

Section 3 of the paper for measures, and the Frank–Wolfe scheme of its section 3.4. `solver` has the
table of methods, `functional` the functions, with the names that they have for fixed outputs.
"""

from geosoftmax.continuous.costs import FunctionCost, PointCost, PowerCost
from geosoftmax.continuous.functional import (
    Potential,
    geometric_logistic_loss,
    geometric_logsumexp,
    geometric_softmax,
    hausdorff_divergence,
    sinkhorn_negentropy,
    sinkhorn_potential,
)
from geosoftmax.continuous.measure import Box, Measure
from geosoftmax.continuous.scores import interpolate
from geosoftmax.continuous.solver import ContinuousSolution

__all__ = [
    "Box",
    "ContinuousSolution",
    "FunctionCost",
    "Measure",
    "PointCost",
    "Potential",
    "PowerCost",
    "geometric_logistic_loss",
    "geometric_logsumexp",
    "geometric_softmax",
    "hausdorff_divergence",
    "interpolate",
    "sinkhorn_negentropy",
    "sinkhorn_potential",
]
