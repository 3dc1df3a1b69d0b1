"""Predictions with a dense kernel of more than 512 outputs: one launch a step, for a whole batch.

The iteration of `predict`, as a fixed schedule of rounds: the host reads nothing. Rows that are
done no longer change, and a step of rows that are all done is an empty launch.

A step ``s += d`` with ``d = ω (x - max(s, 0))`` needs no ``x``. The equation of ``x`` is linear, so

    d' = (1 - ω/2) d + (|s + d| - |s|) M,    M = ω (ρ (K + ρ)⁻¹ - ½).

This is one product in half precision. The eigenvalues of ``M`` lie in ``[-ω/2, ω/2]``, so changes
do not grow. ``s`` is in float64: what it loses in a step would never come back, because ``d`` does
not see it. At the start of each turn, ``d`` is computed from ``s`` by a product in float64. The
certificate is in float64.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from geosoftmax.backends import settings
from geosoftmax.backends.triton.certificate import store_bounds
from geosoftmax.backends.triton.predict import SETTLED, SETTLED_ANYWAY, penalties
from geosoftmax.backends.triton.tiles import Outputs, aim, on_device, outputs

#: The most outputs that were measured.
LARGEST_MATRIX = 1024
#: Steps of each part of a round.
STEPS = 60
#: The parts of each round, which ends with a look at the gap. "w" takes all penalties, from small
#: to large: it fits distributions with a large support. "m" takes the one that suits most scores,
#: and "s" the next smaller one: they fit noisy scores, whose support is small.
ROUNDS = ("ww", "wm", "msm", "smm", "www", "mmm", "sss")
#: The relaxation ``ω``.
RELAXATION = 1.8
#: Changes in half precision are scaled to this. They may grow by the root of the outputs.
SCALED = tl.constexpr(256.0)


class Tuning(NamedTuple):
    """Tiles of a step."""

    #: Rows, outputs, and inner entries (up to 64) at a time.
    M: int = 64
    N: int = 64
    K: int = 64
    warps: int = 4
    stages: int = 4


class PredictionBatchTables(NamedTuple):
    """What predictions for a batch read, made once by `make_tables`."""

    shape: tuple[int, ...]
    #: The penalties, from small to large, and the one that suits most scores.
    rhos: list[float]
    middle: int
    #: ``(K + ρ)⁻¹`` for each penalty, and ``K``, padded, in float64.
    inverses: Tensor
    kernel: Tensor
    #: ``M`` for each penalty, padded, in half precision.
    steps: Tensor
    #: ``1 / K1``, with which a solve starts, and the diagonal of ``K``: padded, in float64.
    start: Tensor
    diagonal: Tensor


class State(NamedTuple):
    """The iterates of a batch: rows and outputs are padded."""

    #: In float64.
    s: Tensor
    #: In float32, and the change of ``|s|`` in half precision, scaled, in two places by turns.
    d: Tensor
    changes: Tensor
    #: The scale of each row, and whether it still moves.
    scales: Tensor
    going: Tensor
    #: ``b + ρ|s|`` and ``x``, in float64. In a look, these are products with ``K``, and ``u``.
    pull: Tensor
    x: Tensor
    #: In a look, what ``u`` lacks, and four numbers of each row.
    lack: Tensor
    numbers: Tensor


def make_tables(
    kernels: list[Tensor], bases: list[Tensor], eigenvalues: Tensor
) -> PredictionBatchTables:
    """Make the tables from kernels of each axis, their eigenvectors, and the eigenvalues of ``K``.

    The eigenvalues have the shape of a signal. ``K`` is the Kronecker product of the kernels.
    """
    K, basis = (functools.reduce(torch.kron, parts) for parts in (kernels, bases))
    flat = eigenvalues.flatten()
    d, side = len(K), side_of(len(K))
    rhos = penalties(eigenvalues)[0].to(torch.float32).tolist()  # kernels take them in float32
    suits = math.log(float(settings.SPLIT_PENALTY_DENSE * flat.amax() ** 0.25))
    middle = min(range(1, len(rhos)), key=lambda k: abs(math.log(rhos[k]) - suits))
    inverses = K.new_zeros((len(rhos), side, side))
    for k, rho in enumerate(rhos):
        inverses[k, :d, :d] = (basis / (flat + rho)) @ basis.T
    one = torch.eye(side, dtype=K.dtype, device=K.device)
    steps = [RELAXATION * (rho * inverses[k] - one / 2) for k, rho in enumerate(rhos)]
    kernel = K.new_zeros((side, side))
    kernel[:d, :d] = K
    start, diagonal = K.new_zeros(side), K.new_ones(side)
    start[:d] = 1 / K.sum(1)
    diagonal[:d] = K.diagonal()
    return PredictionBatchTables(
        tuple(eigenvalues.shape), rhos, middle, inverses, kernel,
        torch.stack([step.to(torch.float16) for step in steps]), start, diagonal,
    )  # fmt: skip


def side_of(size: int) -> int:
    """Return the length of padded rows."""
    return 64 * triton.cdiv(size, 64)


def turns(tables: PredictionBatchTables, kind: str) -> list[tuple[int, int]]:
    """Return the turns of a part of a round: the number of the penalty, and the steps."""
    if kind == "w":
        return [(k, STEPS // len(tables.rhos)) for k in range(len(tables.rhos))]
    return [(tables.middle - (kind == "s"), STEPS)]


def solve(
    tables: PredictionBatchTables, scores: Tensor, tol: float, max_iter: int,
    tuning: Tuning | None = None,
) -> Outputs:  # fmt: skip
    """From scores to the distribution, ``u``, its bracket and the iterations."""
    tuning = tuning or Tuning()
    d = torch.Size(tables.shape).numel()
    f = scores.contiguous()
    found = outputs(f, len(tables.shape))
    rows, side = found.lower.numel(), side_of(d)
    wide = f.reshape(rows, d).to(torch.float64)
    peak = wide.amax(1)
    b = wide.new_zeros((rows, side))
    b[:, :d] = torch.exp((wide - peak[:, None]) / 2)
    slack = settings.sequential_allowance(d, torch.float64)
    state = _begin(b, b * tables.start)
    rho, done = tables.rhos[0], 0
    with on_device(f):
        for parts in ROUNDS:
            if done >= max_iter > 0:
                break
            for k, steps in (turn for part in parts for turn in turns(tables, part)):
                _turn(tables, state, b, rho, k, steps, tuning)
                rho = tables.rhos[k]
                done += steps
            _look(tables, state, b, found, peak, k, done, aim(tol, slack), slack)
    return found


def _begin(b: Tensor, s: Tensor) -> State:
    rows, side = b.shape
    return State(
        s,
        b.new_zeros((rows, side), dtype=torch.float32),
        b.new_zeros((2, rows, side), dtype=torch.float16),
        b.new_ones(rows, dtype=torch.float32),
        b.new_ones(rows, dtype=torch.int32),
        torch.empty_like(b),
        torch.empty_like(b),
        torch.empty_like(b),
        b.new_empty((4, rows)),
    )


def _turn(
    tables: PredictionBatchTables, state: State, b: Tensor, before: float, k: int, steps: int,
    tuning: Tuning,
) -> None:  # fmt: skip
    """Take some steps with one penalty."""
    rows, side = b.shape
    rho, block = tables.rhos[k], triton.next_power_of_2(side)
    _pulled[(rows,)](state, b, before / rho, rho, side, BLOCK=block)
    torch.mm(state.pull, tables.inverses[k], out=state.x)
    _first[(rows,)](state, RELAXATION, side, BLOCK=block)
    blocks = triton.cdiv(rows, tuning.M), triton.cdiv(side, tuning.N)
    changes, new_changes = state.changes.unbind()
    matrix = tables.steps[k]
    for _ in range(1, steps):
        _step[blocks](
            state.s, state.d, changes, new_changes, state.scales, state.going, matrix,
            1 - RELAXATION / 2, rows, side,
            M=tuning.M, N=tuning.N, BLOCK=tuning.K,
            num_warps=tuning.warps, num_stages=tuning.stages,
        )  # fmt: skip
        changes, new_changes = new_changes, changes


def _look(
    tables: PredictionBatchTables, state: State, b: Tensor, found: Outputs, peak: Tensor, k: int,
    done: int, tol: float, slack: float,
) -> None:  # fmt: skip
    """Certify the iterates of all rows that still move, and say which go on."""
    rows, side = b.shape
    width, block = torch.Size(tables.shape).numel(), triton.next_power_of_2(side)
    _pulled[(rows,)](state, b, 1.0, tables.rhos[k], side, BLOCK=block)
    torch.mm(state.pull, tables.inverses[k], out=state.x)
    _proposed[(rows,)](state, side, BLOCK=block)
    torch.mm(state.x, tables.kernel, out=state.pull)
    _compared[(rows,)](state, b, tables.diagonal, side, BLOCK=block)
    torch.mm(state.lack, tables.kernel, out=state.pull)
    first, settled = STEPS * len(ROUNDS[0]), SETTLED if done < SETTLED_ANYWAY else 1.0
    _certified[(rows,)](
        state, b, found, peak, rows, side, width, tol, settled, slack, done, first,
        BLOCK=block,
    )  # fmt: skip


# ------------------------------------------------------------------ kernels


@triton.jit
def _pulled(state, b, ratio, rho, side, BLOCK: tl.constexpr):
    """Change the penalty: scale what is negative in ``s``. Write ``b + ρ|s|``."""
    row = tl.program_id(0).to(tl.int64)
    if tl.load(state.going + row) != 0:
        j = tl.arange(0, BLOCK)
        inside = j < side
        place = row * side + j
        s = tl.load(state.s + place, mask=inside, other=0.0)
        s = tl.where(s > 0, s, s * ratio)
        tl.store(state.s + place, s, mask=inside)
        pull = tl.load(b + place, mask=inside, other=0.0) + rho * tl.abs(s)
        tl.store(state.pull + place, pull, mask=inside)


@triton.jit
def _first(state, relaxation, side, BLOCK: tl.constexpr):
    """Take a step with ``x`` in float64."""
    row = tl.program_id(0).to(tl.int64)
    if tl.load(state.going + row) != 0:
        j = tl.arange(0, BLOCK)
        inside = j < side
        place = row * side + j
        s = tl.load(state.s + place, mask=inside, other=0.0)
        x = tl.load(state.x + place, mask=inside, other=0.0)
        d = (relaxation * (x - tl.maximum(s, 0.0))).to(tl.float32)
        ahead = s + d
        scale = SCALED / tl.maximum(tl.max(tl.abs(d), 0), 1e-30)
        change = (tl.abs(ahead) - tl.abs(s)).to(tl.float32) * scale
        tl.store(state.s + place, ahead, mask=inside)
        tl.store(state.d + place, d, mask=inside)
        tl.store(state.changes + place, change.to(tl.float16), mask=inside)
        tl.store(state.scales + row, scale)


@triton.jit
def _step(
    s_place, d_place, changes, new_changes, scales, going, matrix, keep, rows, side,
    M: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Take a step for some rows and outputs. No other program writes these."""
    row = tl.program_id(0).to(tl.int64) * M + tl.arange(0, M)
    column = tl.program_id(1) * N + tl.arange(0, N)
    real = row < rows
    moving = tl.load(going + row, mask=real, other=0)
    if tl.max(moving) > 0:
        k = tl.arange(0, BLOCK)
        left = changes + row[:, None] * side + k[None, :]
        right = matrix + k[:, None] * side + column[None, :]
        total = tl.zeros([M, N], tl.float32)
        for _ in range(0, side, BLOCK):
            change = tl.load(left, mask=real[:, None], other=0.0)
            steps = tl.load(right, mask=(column < side)[None, :], other=0.0)
            total = tl.dot(change, steps, acc=total)
            left += BLOCK
            right += BLOCK * side
        scale = tl.load(scales + row, mask=real, other=1.0)[:, None]
        place = row[:, None] * side + column[None, :]
        inside = (moving != 0)[:, None] & (column < side)[None, :]
        d = keep * tl.load(d_place + place, mask=inside, other=0.0) + total / scale
        s = tl.load(s_place + place, mask=inside, other=0.0)
        ahead = s + d
        tl.store(s_place + place, ahead, mask=inside)
        tl.store(d_place + place, d, mask=inside)
        change = (tl.abs(ahead) - tl.abs(s)).to(tl.float32) * scale
        tl.store(new_changes + place, change.to(tl.float16), mask=inside)


