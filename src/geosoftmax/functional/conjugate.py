"""(QP): the geometric softmax and log-sum-exp, the extrapolation, and `solve`."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from geosoftmax import autograd, operators
from geosoftmax.costs.base import Cost
from geosoftmax.functional.axes import Dim, axes_of, outputs_back, outputs_last, second_last
from geosoftmax.functional.calls import computed, full_precision, settle
from geosoftmax.operators import Options
from geosoftmax.solvers import MAX_ITER, Solution
from geosoftmax.validation import check_same_shape, check_signal, is_concrete


@full_precision
def geometric_softmax(
    scores: Tensor,
    cost: Cost,
    *,
    dim: Dim = None,
    tol: float | None = None,
    max_iter: int | None = None,
    method: str = "auto",
) -> Tensor:
    r"""Geometric softmax: :math:`\nabla\Omega^*(f) = u^* b / \langle b, u^* \rangle`.

    ``u*`` minimises ``½ uᵀKu - bᵀu`` over ``u ≥ 0``. The result is a distribution, often sparse.

    Parameters
    ----------
    scores : Tensor, shape (*batch, *cost.shape)
        ``-inf`` masks an output: its probability is exactly 0.
    cost : Cost
        The geometry of the outputs.
    dim : int or tuple of int, optional
        The axis of scores that holds the outputs, as in ``torch.softmax``. A grid needs one axis
        for each side, in order. By default the last ones.
    tol, max_iter, method
        As for `solve`; see ``geosoftmax.solvers`` for the defaults.

    Returns
    -------
    Tensor, the shape of scores

    Examples
    --------
    >>> import torch
    >>> from geosoftmax import LineCost, geometric_softmax
    >>> scores = torch.tensor([0.0, 2.0, 1.8, -3.0], dtype=torch.float64)
    >>> geometric_softmax(scores, LineCost(4))
    tensor([0.0000, 0.6257, 0.3743, 0.0000], dtype=torch.float64)
    """
    if dim is not None:
        axes = axes_of("scores", scores, cost, dim)
        moved = outputs_last(scores, axes)
        result = geometric_softmax(moved, cost, tol=tol, max_iter=max_iter, method=method)
        return outputs_back(result, axes)
    check_signal("scores", scores, cost)
    f = computed(scores)
    options = settle("distribution", scores.dtype, tol, max_iter, method)
    if autograd.is_constant(f, cost.parameter):
        alpha = operators.predict(f, cost, options)
        return alpha if alpha.dtype == scores.dtype else alpha.to(scores.dtype)
    alpha, u, _, _, _ = operators.solve(f.detach(), cost, options)
    return autograd.softmax(f, u, alpha, cost).to(scores.dtype)


@full_precision
def geometric_logsumexp(
    scores: Tensor,
    cost: Cost,
    *,
    dim: Dim = None,
    tol: float | None = None,
    max_iter: int | None = None,
    method: str = "auto",
) -> Tensor:
    r"""Geometric log-sum-exp: :math:`\Omega^*(f) = \log\langle b, u^* \rangle`.

    Convex in the scores, with the geometric softmax as its gradient.

    Parameters
    ----------
    scores : Tensor, shape (*batch, *cost.shape)
    cost : Cost
    dim : int or tuple of int, optional
        The axes of the outputs, as for `geometric_softmax`.
    tol, max_iter, method
        As for `solve`.

    Returns
    -------
    Tensor, shape batch

    Examples
    --------
    >>> import torch
    >>> from geosoftmax import ZeroOneCost, geometric_logsumexp
    >>> scores = torch.zeros(3, dtype=torch.float64)
    >>> geometric_logsumexp(scores, ZeroOneCost(3) * 1e6)  # far apart: log 3
    tensor(1.0986, dtype=torch.float64)
    """
    if dim is not None:
        scores = outputs_last(scores, axes_of("scores", scores, cost, dim))
    check_signal("scores", scores, cost)
    f = computed(scores)
    options = settle("value", scores.dtype, tol, max_iter, method)
    alpha, u, lower, _, _ = operators.solve(f.detach(), cost, options)
    return autograd.log_sum_exp(f, u, alpha, lower, cost).to(scores.dtype)


@full_precision
def extrapolate(
    scores: Tensor,
    cost: Cost,
    *,
    dim: Dim = None,
    tol: float | None = None,
    max_iter: int | None = None,
    method: str = "auto",
) -> Tensor:
    r"""Extrapolation of Proposition 3: :math:`f^E = 2 \log(K u^*)`.

    Up to a constant, this is the Sinkhorn potential of least energy above the scores. It equals
    them on the support of the geometric softmax. Elsewhere it is at least as large, also where
    scores are ``-inf``.

    Parameters
    ----------
    scores : Tensor, shape (*batch, *cost.shape)
    cost : Cost
    dim : int or tuple of int, optional
        The axes of the outputs, as for `geometric_softmax`.
    tol, max_iter, method
        As for `solve`.

    Returns
    -------
    Tensor, the shape of scores

    Examples
    --------
    >>> import torch
    >>> from geosoftmax import LineCost, extrapolate
    >>> extrapolate(torch.tensor([3.0, -9.0, 1.0]), LineCost(3))
    tensor([3., 2., 1.])
    """
    if dim is not None:
        axes = axes_of("scores", scores, cost, dim)
        moved = outputs_last(scores, axes)
        result = extrapolate(moved, cost, tol=tol, max_iter=max_iter, method=method)
        return outputs_back(result, axes)
    check_signal("scores", scores, cost)
    f = scores.to(torch.float64)  # for its range more than for its digits
    options = settle("distribution", scores.dtype, tol, max_iter, method)
    _, u, _, _, _ = operators.solve(f.detach(), cost, options)
    b, peak = autograd.half_exponential(f, cost)
    envelope = 2 * autograd.log_product(autograd.minimiser(b, u, cost), cost) + peak
    envelope = _with_far_outputs(envelope, f, peak, cost)
    return torch.maximum(envelope, f).to(scores.dtype)


def solve(
    scores: Tensor,
    cost: Cost,
    *,
    dim: Dim = None,
    tol: float | None = None,
    max_iter: int | None = None,
    method: str = "auto",
    init: Tensor | Solution | None = None,
) -> Solution:
    r"""Solve (QP): return the minimiser, its bracket, and how it was found.

    No gradients are recorded. Use `geometric_softmax` or `geometric_logsumexp` for those.

    Parameters
    ----------
    scores : Tensor, shape (*batch, *cost.shape)
    cost : Cost
    dim : int or tuple of int, optional
        The axes of the outputs, as for `geometric_softmax`. They hold for the scores, for ``alpha``
        and ``u`` of the solution, and for a warm start.
    tol : float, optional
        The certified gap ``upper - lower`` to reach. The rounding of huge scores is added to it.
        Exact methods do not use it. By default 1e-9 in float64 and 1e-6 in float32.
    max_iter : int, optional
        The largest number of iterations of an iterative method. By default 5000.
    method : str
        ``"auto"``, or a name in the table of ``geosoftmax.solvers``.
    init : Tensor or Solution, optional
        A warm start: an earlier `Solution`, or its ``u``. Rows that it already solves to ``tol``
        are returned unchanged. For the others, iterative methods and the active set start from it.

    Returns
    -------
    Solution

    Examples
    --------
    >>> import torch
    >>> from geosoftmax import LineCost, solve
    >>> solve(torch.tensor([[0.0, 2.0, 1.0]], dtype=torch.float64), LineCost(3))
    Solution(shape=(1, 3), method='hull', converged=1/1, worst gap=...e-15)
    """
    if dim is not None:
        axes = axes_of("scores", scores, cost, dim)
        start = init.u if isinstance(init, Solution) else init
        start = second_last("init", start, "scores", scores, axes)
        moved = outputs_last(scores, axes)
        found = solve(moved, cost, tol=tol, max_iter=max_iter, method=method, init=start)
        alpha, u = outputs_back(found.alpha, axes), outputs_back(found.u, axes)
        return dataclasses.replace(found, alpha=alpha, u=u)
    with torch.no_grad():
        check_signal("scores", scores, cost)
        f = computed(scores)
        options = settle("distribution", scores.dtype, tol, max_iter, method)
        start = init.u if isinstance(init, Solution) else init
        if start is not None:
            check_signal("init", start, cost)
            check_same_shape("init", start, "scores", scores)
        alpha, u, lower, upper, iterations = operators.solve(f, cost, options, start)
        chosen = operators.method_of(f, cost, options)
    return Solution(
        alpha=alpha.to(scores.dtype),
        u=u,
        lower=lower,
        upper=upper,
        iterations=iterations,
        tol=options.tol,
        method=chosen,
    )


def _with_far_outputs(envelope: Tensor, f: Tensor, peak: Tensor, cost: Cost) -> Tensor:
    """Add to ``2 log(Ku)`` the contribution of outputs whose ``b`` has underflowed.

    Their scores are so low that they do not affect the other outputs. The part of ``b`` that the
    others do not cover, ``b - Ku``, is a separate problem at its own scale; and so on.
    """
    if not is_concrete(envelope, f) or f.numel() == 0:
        return envelope
    n = len(cost.shape)
    if f.dim() == n:
        return _with_far_outputs(envelope[None], f[None], peak[None], cost)[0]
    with torch.no_grad():
        far = torch.where(f - peak < -2 * operators.FAR_BELOW, f, -torch.inf)
        while True:
            cover = torch.exp((envelope - far).clamp_max(0) / 2)
            left = torch.where(cover < 1, far + 2 * torch.log1p(-cover), -torch.inf)
            rows = torch.isfinite(left).flatten(-n).any(-1)
            if not bool(rows.any()):
                return envelope
            index = rows.nonzero(as_tuple=True)
            part = cost.detach()
            if cost.batch_shape:
                part = part.with_parameter(part.parameter.expand(*rows.shape, -1, -1)[index])
            options = Options("distribution", 1e-9, MAX_ITER, "auto")
            _, u, _, _, _ = operators.solve(left[index], part, options)
            top = left[index].amax(autograd.signal_dims(cost), keepdim=True)
            more = 2 * autograd.log_product(u, part) + top
            joined = 2 * torch.logaddexp(envelope[index] / 2, more / 2)
            envelope = envelope.index_put(index, joined)
            lower = torch.where(far[index] < top - 2 * operators.FAR_BELOW, far[index], -torch.inf)
            far = torch.full_like(far, -torch.inf).index_put(index, lower)
