"""Running a plan: from scores of any batch shape to a checked result."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from geosoftmax.backends import reference
from geosoftmax.backends.reference import Rows
from geosoftmax.backends.settings import sequential_allowance
from geosoftmax.solvers.base import Fused, OnnxPlan, Plan
from geosoftmax.solvers.solution import ConvergenceWarning, has_converged
from geosoftmax.validation import check_init_values, check_peaks, is_readable

#: Gaps above this say little about the value: no advice names them as tolerances.
LARGE_GAP = 0.1


def solve(plan: Plan, scores: Tensor, init: Tensor | None, max_iter: int) -> Fused:
    """Return ``alpha``, ``u``, ``lower``, ``upper``, iterations; check the values, and warn."""
    if scores.numel() == 0:
        return _nothing(scores, plan.dimensions)
    # If the solve needs no host synchronisation, add none: users can check the gap later.
    waits = plan.waits or is_readable(scores)
    if plan.fused is not None and init is None:
        answer = plan.fused(scores, max_iter)
    else:
        answer = solve_in_steps(plan, scores, init, max_iter, checked=waits)
    if waits:
        gap = float((answer[3] - answer[2]).max())
        if not gap <= plan.request.tol:
            explain(plan, scores, answer, max_iter)
    return answer


def predict(plan: Plan, scores: Tensor, max_iter: int) -> Tensor:
    """Return the distributions only."""
    if plan.predict is None or scores.numel() == 0:
        return solve(plan, scores, None, max_iter)[0]
    alpha, gap = plan.predict(scores)
    if not gap <= plan.request.tol:
        solve(plan, scores, None, max_iter)  # raises or warns
    return alpha


def solve_for_onnx(plan: OnnxPlan, scores: Tensor, dimensions: int) -> Fused:
    """Return the same as `solve`, in ONNX operators. It is exact: both bounds are the value."""
    f = scores.flatten(scores.dim() - dimensions).to(torch.float64)
    peak = f.amax(-1, keepdim=True)
    b = torch.exp((f - peak) / 2)
    u = plan.minimise(b)
    weighted = u * b
    Z = weighted.sum(-1, keepdim=True)
    value = (torch.log(Z) + peak)[..., 0]
    shape = scores.shape[scores.dim() - dimensions :]
    alpha, u = ((x.to(scores.dtype).unflatten(-1, shape)) for x in (weighted / Z, u))
    return alpha, u, value, value, torch.zeros_like(value, dtype=torch.int64)


def explain(plan: Plan, scores: Tensor, answer: Fused, max_iter: int) -> None:
    """Raise if scores have no solution; warn if rows did not reach the tolerance."""
    check_peaks(reference.peaks(scores, plan.dimensions))
    _, _, lower, upper, iterations = answer
    tol = plan.request.tol
    late = int((~has_converged(lower, upper, tol)).sum())
    if late == 0:
        return
    gap, stopped = upper - lower, int(iterations.max())
    floor = 2 * sequential_allowance(plan.kernel.terms, lower.dtype)
    if bool(has_converged(lower, upper, 2 * floor).all()):
        advice = f"Rounding alone causes a gap of {floor:.0e}: use tol={2 * floor:.0e}"
    else:
        advice = _advice(plan, stopped < max_iter, float(gap.max()))
    warnings.warn(
        f"{late} of {gap.numel()} rows did not reach tol={tol:g}: the worst certified gap is "
        f"{float(gap.max()):.1e} after {stopped} iterations of {plan.method!r}. "
        f"The bracket is still valid. {advice}.",
        ConvergenceWarning,
        stacklevel=2,
    )


def _advice(plan: Plan, by_itself: bool, gap: float) -> str:
    """Say why iterations ended, and what helps; a tolerance only if it is one that was reached."""
    enough = f"use tol={_rounded_up(gap)}" if gap < LARGE_GAP else ""
    if not by_itself:
        return "Increase max_iter" + (f", or {enough}" if enough else "")
    other = "" if plan.request.method == "auto" else "use method='auto'"
    remedy = " or ".join(filter(None, (other, enough))) or "use a larger scale"
    return f"The method made no further progress, and more iterations would not help: {remedy}"


def _rounded_up(value: float) -> str:
    """Return a number with one digit that is larger."""
    digits = f"{value:.0e}"
    if float(digits) > value:
        return digits
    return f"{float(digits) + float('1e' + digits.split('e')[1]):.0e}"


def solve_in_steps(
    plan: Plan, scores: Tensor, init: Tensor | None, max_iter: int, *, checked: bool = False
) -> Fused:
    """Subtract the maximum, solve (QP), add the maximum back."""
    peak = reference.peaks(scores, plan.dimensions)
    if checked:
        check_peaks(peak)
    b = reference.obstacle(scores, peak, plan.dimensions)
    rows = plan.rows(b, None, max_iter) if init is None else _continue(plan, b, init, max_iter)
    outwards = torch.full_like(peak, torch.inf)  # adding the maximum back rounds once more
    lower = torch.nextafter(rows.lower + peak, -outwards)
    upper = torch.nextafter(rows.upper + peak, outwards)
    alpha = reference.distribution(b, rows.u).to(scores.dtype)
    batch = scores.shape[: scores.dim() - plan.dimensions]
    return (
        alpha.reshape(scores.shape),
        rows.u.to(scores.dtype).reshape(scores.shape),
        lower.reshape(batch),
        upper.reshape(batch),
        rows.iterations.to(torch.int64).reshape(batch),
    )


def _continue(plan: Plan, b: Tensor, init: Tensor, max_iter: int) -> Rows:
    """Return the rows that the warm start already solves; solve the others, starting from it."""
    check_init_values(init)
    start = init.to(b.dtype).reshape(b.shape)
    u, lower, upper = reference.certify(plan.kernel, b, start)
    # If the start of a row is zero, or its energy underflows, start from the obstacle instead.
    useless = ~torch.isfinite(upper - lower)
    if bool(useless.any()):
        start = torch.where(useless.reshape(-1, *[1] * (b.dim() - 1)), b, start)
        u, lower, upper = reference.certify(plan.kernel, b, start)
    rows = Rows(u, lower, upper, torch.zeros(lower.shape, dtype=torch.int64, device=b.device))
    pending = (~(upper - lower <= plan.request.tol)).nonzero()[:, 0]
    if pending.numel() == 0:
        return rows
    if plan.per_row:  # the plan is for exactly these rows
        all_rows = plan.rows(b, u, max_iter)
        better = Rows(*(x[pending] for x in all_rows))
    else:
        better = plan.rows(b[pending], u[pending], max_iter)
    reference.merge(rows, pending, better)
    return rows


def _nothing(scores: Tensor, dimensions: int) -> Fused:
    batch = scores.shape[: scores.dim() - dimensions]
    empty = scores.new_zeros(batch, dtype=reference.certificate_dtype(scores.device))
    u = torch.zeros_like(scores, memory_format=torch.contiguous_format)
    return u.clone(), u, empty, empty.clone(), empty.to(torch.int64)