# ------------------------------------------------------------------ certificate


@triton.jit
def _proposed(state, side, BLOCK: tl.constexpr):
    """Replace ``x`` by ``u``, positive where ``s`` is."""
    row = tl.program_id(0).to(tl.int64)
    if tl.load(state.going + row) != 0:
        j = tl.arange(0, BLOCK)
        inside = j < side
        place = row * side + j
        s = tl.load(state.s + place, mask=inside, other=0.0)
        x = tl.load(state.x + place, mask=inside, other=0.0)
        tl.store(state.x + place, tl.where(s > 0, tl.maximum(x, 0.0), 0.0), mask=inside)


@triton.jit
def _compared(state, b_place, diagonal, side, BLOCK: tl.constexpr):
    """Compare ``b`` with ``Ku``. Store what ``u`` lacks, and the numbers of the certificate."""
    row = tl.program_id(0).to(tl.int64)
    if tl.load(state.going + row) != 0:
        j = tl.arange(0, BLOCK)
        inside = j < side
        place = row * side + j
        b = tl.load(b_place + place, mask=inside, other=0.0)
        u = tl.load(state.x + place, mask=inside, other=0.0)
        h = tl.load(state.pull + place, mask=inside, other=0.0)
        bu, uh = tl.sum(b * u, 0), tl.sum(u * h, 0)
        h = h * (bu / uh)
        v = tl.maximum(b - h, 0.0)
        v = v / tl.minimum(tl.load(diagonal + j, mask=inside, other=1.0), 1.0)
        rows = tl.num_programs(0)
        tl.store(state.lack + place, v, mask=inside)
        tl.store(state.numbers + row, bu)
        tl.store(state.numbers + rows + row, uh)
        tl.store(state.numbers + 2 * rows + row, 2 * tl.sum(v * h, 0))
        tl.store(state.numbers + 3 * rows + row, tl.max(tl.where(b > 0, b / h, 0.0), 0))


