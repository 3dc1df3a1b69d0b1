"""The certificate: what any ``u ≥ 0`` proves about the value of (QP)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from geosoftmax.backends.reference.rows import Kernel, Rows, certificate_dtype, expand
from geosoftmax.backends.settings import sequential_allowance


def certify(kernel: Kernel, b: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rescale any ``u ≥ 0`` and bracket ``log⟨b,u*⟩``: return ``u, lower, upper``."""
    dtype = certificate_dtype(b.device)
    b, u = b.to(dtype), u.to(dtype)
    scale, value, gap = bracket(b, u, kernel.matvec(u), kernel.diagonal, kernel.matvec)
    slack = sequential_allowance(kernel.terms, dtype)
    return u * expand(scale, u), value - slack, value + gap + slack


def certified(kernel: Kernel, b: Tensor, u: Tensor, iterations: int) -> Rows:
    """Return ``u`` as the result of a solve."""
    u, lower, upper = certify(kernel, b, u)
    return Rows(u, lower, upper, torch.full(lower.shape, iterations, device=b.device))


def bracket(
    b: Tensor,
    u: Tensor,
    h: Tensor,
    diagonal: Tensor | None = None,
    product: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return, for each row, the factor of ``u``, the lower bound that it proves, and its gap.

    ``h`` is ``Ku``. With ``⟨b,u⟩ = uᵀKu`` and ``v = max(b - Ku, 0)``:
    ``log uᵀKu ≤ g-LSE ≤ log wᵀKw`` for every ``w ≥ 0`` with ``Kw ≥ b``. Two such ``w`` are tried:
    ``u + v``, where ``v`` is divided by the diagonal of ``K`` if that is below one, and
    ``u · max(b/Ku)``. Without a product the gap is a quick bound: it tries only ``u + v``, and
    bounds ``vᵀKv`` by ``(Σv)²``.
    """
    shape = b.shape
    b, u, h = b.flatten(1), u.flatten(1), h.flatten(1)
    bu = torch.linalg.vecdot(b, u)
    scale = bu / torch.linalg.vecdot(u, h)
    h = h * scale[:, None]
    v = (b - h).clamp_min_(0)
    if diagonal is not None:
        v = v / diagonal.to(v.dtype).reshape(-1, v.shape[1]).clamp(max=1)
    energy = bu * scale
    linear = 2 * torch.linalg.vecdot(v, h)
    if product is None:
        return scale, torch.log(energy), torch.log1p((linear + v.sum(1).square()) / energy)
    squared = torch.linalg.vecdot(v, product(v.reshape(shape)).flatten(1))
    ratio = torch.where(b > 0, b / h, torch.zeros_like(b)).amax(1).clamp_min(1)
    gap = torch.minimum(torch.log1p((linear + squared) / energy), 2 * torch.log(ratio))
    return scale, torch.log(energy), gap
