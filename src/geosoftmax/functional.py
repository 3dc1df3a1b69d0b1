"""One function per object of the paper.

Signals have shape ``(*batch, *cost.shape)``: any leading batch dimensions, then the outputs.
Results have the dtype of the input; half precision is computed in float32. Write ``K = exp(-C/2)``,
``b = exp(f/2)``; products of vectors are elementwise.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from geosoftmax import _autograd, _ops, solvers
from geosoftmax._validation import (
    check_class_indices,
    check_distribution_values,
    check_finite_logits,
    check_options,
    check_same_shape,
    check_signal,
    is_concrete,
)
from geosoftmax.costs.base import Cost
from geosoftmax.solvers import Solution

__all__ = [
    "c_transform",
    "extrapolate",
    "geometric_logistic_loss",
    "geometric_logsumexp",
    "geometric_softmax",
    "hausdorff_divergence",
    "potential_logistic_loss",
    "potential_softmax",
    "sinkhorn_negentropy",
    "sinkhorn_potential",
    "solve",
]

F = TypeVar("F", bound=Callable[..., Any])


def _full_precision(function: F) -> F:
    """Keep autocast out: certificates need the digits that it would drop."""

    @functools.wraps(function)
    def wrapped(signal: Tensor, *args: Any, **kwargs: Any) -> Any:
        device = signal.device.type if isinstance(signal, Tensor) else "cpu"
        if not torch.is_autocast_enabled(device):
            return function(signal, *args, **kwargs)
        with torch.autocast(device, enabled=False):
            return function(signal, *args, **kwargs)

    return wrapped  # type: ignore[return-value]


# ------------------------------------------------------------------ (QP)


@_full_precision
def geometric_softmax(
    scores: Tensor,
    cost: Cost,
    *,
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
    tol, max_iter, method
        As for `solve`; see ``geosoftmax.solvers`` for the defaults.

    Returns
    -------
    Tensor, the shape of scores

    Examples
    --------
    >>> import torch
    >>> from geosoftmax import LineCost, geometric_softmax
    >>> scores = torch.tensor([0.0, 2.0, 1.0, -3.0], dtype=torch.float64)
    >>> geometric_softmax(scores, LineCost(4))
    tensor([0.0000, 0.7635, 0.2365, 0.0000], dtype=torch.float64)
    """
    f, u, _ = _minimise(scores, cost, tol, max_iter, method, distribution=True)
    return _autograd.softmax(f, u, cost).to(scores.dtype)


