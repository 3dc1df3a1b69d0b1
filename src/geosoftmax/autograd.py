"""All derivatives.

A few functions have their own derivative rules, and the rest is plain torch on top of them. Each
rule takes the value that a solver found, so it does not solve (QP) again:

- `minimiser`: ``u(b, θ)`` of (QP). One solve on the support: ``K_SS du = db - dK u``.
- `log_sum_exp`: ``∂/∂f = α``, ``∂/∂θ = -⟨u, ∂K u⟩ / Z``. No solve.
- `scaling`: ``v(α, θ)`` with ``v · Kv = α``: ``(D_h + D_v K) dv = dα - v ∂K v``.
- `negentropy`: ``∂Ω/∂α`` is the potential, ``∂Ω/∂θ = ⟨v, ∂K v⟩``.
- `fused_loss` and its siblings: the solver returned the slope with the loss. Only second
  derivatives compute the slope again, as a function, and solve (QP) a second time.

``θ`` is the parameter of the cost. The rules are themselves differentiable, so second derivatives
work. The ``jvp`` rules are in subclasses, because ``torch.compile`` rejects functions that have
one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function, forward_ad

from geosoftmax import operators
from geosoftmax.backends.reference import shifted_solve
from geosoftmax.costs.base import Cost
from geosoftmax.operators import Options
from geosoftmax.solvers.plans import PLANS
from geosoftmax.solvers.products import Averages, Products
from geosoftmax.validation import is_concrete, is_onnx_export, is_readable

#: Rounds of Chebyshev's method that solve the linear system of `scaling` to float64 precision.
ROUNDS = 22


def signal_dims(cost: Cost) -> tuple[int, ...]:
    """Return the dimensions of one sample."""
    return tuple(range(-len(cost.shape), 0))


def inner(x: Tensor, y: Tensor, cost: Cost, *, keepdim: bool = False) -> Tensor:
    """Return ``⟨x, y⟩`` for each sample."""
    return (x * y).sum(signal_dims(cost), keepdim=keepdim)


def expand(per_sample: Tensor, cost: Cost) -> Tensor:
    """Give a value per sample the dimensions of a signal."""
    return per_sample[(..., *[None] * len(cost.shape))]


# ------------------------------------------------------------------ products


def product(u: Tensor, cost: Cost) -> Tensor:
    """Return ``K u``. Prepared matrices are used, unless the cost needs a gradient."""
    if is_constant(cost.parameter) and is_concrete(u):
        return PLANS.get(cost, "products", lambda: Products(cost)).matvec(u)
    return cost.matvec(u)


def average(u: Tensor, cost: Cost) -> Tensor:
    """Return means of ``u``, weighted by ``exp(-C)``, in the same way."""
    if is_constant(cost.parameter) and is_concrete(u):
        return PLANS.get(cost, "averages", lambda: Averages(cost * 2))(u)
    return (cost * 2).average(u)


# ------------------------------------------------------------------ public pieces


def half_exponential(f: Tensor, cost: Cost) -> tuple[Tensor, Tensor]:
    """Return ``b = exp((f - max f) / 2)`` and ``max f``."""
    peak = f.detach().amax(signal_dims(cost), keepdim=True)
    return torch.exp((f - peak) / 2), peak


def minimiser(b: Tensor, u: Tensor, cost: Cost) -> Tensor:
    """Return ``u`` as a function of ``b`` and of the parameter of the cost."""
    if is_constant(b, cost.parameter, u):
        return u
    return _rule(_Minimiser, _MinimiserForward).apply(b, cost.parameter, u, cost)


def softmax(f: Tensor, u: Tensor, alpha: Tensor, cost: Cost) -> Tensor:
    """Return ``α = u b / ⟨b,u⟩`` as a function of ``f`` and of the parameter of the cost."""
    if is_constant(f, cost.parameter, u):
        return alpha
    b, _ = half_exponential(f, cost)
    weighted = minimiser(b, u, cost) * b
    again = weighted / weighted.sum(signal_dims(cost), keepdim=True)
    return again + (alpha - again).detach()  # the same bits, with and without gradients


def log_sum_exp(f: Tensor, u: Tensor, alpha: Tensor, value: Tensor, cost: Cost) -> Tensor:
    """Return the value as a function of ``f`` and of the parameter of the cost."""
    if is_constant(f, cost.parameter, u):
        return value.to(f.dtype)
    if has_plain_gradient(f, cost.parameter, u):
        found = value.to(f.dtype, copy=True), alpha
        dimensions = len(cost.shape)
        return _apply_fused_loss(f, u, found, dimensions, lambda f, u: softmax(f, u, alpha, cost))
    return _rule(_LogSumExp, _LogSumExpForward).apply(f, cost.parameter, u, value, cost)


def fused_loss(
    f: Tensor, target: Tensor, loss: Tensor, slope: Tensor, cost: Cost, share: float | None,
    options: Options,
) -> Tensor:  # fmt: skip
    """Return the loss as a function of ``f``, given its slope ``Σα · softmax - α``.

    If a share is given, return the sum over samples; the slope already contains the share. Second
    derivatives solve again, with these options.
    """
    part = 1.0 if share is None else share

    def slope_of(f: Tensor, target: Tensor) -> Tensor:
        return (_mass(target, cost) * _softmax_again(f, cost, options) - target) * part

    return _with_slope(f, target, loss, slope, cost, share, slope_of)


def fused_index_loss(
    f: Tensor, target: Tensor, loss: Tensor, slope: Tensor, cost: Cost, reduction: str,
    ignore_index: int, options: Options,
) -> Tensor:  # fmt: skip
    """Return a reduced loss of class indices as a function of ``f``, given its slope."""
    if not f.requires_grad or not torch.is_grad_enabled():
        return loss

    def slope_of(f: Tensor, target: Tensor) -> Tensor:
        weight = (target != ignore_index).to(f.dtype)
        if reduction == "mean":
            weight = weight / weight.sum()
        again = _softmax_again(f, cost, options)
        return slope + expand(weight, cost) * (again - again.detach())

    dimensions = len(cost.shape) if reduction == "none" else 0
    return _apply_fused_loss(f, target, (loss, slope), dimensions, slope_of)


def potential_loss(
    g: Tensor, target: Tensor, loss: Tensor, slope: Tensor, cost: Cost, share: float | None
) -> Tensor:
    """Return the loss of the potential layer, in the same way."""
    part = 1.0 if share is None else share

    def slope_of(g: Tensor, target: Tensor) -> Tensor:
        v, _ = half_exponential(g, cost)
        h = product(v, cost)
        beta = v * h / inner(v, h, cost, keepdim=True)
        there = target > 0
        back = torch.where(there, target / torch.where(there, h, 1.0), 0.0)
        return (_mass(target, cost) * beta - v * product(back, cost)) * part

    return _with_slope(g, target, loss, slope, cost, share, slope_of)


def _with_slope(
    f: Tensor, target: Tensor, loss: Tensor, slope: Tensor, cost: Cost, share: float | None,
    slope_of: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:  # fmt: skip
    """Attach its slope to a loss; with a share, sum the loss."""
    total, dimensions = (loss, len(cost.shape)) if share is None else (loss.sum(), 0)
    return _apply_fused_loss(f, target, (total, slope), dimensions, slope_of)


def _softmax_again(f: Tensor, cost: Cost, options: Options) -> Tensor:
    alpha, u, _, _, _ = operators.solve(f.detach(), cost, options)
    return softmax(f, u, alpha, cost)


def _mass(alpha: Tensor, cost: Cost) -> Tensor:
    return alpha.sum(signal_dims(cost), keepdim=True)


def scaling(alpha: Tensor, v: Tensor, cost: Cost) -> Tensor:
    """Return ``v`` as a function of ``α`` and of the parameter of the cost."""
    if is_constant(alpha, cost.parameter, v):
        return v
    return _rule(_Scaling, _ScalingForward).apply(alpha, cost.parameter, v, cost)


def potential(alpha: Tensor, v: Tensor, cost: Cost) -> Tensor:
    """Return ``f = 2 log(K v)``."""
    return 2 * log_product(scaling(alpha, v, cost), cost)


def negentropy(alpha: Tensor, v: Tensor, cost: Cost) -> Tensor:
    """Return ``Ω(α)``, extended off the simplex so that its gradient is the potential."""
    return _rule(_Negentropy, _NegentropyForward).apply(alpha, cost.parameter, v, cost)


def fused_negentropy(
    alpha: Tensor, value: Tensor, slope: Tensor, cost: Cost,
    potential_of: Callable[[Tensor], Tensor],
) -> Tensor:  # fmt: skip
    """Return ``Ω(α)`` as a function of ``α``, given its slope, the potential."""
    return _with_slope(alpha, alpha, value, slope, cost, None, lambda a, _: potential_of(a))


def log_product(v: Tensor, cost: Cost, log_v: Tensor | None = None) -> Tensor:
    """Return ``log(K v)``; where the product underflows, in the log domain, without gradient.

    Pass `log_v` if ``v`` itself may have underflowed.
    """
    h = product(v, cost)
    enough = h > tiny(h.dtype)
    if is_readable(h) and bool(enough.all()):
        return torch.log(h)
    if log_v is None:
        positive = v.detach() > 0
        log_v = torch.where(positive, torch.log(torch.where(positive, v.detach(), 1.0)), -torch.inf)
    exact = cost.detach().log_matvec(log_v.detach())
    return torch.where(enough, torch.log(torch.where(enough, h, 1.0)), exact)


# ------------------------------------------------------------------ rules


def _rule(reverse: type[Function], forward: type[Function]) -> Any:
    """Choose the class with a jvp, if it is allowed."""
    return reverse if torch.compiler.is_compiling() else forward


def tiny(dtype: torch.dtype) -> float:
    """Return the smallest product with ``K`` that still has full precision."""
    return torch.finfo(dtype).tiny / torch.finfo(dtype).eps


def has_plain_gradient(f: Tensor, *constants: Tensor) -> bool:
    """Return whether only derivatives in ``f``, in reverse mode, can be requested."""
    return is_concrete(f) and is_constant(*constants)


def is_constant(*tensors: Tensor) -> bool:
    """Return whether these need no derivatives: then the rules, which are slow, are skipped."""
    if not is_concrete(*tensors):
        return is_onnx_export()  # a model in ONNX has no derivatives
    if is_forward_mode():
        return False
    return not (torch.is_grad_enabled() and any(map(_requires_grad, tensors)))


def is_forward_mode() -> bool:
    """Return whether forward-mode differentiation is active."""
    return forward_ad._current_level >= 0


_requires_grad = operator.attrgetter("requires_grad")


def _parameter_vjp(cost: Cost, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return the gradient of ``⟨y, K(θ) x⟩`` with respect to ``θ``."""
    pullback = torch.func.vjp(lambda t: cost.with_parameter(t).matvec(x), theta)[1]
    return pullback(y)[0]


