"""The symmetric Sinkhorn problem: ``v ≥ 0`` with ``v · Kv = α``.

Let ``P = diag(1/h) K diag(v)`` with ``h = Kv``. It is a stochastic matrix with eigenvalues in
``[0, 1]``, because ``K`` is positive definite. So the Jacobian ``I + P`` of the equations in
``log v`` has a condition number of at most 2 for every cost. The averaged fixed point divides the
error by 3 at each step, and linear systems with ``I + P`` need a small, fixed number of products
with ``K``. Errors are computed in float64. Corrections need few digits, so the Newton systems,
which take nearly all products, are solved in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from geosoftmax.backends.reference.rows import expand
from geosoftmax.backends.settings import NEWTON_BELOW, STALLED, SUBNORMAL
from geosoftmax.backends.threads import small_on_one_thread

#: If all probabilities are larger, ``v`` and ``1/h`` fit into float32, or what underflows does not
#: matter.
HELD_BY_SINGLE = 1e-60
#: Rounds of Chebyshev's method for a Newton step, to float32 precision or better.
ROUNDS = {torch.float32: 8, torch.float64: 12}


#: ``v -> Kv``
Multiply = Callable[[Tensor], Tensor]


class SinkhornRows(NamedTuple):
    """``v`` with ``v · Kv ≈ α``, and the largest error of ``log(v · Kv / α)`` on the support."""

    v: Tensor
    residual: Tensor
    iterations: Tensor


@small_on_one_thread(1)
def sinkhorn(multiply: Multiply, alpha: Tensor, tol: float, max_iter: int) -> SinkhornRows:
    """Solve rows ``alpha`` of shape ``(rows, *shape)``, in float64; ``multiply(v)`` is ``Kv``."""
    dims = tuple(range(1, alpha.dim()))
    inside = alpha > 0
    counted = alpha > SUBNORMAL  # smaller ones have no reliable digits
    wanted = torch.where(inside, alpha, 1.0)
    dtype = torch.float32 if float(wanted.amin()) > HELD_BY_SINGLE else alpha.dtype

    v = torch.where(inside, alpha / torch.where(inside, multiply(alpha), 1.0).sqrt(), 0.0)
    best = v
    rows = alpha.shape[0]
    smallest = torch.full((rows,), torch.inf, dtype=alpha.dtype, device=alpha.device)
    iterations = torch.zeros(rows, dtype=torch.int64, device=alpha.device)
    stalled = 0
    for iteration in range(1, max_iter + 1):
        h = multiply(v)
        error = torch.log(torch.where(inside, v / wanted * h, 1.0))
        worst = torch.where(counted, error, 0.0).abs().amax(dims)
        improved = worst < smallest
        best = torch.where(expand(improved, v), v, best)
        previous, smallest = smallest, torch.where(improved, worst, smallest)
        iterations = torch.where(previous > tol, iteration, iterations)
        if bool((smallest <= tol).all()):
            break
        stalled = 0 if bool((worst < 0.75 * previous).any()) else stalled + 1
        if stalled > STALLED:
            break
        newton = (worst < NEWTON_BELOW) & improved
        step = error * (2 / 3)
        if bool(newton.any()):
            part, over = v.to(dtype), torch.where(inside, 1 / h, 0.0).to(dtype)
            exact = shifted_solve(
                lambda x, part=part, over=over: over * multiply(part * x),
                error.to(dtype), ROUNDS[dtype],
            )  # fmt: skip
            step = torch.where(expand(newton, v), exact.to(v.dtype), step)
        v = v * torch.exp(-step)
    return SinkhornRows(best, smallest, iterations)


def shifted_solve(apply: Callable[[Tensor], Tensor], rhs: Tensor, rounds: int) -> Tensor:
    """Solve ``z + apply(z) = rhs`` by Chebyshev's method, for eigenvalues in [0, 1].

    Each round divides the error by 5.8. The method is a fixed polynomial: it is linear in ``rhs``,
    self-adjoint if `apply` is, and needs no inner products.
    """
    centre, radius = 1.5, 0.5
    sigma = centre / radius
    rho = 1 / sigma
    direction = rhs / centre
    z = direction
    for _ in range(rounds - 1):
        residual = rhs - z - apply(z)
        rho_next = 1 / (2 * sigma - rho)
        direction = torch.add(rho_next * rho * direction, residual, alpha=2 * rho_next / radius)
        z = z + direction
        rho = rho_next
    return z
