"""Numbers that all backends of a method share, so that they compute the same."""

from __future__ import annotations

import math

import torch
from torch import Tensor

# Splitting: the penalty, relative to the fourth root of the largest eigenvalue of ``K``, on grids
# and for other costs; and the relaxation. A compromise between wide and narrow kernels, smooth and
# noisy scores: `benchmarks.tune_splitting`.
SPLIT_PENALTY = 0.45
SPLIT_PENALTY_DENSE = 0.9
SPLIT_RELAXATION = 1.6
#: The first steps on a grid, by the power of its distances, their penalty relative to the other,
#: and their relaxation: what is smooth moves far in them.
SPLIT_FIRST_STEPS = {1.0: 10, 2.0: 20}
SPLIT_FIRST_PENALTY = 0.22
SPLIT_FIRST_RELAXATION = 1.8
#: Steps between two looks at the gap.
SPLIT_CHECK_EVERY = 5

#: Exchange: a point joins the support when its relative violation exceeds this fraction of the
#: tolerance.
ADD_ABOVE = 0.1
#: A point leaves it when its weight is negative by more than this fraction of the tolerance of the
#: mean mass of an output. Smaller ones are rounding, and are clipped.
DROP_BELOW = 1.0

#: Sinkhorn: the residual in log v below which Newton steps replace the averaged fixed point.
NEWTON_BELOW = 0.5
#: Probabilities below this are solved for, but do not count as errors.
SUBNORMAL = 1e-290
#: Steps in a row without progress after which rounding is all that is left.
STALLED = 3

#: Smallest gap that iterations in float32 reach, whatever the cost. Below it, solves are polished.
SINGLE_PRECISION_GAP = 1e-4


def split_penalty(eigenvalues: Tensor) -> Tensor:
    """Return ``ρ`` for a kernel with these eigenvalues, with one dimension for each axis."""
    relative = SPLIT_PENALTY if eigenvalues.dim() > 1 else SPLIT_PENALTY_DENSE
    return relative * eigenvalues.amax() ** 0.25


def rounding_allowance(size: int, dtype: torch.dtype) -> float:
    """Return by how much a bracket is widened for the rounding of sums that GPUs make in trees."""
    return torch.finfo(dtype).eps * (8 + 2 * math.sqrt(size))


def sequential_allowance(terms: int, dtype: torch.dtype) -> float:
    """Return by how much a bracket is widened for the rounding of sums of one term after another.

    Where terms are equal, as for constant scores, each addition rounds the same way: errors of
    ``eps terms / 3`` are seen.
    """
    return torch.finfo(dtype).eps * (8 + terms)
