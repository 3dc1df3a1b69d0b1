"""One function per object of the paper.

Signals have shape ``(*batch, *cost.shape)``: any leading batch dimensions, then the outputs. Where
the outputs are not last, ``dim`` names their axes, and results have them in the same place. Results
have the dtype of the input; half precision is computed in float32. Formulas write ``K = exp(-C/2)``
and ``b = exp(f/2)``; products of vectors are elementwise.
"""

from geosoftmax.functional.conjugate import (
    extrapolate,
    geometric_logsumexp,
    geometric_softmax,
    solve,
)
from geosoftmax.functional.decisions import decide
from geosoftmax.functional.entropy import (
    c_transform,
    hausdorff_divergence,
    sinkhorn_negentropy,
    sinkhorn_potential,
)
from geosoftmax.functional.losses import geometric_logistic_loss
from geosoftmax.functional.peaks import peaks
from geosoftmax.functional.points import locate, point_target, spread
from geosoftmax.functional.potential import (
    potential_logistic_loss,
    potential_softmax,
    smooth_scores,
)

__all__ = [
    "c_transform",
    "decide",
    "extrapolate",
    "geometric_logistic_loss",
    "geometric_logsumexp",
    "geometric_softmax",
    "hausdorff_divergence",
    "locate",
    "peaks",
    "point_target",
    "potential_logistic_loss",
    "potential_softmax",
    "sinkhorn_negentropy",
    "sinkhorn_potential",
    "smooth_scores",
    "solve",
    "spread",
]
