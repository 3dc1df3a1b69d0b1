"""Solvers of (QP) made of standard operators, for ONNX models.

They have no factorisations, no shapes that depend on data, and at most one loop. Signals are
``(..., d)`` in float64, with ``max b = 1`` in each row. All are exact.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch._higher_order_ops import while_loop

#: `pivoting` stops after ``10 d + 100`` pivots. It usually takes one or two for each output.
MOST_PIVOTS = (10, 100)
#: If the kernel is nearly singular, a λ or a pivot below this is a rounding error.
ROUNDING = 1e-13
#: The gap above which the result of `pivoting` is NaN.
LARGEST_GAP = 1e-6


def threshold(k: Tensor, one_minus_k: Tensor, b: Tensor) -> Tensor:
    """Solve for ``K = (1 - k) I + k 11ᵀ``: ``u = max(0, b - τ) / (1 - k)``, ``τ`` by one sort.

    For the j largest entries of ``b``, ``τ = k Σ b / (1 - k + k j)``. It grows with j as long as
    the next entry lies above it, and then falls. So the solution has the largest ``τ``.
    """
    ordered = b.sort(-1, descending=True).values
    count = torch.arange(1, b.shape[-1] + 1, dtype=b.dtype, device=b.device)
    tau = (k * ordered.cumsum(-1) / (one_minus_k + k * count)).amax(-1, keepdim=True)
    return (b - tau).clamp_min(0) / one_minus_k


def hull(x: Tensor, b: Tensor) -> Tensor:
    """Solve for ``K_ij = exp(-|x_i - x_j|)``: the difference of two slopes, O(d²), no loop.

    The envelope is the smallest concave, non-decreasing majorant of the points
    ``(exp(2x), b exp(x))`` that starts at the origin. At a vertex, it arrives with the smallest of
    the slopes from points on the left, leaves with the largest of the slopes to points on the
    right, and ``u`` is the difference. Elsewhere that difference is not positive.
    Slopes at m, times ``exp(x_m)``, with ``E = exp(-|x_m - x_j|)``:

        from the left   (b_m - b_j E) / (1 - E²), or b_m from the origin
        to the right    (b_j - b_m E) E / (1 - E²), or 0 from the last vertex on
    """
    gap = x[:, None] - x[None, :]  # from j to m
    E = torch.exp(-gap.abs())
    D = torch.where(gap == 0, 1.0, -torch.expm1(-2 * gap.abs()))
    m, j = b[..., :, None], b[..., None, :]
    arrives = torch.where(gap > 0, (m - j * E) / D, m).amin(-1)
    leaves = torch.where(gap < 0, (j - m * E) * (E / D), 0.0).amax(-1)
    return (arrives - leaves).clamp_min(0)


def pivoting(K: Tensor, b: Tensor) -> Tensor:
    """Solve for any positive definite ``K``, by pivots along ``b - λ t`` from λ = 1 to 0.

    At λ = 1 the solution is 0. As λ falls, one output at a time enters or leaves the support. The
    state is ``z = M y + p + λ r``. Here ``z`` contains ``u`` on the support and ``Ku - b + λt``
    elsewhere, and ``y`` contains the complementary variables, which are 0. The output whose ``z``
    is the next to reach 0 is exchanged, by an update of rank 1. An irregular ``t`` avoids ties.

    A row is NaN if the certificate does not confirm it. This was seen only if ``K`` is singular in
    float64 and ``b`` has no rounding error: potentials in float64.
    """
    d = b.shape[-1]
    rate, besides = MOST_PIVOTS
    places = torch.arange(d, device=b.device)
    t = (1 + torch.frac(places * 0.6180339887498949) / 2).to(b.dtype)  # at least 1, as max b is
    table = torch.cat([K.expand(*b.shape[:-1], d, d), -b[..., None], t.expand_as(b)[..., None]], -1)

    def is_left(table: Tensor, inside: Tensor, step: Tensor) -> Tensor:
        return (_next_to_leave(table) > 0).any() & (step < rate * d + besides)

    def exchange(table: Tensor, inside: Tensor, step: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        meets = _next_to_leave(table)
        pivot = meets.argmax(-1, keepdim=True)
        there = (places == pivot) & (meets.amax(-1, keepdim=True) > 0)
        return _pivoted(table, there), inside ^ there, step + 1

    nothing = torch.zeros_like(b, dtype=torch.bool)
    first = torch.zeros((), dtype=torch.int64, device=b.device)
    table, inside, _ = while_loop(is_left, exchange, (table, nothing, first))
    u = torch.where(inside, table[..., d], 0.0).clamp_min(0)
    return torch.where(_gap(K, b, u) <= LARGEST_GAP, u, torch.nan)


def _next_to_leave(table: Tensor) -> Tensor:
    """Return at which λ each ``p + λ r`` reaches 0 as λ falls; -1 where it does not."""
    p, r = table[..., -2], table[..., -1]
    pivots = table.diagonal(0, -2, -1)  # of the first d columns: the table is wide
    falls = (r > 0) & (pivots > ROUNDING)
    meets = -p / torch.where(falls, r, 1.0)
    return torch.where(falls & (meets > ROUNDING), meets, -1.0)


def _pivoted(table: Tensor, there: Tensor) -> Tensor:
    """Exchange the output that is marked, where one is: solve its row for what it multiplies."""
    none = torch.zeros_like(there[..., :1])
    across = torch.cat([there, none, none], -1)
    row = torch.where(there[..., :, None], table, 0.0).sum(-2)
    column = torch.where(across[..., None, :], table, 0.0).sum(-1)
    pivot = torch.where(there, column, 0.0).sum(-1) + (~there.any(-1)).to(table.dtype)
    rest = torch.where(there[..., :, None] | across[..., None, :], 0.0, table)
    left = torch.where(there, 1.0, column)
    right = torch.where(across, -1.0, row)
    return rest - left[..., :, None] * right[..., None, :] / pivot[..., None, None]


def _gap(K: Tensor, b: Tensor, u: Tensor) -> Tensor:
    """Return the gap of the certificate, ``upper - lower``, of each row."""
    h = u @ K
    scale = (b * u).sum(-1, keepdim=True) / (u * h).sum(-1, keepdim=True)
    u, h = scale * u, scale * h
    w = u + (b - h).clamp_min(0) / K.diagonal()
    upper = torch.log((w * (w @ K)).sum(-1, keepdim=True))
    return upper - torch.log((b * u).sum(-1, keepdim=True))
