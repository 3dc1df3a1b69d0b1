"""The fp16 split: products on tensor cores in half precision, as precise as needed.

A number is split as ``hi + lo / SHIFT`` into two fp16 parts of 11 bits each. One pass multiplies
the high parts: 11 bits, like TF32, at twice its speed. Three passes give 22 bits, like float32. All
sums are float32. Signals here lie in [0, 1], far from the limits of half precision.

Functions have one return: Triton would compile the code after an early return, and reserve memory
for it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

SHIFT = tl.constexpr(2048.0)


class SplitMatrix(NamedTuple):
    """A matrix inside a kernel: where both parts lie, and the parts if they are resident."""

    pointer: Any
    hi: Any
    lo: Any


class PlaneMatrices(NamedTuple):
    """One matrix for each axis of a plane, inside a kernel."""

    rows: SplitMatrix
    columns: SplitMatrix


class PlaneTile(NamedTuple):
    """The tile of a plane, and how it is multiplied: a constexpr of kernels."""

    #: Sides of the tile.
    H: int
    W: int
    #: Whether matrices stay in shared memory; else they are read again for each product.
    RESIDENT: bool
    #: Multiply by the matrix of the rows from the left, or turn the signal before each product.
    LEFT: bool


def fp16_split(matrix: Tensor, side: int) -> Tensor:
    """Return both parts of a square matrix, padded with zeros: shape ``(2, side, side)``."""
    n = matrix.shape[-1]
    parts = matrix.new_zeros((2, side, side), dtype=torch.float16)
    parts[0, :n, :n] = matrix
    parts[1, :n, :n] = (matrix - parts[0, :n, :n].to(matrix.dtype)) * SHIFT.value
    return parts


@triton.jit
def load_part(pointer, part: tl.constexpr, N: tl.constexpr, TRANSPOSED: tl.constexpr = False):
    """Load one part of a matrix that `fp16_split` made."""
    n = tl.arange(0, N)
    if TRANSPOSED:
        place = n[None, :] * N + n[:, None]
    else:
        place = n[:, None] * N + n[None, :]
    return tl.load(pointer + part * N * N + place)


@triton.jit
def load_plane(rows, columns, TILE: tl.constexpr):
    """Return the matrices at these places, with their parts if they stay in shared memory."""
    rows_hi, rows_lo, columns_hi, columns_lo = 0, 0, 0, 0
    if TILE.RESIDENT:
        rows_hi, rows_lo = load_part(rows, 0, TILE.H), load_part(rows, 1, TILE.H)
        columns_hi, columns_lo = load_part(columns, 0, TILE.W), load_part(columns, 1, TILE.W)
    return PlaneMatrices(
        SplitMatrix(rows, rows_hi, rows_lo), SplitMatrix(columns, columns_hi, columns_lo)
    )


@triton.jit
def times(
    x, matrix, here,
    N: tl.constexpr, TRANSPOSED: tl.constexpr, PASSES: tl.constexpr, RESIDENT: tl.constexpr,
):  # fmt: skip
    """Return ``x @ matrix``.

    A resident matrix is given by its parts and stays in shared memory; another one is read again
    each time, from the cache, one part after the other. `here` is added to its address.
    """
    top = x.to(tl.float16)
    if PASSES == 1:
        small = tl.zeros(x.shape, tl.float32)
    else:
        rest = ((x - top.to(tl.float32)) * SHIFT).to(tl.float16)
        small = tl.dot(top, _part(matrix, here, 1, N, TRANSPOSED, RESIDENT))
        small = tl.dot(rest, _part(matrix, here, 0, N, TRANSPOSED, RESIDENT), acc=small)
        small = small * (1.0 / SHIFT)
    return tl.dot(top, _part(matrix, here, 0, N, TRANSPOSED, RESIDENT), acc=small)


@triton.jit
def times_left(
    x, matrix, here,
    N: tl.constexpr, TRANSPOSED: tl.constexpr, PASSES: tl.constexpr, RESIDENT: tl.constexpr,
):  # fmt: skip
    """Return ``matrix @ x``."""
    top = x.to(tl.float16)
    if PASSES == 1:
        small = tl.zeros(x.shape, tl.float32)
    else:
        rest = ((x - top.to(tl.float32)) * SHIFT).to(tl.float16)
        small = tl.dot(_part(matrix, here, 1, N, TRANSPOSED, RESIDENT), top)
        small = tl.dot(_part(matrix, here, 0, N, TRANSPOSED, RESIDENT), rest, acc=small)
        small = small * (1.0 / SHIFT)
    return tl.dot(_part(matrix, here, 0, N, TRANSPOSED, RESIDENT), top, acc=small)


@triton.jit
def _part(
    matrix, here, part: tl.constexpr,
    N: tl.constexpr, TRANSPOSED: tl.constexpr, RESIDENT: tl.constexpr,
):  # fmt: skip
    if RESIDENT:
        if part == 0:
            values = matrix.hi
        else:
            values = matrix.lo
        if TRANSPOSED:
            values = tl.trans(values)
    else:
        values = load_part(matrix.pointer + here, part, N, TRANSPOSED)
    return values


@triton.jit
def both_sides(
    x, matrices, here, TRANSPOSED: tl.constexpr, PASSES: tl.constexpr, TILE: tl.constexpr
):
    """Return ``rowsᵀ x columns``, or ``rows x columnsᵀ``, for `PlaneMatrices` in a `PlaneTile`."""
    rows, columns = matrices.rows, matrices.columns
    if TILE.LEFT:
        x = times_left(x, rows, here, TILE.H, not TRANSPOSED, PASSES, TILE.RESIDENT)
        x = times(x, columns, here, TILE.W, TRANSPOSED, PASSES, TILE.RESIDENT)
    else:
        x = times(tl.trans(x), rows, here, TILE.H, TRANSPOSED, PASSES, TILE.RESIDENT)
        x = times(tl.trans(x), columns, here, TILE.W, TRANSPOSED, PASSES, TILE.RESIDENT)
    return x


@triton.jit
def rows_times(x, acc, scratch, pointer, PASSES: tl.constexpr, TILE: tl.constexpr):
    """Return ``acc + x @ matrix`` for a `RowTile`, with a matrix that is read again each time.

    Up to 128 outputs in one piece. Beyond, block by block along the inner dimension: the rows pass
    through scratch memory of the program, two parts of shape ``(M, D)``, because a part of a tile
    in registers cannot be taken out.
    """
    M: tl.constexpr = TILE.M
    D: tl.constexpr = TILE.D
    BLOCK: tl.constexpr = TILE.BLOCK
    if BLOCK == D:
        acc += times(x, SplitMatrix(pointer, 0, 0), 0, D, False, PASSES, False)
    else:
        m = tl.arange(0, M)[:, None]
        j = tl.arange(0, D)[None, :]
        top = x.to(tl.float16)
        tl.store(scratch + m * D + j, top)
        if PASSES == 3:
            tl.store(scratch + M * D + m * D + j, ((x - top.to(tl.float32)) * SHIFT).to(tl.float16))
        tl.debug_barrier()
        small = tl.zeros([M, D], tl.float32)
        for start in range(0, D, BLOCK):
            k = start + tl.arange(0, BLOCK)
            rows_hi = tl.load(scratch + m * D + k[None, :])
            matrix_hi = tl.load(pointer + k[:, None] * D + j)
            acc = tl.dot(rows_hi, matrix_hi, acc=acc)
            if PASSES == 3:
                rows_lo = tl.load(scratch + M * D + m * D + k[None, :])
                small = tl.dot(rows_lo, matrix_hi, acc=small)
                small = tl.dot(rows_hi, tl.load(pointer + D * D + k[:, None] * D + j), acc=small)
        tl.debug_barrier()  # before anybody overwrites the scratch
        if PASSES == 3:
            acc += small * (1.0 / SHIFT)
    return acc
