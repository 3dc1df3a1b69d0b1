"""Grids: a whole solve, or a whole loss, in one launch, one program for each sample.

Scores and iterates stay in registers; the matrices of the cost lie in shared memory. The iteration
is that of `reference.split`, with ``x = (K + ρ)⁻¹ (b + ρ|s|)`` carried along: a step adds the
product of what ``ρ|s|`` changed by, which is small, so that cheap products do. Now and then a
precise product makes ``x`` afresh.

The equation of ``x`` says what ``Kx`` is, and ``u`` is near ``x``. So a look at the gap costs a
cheap product too; a precise one with ``K`` then certifies what is returned. Each sample stops for
itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from geosoftmax.backends import reference
from geosoftmax.backends.triton.halves import both, halves, load_square
from geosoftmax.backends.triton.sinkhorn import negentropy
from geosoftmax.backends.triton.tiles import (
    CHECK_EVERY,
    LIFT,
    aim,
    on_device,
    outputs,
    padded,
    sums,
    tile,
)
from geosoftmax.costs import GridCost
from geosoftmax.costs.base import Cost

#: Bytes of shared memory that matrices may take.
SHARED_FOR_MATRICES = 168_000


class Tuning(NamedTuple):
    """What `benchmarks.tune_gpu` measures: see `TUNING`."""

    warps: int
    #: Multiply by the matrix of the rows from the left, or turn the signal before each product.
    left: bool = True
    #: Steps between two looks at the gap, and between two times that ``x`` is made afresh.
    check: int = CHECK_EVERY
    refresh: int = 40


#: By the number of entries of a padded sample.
TUNING = {
    256: Tuning(1),
    512: Tuning(2),
    1024: Tuning(2),
    2048: Tuning(4),
    4096: Tuning(4),
    8192: Tuning(8, left=False),
    16384: Tuning(8, left=False),
}


def split_grid(
    cost: Cost, scores: Tensor, tol: float, max_iter: int, tuning: Tuning | None = None
) -> tuple[Tensor, ...]:
    """From scores to the distribution, ``u``, its bracket and the iterations."""
    f = scores.contiguous()
    found = outputs(f, 2)
    _launch(_split, cost, f, found, found[2].numel(), tol, max_iter, tuning)
    return found


def fit_grid(
    cost: Cost, scores: Tensor, target: Tensor, tol: float, max_iter: int, share: float = 1.0,
    tuning: Tuning | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """From scores and distributions to the loss of each sample and its slope in the scores.

    ``Σα Ω*(f) + Ω(α) - ⟨α,f⟩``, at least 0, and ``Σα · softmax - α``; `share` times both.
    """
    f, target = scores.contiguous(), target.contiguous()
    loss, slope = f.new_empty(f.shape[:-2]), torch.empty_like(f)
    _launch(_fit, cost, f, (target, loss, slope, share), loss.numel(), tol, max_iter, tuning)
    return loss, slope


def _launch(
    kernel: Any, cost: Cost, f: Tensor, others: tuple[Any, ...], samples: int, tol: float,
    max_iter: int, tuning: Tuning | None,
) -> None:  # fmt: skip
    assert isinstance(cost, GridCost)
    h, w = cost.shape
    sides = padded(h), padded(w)
    tuning = tuning or TUNING[sides[0] * sides[1]]
    matrices = cost._once("split_matrices", lambda: _matrices(cost, sides))
    slack = reference.rounding_allowance(cost.size, torch.float32)
    with on_device(f):
        kernel[(samples,)](
            f, *others, *matrices, h, w, aim(tol, slack), slack, max_iter, 0,
            H=sides[0], W=sides[1], CHECK=tuning.check, REFRESH=tuning.refresh,
            FIRST=reference.SPLIT_FIRST_STEPS[cost.p], RELAXATION=reference.SPLIT_RELAXATION,
            FIRST_RELAXATION=reference.SPLIT_FIRST_RELAXATION,
            RESIDENT=_fits(sides), LEFT=tuning.left,
            num_warps=tuning.warps, num_stages=1,
        )  # fmt: skip


def _fits(sides: tuple[int, int]) -> bool:
    """Whether bases and kernels, in halves, stay in shared memory beside the tiles."""
    return 8 * (sides[0] ** 2 + sides[1] ** 2) <= SHARED_FOR_MATRICES


def _matrices(cost: GridCost, sides: tuple[int, int]) -> tuple[Tensor, ...]:
    """Return bases and kernels in halves, the eigenvalues and the start, and both penalties."""
    kernels, bases, eigenvalues = reference.spectrum(cost)
    rho = reference.split_penalty(eigenvalues)
    sums = kernels[0].sum(1)[:, None] * kernels[1].sum(1)
    shape = eigenvalues.shape
    fields = eigenvalues.new_ones((2, *sides), dtype=torch.float32)
    fields[0, : shape[0], : shape[1]] = eigenvalues
    fields[1, : shape[0], : shape[1]] = 1 / sums
    squares = [
        halves(m, side) for m, side in zip((*bases, *kernels), (*sides, *sides), strict=True)
    ]
    penalties = torch.stack([reference.SPLIT_FIRST_PENALTY * rho, rho])
    return (*squares, fields, penalties.to(torch.float32))


# ------------------------------------------------------------------ pieces of a kernel


@triton.jit
def _resolve(
    x, damping, vh, vh_hi, vh_lo, vw, vw_hi, vw_lo,
    H: tl.constexpr, W: tl.constexpr, PASSES: tl.constexpr, RESIDENT: tl.constexpr,
    LEFT: tl.constexpr,
):  # fmt: skip
    """Return ``(K + ρ)⁻¹ x``."""
    x = both(x, vh, vh_hi, vh_lo, vw, vw_hi, vw_lo, H, W, False, PASSES, RESIDENT, LEFT) * damping
    return both(x, vh, vh_hi, vh_lo, vw, vw_hi, vw_lo, H, W, True, PASSES, RESIDENT, LEFT)


@triton.jit
def _solution(s, x):
    """Return ``u``: near ``x``, and zero where ``s`` says so."""
    return tl.where(s > 0, tl.maximum(x, 0.0), 0.0)


@triton.jit
def _gap(b, u, h):
    """Return ``⟨b,u⟩``, ``⟨u,h⟩`` and a bound of the gap, where ``h = Ku``; large if ``u = 0``."""
    bu, uh = sums(b * u, u * h)
    scale = bu / uh
    v = tl.maximum(b - h * scale, 0.0)
    v_sum, vh = sums(v, v * h)
    gap = (2 * vh * scale + v_sum * v_sum) / (bu * scale)
    return bu, uh, tl.where(bu == 0.0, 1e9, gap)


@triton.jit
def _steps(
    s, x, damping, rho, relaxation, done, until, zero, vh, vh_hi, vh_lo, vw, vw_hi, vw_lo,
    H: tl.constexpr, W: tl.constexpr, RESIDENT: tl.constexpr, LEFT: tl.constexpr,
):  # fmt: skip
    """Return ``s`` and ``x`` some steps later."""
    while done < until:
        done += 1
        # Addresses seem to change with each turn of a loop (zero is an argument): else the compiler
        # would read all matrices before it, and keep them all in shared memory.
        here = done * zero
        ahead = s + relaxation * (x - tl.maximum(s, 0.0))
        change = (tl.abs(ahead) - tl.abs(s)) * (rho * LIFT)
        s = ahead
        x += (1.0 / LIFT) * _resolve(
            change, damping, vh + here, vh_hi, vh_lo, vw + here, vw_hi, vw_lo,
            H, W, 1, RESIDENT, LEFT,
        )  # fmt: skip
    return s, x


@triton.jit
def _minimise(
    b, fields, penalties, tol, max_iter, zero,
    vh, vh_hi, vh_lo, vw, vw_hi, vw_lo, kh, kh_hi, kh_lo, kw, kw_hi, kw_lo,
    H: tl.constexpr, W: tl.constexpr, CHECK: tl.constexpr, REFRESH: tl.constexpr,
    FIRST: tl.constexpr, FIRST_RELAXATION: tl.constexpr, RELAXATION: tl.constexpr,
    RESIDENT: tl.constexpr, LEFT: tl.constexpr,
):  # fmt: skip
    """Solve (QP): return ``u``, ``⟨b,u⟩``, ``uᵀKu``, a bound of the gap and the iterations."""
    entries = tl.arange(0, H)[:, None] * W + tl.arange(0, W)[None, :]
    rho, later = tl.load(penalties), tl.load(penalties + 1)
    damping = 1.0 / (tl.load(fields + entries) + rho)
    s = b * tl.load(fields + H * W + entries)
    x = _resolve(
        b + rho * s, damping, vh, vh_hi, vh_lo, vw, vw_hi, vw_lo, H, W, 1, RESIDENT, LEFT
    )  # fmt: skip
    done = zero + FIRST // 2  # half of the first steps from a cheap x, without a look
    s, x = _steps(
        s, x, damping, rho, FIRST_RELAXATION, zero, done, zero,
        vh, vh_hi, vh_lo, vw, vw_hi, vw_lo, H, W, RESIDENT, LEFT,
    )  # fmt: skip
    bu, uh, gap = 0.0, 0.0, 1.0
    going = True
    while going:
        here = done * zero
        x = _resolve(
            b + rho * tl.abs(s), damping, vh + here, vh_hi, vh_lo, vw + here, vw_hi, vw_lo,
            H, W, 3, RESIDENT, LEFT,
        )  # fmt: skip
        until = tl.minimum(done + REFRESH, max_iter)
        seen = 1.0
        while (seen > tol) & (done < until):
            look = tl.where(done < FIRST, FIRST, done + CHECK)
            relaxation = tl.where(done < FIRST, FIRST_RELAXATION, RELAXATION)
            s, x = _steps(
                s, x, damping, rho, relaxation, done, look, zero,
                vh, vh_hi, vh_lo, vw, vw_hi, vw_lo, H, W, RESIDENT, LEFT,
            )  # fmt: skip
            done = look
            here = done * zero
            u = _solution(s, x)  # near x, of which the equation says the product with K
            h = b + rho * (tl.abs(s) - x) + (1.0 / LIFT) * both(
                (u - x) * LIFT, kh + here, kh_hi, kh_lo, kw + here, kw_hi, kw_lo,
                H, W, False, 1, RESIDENT, LEFT,
            )  # fmt: skip
            _, _, seen = _gap(b, u, h)
            if (rho != later) & (seen > tol):
                # The other penalty, the same u and b - Ku: by its equation x changes by little.
                change = (tl.maximum(s, 0.0) - x) * ((later - rho) * LIFT)
                damping = 1.0 / (tl.load(fields + here + entries) + later)
                s = tl.where(s > 0, s, s * (rho / later))
                x += (1.0 / LIFT) * _resolve(
                    change, damping, vh + here, vh_hi, vh_lo, vw + here, vw_hi, vw_lo,
                    H, W, 1, RESIDENT, LEFT,
                )  # fmt: skip
                rho = later
        if (seen <= 2 * tol) | (seen != seen) | (done >= max_iter):
            here = done * zero
            u = _solution(s, x)
            h = both(
                u, kh + here, kh_hi, kh_lo, kw + here, kw_hi, kw_lo, H, W, False, 3, RESIDENT, LEFT
            )  # fmt: skip
            bu, uh, gap = _gap(b, u, h)
        going = (gap > tol) & (done < max_iter)
    return _solution(s, x), bu, uh, gap, done


@triton.jit
def _square(pointer, N: tl.constexpr, RESIDENT: tl.constexpr):
    """Return both parts of a matrix if they stay in shared memory."""
    hi, lo = 0, 0
    if RESIDENT:
        hi, lo = load_square(pointer, 0, N), load_square(pointer, 1, N)
    return hi, lo


@triton.jit
def _solved(
    scores, vh, vw, kh_hi, kh_lo, kw_hi, kw_lo, kh, kw, fields, penalties,
    place, inside, tol, max_iter, zero,
    H: tl.constexpr, W: tl.constexpr, CHECK: tl.constexpr, REFRESH: tl.constexpr,
    FIRST: tl.constexpr, FIRST_RELAXATION: tl.constexpr, RELAXATION: tl.constexpr,
    RESIDENT: tl.constexpr, LEFT: tl.constexpr,
):  # fmt: skip
    """Read the scores of a sample and solve: return the peak, ``b``, and what `_minimise` does."""
    vh_hi, vh_lo = _square(vh, H, RESIDENT)
    vw_hi, vw_lo = _square(vw, W, RESIDENT)
    f = tl.load(scores + place, mask=inside, other=float("-inf"))
    peak = tl.max(f)
    b = tl.exp((f - peak) * 0.5)
    u, bu, uh, gap, done = _minimise(
        b, fields, penalties, tol, max_iter, zero,
        vh, vh_hi, vh_lo, vw, vw_hi, vw_lo, kh, kh_hi, kh_lo, kw, kw_hi, kw_lo,
        H, W, CHECK, REFRESH, FIRST, FIRST_RELAXATION, RELAXATION, RESIDENT, LEFT,
    )  # fmt: skip
    return peak, b, u, bu, uh, gap, done


# ------------------------------------------------------------------ kernels


@triton.jit
def _split(
    scores, alpha, u_out, lower, upper, iterations,
    vh, vw, kh, kw, fields, penalties,
    height, width, tol, slack, max_iter, zero,
    H: tl.constexpr, W: tl.constexpr, CHECK: tl.constexpr, REFRESH: tl.constexpr,
    FIRST: tl.constexpr, FIRST_RELAXATION: tl.constexpr, RELAXATION: tl.constexpr,
    RESIDENT: tl.constexpr, LEFT: tl.constexpr,
):  # fmt: skip
    row, place, inside = tile(height, width, H, W)
    kh_hi, kh_lo = _square(kh, H, RESIDENT)
    kw_hi, kw_lo = _square(kw, W, RESIDENT)
    peak, b, u, bu, uh, gap, done = _solved(
        scores, vh, vw, kh_hi, kh_lo, kw_hi, kw_lo, kh, kw, fields, penalties,
        place, inside, tol, max_iter, zero,
        H, W, CHECK, REFRESH, FIRST, FIRST_RELAXATION, RELAXATION, RESIDENT, LEFT,
    )  # fmt: skip
    scale = bu / uh
    tl.store(alpha + place, u * b / bu, mask=inside)
    tl.store(u_out + place, u * scale, mask=inside)
    value = peak.to(tl.float64) + tl.log(bu * scale).to(tl.float64)
    tl.store(lower + row, value - slack)
    tl.store(upper + row, value + tl.log(1.0 + gap).to(tl.float64) + slack)
    tl.store(iterations + row, done.to(tl.int64))


@triton.jit
def _fit(
    scores, target, loss_out, slope_out, share,
    vh, vw, kh, kw, fields, penalties,
    height, width, tol, slack, max_iter, zero,
    H: tl.constexpr, W: tl.constexpr, CHECK: tl.constexpr, REFRESH: tl.constexpr,
    FIRST: tl.constexpr, FIRST_RELAXATION: tl.constexpr, RELAXATION: tl.constexpr,
    RESIDENT: tl.constexpr, LEFT: tl.constexpr,
):  # fmt: skip
    row, place, inside = tile(height, width, H, W)
    kh_hi, kh_lo = _square(kh, H, RESIDENT)
    kw_hi, kw_lo = _square(kw, W, RESIDENT)
    peak, b, u, bu, uh, _, _ = _solved(
        scores, vh, vw, kh_hi, kh_lo, kw_hi, kw_lo, kh, kw, fields, penalties,
        place, inside, tol, max_iter, zero,
        H, W, CHECK, REFRESH, FIRST, FIRST_RELAXATION, RELAXATION, RESIDENT, LEFT,
    )  # fmt: skip
    conjugate = tl.log(bu * bu / uh)  # less the peak, as the linear term
    a = tl.load(target + place, mask=inside, other=0.0)
    mass = tl.sum(a)
    tl.store(slope_out + place, (u * b * (mass / bu) - a) * share, mask=inside)
    omega = negentropy(
        a, mass, 1.0 * height * width, kh, kh_hi, kh_lo, kw, kw_hi, kw_lo,
        H, W, RESIDENT, LEFT,
    )  # fmt: skip
    f = tl.load(scores + place, mask=inside, other=float("-inf"))
    linear = tl.sum(tl.where(a > 0, a * (f - peak), 0.0))
    loss = mass * (conjugate - slack) + omega - linear
    tl.store(loss_out + row, tl.where(loss < 0.0, 0.0, loss) * share)
