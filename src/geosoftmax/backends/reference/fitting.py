"""Functions for fitting a linear model: the curvature of the losses, and directions of L-BFGS.

With ``K = exp(-C/2)``, ``b = exp(f/2)``, ``Z = ⟨b,u⟩`` and ``S = supp u``, the curvature of a loss
in the scores is ``½ (D_b K_SS⁻¹ D_b / Z + D_α) - ααᵀ``. Arrays are numpy, as in the estimators.
"""

from __future__ import annotations

import numpy as np


def add_inverses(
    K: np.ndarray, b: np.ndarray, inside: np.ndarray, weight: np.ndarray, total: np.ndarray
) -> None:
    """Add ``½ Σ_i w_i D_b K_SS⁻¹ D_b`` to `total`; skip singular ``K_SS``."""
    supports, kind = np.unique(inside, axis=0, return_inverse=True)
    for k, support in enumerate(supports):
        S, of_kind = np.flatnonzero(support), kind.reshape(-1) == k
        bS = b[of_kind][:, S]
        outer = (bS * weight[of_kind, None]).T @ bS
        try:
            total[np.ix_(S, S)] += 0.5 * outer * np.linalg.inv(K[np.ix_(S, S)])
        except np.linalg.LinAlgError:
            continue


def two_loop_first(steps, changes, inverse, newest, count, q, factors):
    """Run the first loop of L-BFGS, from the newest pair to the oldest; it changes q in place."""
    for k in range(count):
        at = (newest - k) % len(steps)
        factors[at] = (steps[at] @ q) * inverse[at]
        q -= factors[at] * changes[at]


def two_loop_second(steps, changes, inverse, newest, count, r, factors):
    """Run the second loop, from the oldest pair to the newest; it changes r in place."""
    for k in range(count - 1, -1, -1):
        at = (newest - k) % len(steps)
        r += (factors[at] - (changes[at] @ r) * inverse[at]) * steps[at]
