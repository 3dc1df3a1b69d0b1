"""What a solve returns."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor


class ConvergenceWarning(UserWarning):
    """Some rows were not solved to the tolerance that was asked for."""


def has_converged(lower: Tensor, upper: Tensor, tol: float) -> Tensor:
    """Whether ``upper - lower ≤ tol``, but for what adding the largest score to both rounded."""
    return upper - lower <= tol + 8 * torch.finfo(upper.dtype).eps * upper.abs()


class Bracketed:
    """An answer with a certificate: ``lower ≤ value ≤ upper``, and the gap that was asked for."""

    lower: Tensor
    upper: Tensor
    tol: float
    method: str

    @property
    def gap(self) -> Tensor:
        """``upper - lower``: how exact the value is, at most."""
        return self.upper - self.lower

    @property
    def converged(self) -> Tensor:
        """Whether ``gap ≤ tol``, up to the rounding of the bounds themselves; of shape batch."""
        return has_converged(self.lower, self.upper, self.tol)

    def _described(self) -> str:
        rows = self.lower.numel()
        worst = float(self.gap.max()) if rows else 0.0
        done = int(self.converged.sum())
        return f"method={self.method!r}, converged={done}/{rows}, worst gap={worst:.1e}"


@dataclasses.dataclass(frozen=True)
class Solution(Bracketed):
    """The answer of a solve, with its certificate.

    ``lower ≤ g-LSE(scores) ≤ upper`` holds whatever the solver did: it is checked, not assumed.

    Attributes
    ----------
    alpha : Tensor, the shape of the scores
        The geometric softmax ``u b / ⟨b,u⟩``.
    u : Tensor, the shape of the scores
        The minimiser of ``½ uᵀKu - bᵀu`` over ``u ≥ 0``, for ``b = exp((scores - max) / 2)``.
    lower, upper : Tensor, float64, shape batch: that of the scores without the outputs
        The bracket of the geometric log-sum-exp.
    iterations : Tensor, shape batch
        Iterations of the method: rounds, exchanges or gradient steps.
    tol : float
        The gap that was asked for.
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
