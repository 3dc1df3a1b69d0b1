"""The symmetric Sinkhorn problem: ``v ≥ 0`` with ``v · Kv = α``.

With ``P = diag(1/h) K diag(v)``, ``h = Kv``: a stochastic matrix with eigenvalues in ``[0, 1]``,
because ``K`` is positive definite. So the Jacobian ``I + P`` of the equations in ``log v`` has a
condition number of at most 2, whatever the cost: the averaged fixed point halves the error at each
step, and linear systems with ``I + P`` need a fixed, small number of products with ``K``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from geosoftmax.costs.base import Cost
from geosoftmax.kernels.reference import product

#: Residual in log v below which Newton steps replace the averaged fixed point.
NEWTON_BELOW = 0.5
#: Probabilities below this are solved for, but do not count as errors.
SUBNORMAL = 1e-290


class SinkhornRows(NamedTuple):
    """``v`` with ``v · Kv ≈ α``, and the largest error of ``log(v · Kv / α)`` on the support."""

    v: Tensor
    residual: Tensor
    iterations: Tensor


def sinkhorn(cost: Cost, alpha: Tensor, tol: float, max_iter: int) -> SinkhornRows:
    """Solve rows ``alpha`` of shape ``(rows, *cost.shape)``, in float64."""
    dims = tuple(range(1, alpha.dim()))
    inside = alpha > 0
    counted = alpha > SUBNORMAL  # smaller ones have no digits to get right
    one = torch.ones_like(alpha)

    def multiply(x: Tensor) -> Tensor:
        return product(cost, x)

    log_alpha = torch.log(torch.where(inside, alpha, one))
    v = torch.where(inside, alpha / torch.where(inside, multiply(alpha), one).sqrt(), 0 * one)
    best = v
    rows = alpha.shape[0]
    smallest = torch.full((rows,), torch.inf, dtype=alpha.dtype, device=alpha.device)
    iterations = torch.zeros(rows, dtype=torch.int64, device=alpha.device)
    stalled = 0
    for iteration in range(1, max_iter + 1):
        h = multiply(v)
        error = torch.where(inside, torch.log(v) + torch.log(h) - log_alpha, 0 * one)
        worst = torch.where(counted, error, 0 * one).abs().amax(dims)
        improved = worst < smallest
        best = torch.where(_per_row(improved, v), v, best)
        previous, smallest = smallest, torch.where(improved, worst, smallest)
        iterations = torch.where(previous > tol, iteration, iterations)
        if bool((smallest <= tol).all()):
            break
        stalled = 0 if bool((worst < 0.75 * previous).any()) else stalled + 1
        if stalled > 3:
            break
        newton = (worst < NEWTON_BELOW) & improved
        step = -error / 2
        if bool(newton.any()):
            root = torch.where(inside, v.sqrt() * h.sqrt(), one)
            s = torch.where(inside, v.sqrt() / h.sqrt(), 0 * one)
            solved = stochastic_solve(multiply, s, root * error, rounds=12) / root
            step = torch.where(_per_row(newton, v), -solved, step)
        v = torch.where(inside, v * torch.exp(step), 0 * one)
    return SinkhornRows(best, smallest, iterations)


def stochastic_solve(
    multiply: Callable[[Tensor], Tensor], s: Tensor, rhs: Tensor, rounds: int
) -> Tensor:
    """Solve ``(I + diag(s) K diag(s)) z = rhs`` by Chebyshev's method on the interval [1, 2].

    The error falls by a factor of 5.8 each round. A fixed polynomial: linear in ``rhs``,
    self-adjoint, without inner products.
    """
    centre, radius = 1.5, 0.5
    sigma = centre / radius
    rho = 1 / sigma
    direction = rhs / centre
    z = direction
    for _ in range(rounds - 1):
        residual = rhs - z - s * multiply(s * z)
        rho_next = 1 / (2 * sigma - rho)
        direction = rho_next * rho * direction + (2 * rho_next / radius) * residual
        z = z + direction
        rho = rho_next
    return z


def _per_row(flags: Tensor, like: Tensor) -> Tensor:
    return flags.reshape(-1, *([1] * (like.dim() - 1)))
