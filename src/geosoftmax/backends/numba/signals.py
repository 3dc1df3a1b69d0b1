"""From scores to the obstacle of (QP), and from its minimiser to a distribution.

With numpy and our own threads rather than torch's: its workers spin after each use, and would take
the cores from the kernels that follow.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from geosoftmax.backends.numba.runtime import jit, spread

#: How many entries of this work weigh as much as one of a solver's.
CHEAP = 32


def peaks(scores: Tensor) -> Tensor:
    """Return the largest score of each row, in float64; rows are along the first dimension."""
    return torch.from_numpy(_rows(scores).max(axis=1).astype(np.float64))


def obstacle(scores: Tensor, peak: Tensor) -> Tensor:
    """``b = exp((f - peak) / 2)`` in float64, for scores of shape (rows, *shape)."""
    f, largest = _rows(scores), peak.numpy()[:, None]
    b = np.empty(f.shape)

    def fill(first: int, last: int) -> None:
        part = b[first:last]
        np.subtract(f[first:last], largest[first:last], out=part)
        np.multiply(part, 0.5, out=part)
        np.exp(part, out=part)

    spread(fill, len(b), b.size // CHEAP)
    return torch.from_numpy(b).reshape(scores.shape)


def distribution(b: Tensor, u: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """``α = u b / ⟨b,u⟩``, and ``u``, in the given dtype."""
    flat_b, flat_u = (_rows(x.to(torch.float64)) for x in (b, u))
    alpha = torch.empty(b.shape, dtype=dtype)
    flat_alpha = _rows(alpha)
    spread(_distributions, len(flat_b), flat_b.size // CHEAP, flat_b, flat_u, flat_alpha)
    return alpha, torch.from_numpy(flat_u.astype(flat_alpha.dtype, copy=False)).reshape(u.shape)


def _rows(signal: Tensor) -> np.ndarray:
    return signal.detach().contiguous().reshape(signal.shape[0], -1).numpy()


@jit
def _distributions(b, u, alpha, first, last):
    for row in range(first, last):
        total = 0.0
        for i in range(b.shape[1]):
            total += b[row, i] * u[row, i]
        inverse = 1.0 / total
        for i in range(b.shape[1]):
            alpha[row, i] = b[row, i] * u[row, i] * inverse