@_full_precision
def geometric_logsumexp(
    scores: Tensor,
    cost: Cost,
    *,
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
    f, u, lower = _minimise(scores, cost, tol, max_iter, method, distribution=False)
    return _autograd.log_sum_exp(f, u, lower, cost).to(scores.dtype)


@_full_precision
def extrapolate(
    scores: Tensor,
    cost: Cost,
    *,
    tol: float | None = None,
    max_iter: int | None = None,
    method: str = "auto",
) -> Tensor:
    r"""Extrapolation of Prop. 3: :math:`f^E = 2 \log(K u^*)`.

    The smallest Sinkhorn potential, up to a constant, that lies above the scores: equal to them on
    the support of the geometric softmax, larger elsewhere (also where they are ``-inf``).

    Parameters
    ----------
    scores : Tensor, shape (*batch, *cost.shape)
    cost : Cost
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
    f, u, _ = _minimise(scores, cost, tol, max_iter, method, distribution=True)
    b, peak = _autograd.half_exponential(f, cost)
    envelope = 2 * _autograd.log_product(_autograd.minimiser(b, u, cost), cost) + peak
    return torch.maximum(envelope, f).to(scores.dtype)


def solve(
    scores: Tensor,
    cost: Cost,
    *,
    tol: float | None = None,
    max_iter: int | None = None,
    method: str = "auto",
    init: Tensor | Solution | None = None,
) -> Solution:
    r"""Solve (QP) and return everything: the minimiser, its bracket, and how it was found.

    No gradients are recorded; for those use `geometric_softmax` and `geometric_logsumexp`.

    Parameters
    ----------
    scores : Tensor, shape (*batch, *cost.shape)
    cost : Cost
    tol : float, optional
        The certified gap ``upper - lower`` to reach. Exact methods do not need it. By default 1e-9
        in float64 and 1e-6 in float32.
    max_iter : int, optional
        The most iterations of an iterative method (5000).
    method : str
        ``"auto"``, or a name in the table of ``geosoftmax.solvers``.
    init : Tensor or Solution, optional
        A warm start: an earlier `Solution`, or its ``u``. Rows that it already solves to ``tol``
        are returned as they are; iterative methods and the active set start from it.

    Returns
    -------
    Solution

    Examples
    --------
    >>> import torch
    >>> from geosoftmax import LineCost, solve
    >>> solve(torch.tensor([[0.0, 2.0, 1.0]], dtype=torch.float64), LineCost(3))
    Solution(shape=(1, 3), method='hull', converged=1/1, worst gap=5.5e-15)
    """
    with torch.no_grad():
        check_signal("scores", scores, cost)
        check_options(tol, max_iter)
        chosen = solvers.check_method(method, cost)
        f = _computed(scores)
        if tol is None:
            tol = solvers.default_tolerance(scores.dtype, distribution=True)
        start = init.u if isinstance(init, Solution) else init
        if start is not None:
            check_signal("init", start, cost)
            check_same_shape("init", start, "scores", scores)
        u, lower, upper, iterations = _call_solve(f, cost, tol, max_iter, chosen, start)
        alpha = _autograd.softmax(f, u, cost)
    return Solution(
        alpha=alpha.to(scores.dtype),
        u=u,
        lower=lower,
        upper=upper,
        iterations=iterations,
        converged=upper - lower <= tol,
        method=chosen,
    )


# ------------------------------------------------------------------ losses


@_full_precision
def geometric_logistic_loss(
    scores: Tensor,
    target: Tensor,
    cost: Cost,
    *,
    reduction: str = "mean",
    weight: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    tol: float | None = None,
    max_iter: int | None = None,
    method: str = "auto",
) -> Tensor:
    r"""Geometric logistic loss: :math:`\Omega^*(f) + \Omega(\alpha) - \langle\alpha, f\rangle`.

    Convex in the scores, at least 0, and 0 exactly when ``target == geometric_softmax(scores)``.
    Its gradient is ``geometric_softmax(scores) - target``.

    Parameters
    ----------
    scores : Tensor, shape (*batch, *cost.shape)
    target : Tensor
        Class indices, of shape batch and integer dtype (row-major over a grid); or distributions,
        of the shape of scores.
    cost : Cost
    reduction : {"mean", "sum", "none"}
    weight : Tensor, shape cost.shape, optional
        The weight of each output; a sample weighs ``Σ_y target_y weight_y``, and the mean is the
        weighted one.
    ignore_index : int
        Samples with this class index do not count.
    label_smoothing : float
        Mix class indices with the uniform distribution: ``(1 - s) δ_y + s / d``.
    tol, max_iter, method
        As for `solve`.

    Returns
    -------
    Tensor, a scalar, or of shape batch for ``reduction="none"``

    Examples
    --------
    >>> import torch
    >>> from geosoftmax import LineCost, geometric_logistic_loss
    >>> scores = torch.tensor([[2.0, 1.0, -1.0]], dtype=torch.float64)
    >>> geometric_logistic_loss(scores, torch.tensor([0]), LineCost(3))
    tensor(0., dtype=torch.float64)
    >>> geometric_logistic_loss(scores, torch.tensor([2]), LineCost(3))
    tensor(3., dtype=torch.float64)
    """
    check_signal("scores", scores, cost)
    check_options(tol, max_iter, reduction)
    indices, alpha = _read_target(target, scores, cost, ignore_index, label_smoothing)
    f = _computed(scores)
    f = f - f.detach().amax(_autograd.signal_dims(cost), keepdim=True).clamp_min(_lowest(f))
    f, u, lower = _minimise(f, cost, tol, max_iter, method, distribution=False)
    conjugate = _autograd.log_sum_exp(f, u, lower, cost)
    if alpha is None:
        loss = conjugate - _pick(f, indices, cost)
    else:
        loss = _fenchel_young("target", alpha, f, conjugate, cost)
    loss = _at_least_zero(loss)
    weights = _sample_weights(weight, indices, alpha, target, loss, cost, ignore_index)
    return _reduce(loss, weights, reduction).to(scores.dtype)


@_full_precision
def potential_softmax(logits: Tensor, cost: Cost) -> Tensor:
    r"""Solver-free sibling of the geometric softmax: :math:`v \, Kv / v^\top K v`, ``v = e^{g/2}``.

    It is ``geometric_softmax(2 log(Kv))`` exactly, by two products with ``K``: every Sinkhorn
    potential is reached, exact zeros and convexity in the logits are given up.

    Parameters
    ----------
    logits : Tensor, shape (*batch, *cost.shape)
        Finite.
    cost : Cost

    Returns
    -------
    Tensor, the shape of logits

    Examples
    --------
    >>> import torch
    >>> from geosoftmax import LineCost, potential_softmax
    >>> potential_softmax(torch.tensor([0.0, 2.0, 1.0]), LineCost(3))
    tensor([0.1739, 0.4975, 0.3286])
    """
    check_signal("logits", logits, cost)
    check_finite_logits(logits)
    v, _ = _autograd.half_exponential(_computed(logits), cost)
    weighted = v * cost.matvec(v)
    alpha = weighted / weighted.sum(_autograd.signal_dims(cost), keepdim=True)
    return alpha.to(logits.dtype)


@_full_precision
def potential_logistic_loss(
    logits: Tensor, target: Tensor, cost: Cost, *, reduction: str = "mean"
) -> Tensor:
    r"""Loss of the solver-free sibling: :math:`D(\alpha \,|\, \text{potential-softmax}(g))`.

    Equal to ``geometric_logistic_loss(2 log(Kv), target, cost)`` with ``v = exp(g/2)``.

    Parameters
    ----------
    logits : Tensor, shape (*batch, *cost.shape)
        Finite.
    target : Tensor
        Class indices or distributions, as for `geometric_logistic_loss`.
    cost : Cost
    reduction : {"mean", "sum", "none"}

    Returns
    -------
    Tensor, a scalar, or of shape batch for ``reduction="none"``

    Examples
    --------
    >>> import torch
    >>> from geosoftmax import LineCost, potential_logistic_loss
    >>> potential_logistic_loss(torch.tensor([[0.0, 2.0, 1.0]]), torch.tensor([1]), LineCost(3))
    tensor(0.2739)
    """
    check_signal("logits", logits, cost)
    check_finite_logits(logits)
    check_options(None, None, reduction)
    indices, alpha = _read_target(target, logits, cost, None, 0.0)
    g = _computed(logits)
    v, _ = _autograd.half_exponential(g, cost)
    f = 2 * _autograd.log_product(v, cost)
    conjugate = torch.log(_autograd.inner(v, cost.matvec(v), cost))
    if alpha is None:
        loss = conjugate - _pick(f, indices, cost)
    else:
        loss = _fenchel_young("target", alpha, f, conjugate, cost)
    return _reduce(_at_least_zero(loss), None, reduction).to(logits.dtype)


# ------------------------------------------------------------------ Sinkhorn


@_full_precision
def sinkhorn_negentropy(alpha: Tensor, cost: Cost) -> Tensor:
    r"""Sinkhorn negentropy: :math:`\Omega(\alpha) = -\tfrac12 \mathrm{OT}_{C,2}(\alpha, \alpha)`.

    Convex; between the negative Shannon entropy (large costs) and a kernel norm (small ones). 0 for
    a single output.

    Parameters
    ----------
    alpha : Tensor, shape (*batch, *cost.shape)
        Distributions.
    cost : Cost

    Returns
    -------
    Tensor, shape batch

    Examples
    --------
    >>> import torch
    >>> from geosoftmax import LineCost, sinkhorn_negentropy
    >>> sinkhorn_negentropy(torch.tensor([[0.0, 1.0], [0.5, 0.5]]), LineCost(2))
    tensor([ 0.0000, -0.2191])
    """
    check_signal("alpha", alpha, cost)
    return _negentropy("alpha", alpha, cost).to(alpha.dtype)


@_full_precision
def sinkhorn_potential(alpha: Tensor, cost: Cost) -> Tensor:
    r"""Symmetric Sinkhorn potential: :math:`\nabla\Omega(\alpha) = 2 \log(Kv)` with ``v · Kv = α``.

    A distance field to the distribution, defined at every output, also where ``alpha`` is 0. The
    geometric softmax inverts it.

    Parameters
    ----------
    alpha : Tensor, shape (*batch, *cost.shape)
        Distributions.
    cost : Cost

    Returns
    -------
    Tensor, the shape of alpha

    Examples
    --------
    >>> import torch
    >>> from geosoftmax import LineCost, sinkhorn_potential
    >>> sinkhorn_potential(torch.tensor([0.0, 1.0, 0.0]), LineCost(3))
    tensor([-1.,  0., -1.])
    """
    check_signal("alpha", alpha, cost)
    return _potential("alpha", alpha, cost).to(alpha.dtype)


@_full_precision
def hausdorff_divergence(
    alpha: Tensor, beta: Tensor, cost: Cost, *, symmetric: bool = False
) -> Tensor:
    r"""Hausdorff divergence: :math:`\Omega(\alpha) - \langle\alpha, \nabla\Omega(\beta)\rangle`.

    The Bregman divergence of the Sinkhorn negentropy, asymmetric: at least 0, and finite whatever
    the supports.

    Parameters
    ----------
    alpha, beta : Tensor, shape (*batch, *cost.shape)
        Distributions.
    cost : Cost
    symmetric : bool
        Return ``(D(α|β) + D(β|α)) / 2`` instead.

    Returns
    -------
    Tensor, shape batch

    Examples
    --------
    >>> import torch
    >>> from geosoftmax import LineCost, hausdorff_divergence
    >>> left, right = torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0.0, 0.0, 1.0])
    >>> hausdorff_divergence(left, right, LineCost(3))
    tensor(2.)
    """
    check_signal("alpha", alpha, cost)
    check_signal("beta", beta, cost)
    check_same_shape("beta", beta, "alpha", alpha)
    a, b = alpha.to(torch.float64), beta.to(torch.float64)
    of_beta = _potential("beta", b, cost)
    if symmetric:
        of_alpha = _potential("alpha", a, cost)
        divergence = _autograd.inner(a - b, of_alpha - of_beta, cost) / 2
    else:
        excess = (b - 1 / cost.size).sum(_autograd.signal_dims(cost))
        divergence = _negentropy("alpha", a, cost) - _autograd.inner(a, of_beta, cost) + excess
    return _at_least_zero(divergence).to(torch.promote_types(alpha.dtype, beta.dtype))


@_full_precision
def c_transform(f: Tensor, alpha: Tensor, cost: Cost) -> Tensor:
    r"""Soft C-transform: :math:`T(f, \alpha) = -2 \log \langle \alpha, e^{(f - C)/2} \rangle`.

    Parameters
    ----------
    f : Tensor, shape (*batch, *cost.shape)
    alpha : Tensor, shape (*batch, *cost.shape)
        Distributions.
    cost : Cost

    Returns
    -------
    Tensor, the shape of f

    Examples
    --------
    >>> import torch
    >>> from geosoftmax import LineCost, c_transform, sinkhorn_potential
    >>> alpha = torch.tensor([0.2, 0.5, 0.3])
    >>> f = sinkhorn_potential(alpha, LineCost(3))
    >>> torch.allclose(c_transform(-f, alpha, LineCost(3)), -f)
    True
    """
    check_signal("f", f, cost)
    check_signal("alpha", alpha, cost)
    check_same_shape("alpha", alpha, "f", f)
    if is_concrete(f, alpha):
        check_distribution_values("alpha", alpha, cost)
        check_scores_on(f, alpha)
    potential, mass = _computed(f), _computed(alpha)
    inside = mass.detach() > 0
    dims = _autograd.signal_dims(cost)
    peak = torch.where(inside, potential.detach(), -torch.inf).amax(dims, keepdim=True)
    factor = torch.exp((torch.where(inside, potential, peak) - peak) / 2)
    result = -2 * _autograd.log_product(mass * factor, cost) - peak
    return result.to(f.dtype)


# ------------------------------------------------------------------ shared pieces


def _lowest(f: Tensor) -> float:
    """Keep rows that are all -inf from turning into NaN before they are refused as such."""
    return torch.finfo(f.dtype).min


def check_scores_on(f: Tensor, alpha: Tensor) -> None:
    """Refuse a transform whose function is not a number where the distribution has mass."""
    bad = torch.isnan(f) | ((alpha > 0) & torch.isinf(f))
    if bool(bad.any()):
        raise ValueError("f holds NaN, or is infinite where alpha is positive.")


def _computed(signal: Tensor) -> Tensor:
    """Return the signal in the dtype that we compute in."""
    return signal if signal.dtype in (torch.float32, torch.float64) else signal.to(torch.float32)


def _minimise(
    scores: Tensor,
    cost: Cost,
    tol: float | None,
    max_iter: int | None,
    method: str,
    *,
    distribution: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Validate, solve (QP), and return the scores in computing dtype, ``u`` and the value."""
    check_signal("scores", scores, cost)
    check_options(tol, max_iter)
    method = solvers.check_method(method, cost)
    f = _computed(scores)
    if tol is None:
        tol = solvers.default_tolerance(scores.dtype, distribution=distribution)
    u, lower, _, _ = _call_solve(f.detach(), cost, tol, max_iter, method, None)
    return f, u, lower


