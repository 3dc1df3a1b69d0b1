"""Solving ``K_SS x = rhs_S`` for kernels without special structure.

Supports differ between samples. So the submatrices are gathered, padded with the identity to one
size, and factorised together. Larger supports use conjugate gradients on the masked operator.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

#: The largest support that is factorised. Larger ones use conjugate gradients.
LARGEST_FACTOR = 2048
#: The largest number of matrix entries that are gathered at once.
ENTRIES_AT_ONCE = 1 << 24
#: The size, in bytes, from which the allocator returns a temporary to the system at once. Many
#: smaller ones would fragment memory.
LARGE_BLOCK = 48 << 20


def gathered_solve(
    entries: Callable[[Tensor, Tensor, Tensor], Tensor],
    matvec: Callable[[Tensor], Tensor],
    rhs: Tensor,
    support: Tensor,
) -> Tensor:
    """Solve on the support, for flat signals ``(rows, d)``.

    Parameters
    ----------
    entries : callable
        ``entries(rows, i, j)`` gives ``K_ij`` for index tensors that broadcast together.
    matvec : callable
        ``K u`` for all rows at once.
    rhs, support : Tensor
        Shape ``(rows, d)``.
    """
    x = torch.zeros_like(rhs)
    if rhs.numel() == 0:
        return x
    counts = support.sum(-1)
    widest = int(counts.max())
    if widest == 0:
        return x
    if widest > LARGEST_FACTOR:
        return _conjugate_gradients(matvec, rhs, support)
    rows_at_once = max(1, ENTRIES_AT_ONCE // widest**2)
    for start in range(0, rhs.shape[0], rows_at_once):
        part = slice(start, start + rows_at_once)
        x[part] = _factor_solve(entries, rhs[part], support[part], start)
    return x


def _factor_solve(
    entries: Callable[[Tensor, Tensor, Tensor], Tensor], rhs: Tensor, support: Tensor, start: int
) -> Tensor:
    width = int(support.sum(-1).max())
    if width == 0:
        return torch.zeros_like(rhs)
    # The indices of the support come first, then padding that `inside` masks.
    order = torch.argsort(support.to(torch.uint8), dim=-1, descending=True, stable=True)
    index = order[:, :width]
    inside = torch.gather(support, 1, index)
    rows = torch.arange(start, start + rhs.shape[0], device=rhs.device)[:, None, None]
    K = entries(rows, index[:, :, None], index[:, None, :]).to(rhs.dtype)
    both = inside[:, :, None] & inside[:, None, :]
    K = torch.where(both, K, torch.zeros((), dtype=K.dtype, device=K.device))
    K.diagonal(dim1=-2, dim2=-1).add_((~inside).to(K.dtype))
    r = torch.gather(rhs, 1, index) * inside
    solution = spd_solve(K, r[..., None])[..., 0] * inside
    return torch.zeros_like(rhs).scatter(1, index, solution)


def spd_solve(K: Tensor, rhs: Tensor) -> Tensor:
    """Solve with a symmetric positive definite ``K``; add jitter only if it is singular."""
    factor, info = torch.linalg.cholesky_ex(K)
    jitter = torch.finfo(K.dtype).eps
    while bool(info.any()) and jitter < 1e-2:
        jitter *= 10
        bump = (info > 0).to(K.dtype)[..., None] * (jitter * K.shape[-1])
        shifted = K + torch.diag_embed(bump.expand(K.shape[:-1]))
        factor, info = torch.linalg.cholesky_ex(shifted)
    x = torch.cholesky_solve(rhs, factor)
    return x + torch.cholesky_solve(rhs - K @ x, factor)


def _conjugate_gradients(
    matvec: Callable[[Tensor], Tensor], rhs: Tensor, support: Tensor, max_iter: int = 4000
) -> Tensor:
    mask = support.to(rhs.dtype)
    tiny = torch.finfo(rhs.dtype).tiny
    x = torch.zeros_like(rhs)
    r = rhs * mask
    direction = r
    rr = (r * r).sum(-1, keepdim=True)
    target = rr * (10 * torch.finfo(rhs.dtype).eps) ** 2
    for _ in range(max_iter):
        if bool((rr <= target).all()):
            break
        Kd = matvec(direction) * mask
        step = rr / (direction * Kd).sum(-1, keepdim=True).clamp_min(tiny)
        step = torch.where(rr <= target, torch.zeros_like(step), step)
        x = x + step * direction
        r = r - step * Kd
        rr_next = (r * r).sum(-1, keepdim=True)
        direction = r + rr_next / rr.clamp_min(tiny) * direction
        rr = rr_next
    return x
