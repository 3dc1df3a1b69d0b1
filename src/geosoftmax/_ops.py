"""The opaque operators: solves, seen by autograd, ``torch.func`` and ``torch.compile`` as one step.

Where nothing traces or transforms a call, the function behind an operator is called directly.

Operators take and return plain tensors, know nothing of derivatives (`autograd` does), check
values, and warn when a tolerance was not reached. A cost travels as text and tensors
(`Cost.flatten`).
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import torch
from torch import Tensor

from geosoftmax import solvers
from geosoftmax.backends import twin, whole_sinkhorn, whole_solve, whole_support_solve
from geosoftmax.backends.reference import certificate_dtype
from geosoftmax.costs.base import Cost
from geosoftmax.solvers.solution import has_converged
from geosoftmax.validation import (
    check_distribution_values,
    check_init_values,
    check_peaks,
    is_concrete,
    is_readable,
)

#: Residual of log(v · Kv / α) that counts as solved, and what is aimed at.
SINKHORN_ACCEPTED = 1e-9
SINKHORN_AIM = 1e-14
SINKHORN_MAX_ITER = 200


def solve(
    scores: Tensor, cost: Cost, tol: float, max_iter: int, method: str, init: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return ``alpha``, ``u``, ``lower``, ``upper``, iterations for scores of any batch shape."""
    if is_concrete(scores, cost.parameter):
        with torch.no_grad():
            return _solve(scores, _constant(cost), tol, max_iter, method, init)
    spec, tensors = _flat(cost)
    return _solve_op(scores, tensors, spec, len(cost.shape), tol, max_iter, method, init)