def _call_solve(
    f: Tensor, cost: Cost, tol: float, max_iter: int | None, method: str, init: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    spec, tensors = cost.flatten()
    tensors = [t.detach() for t in tensors]
    limit = solvers.MAX_ITER if max_iter is None else max_iter
    return _ops.solve(f, tensors, spec, len(cost.shape), tol, limit, method, init)


def _scale(name: str, alpha: Tensor, cost: Cost) -> tuple[Tensor, Tensor]:
    """Solve the Sinkhorn problem in float64."""
    spec, tensors = cost.flatten()
    tensors = [t.detach() for t in tensors]
    if is_concrete(alpha):
        check_distribution_values(name, alpha, cost)
    alpha = alpha.to(torch.float64)
    return alpha, _ops.sinkhorn(alpha.detach(), tensors, spec, len(cost.shape), name)


def _negentropy(name: str, alpha: Tensor, cost: Cost) -> Tensor:
    alpha, v = _scale(name, alpha, cost)
    return _autograd.negentropy(alpha, v, cost)


def _potential(name: str, alpha: Tensor, cost: Cost) -> Tensor:
    alpha, v = _scale(name, alpha, cost)
    return _autograd.potential(alpha, v, cost)


def _read_target(
    target: Any, scores: Tensor, cost: Cost, ignore_index: int | None, smoothing: float
) -> tuple[Tensor | None, Tensor | None]:
    """Return class indices, or distributions; one of them is None."""
    if not isinstance(target, Tensor):
        raise TypeError(f"target must be a torch.Tensor; got {type(target).__name__}.")
    if not 0 <= smoothing <= 1:
        raise ValueError(f"label_smoothing must lie in 0…1; got {smoothing}.")
    if target.is_floating_point():
        check_signal("target", target, cost)
        check_same_shape("target", target, "scores", scores)
        return None, target if smoothing == 0 else (1 - smoothing) * target + smoothing / cost.size
    if target.dtype == torch.bool or target.is_complex():
        raise TypeError(
            f"target must hold class indices (integers) or distributions; got {target.dtype}."
        )
    check_class_indices(target, scores, cost, ignore_index)
    indices = target.long()
    if ignore_index is not None:
        indices = torch.where(indices == ignore_index, 0, indices)
    if smoothing == 0:
        return indices, None
    one_hot = torch.nn.functional.one_hot(indices, cost.size).to(torch.float64)
    mixed = (1 - smoothing) * one_hot + smoothing / cost.size
    return indices, mixed.reshape(*target.shape, *cost.shape)


def _pick(f: Tensor, indices: Tensor | None, cost: Cost) -> Tensor:
    assert indices is not None
    flat = f.reshape(*indices.shape, cost.size)
    return flat.gather(-1, indices[..., None])[..., 0]


def _fenchel_young(name: str, alpha: Tensor, f: Tensor, conjugate: Tensor, cost: Cost) -> Tensor:
    """``Ω*(f) Σα + Ω(α) - ⟨α, f⟩``: unchanged by a constant added to ``f``, also off the simplex.

    A masked output without mass counts nothing.
    """
    alpha = alpha.to(torch.float64)
    f = torch.where((alpha == 0) & torch.isneginf(f), 0.0, f)
    mass = alpha.sum(_autograd.signal_dims(cost))
    return mass * conjugate + _negentropy(name, alpha, cost) - _autograd.inner(alpha, f, cost)


def _at_least_zero(value: Tensor) -> Tensor:
    """Clip rounding below zero, in the value only: the gradient is that of the unclipped one."""
    return value + (value.detach().clamp_min(0) - value.detach()).nan_to_num(0.0)


def _sample_weights(
    weight: Tensor | None,
    indices: Tensor | None,
    alpha: Tensor | None,
    target: Tensor,
    loss: Tensor,
    cost: Cost,
    ignore_index: int,
) -> Tensor | None:
    counted = None
    if indices is not None:
        counted = (target != ignore_index).to(loss.dtype)
    if weight is None:
        return counted
    if tuple(weight.shape) != cost.shape:
        raise ValueError(f"weight must have shape {cost.shape}; got {tuple(weight.shape)}.")
    weight = weight.to(loss.dtype)
    if indices is not None and counted is not None:
        return weight.reshape(-1)[indices] * counted
    assert alpha is not None
    return _autograd.inner(alpha.to(loss.dtype), weight, cost)


def _reduce(loss: Tensor, weights: Tensor | None, reduction: str) -> Tensor:
    if weights is not None:
        loss = torch.where(weights == 0, 0.0, loss * weights)
    if reduction == "none":
        return loss
    if reduction == "sum":
        return loss.sum()
    return loss.mean() if weights is None else loss.sum() / weights.sum()
