"""One function per object of the paper.

Signals have shape ``(*batch, *cost.shape)``: any leading batch dimensions, then the outputs.
Results have the dtype of the input; half precision is computed in float32. Write ``K = exp(-C/2)``,
``b = exp(f/2)``; products of vectors are elementwise.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from geosoftmax import _ops, autograd, solvers
from geosoftmax._targets import Target, read_target, reduce_loss
from geosoftmax.backends import whole_fit, whole_potential_fit
from geosoftmax.costs.base import Cost
from geosoftmax.solvers import Solution
from geosoftmax.validation import (
    SUM_TOLERANCE,
    check_distribution_values,
    check_finite,
    check_finite_where_positive,
    check_options,
    check_reduction,
    check_same_shape,
    check_signal,
    is_concrete,
    is_readable,
)

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
    "smooth_scores",
    "solve",
]

F = TypeVar("F", bound=Callable[..., Any])


#: Devices that autocast knows (asking torch for them breaks the graphs of torch.compile).
_WITH_AUTOCAST = ("cpu", "cuda", "mps", "xpu")


def _full_precision(function: F) -> F:
    """Keep autocast out: certificates need the digits that it would drop."""

    @functools.wraps(function)
    def wrapped(signal: Tensor, *args: Any, **kwargs: Any) -> Any:
        device = signal.device.type if isinstance(signal, Tensor) else "cpu"
        if device not in _WITH_AUTOCAST or not torch.is_autocast_enabled(device):
            return function(signal, *args, **kwargs)
        with torch.autocast(device, enabled=False):
            return function(signal, *args, **kwargs)

    return cast(F, wrapped)


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
    >>> scores = torch.tensor([0.0, 2.0, 1.8, -3.0], dtype=torch.float64)
    >>> geometric_softmax(scores, LineCost(4))
    tensor([0.0000, 0.6257, 0.3743, 0.0000], dtype=torch.float64)
    """
    f, alpha, u, _ = _minimise(scores, cost, tol, max_iter, method, distribution=True)
    return autograd.softmax(f, u, alpha, cost).to(scores.dtype)


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
    f, alpha, u, lower = _minimise(scores, cost, tol, max_iter, method, distribution=False)
    return autograd.log_sum_exp(f, u, alpha, lower, cost).to(scores.dtype)


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

    Up to a constant, the Sinkhorn potential of least energy that lies above the scores: equal to
    them on the support of the geometric softmax, larger elsewhere (also where they are ``-inf``).

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
    double = torch.float64  # of which the range is needed, more than the digits
    f, _, u, _ = _minimise(scores, cost, tol, max_iter, method, distribution=True, dtype=double)
    b, peak = autograd.half_exponential(f, cost)
    envelope = 2 * autograd.log_product(autograd.minimiser(b, u, cost), cost) + peak
    envelope = _with_far_outputs(envelope, f, peak, cost)
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
        The certified gap ``upper - lower`` to reach, but for the rounding of huge scores. Exact
        methods do not need it. By default 1e-9 in float64 and 1e-6 in float32.
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
    Solution(shape=(1, 3), method='hull', converged=1/1, worst gap=...e-15)
    """
    with torch.no_grad():
        check_signal("scores", scores, cost)
        f = _computed(scores)
        tol, limit, chosen = _settle(
            scores.dtype, f, cost, tol, max_iter, method, distribution=True
        )
        start = init.u if isinstance(init, Solution) else init
        if start is not None:
            check_signal("init", start, cost)
            check_same_shape("init", start, "scores", scores)
        alpha, u, lower, upper, iterations = _ops.solve(f, cost, tol, limit, chosen, start)
    return Solution(
        alpha=alpha.to(scores.dtype),
        u=u,
        lower=lower,
        upper=upper,
        iterations=iterations,
        tol=tol,
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
    tensor(3.0000, dtype=torch.float64)
    """
    check_signal("scores", scores, cost)
    check_reduction(reduction)
    wanted = read_target(
        target, scores, cost, ignore_index=ignore_index, label_smoothing=label_smoothing
    )
    f = _computed(scores)
    options = _settle(scores.dtype, f, cost, tol, max_iter, method, distribution=False)
    fused = _fused(
        lambda dtype: whole_fit(options[2], cost, f.device, dtype, options[0]),
        autograd.loss, f, wanted, weight, cost, reduction, options,
    )  # fmt: skip
    if fused is not None:
        return fused.to(scores.dtype)
    lowest = torch.finfo(f.dtype).min  # rows that are all -inf are refused, not turned to NaN
    f = f - f.detach().amax(autograd.signal_dims(cost), keepdim=True).clamp_min(lowest)
    alpha, u, lower, _, _ = _ops.solve(f.detach(), cost, *options, None)
    conjugate = autograd.log_sum_exp(f, u, alpha, lower, cost)
    loss = _loss(wanted, f, conjugate, cost)
    return reduce_loss(loss, wanted, weight, cost, reduction).to(scores.dtype)