def _solve(
    scores: Tensor, cost: Cost, tol: float, max_iter: int, method: str, init: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    batch = scores.shape[: scores.dim() - len(cost.shape)]
    if scores.numel() == 0:
        nothing = scores.new_zeros(batch, dtype=torch.float64)
        u = torch.zeros_like(scores)
        return u.clone(), u, nothing, nothing.clone(), nothing.to(torch.int64)
    cost = _per_row(cost, batch)
    whole = None
    if init is None:
        whole = whole_solve(method, cost, scores.device, scores.dtype, tol)
    # Nobody waits for a GPU, if the solve does not: the gap says later whether it was reached.
    waits = is_readable(scores) or (whole is None and method not in solvers.NEVER_WAIT)
    if whole is not None:
        answer = whole(cost, scores, tol, max_iter)
        if method == "splitting" and scores.device.type == "cpu":
            _finish(answer, scores, cost, tol, max_iter)
    else:
        options = solvers.Options(tol=tol, max_iter=max_iter, dtype=scores.dtype, init=init)
        answer = _solve_in_steps(scores, cost, method, options, checked=waits)
    if not waits:
        return answer
    _, _, lower, upper, iterations = answer
    gap = upper - lower
    if not float(gap.max()) <= tol:
        check_peaks(twin("peaks", cost, scores.device)(cost, scores))
        late = ~has_converged(lower, upper, tol)
        if bool(late.any()):
            _warn_of_late_rows(gap, int(late.sum()), tol, max_iter, method, iterations)
    return answer


def _solve_in_steps(
    scores: Tensor, cost: Cost, method: str, options: solvers.Options, *, checked: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Subtract the maximum, solve (QP), add the maximum back."""
    peak = twin("peaks", cost, scores.device)(cost, scores)
    if checked:
        check_peaks(peak)
    b = twin("obstacle", cost, scores.device)(cost, scores, peak)
    if options.init is not None:
        options = dataclasses.replace(options, init=_usable_start(options.init, b))
    rows = solvers.run(method, cost, b, options)
    outwards = torch.full_like(peak, torch.inf)  # adding the maximum back rounds once more
    lower = torch.nextafter(rows.lower + peak, -outwards)
    upper = torch.nextafter(rows.upper + peak, outwards)
    alpha, u = twin("distribution", cost, scores.device)(cost, b, rows.u, scores.dtype)
    batch = scores.shape[: scores.dim() - len(cost.shape)]
    return (
        alpha.reshape(scores.shape),
        u.reshape(scores.shape),
        lower.reshape(batch),
        upper.reshape(batch),
        rows.iterations.to(torch.int64).reshape(batch),
    )


def _finish(
    answer: tuple[Tensor, ...], scores: Tensor, cost: Cost, tol: float, max_iter: int
) -> None:
    """Solve in steps the rows whose support was too large for one kernel."""
    lower, upper = (bound.reshape(-1) for bound in answer[2:4])
    late = (upper - lower > tol).nonzero()[:, 0]
    if late.numel() == 0:
        return
    flat = [x.reshape(-1, *cost.shape) for x in (scores, *answer[:2])]
    flat += [x.reshape(-1) for x in answer[2:]]
    options = solvers.Options(tol=tol, max_iter=max_iter, dtype=scores.dtype)
    better = _solve_in_steps(flat[0][late], cost, "splitting", options, checked=True)
    for old, new in zip(flat[1:], better, strict=True):
        old[late] = new


def _usable_start(init: Tensor, b: Tensor) -> Tensor:
    """Return a warm start as rows; where it says nothing about a row, the obstacle itself."""
    check_init_values(init)
    init = init.to(b.dtype).reshape(b.shape)
    hopeless = (init * b).flatten(1).sum(1) <= 0
    if bool(hopeless.any()):
        init = torch.where(hopeless.reshape(-1, *[1] * (b.dim() - 1)), b, init)
    return init


@torch.library.custom_op("geosoftmax::solve", mutates_args=())
def _solve_op(
    scores: Tensor,
    cost_tensors: list[Tensor],
    cost_spec: str,
    dimensions: int,
    tol: float,
    max_iter: int,
    method: str,
    init: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    cost = Cost.recall(cost_spec, cost_tensors)
    return _solve(scores, cost, tol, max_iter, method, init)


@_solve_op.register_fake
def _(scores: Tensor, cost_tensors, cost_spec, dimensions, tol, max_iter, method, init) -> Any:
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
    """``x`` with ``K_SS x_S = rhs_S`` on the support and 0 elsewhere."""
    if is_concrete(rhs, support, cost.parameter):
        with torch.no_grad():
            return _support_solve(rhs, support, _constant(cost))
    spec, tensors = _flat(cost)
    return _support_solve_op(rhs, support, tensors, spec)


def _support_solve(rhs: Tensor, support: Tensor, cost: Cost) -> Tensor:
    if rhs.numel() == 0:
        return torch.zeros_like(rhs)
    whole = whole_support_solve(cost, rhs.device, rhs.dtype)
    if whole is not None:
        return whole(cost, rhs, support, solvers.MAX_ITER)
    double = certificate_dtype(rhs.device)
    x = cost.to(dtype=double).solve(rhs.to(double), support)
    return x.to(rhs.dtype).contiguous()


@torch.library.custom_op("geosoftmax::support_solve", mutates_args=())
def _support_solve_op(
    rhs: Tensor, support: Tensor, cost_tensors: list[Tensor], cost_spec: str
) -> Tensor:
    return _support_solve(rhs, support, Cost.recall(cost_spec, cost_tensors))


@_support_solve_op.register_fake
def _(rhs: Tensor, support: Tensor, cost_tensors, cost_spec) -> Tensor:
    return torch.empty_like(rhs, memory_format=torch.contiguous_format)


def sinkhorn(alpha: Tensor, cost: Cost, name: str, sum_tolerance: float, *, single: bool) -> Tensor:
    """``v ≥ 0`` with ``v · Kv = α``; `single` if the digits of float32 are enough."""
    if is_concrete(alpha, cost.parameter):
        with torch.no_grad():
            return _sinkhorn(alpha, _constant(cost), name, sum_tolerance, single)
    spec, tensors = _flat(cost)
    return _sinkhorn_op(alpha, tensors, spec, name, sum_tolerance, single)


def _sinkhorn(alpha: Tensor, cost: Cost, name: str, sum_tolerance: float, single: bool) -> Tensor:
    check_distribution_values(name, alpha, cost, sum_tolerance)
    batch = alpha.shape[: alpha.dim() - len(cost.shape)]
    if alpha.numel() == 0:
        return torch.zeros_like(alpha)
    whole = whole_sinkhorn(cost, alpha.device) if single else None
    if whole is not None:
        return whole(cost, alpha).to(alpha.dtype)
    rows = alpha.to(certificate_dtype(alpha.device)).reshape(-1, *cost.shape)
    find = twin("sinkhorn", cost, rows.device)
    solved = find(_per_row(cost, batch), rows, SINKHORN_AIM, SINKHORN_MAX_ITER)
    worst = float(solved.residual.max())
    if not worst <= SINKHORN_ACCEPTED:
        count = int((solved.residual > SINKHORN_ACCEPTED).sum())
        warnings.warn(
            f"the Sinkhorn potential of {count} of {rows.shape[0]} rows was not reached: "
            f"worst residual {worst:.1e} (aimed at {SINKHORN_ACCEPTED:.0e}).",
            solvers.ConvergenceWarning,
            stacklevel=2,
        )
    return solved.v.to(alpha.dtype).reshape(alpha.shape)


@torch.library.custom_op("geosoftmax::sinkhorn", mutates_args=())
def _sinkhorn_op(
    alpha: Tensor,
    cost_tensors: list[Tensor],
    cost_spec: str,
    name: str,
    sum_tolerance: float,
    single: bool,
) -> Tensor:
    cost = Cost.recall(cost_spec, cost_tensors)
    return _sinkhorn(alpha, cost, name, sum_tolerance, single)


@_sinkhorn_op.register_fake
def _(alpha: Tensor, cost_tensors, cost_spec, name, sum_tolerance, single) -> Tensor:
    return torch.empty_like(alpha, memory_format=torch.contiguous_format)


def _per_row(cost: Cost, batch: torch.Size) -> Cost:
    """Return a cost with one matrix per row, where it has one per sample."""
    if not cost.batch_shape:
        return cost
    C = cost.parameter
    d = C.shape[-1]
    return cost.with_parameter(C.expand(*batch, d, d).reshape(-1, d, d))


def _warn_of_late_rows(
    gap: Tensor, late: int, tol: float, max_iter: int, method: str, iterations: Tensor
) -> None:
    stopped = int(iterations.max())
    limited = stopped >= max_iter and method in ("splitting", "accelerated", "lbfgs")
    advice = "raise max_iter, or ask for a larger tol" if limited else "ask for a larger tol"
    warnings.warn(
        f"{late} of {gap.numel()} rows did not reach tol={tol:g}: the worst certified gap is "
        f"{float(gap.max()):.1e} after {stopped} iterations of {method!r}. "
        f"The bracket is still true; {advice}.",
        solvers.ConvergenceWarning,
        stacklevel=2,
    )


# ------------------------------------------------------------------ torch.func.vmap


def _register_vmap(op: Any, signals: tuple[int, ...], tensors: int, outputs: int) -> None:
    """Give an operator its batching rule: signals take any leading dimensions as they are.

    `signals` are the positions of arguments with batch dimensions, `tensors` that of the cost's
    tensors. Where a tensor of the cost itself is batched, one call is made for each.
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


_register_vmap(_solve_op, signals=(0, 7), tensors=1, outputs=5)
_register_vmap(_support_solve_op, signals=(0, 1), tensors=2, outputs=1)
_register_vmap(_sinkhorn_op, signals=(0,), tensors=1, outputs=1)


# ------------------------------------------------------------------ costs


def _constant(cost: Cost) -> Cost:
    """Return the cost without history; itself, with all that it remembers, where it has none."""
    return cost.detach() if cost.parameter.requires_grad else cost


def _flat(cost: Cost) -> tuple[str, list[Tensor]]:
    spec, tensors = cost.flatten()
    return spec, [t.detach() for t in tensors]


#: How far below the largest score, in units of f/2, a score may lie before b underflows.
FAR_BELOW = 700.0


def tiny(dtype: torch.dtype) -> float:
    """Return the smallest product with ``K`` that still has all its digits."""
    return torch.finfo(dtype).tiny / torch.finfo(dtype).eps
