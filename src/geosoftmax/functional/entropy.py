"""The Sinkhorn negentropy, its potential and its divergence, and the terms of losses."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from geosoftmax import autograd, operators
from geosoftmax.costs.base import Cost
from geosoftmax.functional.axes import Dim, axes_of, outputs_back, outputs_last, second_last
from geosoftmax.functional.calls import (
    check_learnt,
    computed,
    divergence_dtype,
    full_precision,
)
from geosoftmax.functional.targets import Target
from geosoftmax.solvers.base import SinkhornPlan
from geosoftmax.validation import (
    SUM_TOLERANCE,
    check_distribution_values,
    check_finite_where_positive,
    check_same_shape,
    check_signal,
    is_readable,
)


@full_precision
def sinkhorn_negentropy(alpha: Tensor, cost: Cost, *, dim: Dim = None) -> Tensor:
    r"""Sinkhorn negentropy: :math:`\Omega(\alpha) = -\tfrac12 \mathrm{OT}_{C,2}(\alpha, \alpha)`.

    It is convex, and 0 for a single output. It lies between the negative Shannon entropy
    (large costs) and a kernel norm (small costs).

    Parameters
    ----------
    alpha : Tensor, shape (*batch, *cost.shape)
        Distributions.
    cost : Cost
    dim : int or tuple of int, optional
        The axes of the outputs, as for `geometric_softmax`.

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
    if dim is not None:
        alpha = outputs_last(alpha, axes_of("alpha", alpha, cost, dim))
    check_signal("alpha", alpha, cost)
    plan = _fused_plan(alpha, cost)
    if plan is not None and plan.negentropy is not None and plan.potential is not None:
        value = plan.negentropy(alpha.detach())
        if not torch.is_grad_enabled() or not alpha.requires_grad:
            return value
        slope = plan.potential(alpha.detach())
        again = functools.partial(_potential, cost=cost)
        return autograd.fused_negentropy(alpha, value, slope, cost, again)
    distribution, v = scaled("alpha", alpha, cost)
    return autograd.negentropy(distribution, v, cost).to(alpha.dtype)


