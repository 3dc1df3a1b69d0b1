"""Every operation in plain torch: what it means, on any device.

Signals are batches of rows, ``(rows, *cost.shape)``. ``b = exp(f/2)`` with the maximum of ``f``
subtracted, so ``max b = 1`` in each row, and ``b = 0`` is a mask. Each solve returns a `Rows`:
``u`` scaled so that ``⟨b,u⟩ = uᵀKu``, the bracket of ``log⟨b,u*⟩``, and iterations.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from geosoftmax.backends.sinkhorn import sinkhorn as sinkhorn
from geosoftmax.costs.base import Cost
from geosoftmax.costs.dense import DenseCost
from geosoftmax.costs.grid import GridCost
from geosoftmax.costs.zero_one import ZeroOneCost

#: Gradient steps between two looks at the gap.
_CHECK_EVERY = 10
#: The same for splitting, of which a step does more.
SPLIT_CHECK_EVERY = 5
#: Penalty of the splitting, relative to the fourth root of the largest eigenvalue of ``K``, on
#: grids and for other costs; and its relaxation. A compromise between wide and narrow kernels,
#: smooth and noisy scores: `benchmarks.tune_splitting`.
SPLIT_PENALTY = 0.45
SPLIT_PENALTY_DENSE = 0.9
SPLIT_RELAXATION = 1.6
#: The first steps on a grid, by the power of its distances, their penalty relative to the other,
#: and their relaxation: what is smooth moves far in them.
SPLIT_FIRST_STEPS = {1.0: 10, 2.0: 20}
SPLIT_FIRST_PENALTY = 0.22
SPLIT_FIRST_RELAXATION = 1.8
#: Outputs up to which the kernel of any cost is diagonalised for splitting.
SMALL_MATRIX = 1024
#: Smallest gap that iterations in float32 reach, whatever the cost. Below it, solves are polished.
SINGLE_PRECISION_GAP = 1e-4
#: Smallest gap for which a GPU iterates, in float64, rather than wait for exact solves.
REFINED_GAP = 1e-6
#: A point joins the support when its relative violation exceeds this fraction of the tolerance.
ADD_ABOVE = 0.1
#: A point leaves it when its weight is negative by more than this fraction of the tolerance of the
#: mean mass of an output. Smaller ones are rounding, and are clipped.
DROP_BELOW = 1.0


class Rows(NamedTuple):
    """The result of a solve, row by row."""

    u: Tensor
    lower: Tensor
    upper: Tensor
    iterations: Tensor


def certificate_dtype(device: torch.device) -> torch.dtype:
    """Return the dtype of brackets: float64 wherever the device has it."""
    return torch.float32 if device.type == "mps" else torch.float64


def rounding_allowance(size: int, dtype: torch.dtype) -> float:
    """Return by how much a bracket is widened for the rounding of its own sums."""
    return torch.finfo(dtype).eps * (8 + 2 * math.sqrt(size))


def certify(cost: Cost, b: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rescale any ``u ≥ 0`` and bracket ``log⟨b,u*⟩``: returns ``u, lower, upper``.

    With ``⟨b,u⟩ = uᵀKu`` and ``v = max(b - Ku, 0)``: ``log uᵀKu ≤ g-LSE ≤ log wᵀKw`` for every
    ``w ≥ 0`` with ``Kw ≥ b``. Two such ``w`` are tried: ``u + v``, and ``u · max(b/Ku)``.
    """
    dtype = certificate_dtype(b.device)
    b, u, cost = b.to(dtype), u.to(dtype), cost.to(dtype=dtype)
    dims = tuple(range(1, b.dim()))
    h = product(cost, u)
    scale = (b * u).sum(dims, keepdim=True) / (u * h).sum(dims, keepdim=True)
    u, h = u * scale, h * scale
    energy = (u * h).sum(dims)
    v = (b - h).clamp_min(0)
    if cost.diagonal is not None:
        v = v / cost.diagonal.clamp(max=1)
    added = 2 * (v * h).sum(dims) + (v * product(cost, v)).sum(dims)
    ratio = torch.where(b > 0, b / h, torch.zeros_like(b)).amax(dims).clamp_min(1)
    slack = rounding_allowance(cost.size, dtype)
    lower = torch.log(energy)
    upper = torch.minimum(torch.log(energy + added), lower + 2 * torch.log(ratio))
    return u, lower - slack, upper + slack


