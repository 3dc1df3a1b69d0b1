"""The paper's own method (§3.4): unconstrained L-BFGS on log-probabilities. For comparison only."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from geosoftmax.backends.reference.certificate import certify
from geosoftmax.backends.reference.rows import Kernel, Rows


def lbfgs(
    kernel: Kernel,
    log_matvec: Callable[[Tensor], Tensor],
    b: Tensor,
    start: Tensor | None,
    tol: float,
    max_iter: int,
    dtype: torch.dtype,
) -> Rows:
    """Maximise ``2 LSE(l) - log Σ exp(l_i + l_j - (f_i + f_j + c_ij)/2)`` for all rows together.

    As in the authors' code, the line search is strong Wolfe, ``l`` starts at ``f``, and it stops
    when the sum over the batch changes by less than `tol`. ``log_matvec(g)`` is ``log(K exp(g))``.
    """
    dims = tuple(range(1, b.dim()))
    masked = b == 0
    half_f = torch.log(torch.where(masked, torch.ones_like(b), b)).to(dtype)
    minus_inf = torch.full_like(half_f, -torch.inf)
    if start is None:
        begin = 2 * half_f
    else:
        begin = torch.log((start * b).clamp_min(torch.finfo(dtype).tiny)).to(dtype)
    logits = torch.nn.Parameter(begin - torch.logsumexp(begin, dims, keepdim=True))
    optimizer = torch.optim.LBFGS(
        [logits],
        lr=1,
        max_iter=max_iter,
        tolerance_grad=0,
        tolerance_change=tol,
        line_search_fn="strong_wolfe",
    )

    def weights() -> tuple[Tensor, Tensor]:
        """Return ``log α`` and ``log u``."""
        masked_logits = torch.where(masked, minus_inf, logits)
        log_alpha = masked_logits - torch.logsumexp(masked_logits, dims, keepdim=True)
        return log_alpha, log_alpha - half_f

    def closure() -> Tensor:
        # The gradient is computed by hand, because solves run without autograd.
        log_alpha, log_u = weights()
        terms = log_u + log_matvec(log_u)
        value = torch.logsumexp(terms, dims, keepdim=True)
        logits.grad = 2 * (torch.exp(terms - value) - torch.exp(log_alpha))
        return value.sum()

    with torch.no_grad():
        optimizer.step(closure)
        u, lower, upper = certify(kernel, b, torch.exp(weights()[1]))
    steps = optimizer.state[logits]["n_iter"]
    return Rows(u, lower, upper, torch.full(lower.shape, steps, device=b.device))
