"""The bracket of g-LSE that certifies a solve, for all methods of this backend.

It is that of `reference.certify`, but bounds vᵀKv by (Σv)² to save a product: the entries of a
positive definite K are at most its largest diagonal entry.
"""

from __future__ import annotations

import math

import numpy as np

from geosoftmax.backends.numba.elementary import logarithm
from geosoftmax.backends.numba.runtime import allocating, inner

_EPS = float(np.finfo(np.float64).eps)
#: Adding the maximum of the scores back to a bound, and widening it, rounds twice.
ADDED_BACK = 2 * _EPS
#: What v may add to a bracket before the other bound is looked at.
LITTLE = 1e-14
#: The rows that `lane_brackets` fills.
SCALE, ENERGY, LOWER, UPPER, SCALED = range(5)


@allocating
def diagonal_of(K, diagonal):
    """Copy the diagonal of a kernel for `bracket`, where it matters.

    Returns the part of `diagonal` to pass on, nothing if no entry is below one, and the largest
    entry, at least one.
    """
    smallest = 1.0
    largest = 1.0
    for i in range(K.shape[0]):
        diagonal[i] = min(K[i, i], 1.0)
        smallest = min(smallest, K[i, i])
        largest = max(largest, K[i, i])
    return diagonal[: K.shape[0] if smallest < 1.0 else 0], largest


@inner
def bracket(b, u, h, diagonal, largest):
    """Rescale u and h = Ku in place so that ⟨b,u⟩ = uᵀKu; return ⟨b,u⟩, and bounds of log⟨b,u*⟩.

    `diagonal` holds min(K_ii, 1), or nothing if that is one everywhere; see `diagonal_of`.
    """
    bu = 0.0
    uh = 0.0
    for i in range(b.shape[0]):
        bu += b[i] * u[i]
        uh += u[i] * h[i]
    return bracket_from(b, u, h, bu, uh, diagonal, largest)


@inner
def bracket_from(b, u, h, bu, uh, diagonal, largest):
    """As `bracket`, where ⟨b,u⟩ and uᵀKu have been summed already."""
    d = b.shape[0]
    scale = bu / uh
    energy = bu * scale
    vh = 0.0
    v_sum = 0.0
    ratio = 1.0
    for i in range(d):
        u[i] *= scale
        h[i] *= scale
        v = _shortfall(b[i], h[i], diagonal, i)
        vh += v * h[i]
        v_sum += v
    added = _added(energy, vh, v_sum, largest)
    if added > LITTLE:  # the other bound may be lower
        for i in range(d):
            if b[i] > ratio * h[i]:
                ratio = b[i] / h[i]
        added = min(math.log1p(added), 2.0 * math.log(ratio))
    slack = _rounding(d)
    lower = logarithm(energy)
    return energy, lower - slack, lower + added + slack


@inner
def for_more_terms(low, high, terms):
    """Widen a bracket where products have sums of so many more terms than there are outputs."""
    return low - _EPS * terms, high + _EPS * terms


@inner
def lane_brackets(B, U, H, lanes, diagonal, largest, sums):
    """As `bracket` for each lane of blocks (d, lanes), but without the other bound.

    U and H stay as they are. `sums` gets what `SCALE` and the names after it number.
    """
    for r in range(lanes):
        sums[SCALE, r] = 0.0
        sums[ENERGY, r] = 0.0
        sums[LOWER, r] = 0.0
        sums[UPPER, r] = 0.0
    for i in range(B.shape[0]):
        for r in range(lanes):
            sums[SCALE, r] += B[i, r] * U[i, r]
            sums[ENERGY, r] += U[i, r] * H[i, r]
    for r in range(lanes):
        bu = sums[SCALE, r]
        sums[SCALE, r] = bu / sums[ENERGY, r]
        sums[ENERGY, r] = bu * sums[SCALE, r]
    for i in range(B.shape[0]):
        for r in range(lanes):  # a loop of its own, so that it rounds as in `bracket`
            sums[SCALED, r] = H[i, r] * sums[SCALE, r]
        for r in range(lanes):
            v = _shortfall(B[i, r], sums[SCALED, r], diagonal, i)
            sums[LOWER, r] += v * sums[SCALED, r]
            sums[UPPER, r] += v
    slack = _rounding(B.shape[0])
    for r in range(lanes):
        added = _added(sums[ENERGY, r], sums[LOWER, r], sums[UPPER, r], largest)
        lower = logarithm(sums[ENERGY, r])
        sums[LOWER, r] = lower - slack
        sums[UPPER, r] = lower + added + slack


@inner
def _shortfall(b, h, diagonal, i):
    """Return what must be added at an output for K w ≥ b to hold there."""
    v = max(b - h, 0.0)
    return v / diagonal[i] if diagonal.shape[0] > 0 else v


@inner
def _added(energy, vh, v_sum, largest):
    """Return x for which wᵀKw ≤ (1 + x) uᵀKu with w = u + v; the bracket uses log(1 + x) ≤ x."""
    return (vh + vh + largest * v_sum * v_sum) / energy


@inner
def _rounding(d):
    """Return by how much a bracket is widened; see `settings.sequential_allowance`."""
    return _EPS * (8.0 + d)
