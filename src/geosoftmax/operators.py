"""Solves as single operations, opaque to autograd, ``torch.func`` and ``torch.compile``.

If nothing traces or transforms a call, its plan is looked up and run directly. Otherwise a custom
operator does the same. Operators take and return plain tensors, and have no derivatives (`autograd`
has them).

**How a compiled graph finds its plan.** An operator can only take tensors and text. So a cost is
passed as its signature, its tensors, and its *handle*: an empty tensor that carries a weak
reference to the cost. A graph passes on the same tensor objects that it was called with. So the
reference leads back to the cost and, through the plan cache, to its plans. No registry of costs is
needed. If the reference is dead, or its cost has other tensors (a scale that is learnt in the
graph), the cost is rebuilt from signature and tensors, and its plan is made for that call.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor

from geosoftmax import solvers
from geosoftmax.backends.reference import certificate_dtype
from geosoftmax.costs.base import Cost
from geosoftmax.solvers import registry, running
from geosoftmax.solvers.base import Fused, Plan, Purpose, Request, SinkhornPlan
from geosoftmax.solvers.portable import ADVICE
from geosoftmax.validation import check_distribution_values, is_concrete, is_onnx_export

#: The largest residual of log(v · Kv / α) that counts as solved.
SINKHORN_ACCEPTED = 1e-9
#: b underflows if a score lies further than this, in units of f/2, below the largest score.
FAR_BELOW = 700.0


class Options(NamedTuple):
    """The options of a solve of (QP)."""

    purpose: Purpose
    tol: float
    max_iter: int
    method: str


def solve(scores: Tensor, cost: Cost, options: Options, init: Tensor | None = None) -> Fused:
    """Return ``alpha``, ``u``, ``lower``, ``upper``, iterations for scores of any batch shape."""
    if is_concrete(scores, cost.parameter):
        with torch.no_grad():
            return _solve(scores, cost, options, init)
    if is_onnx_export():
        plan = registry.onnx_plan(cost.detach(), scores.dtype, options.method)
        return running.solve_for_onnx(plan, scores.detach(), len(cost.shape))
    return _solve_op(scores, *_encode(cost), len(cost.shape), *options, init)


def _solve(scores: Tensor, cost: Cost, options: Options, init: Tensor | None) -> Fused:
    return running.solve(plan_of(scores, cost, options), scores, init, options.max_iter)


def predict(scores: Tensor, cost: Cost, options: Options) -> Tensor:
    """Return ``alpha`` only, for scores and a cost that need no gradients."""
    if is_onnx_export():
        return solve(scores, cost, options)[0]
    return running.predict(plan_of(scores, cost, options), scores.detach(), options.max_iter)


def plan_of(scores: Tensor, cost: Cost, options: Options) -> Plan:
    """Return the plan for scores of this batch shape and dtype."""
    if cost.batch_shape:
        cost = per_row(cost, scores.shape[: scores.dim() - len(cost.shape)])
    purpose, tol, _, method = options
    return registry.plan(cost, purpose, scores.dtype, tol, method)


def method_of(scores: Tensor, cost: Cost, options: Options) -> str:
    """Return the name of the method that solves these."""
    if options.method != "auto":
        return options.method
    request = Request(options.purpose, cost.device, scores.dtype, options.tol)
    return registry.choose(cost, request).method


def per_row(cost: Cost, batch: torch.Size) -> Cost:
    """Return a cost with one matrix per flattened row, if it has one per sample."""
    if not cost.batch_shape or (len(batch) == 1 and tuple(batch) == cost.batch_shape):
        return cost
    C = cost.parameter
    d = C.shape[-1]
    return cost.with_parameter(C.expand(*batch, d, d).reshape(-1, d, d))


# Schemas are written out: torch 2.6 cannot read ``list[Tensor]``.
@torch.library.custom_op(
    "geosoftmax::solve",
    mutates_args=(),
    schema="(Tensor scores, Tensor[] cost_tensors, str cost_signature, int dimensions, "
    "str purpose, float tol, int max_iter, str method, Tensor? init) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def _solve_op(
    scores: Tensor,
    cost_tensors: list[Tensor],
    cost_signature: str,
    dimensions: int,
    purpose: str,
    tol: float,
    max_iter: int,
    method: str,
    init: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    options = Options(purpose, tol, max_iter, method)  # pyright: ignore[reportArgumentType]
    return _solve(scores, _decode(cost_tensors, cost_signature), options, init)


@_solve_op.register_fake
def _(scores: Tensor, cost_tensors, cost_signature, dimensions, *options) -> Any:
    _refuse_onnx("geosoftmax::solve")
    batch = scores.shape[: scores.dim() - dimensions]
    bound = scores.new_empty(batch, dtype=certificate_dtype(scores.device))
    return (
        torch.empty_like(scores, memory_format=torch.contiguous_format),
        torch.empty_like(scores, memory_format=torch.contiguous_format),
        bound,
        torch.empty_like(bound),
        torch.empty_like(bound, dtype=torch.int64),
    )


def support_solve(rhs: Tensor, support: Tensor, cost: Cost) -> Tensor:
    """Return ``x`` with ``K_SS x_S = rhs_S`` on the support and 0 elsewhere."""
    if is_concrete(rhs, support, cost.parameter):
        with torch.no_grad():
            return _support_solve(rhs, support, cost)
    return _support_solve_op(rhs, support, *_encode(cost))


def _support_solve(rhs: Tensor, support: Tensor, cost: Cost) -> Tensor:
    if rhs.numel() == 0:
        return torch.zeros_like(rhs)
    return registry.plan(cost, "support", rhs.dtype).solve_on(support, rhs)


@torch.library.custom_op(
    "geosoftmax::support_solve",
    mutates_args=(),
    schema="(Tensor rhs, Tensor support, Tensor[] cost_tensors, str cost_signature) -> Tensor",
)
def _support_solve_op(
    rhs: Tensor, support: Tensor, cost_tensors: list[Tensor], cost_signature: str
) -> Tensor:
    return _support_solve(rhs, support, _decode(cost_tensors, cost_signature))


@_support_solve_op.register_fake
def _(rhs: Tensor, support: Tensor, cost_tensors, cost_signature) -> Tensor:
    _refuse_onnx("geosoftmax::support_solve")
    return torch.empty_like(rhs, memory_format=torch.contiguous_format)


def sinkhorn(alpha: Tensor, cost: Cost, name: str, sum_tolerance: float, *, single: bool) -> Tensor:
    """Return ``v ≥ 0`` with ``v · Kv = α``; `single` means that float32 precision is enough."""
    if is_concrete(alpha, cost.parameter):
        with torch.no_grad():
            return _sinkhorn(alpha, cost, name, sum_tolerance, single)
    return _sinkhorn_op(alpha, *_encode(cost), name, sum_tolerance, single)


def _sinkhorn(alpha: Tensor, cost: Cost, name: str, sum_tolerance: float, single: bool) -> Tensor:
    check_distribution_values(name, alpha, cost, sum_tolerance)
    if alpha.numel() == 0:
        return torch.zeros_like(alpha)
    v, residual = sinkhorn_plan(alpha, cost, single=single).solve(alpha)
    if residual is not None and not float(residual.max()) <= SINKHORN_ACCEPTED:
        count = int((residual > SINKHORN_ACCEPTED).sum())
        warnings.warn(
            f"the Sinkhorn potential of {count} of {residual.numel()} rows did not converge: the "
            f"worst residual is {float(residual.max()):.1e}, above {SINKHORN_ACCEPTED:.0e}.",
            solvers.ConvergenceWarning,
            stacklevel=2,
        )
    return v


def sinkhorn_plan(alpha: Tensor, cost: Cost, *, single: bool) -> SinkhornPlan:
    """Return the plan for distributions of this batch shape."""
    batch = alpha.shape[: alpha.dim() - len(cost.shape)]
    dtype = torch.float32 if single else torch.float64
    return registry.plan(per_row(cost, batch), "sinkhorn", dtype)


@torch.library.custom_op(
    "geosoftmax::sinkhorn",
    mutates_args=(),
    schema="(Tensor alpha, Tensor[] cost_tensors, str cost_signature, str name, "
    "float sum_tolerance, bool single) -> Tensor",
)
def _sinkhorn_op(
    alpha: Tensor,
    cost_tensors: list[Tensor],
    cost_signature: str,
    name: str,
    sum_tolerance: float,
    single: bool,
) -> Tensor:
    cost = _decode(cost_tensors, cost_signature)
    return _sinkhorn(alpha, cost, name, sum_tolerance, single)


@_sinkhorn_op.register_fake
def _(alpha: Tensor, cost_tensors, cost_signature, name, sum_tolerance, single) -> Tensor:
    _refuse_onnx("geosoftmax::sinkhorn")
    return torch.empty_like(alpha, memory_format=torch.contiguous_format)


def _refuse_onnx(operator: str) -> None:
    """Raise an error that says what to export instead, if an ONNX export reaches an operator."""
    if torch.onnx.is_in_onnx_export():
        raise ValueError(
            f"the operator {operator} cannot be exported to ONNX. Pass torch.onnx.export the "
            "module itself, not a program captured by torch.export. The module must end with "
            f"GeometricSoftmax, PotentialSoftmax or SmoothScores. {ADVICE}."
        )


# ------------------------------------------------------------------ costs as text and tensors


def _encode(cost: Cost) -> tuple[list[Tensor], str]:
    return [cost.handle, *(t.detach() for t in cost.tensors)], cost.signature


def _decode(tensors: list[Tensor], signature: str) -> Cost:
    """Return the cost that the handle refers to, if it has these tensors; else rebuild it."""
    handle, *parts = tensors
    reference = getattr(handle, "cost_reference", None)
    cost = None if reference is None else reference()
    if cost is not None and is_concrete(*cost.tensors) and all(map(_is_same, cost.tensors, parts)):
        return cost
    return Cost.from_signature(signature, parts)


def _is_same(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are the same view of the same memory."""
    return (
        one.data_ptr() == other.data_ptr()
        and one.shape == other.shape
        and one.stride() == other.stride()
        and one.dtype == other.dtype
    )