@triton.jit
def _certified(
    state, b_place, found, peaks, rows, side, width, tol, settled, slack, done, first,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Store the distribution, ``u`` and the bracket, and whether the row goes on.

    ``u + v`` is feasible for the dual, as in `certificate`, with ``vᵀKv`` itself. So is ``u`` times
    the largest ``b / Ku``. The smaller bound counts.
    """
    row = tl.program_id(0).to(tl.int64)
    if tl.load(state.going + row) != 0:
        j = tl.arange(0, BLOCK)
        inside = j < side
        place = row * side + j
        v = tl.load(state.lack + place, mask=inside, other=0.0)
        lifted = tl.load(state.pull + place, mask=inside, other=0.0)
        bu = tl.load(state.numbers + row)
        uh = tl.load(state.numbers + rows + row)
        linear = tl.load(state.numbers + 2 * rows + row)
        ratio = tl.maximum(tl.load(state.numbers + 3 * rows + row), 1.0)
        gap = (linear + tl.sum(v * lifted, 0)) / (bu * (bu / uh))
        gap = tl.where(gap > ratio * ratio - 1, ratio * ratio - 1, gap)
        gap = tl.where(bu == 0.0, 1e9, gap)  # which happens for a moment on the way

        b = tl.load(b_place + place, mask=inside, other=0.0)
        u = tl.load(state.x + place, mask=inside, other=0.0)
        alpha = (u * b / bu).to(tl.float32)
        real = j < width
        out = row * width + j
        before = tl.load(found.alpha + out, mask=real & (done > first), other=0.0)
        moved = tl.sum(tl.abs(alpha - before), 0) * 0.5
        tl.store(found.alpha + out, alpha, mask=real)
        tl.store(found.u + out, (u * (bu / uh)).to(tl.float32), mask=real)
        store_bounds(found, row, None, tl.load(peaks + row), bu, uh, gap, slack, done)
        going = (gap > tol) | (moved > settled)
        tl.store(state.going + row, going.to(tl.int32))
