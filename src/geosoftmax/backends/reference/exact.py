"""Methods that find the exact solution in finitely many steps."""

from __future__ import annotations

import torch
from torch import Tensor

from geosoftmax.backends.reference.certificate import certified, certify
from geosoftmax.backends.reference.rows import Kernel, Rows, expand, keep_best
from geosoftmax.backends.settings import ADD_ABOVE, DROP_BELOW


def threshold(kernel: Kernel, k: Tensor, one_minus_k: Tensor, b: Tensor) -> Rows:
    """Solve for ``K = (1 - k) I + k 11ᵀ``: ``u = max(0, b - τ) / (1 - k)``, ``τ`` by one sort."""
    ordered = b.sort(-1, descending=True).values
    count = torch.arange(1, b.shape[-1] + 1, dtype=b.dtype, device=b.device)
    tau = k * ordered.cumsum(-1) / (one_minus_k + k * count)
    positive = (ordered > tau).sum(-1, keepdim=True).clamp_min(1)
    u = (b - tau.gather(-1, positive - 1)).clamp_min(0) / one_minus_k
    return certified(kernel, b, u, 1)


def policy(kernel: Kernel, b: Tensor) -> Rows:
    """Drop negative points. ``K⁻¹`` must be an M-matrix (lines with p = 1, trees).

    If a support contains the optimal one, a point with a negative weight on it is not in the
    optimal support. So supports shrink monotonically to the optimal one.
    """
    support = b > 0
    rounds = 0
    while True:
        rounds += 1
        u = kernel.solve(b, support)
        positive = support & (u > 0)
        if bool((positive == support).all()):
            break
        support = positive
    return certified(kernel, b, u, rounds)


def exchange(kernel: Kernel, b: Tensor, support: Tensor, tol: float, max_iter: int) -> Rows:
    """Block principal pivoting: solve on the support, drop negatives, add violated points.

    It ends for every positive definite ``K``: when the number of wrong points does not fall, it
    switches to Murty's single exchange. A row is done when no weight is negative and no point is
    violated, up to fractions of `tol`. This is stricter than the gap, so that distributions are
    accurate, too.
    """
    rows = b.shape[0]
    u, lower, upper = certify(kernel, b, smooth_start(kernel, b))
    best = Rows(u.to(b.dtype), lower, upper, torch.zeros(rows, dtype=torch.int64, device=b.device))
    active = torch.arange(rows, device=b.device)
    support = support & (b > 0)
    fewest = torch.full((rows,), kernel.size + 1, device=b.device)
    patience = torch.full((rows,), 3, device=b.device)
    for step in range(1, max_iter + 1):
        part = kernel.select(active)
        ba = b[active]
        u = part.solve(ba, support)
        h = part.matvec(u)
        least = -DROP_BELOW * tol * (u * ba).flatten(1).sum(1) / kernel.size
        wrong = torch.where(
            support,
            u * ba < expand(least, u),
            (ba - h > (ADD_ABOVE * tol + 1e-14) * ba) & (ba > 0),
        )
        keep_best(best, active, *certify(part, ba, u.clamp_min(0)), step)
        count = wrong.flatten(1).sum(1)
        better = count < fewest
        fewest = torch.where(better, count, fewest)
        patience = torch.where(better, 3, patience - 1)
        single = patience < 0
        if bool(single.any()):
            wrong = torch.where(expand(single, wrong), _last_only(wrong), wrong)
        support = support ^ wrong
        going = count > 0
        if not bool(going.any()):
            break
        active, support = active[going], support[going]
        fewest, patience = fewest[going], patience[going]
    return best


def active_set(kernel: Kernel, b: Tensor, start: Tensor | None) -> Rows:
    """Solve exactly by exchanges, starting from the support of `start`."""
    support = b > 0 if start is None else start > 0
    return exchange(kernel, b, support, tol=1e-13, max_iter=4 * kernel.size + 20)


def smooth_start(kernel: Kernel, b: Tensor) -> Tensor:
    """Return ``b / K1``, which is accurate for smooth scores."""
    return b / kernel.matvec(torch.ones_like(b))


def _last_only(mask: Tensor) -> Tensor:
    """Keep the last true entry of each row."""
    flat = mask.flatten(1)
    after = flat.flip(1).cumsum(1).flip(1)
    return (flat & (after == 1)).reshape(mask.shape)
