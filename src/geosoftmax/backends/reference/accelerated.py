"""Accelerated projected gradient on (QP)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from geosoftmax.backends.reference.certificate import certify
from geosoftmax.backends.reference.exact import smooth_start
from geosoftmax.backends.reference.rows import Kernel, Rows, expand, keep_best
from geosoftmax.backends.threads import small_on_one_thread

#: Gradient steps between two checks of the gap.
CHECK_EVERY = 10


@small_on_one_thread(1)
def accelerate(
    kernel: Kernel, b: Tensor, start: Tensor | None, tol: float, max_iter: int, dtype: torch.dtype
) -> Rows:
    """Iterate in the given dtype; restart a row if its momentum points uphill.

    The certificate is for the problem in the dtype of ``b``.
    """
    rows = b.shape[0]
    u, lower, upper = certify(kernel, b, smooth_start(kernel, b) if start is None else start)
    best = Rows(u.to(b.dtype), lower, upper, torch.zeros(rows, dtype=torch.int64, device=b.device))
    active = (upper - lower > tol).nonzero()[:, 0]
    step = 1 / largest_eigenvalue(kernel, b[:1].to(dtype))
    u = y = best.u[active].to(dtype)
    ba, part = b[active], kernel.select(active)
    momentum = torch.ones(active.shape, dtype=dtype, device=b.device)
    iteration = 0
    while active.numel() and iteration < max_iter:
        iteration += 1
        u, y, momentum = _advance(u, y, part.matvec(y) - ba.to(dtype), step, momentum)
        if iteration % CHECK_EVERY == 0 or iteration == max_iter:
            certified, low, up = certify(part, ba, u)
            keep_best(best, active, certified, low, up, iteration)
            going = (up - low > tol).nonzero()[:, 0]
            if going.numel() < active.numel():
                active, u, y = active[going], u[going], y[going]
                momentum, ba, part = momentum[going], ba[going], kernel.select(active)
    return best


def descend(
    slope: Callable[[Tensor], Tensor], start: Tensor, step: Tensor, iterations: int
) -> Tensor:
    """Minimise convex functions of ``u ≥ 0``, one for each row, by so many iterations.

    `slope` returns their gradients, and `step` is at most the inverse of their Lipschitz constant.
    """
    u = y = start
    momentum = torch.ones_like(start.flatten(1)[:, 0])
    for _ in range(iterations):
        u, y, momentum = _advance(u, y, slope(y), step, momentum)
    return u


def _advance(
    u: Tensor, y: Tensor, slope: Tensor, step: Tensor, momentum: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """One step from ``y``; rows whose momentum points uphill restart."""
    ahead = (y - step * slope).clamp_min(0)
    uphill = ((y - ahead) * (ahead - u)).sum(tuple(range(1, u.dim()))) > 0
    grown = (1 + torch.sqrt(1 + 4 * momentum.square())) / 2
    weight = torch.where(uphill, 0, (momentum - 1) / grown)
    y = ahead + expand(weight, ahead) * (ahead - u)
    return ahead, y, torch.where(uphill, 1, grown)


def largest_eigenvalue(kernel: Kernel, like: Tensor, rounds: int = 8) -> Tensor:
    """Return a tight upper bound of the largest eigenvalue of ``K`` (Collatz–Wielandt)."""
    product = torch.ones_like(like)
    x = product
    for _ in range(rounds):
        x = product / product.amax()
        product = kernel.matvec(x)
    return (product / x).amax()