# ------------------------------------------------------------------ torch.func.vmap


def _register_vmap(op: Any, signals: tuple[int, ...], tensors: int, outputs: int) -> None:
    """Register the vmap rule of an operator: signals accept extra leading dimensions.

    `signals` are the positions of arguments with batch dimensions. `tensors` is the position of the
    cost's tensors. If one of those is batched, the operator is called once per entry of the batch.
    """

    def rule(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        arguments = list(args)
        for k in signals:
            if arguments[k] is None:
                continue
            if in_dims[k] is None:
                arguments[k] = arguments[k].expand(info.batch_size, *arguments[k].shape)
            else:
                arguments[k] = arguments[k].movedim(in_dims[k], 0)
        dims = in_dims[tensors]
        if all(d is None for d in dims):
            result = op(*arguments)
        else:
            results = []
            for n in range(info.batch_size):
                one = list(arguments)
                for k in signals:
                    one[k] = None if one[k] is None else one[k][n]
                one[tensors] = [
                    t if d is None else t.select(d, n)
                    for t, d in zip(arguments[tensors], dims, strict=True)
                ]
                results.append(op(*one))
            if outputs == 1:
                result = torch.stack(results)
            else:
                result = tuple(torch.stack(parts) for parts in zip(*results, strict=True))
        return result, (0 if outputs == 1 else (0,) * outputs)

    op.register_vmap(rule)


_register_vmap(_solve_op, signals=(0, 8), tensors=1, outputs=5)
_register_vmap(_support_solve_op, signals=(0, 1), tensors=2, outputs=1)
_register_vmap(_sinkhorn_op, signals=(0,), tensors=1, outputs=1)