def _parameter_jvp(cost: Cost, theta: Tensor, x: Tensor, dtheta: Tensor) -> Tensor:
    """Return ``∂K(θ)[dθ] x``, as the transpose of the rule above: reverse mode is enough."""
    zero = torch.zeros_like(x)
    transpose = torch.func.vjp(lambda y: _parameter_vjp(cost, theta, x, y), zero)[1]
    return transpose(dtheta)[0]


class _SupportSolve(Function):
    """``x = K_SS⁻¹ rhs_S``: linear and self-adjoint in rhs, ``dx = K_SS⁻¹ (drhs - dK x)``."""

    generate_vmap_rule = True

    @staticmethod
    def forward(rhs: Tensor, theta: Tensor, support: Tensor, cost: Cost) -> Tensor:
        return operators.support_solve(rhs, support, cost.with_parameter(theta))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, theta, support, cost = inputs
        ctx.cost = cost
        ctx.save_for_backward(theta, support, output)
        ctx.save_for_forward(theta, support, output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        theta, support, x = ctx.saved_tensors
        y = _support_solve(grad, theta, support, ctx.cost)
        by_theta = _parameter_vjp(ctx.cost, theta, x, -y) if ctx.needs_input_grad[1] else None
        return y, by_theta, None, None


class _SupportSolveForward(_SupportSolve):
    @staticmethod
    def jvp(ctx: Any, drhs: Tensor | None, dtheta: Tensor | None, *others: Any) -> Tensor:
        theta, support, x = ctx.saved_tensors
        change = torch.zeros_like(x) if drhs is None else drhs
        if dtheta is not None:
            change = change - _parameter_jvp(ctx.cost, theta, x, dtheta)
        return _support_solve(change, theta, support, ctx.cost)


def _support_solve(rhs: Tensor, theta: Tensor, support: Tensor, cost: Cost) -> Tensor:
    return _rule(_SupportSolve, _SupportSolveForward).apply(rhs, theta, support, cost)


class _Rule(Function):
    """A function of a signal, ``θ``, a value that a solver found, and (last) the cost."""

    generate_vmap_rule = True

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        signal, theta, found, *_, cost = inputs
        ctx.cost = cost
        ctx.save_for_backward(signal, theta, found)
        ctx.save_for_forward(signal, theta, found)


class _Minimiser(_Rule):
    @staticmethod
    def forward(b: Tensor, theta: Tensor, u: Tensor, cost: Cost) -> Tensor:
        return u.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        b, theta, u = ctx.saved_tensors
        x = _support_solve(grad, theta, u > 0, ctx.cost)
        by_theta = None
        if ctx.needs_input_grad[1]:
            again = minimiser(b, u, ctx.cost.with_parameter(theta))
            by_theta = _parameter_vjp(ctx.cost, theta, again, -x)
        return x, by_theta, None, None


class _MinimiserForward(_Minimiser):
    @staticmethod
    def jvp(ctx: Any, db: Tensor | None, dtheta: Tensor | None, *others: Any) -> Tensor:
        _, theta, u = ctx.saved_tensors
        change = torch.zeros_like(u) if db is None else db
        if dtheta is not None:
            change = change - _parameter_jvp(ctx.cost, theta, u, dtheta)
        return _support_solve(change, theta, u > 0, ctx.cost)


class _FusedLoss(Function):
    """A value or loss with a known slope in the scores, and no other derivative.

    `found` has both in a tuple, because torch makes a view of an argument that is returned.
    `dimensions` is the number of dimensions that the scores have and the loss does not.
    ``slope_of(f, target)`` computes the slope again, as a function of the scores.
    """

    @staticmethod
    def forward(
        ctx: Any, f: Tensor, target: Tensor, found: tuple[Tensor, Tensor], dimensions: int,
        slope_of: Callable[[Tensor, Tensor], Tensor],
    ) -> Tensor:  # fmt: skip
        ctx.dimensions, ctx.slope_of = dimensions, slope_of
        ctx.save_for_backward(f, target, found[1])
        return found[0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        f, target, slope = ctx.saved_tensors
        if torch.is_grad_enabled():  # second derivatives are needed
            slope = ctx.slope_of(f, target)
        if ctx.dimensions:
            grad = grad[(..., *[None] * ctx.dimensions)]
        return slope * grad, None, None, None, None


#: ``_FusedLoss.apply`` without the overhead for transforms of torch.func: none is active here.
_apply_fused_loss: Callable[..., Tensor] = super(Function, _FusedLoss).apply  # pyright: ignore


class _LogSumExp(_Rule):
    @staticmethod
    def forward(f: Tensor, theta: Tensor, u: Tensor, value: Tensor, cost: Cost) -> Tensor:
        return value.to(f.dtype, copy=True)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        f, theta, u = ctx.saved_tensors
        cost = ctx.cost.with_parameter(theta)
        b, _ = half_exponential(f, cost)
        u = minimiser(b, u, cost)
        share = expand(grad, cost) / inner(b, u, cost, keepdim=True)
        by_theta = None
        if ctx.needs_input_grad[1]:
            by_theta = _parameter_vjp(cost, theta, u, -share * u)
        return share * (u * b), by_theta, None, None, None


class _LogSumExpForward(_LogSumExp):
    @staticmethod
    def jvp(ctx: Any, df: Tensor | None, dtheta: Tensor | None, *others: Any) -> Tensor:
        f, theta, u = ctx.saved_tensors
        cost = ctx.cost.with_parameter(theta)
        b, _ = half_exponential(f, cost)
        u = minimiser(b, u, cost)
        Z = inner(b, u, cost)
        change = torch.zeros_like(Z)
        if df is not None:
            change = change + inner(u * b, df, cost) / Z
        if dtheta is not None:
            change = change - inner(u, _parameter_jvp(cost, theta, u, dtheta), cost) / Z
        return change


class _Scaling(_Rule):
    @staticmethod
    def forward(alpha: Tensor, theta: Tensor, v: Tensor, cost: Cost) -> Tensor:
        return v.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        alpha, theta, v = ctx.saved_tensors
        cost = ctx.cost.with_parameter(theta)
        v = scaling(alpha, v, cost)
        h, s = _envelope(cost, v)
        z = _symmetric_solve(cost, s, s * grad)
        y = (grad - product(s * z, cost)) / h
        by_theta = None
        if ctx.needs_input_grad[1]:
            by_theta = _parameter_vjp(cost, theta, v, -y * v)
        return y, by_theta, None, None


class _ScalingForward(_Scaling):
    @staticmethod
    def jvp(ctx: Any, dalpha: Tensor | None, dtheta: Tensor | None, *others: Any) -> Tensor:
        alpha, theta, v = ctx.saved_tensors
        cost = ctx.cost.with_parameter(theta)
        v = scaling(alpha, v, cost)
        h, s = _envelope(cost, v)
        change = torch.zeros_like(v) if dalpha is None else dalpha
        if dtheta is not None:
            change = change - v * _parameter_jvp(cost, theta, v, dtheta)
        change = change / h
        z = _symmetric_solve(cost, s, s * product(change, cost))
        return change - s * z


class _Negentropy(_Rule):
    @staticmethod
    def forward(alpha: Tensor, theta: Tensor, v: Tensor, cost: Cost) -> Tensor:
        f = 2 * log_product(v, cost.with_parameter(theta))
        return inner(alpha, f - 1, cost) + 1

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        alpha, theta, v = ctx.saved_tensors
        cost = ctx.cost.with_parameter(theta)
        grad = expand(grad, cost)
        by_theta = None
        if ctx.needs_input_grad[1]:
            again = scaling(alpha, v, cost)
            by_theta = _parameter_vjp(cost, theta, again, grad * again)
        return grad * potential(alpha, v, cost), by_theta, None, None


class _NegentropyForward(_Negentropy):
    @staticmethod
    def jvp(ctx: Any, dalpha: Tensor | None, dtheta: Tensor | None, *others: Any) -> Tensor:
        alpha, theta, v = ctx.saved_tensors
        cost = ctx.cost.with_parameter(theta)
        change = torch.zeros_like(inner(alpha, alpha, cost))
        if dalpha is not None:
            change = change + inner(potential(alpha, v, cost), dalpha, cost)
        if dtheta is not None:
            again = scaling(alpha, v, cost)
            change = change + inner(again, _parameter_jvp(cost, theta, again, dtheta), cost)
        return change


def _envelope(cost: Cost, v: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``h = Kv`` and ``s = sqrt(v / h)``, which symmetrises ``diag(1/h) K diag(v)``."""
    h = product(v, cost).clamp_min(tiny(v.dtype))
    ratio = v / h
    positive = ratio > 0
    return h, torch.where(positive, torch.where(positive, ratio, 1.0).sqrt(), 0.0)


def _symmetric_solve(cost: Cost, s: Tensor, rhs: Tensor) -> Tensor:
    """Solve ``(I + diag(s) K diag(s)) z = rhs``."""
    return shifted_solve(lambda z: s * product(s * z, cost), rhs, ROUNDS)
