"""Sliding: points and weights move together to a stationary point of the joint objective.

With ``F(x, u) = ½ Σ_ij u_i K(x_i, x_j) u_j - Σ_i u_i b(x_i)``, and displacements measured as
``t_i = u_i x_i``, gradient and Hessian are

    g_u = Ku - b,        H_uu = K,        H_ut[i, j] = ∇ₓK(x_j, x_i) + δ_ij g_t[i] / u_i,
    g_t = (∇ₓK)u - ∇b,   H_tt[i, j] = ∇ₓ∇ᵧK(x_i, x_j) + δ_ij (Σ_k ∇ₓ∇ₓK(x_i, x_k) u_k - ∇²b) / u_i.

Newton's method, damped as Levenberg and Marquardt do, for all samples at once: each has its own
damping, and takes a step only where the objective falls.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from geosoftmax.continuous._problem import Problem

#: Damping at the start, and the least and the most of it.
DAMPING, LEAST, MOST = 1e-4, 1e-15, 1e8
#: A step keeps at least this share of each weight: those that vanish are for the exact solve.
KEPT = 0.1


class _System(NamedTuple):
    objective: Tensor  # F, (rows,)
    rounding: Tensor  # and what may be wrong with it
    slope: Tensor  # (rows, n (1 + dim))
    bend: Tensor


def slide(
    problem: Problem,
    points: Tensor,
    u: Tensor,
    *,
    radius: Tensor,
    steps: int,
) -> tuple[Tensor, Tensor]:
    """Return better points ``(rows, n, dim)`` and weights ``(rows, n)``; weights 0 are padding."""
    rows, n, dim = points.shape
    damping = torch.full((rows,), DAMPING, dtype=u.dtype, device=u.device)
    system = _system(problem, points, u)
    for _ in range(steps):
        diagonal = system.bend.diagonal(dim1=-2, dim2=-1).abs()
        floor = 1e-8 * diagonal.amax(-1, keepdim=True)
        damped = system.bend + torch.diag_embed(damping[:, None] * diagonal.clamp_min(floor))
        factor, failed = torch.linalg.cholesky_ex(damped)
        usable = failed == 0
        identity = torch.eye(damped.shape[-1], dtype=u.dtype, device=u.device)
        factor = torch.where(usable[:, None, None], factor, identity)
        step = -torch.cholesky_solve(system.slope[..., None], factor)[..., 0]
        du, dt = step[:, :n], step[:, n:].reshape(rows, n, dim)
        alive = u > 0
        dx = torch.where(alive[..., None], dt / torch.where(alive, u, 1.0)[..., None], 0.0)
        dx = torch.maximum(torch.minimum(dx, radius), -radius)
        moved = problem.domain.clip(points + dx)
        grown = torch.where(alive, torch.maximum(u + du, KEPT * u), 0.0)
        trial = _system(problem, moved, grown)
        better = usable & (trial.objective <= system.objective + system.rounding)
        far = (moved - points).abs() / problem.domain.width
        far = torch.where(better, far.flatten(1).amax(-1), 0.0)
        points = torch.where(better[:, None, None], moved, points)
        u = torch.where(better[:, None], grown, u)
        system = _System(
            torch.where(better, trial.objective, system.objective),
            system.rounding,
            torch.where(better[:, None], trial.slope, system.slope),
            torch.where(better[:, None, None], trial.bend, system.bend),
        )
        damping = torch.where(better, damping / 10, damping * 10).clamp(LEAST, MOST)
        if bool(((better & (far < 1e-13)) | (damping >= MOST)).all()):
            break
    return points, u


def _system(problem: Problem, points: Tensor, u: Tensor) -> _System:
    rows, n, dim = points.shape
    alive = u > 0
    size = torch.where(alive, u, 1.0)
    f, df, ddf = problem.jet(points)
    b = torch.where(alive, torch.exp(f / 2), 0.0)
    db = b[..., None] * df / 2
    ddb = b[..., None, None] * (ddf / 2 + df[..., :, None] * df[..., None, :] / 4)
    jet = problem.cost.jet(points, points)
    h = (jet.K @ u[..., None])[..., 0]
    objective = (u * (h / 2 - b)).sum(-1)
    slope_t = (jet.x * u[:, None, :, None]).sum(-2) - db
    bend_t = ((jet.xx * u[:, None, :, None, None]).sum(-3) - ddb) / size[..., None, None]
    eye = torch.eye(n, dtype=u.dtype, device=u.device)
    mixed = jet.x.transpose(1, 2) + eye[..., None] * (slope_t / size[..., None])[:, :, None, :]
    twice = jet.xy + eye[..., None, None] * bend_t[:, :, None]
    bend = torch.cat(
        [
            torch.cat([jet.K, mixed.reshape(rows, n, n * dim)], -1),
            torch.cat(
                [
                    mixed.permute(0, 2, 3, 1).reshape(rows, n * dim, n),
                    twice.permute(0, 1, 3, 2, 4).reshape(rows, n * dim, n * dim),
                ],
                -1,
            ),
        ],
        -2,
    )
    slope = torch.cat([h - b, slope_t.reshape(rows, -1)], -1)
    pressed = ((points <= problem.domain.lower) & (slope_t > 0)) | (
        (points >= problem.domain.upper) & (slope_t < 0)
    )
    held = (pressed | ~alive[..., None]).reshape(rows, -1)
    free = (~torch.cat([~alive, held], -1)).to(u.dtype)
    bend = bend * free[:, :, None] * free[:, None, :] + torch.diag_embed(1 - free)
    rounding = 16 * torch.finfo(u.dtype).eps * (u * (h + b)).sum(-1)
    return _System(objective, rounding, slope * free, bend)
