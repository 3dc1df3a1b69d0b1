"""The bracket of g-LSE that certifies a solve: the only place where this backend computes it.

As `reference.certify`, with vᵀKv bounded by (Σv)² instead of one more product: entries of a
positive definite K are at most its largest diagonal entry.
"""

from __future__ import annotations

import math

import numpy as np

from geosoftmax.backends.numba.runtime import jit

_EPS = float(np.finfo(np.float64).eps)
#: Adding the maximum of the scores back to a bound, and widening it, rounds twice.
_ADDED_BACK = 2 * _EPS


@jit
def rounding_allowance(size):
    """Return by how much a bracket is widened for the rounding of its own sums."""
    return _EPS * (8.0 + 2.0 * math.sqrt(size))


@jit
def diagonal_of(K, diagonal):
    """Copy the diagonal of a kernel, for `bracket`; return its largest entry, at least one."""
    largest = 1.0
    for i in range(K.shape[0]):
        diagonal[i] = min(K[i, i], 1.0)
        largest = max(largest, K[i, i])
    return largest


@jit
def bracket(b, u, h, diagonal, largest):
    """Rescale u and h = Ku in place so that ⟨b,u⟩ = uᵀKu; return ⟨b,u⟩, and lower, upper of log⟨b,u*⟩.

    `diagonal` holds min(K_ii, 1), or nothing if that is one everywhere; see `diagonal_of`.
    """
    bu = 0.0
    uh = 0.0
    for i in range(b.shape[0]):
        bu += b[i] * u[i]
        uh += u[i] * h[i]
    return bracket_from(b, u, h, bu, uh, diagonal, largest)


@jit
def bracket_from(b, u, h, bu, uh, diagonal, largest):
    """As `bracket`, where ⟨b,u⟩ and uᵀKu have been summed already."""
    scale = bu / uh
    vh = 0.0
    v_sum = 0.0
    ratio = 1.0
    for i in range(b.shape[0]):
        u[i] *= scale
        hi = h[i] * scale
        h[i] = hi
        v = b[i] - hi
        if v > 0.0:
            if b[i] > ratio * hi:
                ratio = b[i] / hi
            if diagonal.shape[0] > 0:
                v /= diagonal[i]
            vh += v * hi
            v_sum += v
    energy = bu * scale
    lower = math.log(energy)
    added = (2.0 * vh + largest * v_sum * v_sum) / energy
    raised = ratio - 1.0
    if added > 1e-8:  # below, log(1 + x) ≤ x is sharp enough
        added = math.log1p(added)
        raised = math.log1p(raised)
    slack = rounding_allowance(b.shape[0])
    return energy, lower - slack, lower + min(added, 2.0 * raised) + slack


@jit
def add_back(lower, upper, peak):
    """Add the maximum of the scores to a bracket, and widen it for the rounding of that."""
    lower += peak
    upper += peak
    return lower - _ADDED_BACK * abs(lower), upper + _ADDED_BACK * abs(upper)
