"""The input and the result of every solve of (QP): a batch of rows.

Signals are ``(rows, *shape)``. ``b = exp(f/2)`` with the maximum of ``f`` subtracted, so
``max b = 1`` in each row, and ``b = 0`` is a mask.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class Kernel(Protocol):
    """``K = exp(-C/2)``, one for all rows or one per row: the reference's interface to a cost.

    `diagonal` is that of ``K`` if it is not exactly one (perturbed matrices), else None. Sums in a
    product have at most `terms` terms.
    """

    shape: tuple[int, ...]
    size: int
    terms: int
    diagonal: Tensor | None

    def matvec(self, u: Tensor) -> Tensor:
        """Return ``K u``."""
        ...

    def solve(self, rhs: Tensor, support: Tensor) -> Tensor:
        """Return ``x`` with ``K_SS x_S = rhs_S`` on the support (a mask) and 0 elsewhere."""
        ...

    def select(self, rows: Tensor) -> Kernel:
        """Return the kernels of some rows, if there is one per row; else itself."""
        ...


class Rows(NamedTuple):
    """The result of a solve, row by row.

    ``u`` is scaled so that ``⟨b,u⟩ = uᵀKu``; ``lower`` and ``upper`` bracket ``log⟨b,u*⟩``.
    """

    u: Tensor
    lower: Tensor
    upper: Tensor
    iterations: Tensor


def certificate_dtype(device: torch.device) -> torch.dtype:
    """Return the dtype of brackets: float64, if the device has it."""
    return torch.float32 if device.type == "mps" else torch.float64


def peaks(scores: Tensor, dimensions: int) -> Tensor:
    """Return the largest score of each row, in the dtype of certificates."""
    rows = scores.reshape(-1, scores.shape[scores.dim() - dimensions :].numel())
    return rows.amax(-1).to(certificate_dtype(scores.device))


def obstacle(scores: Tensor, peak: Tensor, dimensions: int) -> Tensor:
    """Return ``b = exp((f - peak) / 2)``, as rows, in the dtype of certificates."""
    f = scores.to(certificate_dtype(scores.device))
    f = f.reshape(-1, *scores.shape[scores.dim() - dimensions :]).contiguous()
    return torch.exp((f - expand(peak, f)) / 2)


def distribution(b: Tensor, u: Tensor) -> Tensor:
    """Return ``α = u b / ⟨b,u⟩``."""
    weighted = u * b
    return weighted / weighted.sum(tuple(range(1, b.dim())), keepdim=True)


def expand(per_row: Tensor, like: Tensor) -> Tensor:
    """Give a value per row the dimensions of a signal."""
    return per_row.reshape(-1, *([1] * (like.dim() - 1)))


def merge(rows: Rows, index: Tensor, better: Rows) -> None:
    """Write back the rows whose bracket became narrower; count all iterations."""
    rows.iterations[index] += better.iterations
    narrower = (better.upper - better.lower) < (rows.upper - rows.lower)[index]
    _write(rows, index[narrower], *(x[narrower] for x in better[:3]))


def keep_best(
    best: Rows, active: Tensor, u: Tensor, lower: Tensor, upper: Tensor, iteration: int
) -> None:
    """Write a certified iterate back, if it narrowed the bracket."""
    narrower = (upper - lower) < (best.upper - best.lower)[active]
    _write(best, active[narrower], u[narrower], lower[narrower], upper[narrower])
    best.iterations[active] = iteration


def _write(rows: Rows, index: Tensor, u: Tensor, lower: Tensor, upper: Tensor) -> None:
    rows.u[index] = u.to(rows.u.dtype)
    rows.lower[index] = lower
    rows.upper[index] = upper
