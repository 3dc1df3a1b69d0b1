"""The result of a solve."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor


class ConvergenceWarning(UserWarning):
    """Some rows did not reach the requested tolerance."""


def has_converged(lower: Tensor, upper: Tensor, tol: float) -> Tensor:
    """Return whether ``upper - lower ≤ tol``, up to the rounding of the bounds themselves."""
    return upper - lower <= tol + 8 * torch.finfo(upper.dtype).eps * upper.abs()


class Bracketed:
    """A result with a certificate: ``lower ≤ value ≤ upper``, and the requested gap."""

    lower: Tensor
    upper: Tensor
    tol: float
    method: str

    @property
    def gap(self) -> Tensor:
        """``upper - lower``: a bound on the error of the value."""
        return self.upper - self.lower

    @property
    def converged(self) -> Tensor:
        """Whether ``gap ≤ tol``, up to the rounding of the bounds themselves. Shape: batch."""
        return has_converged(self.lower, self.upper, self.tol)

    def _described(self) -> str:
        rows = self.lower.numel()
        worst = float(self.gap.max()) if rows else 0.0
        done = int(self.converged.sum())
        return f"method={self.method!r}, converged={done}/{rows}, worst gap={worst:.1e}"


@dataclasses.dataclass(frozen=True)
class Solution(Bracketed):
    """The result of a solve, with its certificate.

    ``lower ≤ g-LSE(scores) ≤ upper`` always holds, even if the solver did not converge. The bounds
    are computed from ``u``, and make no assumption about the solver.

    Attributes
    ----------
    alpha : Tensor, the shape of the scores
        The geometric softmax ``u b / ⟨b,u⟩``.
    u : Tensor, the shape of the scores
        The minimiser of ``½ uᵀKu - bᵀu`` over ``u ≥ 0``, for ``b = exp((scores - max) / 2)``.
    lower, upper : Tensor, float64, shape batch (that of the scores, without the outputs)
        The bracket of the geometric log-sum-exp.
    iterations : Tensor, shape batch
        The number of iterations: rounds, exchanges or gradient steps.
    tol : float
        The requested gap.
    method : str
        The method that ran.
    """

    alpha: Tensor
    u: Tensor
    lower: Tensor
    upper: Tensor
    iterations: Tensor
    tol: float
    method: str

    def __repr__(self) -> str:
        return f"Solution(shape={tuple(self.alpha.shape)}, {self._described()})"
