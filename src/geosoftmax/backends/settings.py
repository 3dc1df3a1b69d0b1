"""Constants that all backends of a method share, so that they compute the same."""

from __future__ import annotations

import math

import torch
from torch import Tensor

# Splitting: the penalty, relative to the fourth root of the largest eigenvalue of ``K``, on grids
# and for other costs; and the relaxation. They are a compromise between wide and narrow kernels,
# and between smooth and noisy scores: see `benchmarks.tune_splitting`.
SPLIT_PENALTY = 0.45
SPLIT_PENALTY_DENSE = 0.9
SPLIT_RELAXATION = 1.6
#: The number of first steps on a grid, by the power of its distances; their penalty, relative to
#: the later one; and their relaxation. They move the smooth part of the solution fast.
SPLIT_FIRST_STEPS = {1.0: 10, 2.0: 20}
SPLIT_FIRST_PENALTY = 0.22
SPLIT_FIRST_RELAXATION = 1.8
#: Steps between two checks of the gap.
SPLIT_CHECK_EVERY = 5

#: Exchange: a point joins the support when its relative violation exceeds this fraction of the
#: tolerance.
ADD_ABOVE = 0.1
#: A point leaves the support when its mass is below minus this fraction of the tolerance, times the
#: mean mass of an output. Smaller negative masses are rounding errors, and are clipped.
DROP_BELOW = 1.0

#: Sinkhorn: the residual in log v below which Newton steps replace the averaged fixed point.
NEWTON_BELOW = 0.5
#: Probabilities below this are solved for, but not counted in the residual.
SUBNORMAL = 1e-290
#: After this many steps without progress, only rounding errors are left.
STALLED = 3

#: The smallest gap that iterations in float32 reach for any cost. Smaller gaps need a polish.
SINGLE_PRECISION_GAP = 1e-4


def split_penalty(eigenvalues: Tensor) -> Tensor:
    """Return ``ρ`` for a kernel with these eigenvalues, which have one dimension per axis."""
    relative = SPLIT_PENALTY if eigenvalues.dim() > 1 else SPLIT_PENALTY_DENSE
    return relative * eigenvalues.amax() ** 0.25


def rounding_allowance(size: int, dtype: torch.dtype) -> float:
    """Return how much to widen a bracket for the rounding of pairwise sums, as on GPUs."""
    return torch.finfo(dtype).eps * (8 + 2 * math.sqrt(size))


def sequential_allowance(terms: int, dtype: torch.dtype) -> float:
    """Return how much to widen a bracket for the rounding of sequential sums.

    If terms are equal, as for constant scores, each addition rounds the same way: errors of
    ``eps terms / 3`` occur.
    """
    return torch.finfo(dtype).eps * (8 + terms)
