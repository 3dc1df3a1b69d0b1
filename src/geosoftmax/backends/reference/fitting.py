"""What fitting a linear model needs beside losses: their curvature, and directions of L-BFGS.

With ``K = exp(-C/2)``, ``b = exp(f/2)``, ``Z = ⟨b,u⟩`` and ``S = supp u``, the curvature of a loss
in the scores is ``½ (D_b K_SS⁻¹ D_b / Z + D_α) - ααᵀ``. In numpy, as estimators work with it.
"""

from __future__ import annotations

import numpy as np


def add_inverses(
    K: np.ndarray, b: np.ndarray, inside: np.ndarray, weight: np.ndarray, total: np.ndarray
) -> None:
    """Add ``½ Σ_i w_i D_b K_SS⁻¹ D_b`` to `total`; singular ``K_SS`` are left out."""
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
    """First loop of L-BFGS: q is changed in place, from the newest pair to the oldest."""
    for k in range(count):
        at = (newest - k) % len(steps)
        factors[at] = (steps[at] @ q) * inverse[at]
        q -= factors[at] * changes[at]


def two_loop_second(steps, changes, inverse, newest, count, r, factors):
    """Second loop: r is changed in place, from the oldest pair to the newest."""
    for k in range(count - 1, -1, -1):
        at = (newest - k) % len(steps)
        r += (factors[at] - (changes[at] @ r) * inverse[at]) * steps[at]