def product(cost: Cost, u: Tensor) -> Tensor:
    """``K u`` for the solvers: no gradients, and the device's fastest."""
    from geosoftmax.backends import twin

    return twin("matvec", cost, u.device)(cost, u)


def matvec(cost: Cost, u: Tensor) -> Tensor:
    """``K u``."""
    return cost.matvec(u)


def peaks(cost: Cost, scores: Tensor) -> Tensor:
    """Return the largest score of each row, in the dtype of certificates."""
    rows = scores.reshape(-1, cost.size)
    return rows.amax(-1).to(certificate_dtype(scores.device))


def obstacle(cost: Cost, scores: Tensor, peak: Tensor) -> Tensor:
    """``b = exp((f - peak) / 2)``, as rows, in the dtype of certificates."""
    f = scores.to(certificate_dtype(scores.device)).reshape(-1, *cost.shape)
    return torch.exp((f - _expand(peak, f)) / 2)


def distribution(cost: Cost, b: Tensor, u: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """``α = u b / ⟨b,u⟩``, and ``u``, in the given dtype."""
    weighted = u * b
    alpha = weighted / weighted.sum(tuple(range(1, b.dim())), keepdim=True)
    return alpha.to(dtype), u.to(dtype)


# ------------------------------------------------------------------ exact


def threshold(cost: Cost, b: Tensor) -> Rows:
    """Zero-one cost: ``u = max(0, b - τ) / (1 - k)``, with ``τ`` from one sort."""
    assert isinstance(cost, ZeroOneCost)
    k, one_minus_k = cost.affinities(b.dtype)
    ordered = b.sort(-1, descending=True).values
    count = torch.arange(1, b.shape[-1] + 1, dtype=b.dtype, device=b.device)
    tau = k * ordered.cumsum(-1) / (one_minus_k + k * count)
    kept = (ordered > tau).sum(-1, keepdim=True).clamp_min(1)
    u = (b - tau.gather(-1, kept - 1)).clamp_min(0) / one_minus_k
    return _finished(cost, b, u, 1)


def prune(cost: Cost, b: Tensor) -> Rows:
    """Line with p = 1, tree, zero-one: drop what is negative until nothing is.

    For these ``K⁻¹`` is an M-matrix: a point that is negative on a support that contains the
    optimal one is not in it. So supports shrink monotonically to the optimal one.
    """
    support = b > 0
    rounds = 0
    while True:
        rounds += 1
        u = cost.solve(b, support)
        keep = support & (u > 0)
        if bool((keep == support).all()):
            break
        support = keep
    return _finished(cost, b, u, rounds)


def exchange(cost: Cost, b: Tensor, support: Tensor, tol: float, max_iter: int) -> Rows:
    """Block principal pivoting: solve on the support, drop negatives, add violated points.

    Finite for every positive definite ``K`` (Murty's single exchange takes over when the number of
    wrong points does not fall). A row is done when no weight is negative and no point violated, up
    to fractions of `tol`: more than a gap asks for, so that distributions are right too.
    """
    rows = b.shape[0]
    u, lower, upper = certify(cost, b, smooth_start(cost, b))
    best = Rows(u.to(b.dtype), lower, upper, torch.zeros(rows, dtype=torch.int64, device=b.device))
    active = torch.arange(rows, device=b.device)
    support = support & (b > 0)
    fewest = torch.full((rows,), cost.size + 1, device=b.device)
    patience = torch.full((rows,), 3, device=b.device)
    for step in range(1, max_iter + 1):
        part = part_of(cost, active)
        ba = b[active]
        u = part.solve(ba, support)
        certified, low, up = certify(part, ba, u.clamp_min(0))
        h = product(part, u)
        least = -DROP_BELOW * tol * (u * ba).flatten(1).sum(1) / cost.size
        wrong = torch.where(
            support,
            u * ba < _expand(least, u),
            (ba - h > (ADD_ABOVE * tol + 1e-14) * ba) & (ba > 0),
        )
        _keep_best(best, active, certified, low, up, step)
        count = wrong.flatten(1).sum(1)
        better = count < fewest
        fewest = torch.where(better, count, fewest)
        patience = torch.where(better, 3, patience - 1)
        single = patience < 0
        if bool(single.any()):
            wrong = torch.where(_expand(single, wrong), _last_only(wrong), wrong)
        support = support ^ wrong
        going = count > 0
        if not bool(going.any()):
            break
        active, support = active[going], support[going]
        fewest, patience = fewest[going], patience[going]
    return best


def active_set(cost: Cost, b: Tensor, start: Tensor | None) -> Rows:
    """Exact solves with the dense kernel of the cost, from the supports of `start`."""
    support = b > 0 if start is None else start > 0
    limit = 4 * cost.size + 20
    rows = exchange(_dense(cost), b.flatten(1), support.flatten(1), tol=1e-13, max_iter=limit)
    return rows._replace(u=rows.u.reshape(b.shape))


# ------------------------------------------------------------------ iterative


def accelerate(
    cost: Cost, b: Tensor, start: Tensor | None, tol: float, max_iter: int, dtype: torch.dtype
) -> Rows:
    """Accelerated projected gradient on (QP), restarted per row when momentum points uphill.

    Iterates in the given dtype; what is certified is the problem in the dtype of ``b``.
    """
    dims = tuple(range(1, b.dim()))
    rows = b.shape[0]
    u, lower, upper = certify(cost, b, smooth_start(cost, b) if start is None else start)
    best = Rows(u.to(b.dtype), lower, upper, torch.zeros(rows, dtype=torch.int64, device=b.device))
    active = (upper - lower > tol).nonzero()[:, 0]
    step = 1 / largest_eigenvalue(cost, dtype)
    u = y = best.u[active].to(dtype)
    ba, part = b[active], part_of(cost, active)
    momentum = torch.ones(active.shape, dtype=dtype, device=b.device)
    iteration = 0
    while active.numel() and iteration < max_iter:
        iteration += 1
        ahead = (y - step * (part.matvec(y) - ba.to(dtype))).clamp_min(0)
        uphill = ((y - ahead) * (ahead - u)).sum(dims) > 0
        grown = (1 + torch.sqrt(1 + 4 * momentum.square())) / 2
        weight = torch.where(uphill, 0, (momentum - 1) / grown)
        y = ahead + _expand(weight, ahead) * (ahead - u)
        momentum = torch.where(uphill, 1, grown)
        u = ahead
        if iteration % _CHECK_EVERY == 0 or iteration == max_iter:
            certified, low, up = certify(part, ba, u)
            _keep_best(best, active, certified, low, up, iteration)
            going = (up - low > tol).nonzero()[:, 0]
            if going.numel() < active.numel():
                active, u, y = active[going], u[going], y[going]
                momentum, ba, part = momentum[going], ba[going], part_of(cost, active)
    return best


def split(
    cost: Cost, b: Tensor, start: Tensor | None, tol: float, max_iter: int, dtype: torch.dtype
) -> Rows:
    """Operator splitting on (QP): ``K`` is diagonal in a basis that all rows share.

    Douglas–Rachford, which is ADMM, in its form with one array: ``u = max(s, 0)`` and, at the
    solution, ``b - Ku = ρ min(s, 0)``. One step is ``s += ω ((K + ρ)⁻¹ (b + ρ|s|) - max(s, 0))``.
    On grids the first steps have a smaller ``ρ``. Iterates in the given dtype; what is certified is
    the problem in the dtype of ``b``.
    """
    kernels, bases, eigenvalues = spectrum(cost)
    rho, relaxation = float(split_penalty(eigenvalues)), SPLIT_RELAXATION
    change_at = 0
    if start is None and isinstance(cost, GridCost) and len(cost.shape) > 1:
        change_at = SPLIT_FIRST_STEPS[cost.p]
        rho, relaxation = SPLIT_FIRST_PENALTY * rho, SPLIT_FIRST_RELAXATION
    there = [v.T.to(dtype) for v in bases]
    back = [v.to(dtype) for v in bases]
    damping = (1 / (eigenvalues + rho)).to(dtype)
    kernels = [K.to(dtype) for K in kernels]
    rows = b.shape[0]
    found = torch.empty_like(b)
    iterations = torch.zeros(rows, dtype=torch.int64, device=b.device)
    active = torch.arange(rows, device=b.device)
    least = torch.full((rows,), torch.inf, dtype=dtype, device=b.device)
    part = b.to(dtype)
    if start is None:
        s = part / along_axes(kernels, torch.ones_like(part[:1]))
    else:
        s = start.to(dtype)
        s = torch.where(s > 0, s, (part - along_axes(kernels, s)).clamp_max(0) / rho)
    for iteration in range(1, max_iter + 1):
        pulled = along_axes(there, torch.add(part, s.abs(), alpha=rho)).mul_(damping)
        ahead = along_axes(back, pulled).sub_(s.clamp_min(0))
        s.add_(ahead, alpha=relaxation)
        if iteration % SPLIT_CHECK_EVERY and iteration < max_iter:
            continue
        u = s.clamp_min(0)
        gap = _gap_bound(part, u, along_axes(kernels, u))
        better = gap <= least  # the gap is not monotone
        found[active[better]] = u[better].to(found.dtype)
        iterations[active] = iteration
        going = (gap > 0.9 * tol).nonzero()[:, 0]
        if going.numel() == 0:
            break
        least = torch.minimum(gap, least)
        if 0 < change_at <= iteration:
            change_at = 0
            s = torch.where(s < 0, s * SPLIT_FIRST_PENALTY, s)
            rho, relaxation = rho / SPLIT_FIRST_PENALTY, SPLIT_RELAXATION
            damping = (1 / (eigenvalues + rho)).to(dtype)
        if going.numel() < active.numel():
            active, part, s, least = active[going], part[going], s[going], least[going]
    found, lower, upper = certify(cost, b, found)
    return Rows(found.to(b.dtype), lower, upper, iterations)


def spectrum(cost: Cost) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Return kernels whose product is ``K``, one per axis, their eigenvectors, and eigenvalues.

    In float64; the eigenvalues of ``K`` have the shape of a signal over the eigenvectors.
    """

    def build() -> tuple[list[Tensor], list[Tensor], Tensor]:
        parts = cost.axes if isinstance(cost, GridCost) else [cost]
        kernels = [dense_kernel(part) for part in parts]
        values, bases = torch.ones((), dtype=torch.float64, device=cost.device), []
        for K in kernels:
            one, vectors = torch.linalg.eigh(K)
            values = values[..., None] * one.clamp_min(0)
            bases.append(vectors)
        return kernels, bases, values

    return cost._once("spectrum", build)


def dense_kernel(cost: Cost) -> Tensor:
    """Return ``K = exp(-C/2)`` of any cost as a matrix, in float64."""
    return torch.exp(-cost.matrix().detach().to(torch.float64) / 2)


def split_penalty(eigenvalues: Tensor) -> Tensor:
    """Return ``ρ`` for a kernel with these eigenvalues, with one dimension for each axis."""
    relative = SPLIT_PENALTY if eigenvalues.dim() > 1 else SPLIT_PENALTY_DENSE
    return relative * eigenvalues.amax() ** 0.25


def along_axes(matrices: list[Tensor], rows: Tensor) -> Tensor:
    """Multiply each row, a signal over a grid, by one matrix per axis."""
    shape = rows.shape
    for axis, matrix in enumerate(matrices, start=1):
        side, after = shape[axis], shape[axis + 1 :].numel()
        if after == 1:
            rows = rows.reshape(-1, side) @ matrix.T
        else:
            rows = matrix @ rows.reshape(-1, side, after)
    return rows.reshape(shape)


def _gap_bound(b: Tensor, u: Tensor, h: Tensor) -> Tensor:
    """Bound the gap of ``u``, given ``h = Ku``, in the dtype at hand: as `certify`, but cheap."""
    b, u, h = b.flatten(1), u.flatten(1), h.flatten(1)
    bu = torch.linalg.vecdot(b, u)
    scale = bu / torch.linalg.vecdot(u, h)
    h = h * scale[:, None]
    v = (b - h).clamp_min_(0)
    added = (2 * torch.linalg.vecdot(v, h) + v.sum(1).square()) / (bu * scale)
    return torch.log1p(added).nan_to_num(torch.inf, torch.inf)


def largest_eigenvalue(cost: Cost, dtype: torch.dtype, rounds: int = 8) -> Tensor:
    """Return an upper bound of the largest eigenvalue of ``K`` (Collatz–Wielandt), a tight one."""
    x = torch.ones((1, *cost.shape), dtype=dtype, device=cost.device)
    if cost.batch_shape:
        x = x.expand(*cost.batch_shape, *cost.shape)
    Kx = x
    for _ in range(rounds):
        x = Kx / Kx.amax()
        Kx = product(cost, x)
    return (Kx / x).amax()


def smooth_start(cost: Cost, b: Tensor) -> Tensor:
    """``b / K1``: right where scores are smooth."""
    return b / product(cost, torch.ones_like(b))


# ------------------------------------------------------------------ helpers


def _finished(cost: Cost, b: Tensor, u: Tensor, rounds: int) -> Rows:
    u, lower, upper = certify(cost, b, u)
    return Rows(u, lower, upper, torch.full(lower.shape, rounds, device=b.device))


def _dense(cost: Cost) -> Cost:
    return cost if isinstance(cost, DenseCost) else DenseCost(cost.matrix(), validate=False)


def part_of(cost: Cost, rows: Tensor) -> Cost:
    """Return the costs of some rows, where there is one cost per row."""
    if not cost.batch_shape:
        return cost
    return cost.with_parameter(cost.parameter[rows])


def merge(rows: Rows, index: Tensor, better: Rows) -> None:
    """Write back the rows whose bracket became narrower; count all iterations."""
    rows.iterations[index] += better.iterations
    narrower = (better.upper - better.lower) < (rows.upper - rows.lower)[index]
    chosen = index[narrower]
    rows.u[chosen] = better.u[narrower].to(rows.u.dtype)
    rows.lower[chosen] = better.lower[narrower]
    rows.upper[chosen] = better.upper[narrower]


def _keep_best(
    best: Rows, active: Tensor, u: Tensor, lower: Tensor, upper: Tensor, iteration: int
) -> None:
    """Write a certified iterate back where it narrowed the bracket."""
    improved = (upper - lower) < (best.upper - best.lower)[active]
    rows = active[improved]
    best.u[rows] = u[improved].to(best.u.dtype)
    best.lower[rows] = lower[improved]
    best.upper[rows] = upper[improved]
    best.iterations[active] = iteration


def _expand(per_row: Tensor, like: Tensor) -> Tensor:
    return per_row.reshape(-1, *([1] * (like.dim() - 1)))


def _last_only(mask: Tensor) -> Tensor:
    """Keep the last true entry of each row."""
    flat = mask.flatten(1)
    after = flat.flip(1).cumsum(1).flip(1)
    return (flat & (after == 1)).reshape(mask.shape)
