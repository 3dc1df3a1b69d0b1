"""The joint objective of points and weights for a kernel and a score, and its Newton steps.

With ``F(x, u) = ½ Σ_ij u_i K(x_i, x_j) u_j - Σ_i u_i b(x_i)``, and displacements measured as
``t_i = u_i x_i``, gradient and Hessian are

    g_u = Ku - b,        H_uu = K,        H_ut[i, j] = ∇ₓK(x_j, x_i) + δ_ij g_t[i] / u_i,
    g_t = (∇ₓK)u - ∇b,   H_tt[i, j] = ∇ₓ∇ᵧK(x_i, x_j) + δ_ij (Σ_k ∇ₓ∇ₓK(x_i, x_k) u_k - ∇²b) / u_i.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from geosoftmax.continuous._problem import Problem
from geosoftmax.continuous.sliding import Step
from geosoftmax.continuous.spikes import Spikes


class KernelView(NamedTuple):
    """``F`` at spikes, with its gradient and Hessian."""

    objective: Tensor  # F, (rows,)
    rounding: Tensor  # and what may be wrong with it
    slope: Tensor  # (rows, n (1 + dim))
    bend: Tensor
    points: int  # how many

    def step(self, damping: Tensor) -> Step:
        """Solve ``(H + damping · diagonal) step = -slope``; not usable where that is indefinite."""
        diagonal = self.bend.diagonal(dim1=-2, dim2=-1).abs()
        floor = 1e-8 * diagonal.amax(-1, keepdim=True)
        damped = self.bend + torch.diag_embed(damping[:, None] * diagonal.clamp_min(floor))
        factor, failed = torch.linalg.cholesky_ex(damped)
        usable = failed == 0
        identity = torch.eye(damped.shape[-1], dtype=damped.dtype, device=damped.device)
        factor = torch.where(usable[:, None, None], factor, identity)
        step = -torch.cholesky_solve(self.slope[..., None], factor)[..., 0]
        n = self.points
        return Step(step[:, :n], step[:, n:].unflatten(-1, (n, -1)), step[:, :0], usable)

    def where(self, mask: Tensor, other: KernelView) -> KernelView:
        """Return this view in the samples that `mask` marks, else `other`."""
        return KernelView(
            torch.where(mask, self.objective, other.objective),
            self.rounding,
            torch.where(mask[:, None], self.slope, other.slope),
            torch.where(mask[:, None, None], self.bend, other.bend),
            self.points,
        )


def kernel_view(problem: Problem, state: Spikes) -> KernelView:
    """Return ``F`` and its derivatives at spikes; what presses against the border is held."""
    points, u = state.points, state.u
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
    return KernelView(objective, rounding, slope * free, bend, n)
