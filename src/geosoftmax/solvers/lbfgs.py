"""The paper's own method (§3.4): unconstrained L-BFGS on log-probabilities. For comparison only."""

from __future__ import annotations

import torch
from torch import Tensor

from geosoftmax.backends.reference import Rows, certify
from geosoftmax.costs.base import Cost
from geosoftmax.solvers.solution import Options


def lbfgs(cost: Cost, b: Tensor, options: Options) -> Rows:
    """Maximise ``2 LSE(l) - log Σ exp(l_i + l_j - (f_i + f_j + c_ij)/2)`` for all rows together.

    As in the authors' code: strong Wolfe line search, ``l`` starts at ``f``, stops when the sum
    over the batch changes by less than ``tol``.
    """
    dims = tuple(range(1, b.dim()))
    dtype = options.dtype
    masked = b == 0
    half_f = torch.log(torch.where(masked, torch.ones_like(b), b)).to(dtype)
    minus_inf = torch.full_like(half_f, -torch.inf)
    if options.init is None:
        start = 2 * half_f
    else:
        mass = (options.init * b).clamp_min(torch.finfo(dtype).tiny)
        start = torch.log(mass).to(dtype)
    logits = torch.nn.Parameter(start - torch.logsumexp(start, dims, keepdim=True))
    optimizer = torch.optim.LBFGS(
        [logits],
        lr=1,
        max_iter=options.max_iter,
        tolerance_grad=0,
        tolerance_change=options.tol,
        line_search_fn="strong_wolfe",
    )

    def weights() -> tuple[Tensor, Tensor]:
        """Return ``log α`` and ``log u``."""
        masked_logits = torch.where(masked, minus_inf, logits)
        log_alpha = masked_logits - torch.logsumexp(masked_logits, dims, keepdim=True)
        return log_alpha, log_alpha - half_f

    def closure() -> Tensor:
        # The gradient by hand: solves run below autograd.
        log_alpha, log_u = weights()
        terms = log_u + cost.log_matvec(log_u)
        value = torch.logsumexp(terms, dims, keepdim=True)
        logits.grad = 2 * (torch.exp(terms - value) - torch.exp(log_alpha))
        return value.sum()

    with torch.no_grad():
        optimizer.step(closure)
        u, lower, upper = certify(cost, b, torch.exp(weights()[1]))
    state = optimizer.state[logits]
    return Rows(u, lower, upper, torch.full(lower.shape, state["n_iter"], device=b.device))