@full_precision
def sinkhorn_potential(alpha: Tensor, cost: Cost, *, dim: Dim = None) -> Tensor:
    r"""Symmetric Sinkhorn potential: :math:`\nabla\Omega(\alpha) = 2 \log(Kv)` with ``v · Kv = α``.

    It is a distance field to the distribution, defined at every output, also where ``alpha`` is 0.
    The geometric softmax is its inverse.

    Parameters
    ----------
    alpha : Tensor, shape (*batch, *cost.shape)
        Distributions.
    cost : Cost
    dim : int or tuple of int, optional
        The axes of the outputs, as for `geometric_softmax`.

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
    if dim is not None:
        axes = axes_of("alpha", alpha, cost, dim)
        return outputs_back(sinkhorn_potential(outputs_last(alpha, axes), cost), axes)
    check_signal("alpha", alpha, cost)
    plan = _fused_plan(alpha, cost)
    if plan is not None and plan.potential is not None and autograd.is_constant(alpha):
        return plan.potential(alpha)
    return _potential(alpha, cost)


def _potential(alpha: Tensor, cost: Cost) -> Tensor:
    distribution, v = scaled("alpha", alpha, cost)
    return autograd.potential(distribution, v, cost).to(alpha.dtype)


def _fused_plan(alpha: Tensor, cost: Cost) -> SinkhornPlan | None:
    """Return a fused plan, if there is one: for float32, without derivatives in the cost."""
    if alpha.dtype != torch.float32 or alpha.numel() == 0:
        return None
    if not autograd.has_plain_gradient(alpha, cost.parameter):
        return None
    return operators.sinkhorn_plan(alpha, cost, single=True)


def hausdorff_divergence(
    alpha: Tensor, beta: Tensor, cost: Cost, *, dim: Dim = None, symmetric: bool = False
) -> Tensor:
    r"""Hausdorff divergence: :math:`\Omega(\alpha) - \langle\alpha, \nabla\Omega(\beta)\rangle`.

    This is the Bregman divergence of the Sinkhorn negentropy. It is at least 0, asymmetric, and
    finite for all supports.

    Parameters
    ----------
    alpha, beta : Tensor, shape (*batch, *cost.shape)
        Distributions.
    cost : Cost
    dim : int or tuple of int, optional
        The axes of the outputs, as for `geometric_softmax`.
    symmetric : bool
        Return ``(D(α|β) + D(β|α)) / 2`` instead.

    Returns
    -------
    Tensor, shape batch
        In the dtype of the distributions, or in float32 under autocast, as for losses.

    Examples
    --------
    >>> import torch
    >>> from geosoftmax import LineCost, hausdorff_divergence
    >>> left, right = torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0.0, 0.0, 1.0])
    >>> hausdorff_divergence(left, right, LineCost(3))
    tensor(2.)
    """
    divergence = _divergence(alpha, beta, cost, dim, symmetric)
    return divergence.to(divergence_dtype(alpha, beta))


@full_precision
def _divergence(alpha: Tensor, beta: Tensor, cost: Cost, dim: Dim, symmetric: bool) -> Tensor:
    """Return the divergence in float64."""
    if dim is not None:
        axes = axes_of("alpha", alpha, cost, dim)
        beta = second_last("beta", beta, "alpha", alpha, axes)
        alpha = outputs_last(alpha, axes)
    check_signal("alpha", alpha, cost)
    check_signal("beta", beta, cost)
    check_same_shape("beta", beta, "alpha", alpha)
    a, v = scaled("alpha", alpha, cost)
    b, w = scaled("beta", beta, cost)
    of_beta = autograd.potential(b, w, cost)
    if symmetric:
        of_alpha = autograd.potential(a, v, cost)
        divergence = autograd.inner(a - b, of_alpha - of_beta, cost) / 2
    else:
        # Ω(α) - Ω(β) - ⟨∇Ω(β), α - β⟩, where Ω(β) = ⟨β, ∇Ω(β)⟩ - Σβ + 1
        excess = (b - 1 / cost.size).sum(autograd.signal_dims(cost))
        of_a = autograd.negentropy(a, v, cost)
        divergence = of_a - autograd.inner(a, of_beta, cost) + excess
    return at_least_zero(divergence)


@full_precision
def c_transform(f: Tensor, alpha: Tensor, cost: Cost, *, dim: Dim = None) -> Tensor:
    r"""Soft C-transform: :math:`T(f, \alpha) = -2 \log \langle \alpha, e^{(f - C)/2} \rangle`.

    Parameters
    ----------
    f : Tensor, shape (*batch, *cost.shape)
    alpha : Tensor, shape (*batch, *cost.shape)
        Distributions.
    cost : Cost
    dim : int or tuple of int, optional
        The axes of the outputs, as for `geometric_softmax`.

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
    if dim is not None:
        axes = axes_of("f", f, cost, dim)
        alpha = second_last("alpha", alpha, "f", f, axes)
        return outputs_back(c_transform(outputs_last(f, axes), alpha, cost), axes)
    check_signal("f", f, cost)
    check_signal("alpha", alpha, cost)
    check_same_shape("alpha", alpha, "f", f)
    if is_readable(f, alpha):
        check_distribution_values("alpha", alpha, cost, SUM_TOLERANCE[alpha.dtype])
        check_finite_where_positive(f, alpha)
    check_learnt(cost)
    potential, mass = computed(f), computed(alpha)
    inside = mass.detach() > 0
    dims = autograd.signal_dims(cost)
    peak = torch.where(inside, potential.detach(), -torch.inf).amax(dims, keepdim=True)
    half = (torch.where(inside, potential, peak) - peak) / 2
    log_mass = torch.where(inside, torch.log(torch.where(inside, mass, 1.0)), -torch.inf)
    result = -2 * autograd.log_product(mass * torch.exp(half), cost, log_mass + half) - peak
    return result.to(f.dtype)


def fenchel_young(target: Target, f: Tensor, conjugate: Tensor, cost: Cost) -> Tensor:
    """Return ``Ω*(f) Σα + Ω(α) - ⟨α, f⟩``. A constant added to ``f`` does not change it.

    This holds off the simplex, too. A value that rounding made negative becomes 0; the gradient
    does not change.
    """
    if target.indices is not None:
        flat = f.reshape(*target.indices.shape, cost.size)
        loss = conjugate - flat.gather(-1, target.indices[..., None])[..., 0]
        return at_least_zero(loss)
    assert target.alpha is not None
    alpha, v = scaled("target", target.alpha, cost, target.dtype)
    f = torch.where(
        (alpha == 0) & torch.isneginf(f), 0.0, f
    )  # masked outputs without mass do not count
    mass = alpha.sum(autograd.signal_dims(cost))
    negentropy = autograd.negentropy(alpha, v, cost)
    return at_least_zero(mass * conjugate + negentropy - autograd.inner(alpha, f, cost))


def scaled(
    name: str, alpha: Tensor, cost: Cost, dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor]:
    """Solve the Sinkhorn problem: return ``α`` and ``v`` in float64. `dtype` is the input's."""
    came_in = alpha.dtype if dtype is None else dtype
    alpha = alpha.to(torch.float64)
    tolerance, single = SUM_TOLERANCE[came_in], came_in != torch.float64
    v = operators.sinkhorn(alpha.detach(), cost, name, tolerance, single=single)
    return alpha, v


def at_least_zero(value: Tensor) -> Tensor:
    """Replace values that rounding made negative by 0; the gradient does not change."""
    return value - value.detach().clamp_max(0)
