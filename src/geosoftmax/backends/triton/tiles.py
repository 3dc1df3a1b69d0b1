"""Helpers of all kernels: the sizes of tiles, empty outputs, and the device to launch on."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from geosoftmax.backends.settings import SPLIT_CHECK_EVERY

#: Steps between two looks at the gap.
CHECK_EVERY = SPLIT_CHECK_EVERY
#: Changes are multiplied by this before they become half precision: they may be small.
LIFT = tl.constexpr(64.0)
#: Rows to a program: the fewest that tensor cores multiply.
ROWS = 16


def padded(side: int) -> int:
    """Return the side of a tile: a power of two that tensor cores can multiply."""
    return max(16, 1 << (side - 1).bit_length())


def padded_square(matrix: Tensor, side: int) -> Tensor:
    """Return a square matrix with zeros beside it and below."""
    n = matrix.shape[-1]
    square = matrix.new_zeros((side, side))
    square[:n, :n] = matrix
    return square


class RowTile(NamedTuple):
    """The tile of a program that holds several samples, one a row: a constexpr of kernels."""

    #: Rows and their length.
    M: int
    D: int
    #: Rows of a matrix that are in shared memory at once.
    BLOCK: int


def row_tile(side: int) -> RowTile:
    """Return the tile for rows of this length."""
    return RowTile(ROWS, side, block(side))


def block(side: int) -> int:
    """Return how many rows of a matrix with this side are in shared memory at once."""
    return side if side <= 128 else (1 << 15) // side


def row_warps(side: int) -> int:
    """Return the warps of a program that holds rows of this length."""
    return 8 if side >= 512 else 4


def row_stages(side: int) -> int:
    """Return how many blocks of a matrix are under way at once."""
    return 1 if block(side) == side else 2


def scratch(like: Tensor, programs: int, side: int) -> Tensor:
    """Return memory through which programs pass their rows, in two fp16 parts, if they are long."""
    parts = 0 if block(side) == side else 2
    return like.new_empty((programs, parts, ROWS, side), dtype=torch.float16)


def aim(tol: float, slack: float) -> float:
    """Return the gap to reach: with room for rounding, and below 1, with which kernels begin."""
    return 0.9 * min(tol, 1.0) - 2 * slack


class Outputs(NamedTuple):
    """What a solve returns, and its kernel writes."""

    alpha: Tensor
    u: Tensor
    lower: Tensor
    upper: Tensor
    iterations: Tensor


def outputs(f: Tensor, dimensions: int) -> Outputs:
    """Return empty outputs for these scores."""
    batch = f.shape[: f.dim() - dimensions]
    lower, upper = (f.new_empty(batch, dtype=torch.float64) for _ in range(2))
    iterations = f.new_empty(batch, dtype=torch.int64)
    return Outputs(torch.empty_like(f), torch.empty_like(f), lower, upper, iterations)


def on_device(tensor: Tensor) -> contextlib.AbstractContextManager[object]:
    """Launch on the device of a tensor, whatever the current one is."""
    if not tensor.is_cuda or tensor.device.index == torch.cuda.current_device():
        return contextlib.nullcontext()
    return torch.cuda.device(tensor.device)


@triton.jit
def tile(height, width, H: tl.constexpr, W: tl.constexpr):
    """Return the number of this program's sample, the places of its entries, and which exist."""
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, H)[:, None]
    j = tl.arange(0, W)[None, :]
    return row, row * height * width + i * width + j, (i < height) & (j < width)


@triton.jit
def _add_both(x1, y1, x2, y2):
    return x1 + x2, y1 + y2


@triton.jit
def sums(x, y):
    """Sum two tiles at once: most of the time of a sum is waiting for it."""
    size: tl.constexpr = x.shape[0] * x.shape[1]
    x, y = tl.reshape(x, [size], can_reorder=True), tl.reshape(y, [size], can_reorder=True)
    return tl.reduce((x, y), 0, _add_both)
