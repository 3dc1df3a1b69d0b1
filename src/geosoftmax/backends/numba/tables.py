"""The arrays that a kernel reads, made once per cost: kernels, decays, edges, factors.

All arrays are float64 (indices int64), contiguous and read-only by convention.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

#: An edge with a larger ``r² / D`` is short. Below, plain elimination loses at most one digit.
STIFF = 4.0
#: Up to this condition number of K, its inverse is accurate enough for a solve.
INVERTIBLE = 1e6


class DenseTables(NamedTuple):
    """Kernels of shape (1, d, d), or (rows, d, d): one per row."""

    kernels: np.ndarray


class LineTables(NamedTuple):
    """``E = exp(-gap)``, ``D = 1 - E²`` to the class before, of shape (d,); the first is unused."""

    E: np.ndarray
    D: np.ndarray


class TreeTables(NamedTuple):
    """Of each node: ``r = exp(-length)`` to its parent, ``D = 1 - r²``, its parent; the outputs.

    An elimination needs ``stiffness = r² / D`` and ``slope = r / D`` of the same edges. `short`
    says whether some edge is so short that plain elimination would lose digits along it.
    """

    r: np.ndarray
    D: np.ndarray
    parents: np.ndarray
    outputs: np.ndarray
    stiffness: np.ndarray
    slope: np.ndarray
    short: bool


class ZeroOneTables(NamedTuple):
    """``K = (1 - k) I + k 11ᵀ``; both numbers, so that no digits are lost where k is near one."""

    k: float
    one_minus_k: float


class FactorTables(NamedTuple):
    """``K = K0 ⊗ K1 ⊗ K2``: sizes, kernels of shape (1 or rows, n, n), and their bandwidths.

    `inverses` are those of the kernels, or empty where K is ill-conditioned or differs by row.
    Their bandwidths are `inverse_bands`: 1 for p = 1.
    """

    sides: tuple[int, int, int]
    kernels: tuple[np.ndarray, np.ndarray, np.ndarray]
    bands: tuple[int, int, int]
    inverses: tuple[np.ndarray, np.ndarray, np.ndarray]
    inverse_bands: tuple[int, int, int]


def dense_tables(K: Tensor) -> DenseTables:
    """Return tables of a kernel ``K = exp(-C/2)`` of shape (d, d), or (rows, d, d)."""
    return DenseTables(_array(K.reshape(-1, *K.shape[-2:])))


def line_tables(half_distances: Tensor, even: bool) -> LineTables:
    """Return tables of a line with p = 1.

    Parameters
    ----------
    half_distances : Tensor, shape (d,)
        Half the cost between each class and the one before. The first is unused.
    even : bool
        All gaps are equal: the second one is used for all.
    """
    gaps = half_distances.detach().to(torch.float64)
    d = gaps.shape[0]
    if even and d > 1:
        gaps = gaps[1].expand(d)
    E, D = torch.exp(-gaps), -torch.expm1(-2 * gaps)
    if d == 1:
        E, D = torch.zeros_like(E), torch.zeros_like(D)
    return LineTables(_array(E), _array(D))


def tree_tables(r: Tensor, D: Tensor, parents: Tensor, outputs: Tensor) -> TreeTables:
    """Return tables of a tree whose nodes come after their parents; see `TreeTables`."""
    r64, D64 = _array(r), _array(D)
    stiffness, slope = r64 * r64 / D64, r64 / D64
    short = bool(stiffness.max() > STIFF)
    return TreeTables(r64, D64, _indices(parents), _indices(outputs), stiffness, slope, short)


def zero_one_tables(k: Tensor | float, one_minus_k: Tensor | float) -> ZeroOneTables:
    """Return tables of the zero-one cost; see `ZeroOneTables`."""
    return ZeroOneTables(float(k), float(one_minus_k))


def factor_tables(kernels: Sequence[Tensor]) -> FactorTables:
    """Return tables of ``K`` as a product of at most three kernels, one per axis.

    Each has shape (n, n); a single one may have shape (rows, d, d).
    """
    stacks = [torch.ones((1, 1, 1), dtype=torch.float64, device="cpu")] * (3 - len(kernels))
    stacks += [K.detach().to(torch.float64).reshape(-1, *K.shape[-2:]) for K in kernels]
    K0, K1, K2 = (_array(K) for K in stacks)
    w0, w1, w2 = (_bandwidth(K) for K in stacks)
    sides = (K0.shape[-1], K1.shape[-1], K2.shape[-1])
    inverses = _inverses(stacks)
    Q0, Q1, Q2 = (_array(Q) for Q in inverses)
    v0, v1, v2 = (_bandwidth(Q.abs()) if Q.numel() else 0 for Q in inverses)
    return FactorTables(sides, (K0, K1, K2), (w0, w1, w2), (Q0, Q1, Q2), (v0, v1, v2))


def _inverses(stacks: list[Tensor]) -> list[Tensor]:
    """Return the inverse of each kernel, or matrices without entries."""
    condition = 1.0
    for K in stacks:
        values = torch.linalg.eigvalsh(K[0])
        condition *= float(values[-1] / values[0]) if values[0] > 0 else math.inf
    if condition > INVERTIBLE or any(len(K) > 1 for K in stacks):
        return [K[0, :0, :0] for K in stacks]
    return [_inverse(K[0]) for K in stacks]


def _inverse(K: Tensor) -> Tensor:
    """Return the inverse; what is zero but for rounding is zero, if the others suffice."""
    Q = torch.linalg.inv(K)
    banded = torch.where(Q.abs() > 1e-12 * Q.abs().max(), Q, 0.0)
    residual = (K @ banded - torch.eye(len(K), dtype=K.dtype)).abs().max()
    return banded if float(residual) <= 1e-13 else Q


def _bandwidth(kernel: Tensor) -> int:
    """Distance from the diagonal beyond which a kernel is negligible in its own precision."""
    matters = (kernel > torch.finfo(kernel.dtype).eps * 1e-2).nonzero()
    return int((matters[:, -1] - matters[:, -2]).abs().max())


def _array(values: Tensor) -> np.ndarray:
    return values.detach().to(torch.float64).contiguous().numpy()


def _indices(values: Tensor) -> np.ndarray:
    return values.detach().to(torch.int64).contiguous().numpy()