_NO_MASKS = (
    "The potential layer has no masks: every output has positive probability. "
    "Use geometric_softmax with -inf scores instead."
)


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
    tensor([0.1546, 0.5584, 0.2870])
    """
    check_signal("logits", logits, cost)
    check_finite("logits", logits, _NO_MASKS)
    v, _ = autograd.half_exponential(_computed(logits), cost)
    weighted = v * cost.matvec(v)
    alpha = weighted / weighted.sum(autograd.signal_dims(cost), keepdim=True)
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
    tensor(0.1184)
    """
    check_signal("logits", logits, cost)
    check_finite("logits", logits, _NO_MASKS)
    check_reduction(reduction)
    wanted = read_target(target, logits, cost)
    g = _computed(logits)
    fused = _fused(
        lambda dtype: whole_potential_fit(cost, g.device, dtype),
        autograd.potential_loss, g, wanted, None, cost, reduction,
    )  # fmt: skip
    if fused is not None:
        return fused.to(logits.dtype)
    v, peak = autograd.half_exponential(g, cost)
    f = 2 * autograd.log_product(v, cost, (g - peak) / 2)
    conjugate = torch.log(autograd.inner(v, cost.matvec(v), cost))
    loss = _loss(wanted, f, conjugate, cost)
    return reduce_loss(loss, wanted, None, cost, reduction).to(logits.dtype)


# ------------------------------------------------------------------ scores that are easy to learn


@_full_precision
def smooth_scores(scores: Tensor, cost: Cost) -> Tensor:
    r"""Smooth scores before the geometric softmax: means, weighed by :math:`e^{-C}`.

    Networks then learn sooner and further. The geometric softmax undoes a kernel: its loss is steep
    in what is rough and flat in what is smooth, so that plain scores first become noise. Potentials
    are smooth, hence nothing that matters is lost. For softmax it was found to matter little.

    Parameters
    ----------
    scores : Tensor, shape (*batch, *cost.shape)
        Finite. Mask outputs with ``-inf`` afterwards.
    cost : Cost

    Returns
    -------
    Tensor, the shape of scores

    Examples
    --------
    >>> import torch
    >>> from geosoftmax import LineCost, geometric_softmax, smooth_scores
    >>> cost = LineCost(4)
    >>> smooth = smooth_scores(torch.tensor([0.0, 8.0, 0.0, 4.0]), cost)
    >>> smooth
    tensor([2.0233, 4.5649, 2.3593, 3.2728])
    >>> geometric_softmax(smooth, cost)
    tensor([0.0000, 0.9079, 0.0000, 0.0921])
    """
    check_signal("scores", scores, cost)
    check_finite("scores", scores, "They would spread: smooth first, then mask with -inf.")
    narrow: Cost = cost._once("narrow", lambda: cost * 2)
    return narrow.average(_computed(scores)).to(scores.dtype)


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
    distribution, v = _scaled("alpha", alpha, cost)
    return autograd.negentropy(distribution, v, cost).to(alpha.dtype)


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
    distribution, v = _scaled("alpha", alpha, cost)
    return autograd.potential(distribution, v, cost).to(alpha.dtype)


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
    a, v = _scaled("alpha", alpha, cost)
    b, w = _scaled("beta", beta, cost)
    of_beta = autograd.potential(b, w, cost)
    if symmetric:
        of_alpha = autograd.potential(a, v, cost)
        divergence = autograd.inner(a - b, of_alpha - of_beta, cost) / 2
    else:
        # Ω(α) - Ω(β) - ⟨∇Ω(β), α - β⟩, where Ω(β) = ⟨β, ∇Ω(β)⟩ - Σβ + 1
        excess = (b - 1 / cost.size).sum(autograd.signal_dims(cost))
        of_a = autograd.negentropy(a, v, cost)
        divergence = of_a - autograd.inner(a, of_beta, cost) + excess
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
    if is_readable(f, alpha):
        check_distribution_values("alpha", alpha, cost, SUM_TOLERANCE[alpha.dtype])
        check_finite_where_positive(f, alpha)
    potential, mass = _computed(f), _computed(alpha)
    inside = mass.detach() > 0
    dims = autograd.signal_dims(cost)
    peak = torch.where(inside, potential.detach(), -torch.inf).amax(dims, keepdim=True)
    half = (torch.where(inside, potential, peak) - peak) / 2
    log_mass = torch.where(inside, torch.log(torch.where(inside, mass, 1.0)), -torch.inf)
    result = -2 * autograd.log_product(mass * torch.exp(half), cost, log_mass + half) - peak
    return result.to(f.dtype)


# ------------------------------------------------------------------ shared pieces


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
    dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Validate, solve (QP); return the scores in computing dtype, ``α``, ``u`` and the value."""
    check_signal("scores", scores, cost)
    f = _computed(scores) if dtype is None else scores.to(dtype)
    options = _settle(scores.dtype, f, cost, tol, max_iter, method, distribution=distribution)
    alpha, u, lower, _, _ = _ops.solve(f.detach(), cost, *options, None)
    return f, alpha, u, lower


def _settle(
    came_in: torch.dtype,
    f: Tensor,
    cost: Cost,
    tol: float | None,
    max_iter: int | None,
    method: str,
    *,
    distribution: bool,
) -> tuple[float, int, str]:
    """Check the options of a solve, and say what those mean that were left open."""
    check_options(tol, max_iter)
    if tol is None:
        tol = solvers.default_tolerance(came_in, distribution=distribution)
    limit = solvers.MAX_ITER if max_iter is None else max_iter
    return tol, limit, solvers.check_method(method, cost, f.dtype, tol)


def _scaled(
    name: str, alpha: Tensor, cost: Cost, dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor]:
    """Solve the Sinkhorn problem: return ``α`` and ``v`` in float64; `dtype` is what α came in."""
    came_in = alpha.dtype if dtype is None else dtype
    alpha = alpha.to(torch.float64)
    tolerance, single = SUM_TOLERANCE[came_in], came_in != torch.float64
    v = _ops.sinkhorn(alpha.detach(), cost, name, tolerance, single=single)
    return alpha, v


def _fused(
    choose: Callable[[torch.dtype], Callable[..., Any] | None], rule: Callable[..., Tensor],
    f: Tensor, target: Target, weight: Tensor | None, cost: Cost, reduction: str,
    options: tuple[Any, ...] = (),
) -> Tensor | None:  # fmt: skip
    """Return the reduced loss from one kernel and little else, where there is one.

    `choose` returns it for a dtype. A plain mean or sum is in what the kernel writes: each sample's
    share of it.
    """
    alpha = target.alpha
    if alpha is None or f.numel() == 0 or not autograd.is_everyday(f, alpha, cost.parameter):
        return None
    kernel = choose(torch.promote_types(f.dtype, alpha.dtype))
    if kernel is None:
        return None
    plain = reduction != "none" and weight is None and target.counted is None
    share = cost.size / f.numel() if plain and reduction == "mean" else 1.0
    alpha = alpha.to(f.dtype)
    loss, slope = kernel(cost, f.detach(), alpha, *options[:2], share)
    loss = rule(f, alpha, loss, slope, cost, share if plain else None, *options)
    return loss if plain else reduce_loss(loss, target, weight, cost, reduction)


def _loss(target: Target, f: Tensor, conjugate: Tensor, cost: Cost) -> Tensor:
    """``Ω*(f) Σα + Ω(α) - ⟨α, f⟩``: unchanged by a constant added to ``f``, also off the simplex.

    Clipped at zero in the value, where rounding went below; the gradient is not changed.
    """
    if target.indices is not None:
        flat = f.reshape(*target.indices.shape, cost.size)
        loss = conjugate - flat.gather(-1, target.indices[..., None])[..., 0]
        return _at_least_zero(loss)
    assert target.alpha is not None
    alpha, v = _scaled("target", target.alpha, cost, target.dtype)
    f = torch.where((alpha == 0) & torch.isneginf(f), 0.0, f)  # masks without mass do not count
    mass = alpha.sum(autograd.signal_dims(cost))
    negentropy = autograd.negentropy(alpha, v, cost)
    return _at_least_zero(mass * conjugate + negentropy - autograd.inner(alpha, f, cost))


def _at_least_zero(value: Tensor) -> Tensor:
    return value - value.detach().clamp_max(0)


def _with_far_outputs(envelope: Tensor, f: Tensor, peak: Tensor, cost: Cost) -> Tensor:
    """Add to ``2 log(Ku)`` what outputs contribute whose ``b`` has underflowed.

    They lie so low that they do not act on the others. What the others leave uncovered of them,
    ``b - Ku``, is a problem of its own at its own scale; and so on.
    """
    if not is_concrete(envelope, f) or f.numel() == 0:
        return envelope
    n = len(cost.shape)
    if f.dim() == n:
        return _with_far_outputs(envelope[None], f[None], peak[None], cost)[0]
    with torch.no_grad():
        far = torch.where(f - peak < -2 * _ops.FAR_BELOW, f, -torch.inf)
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
            _, u, _, _, _ = _ops.solve(
                left[index], part, 1e-9, solvers.MAX_ITER, solvers.choose(part), None
            )
            top = left[index].amax(autograd.signal_dims(cost), keepdim=True)
            more = 2 * autograd.log_product(u, part) + top
            joined = 2 * torch.logaddexp(envelope[index] / 2, more / 2)
            envelope = envelope.index_put(index, joined)
            lower = torch.where(far[index] < top - 2 * _ops.FAR_BELOW, far[index], -torch.inf)
            far = torch.full_like(far, -torch.inf).index_put(index, lower)
