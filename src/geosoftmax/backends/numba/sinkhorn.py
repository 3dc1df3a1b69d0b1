"""Sinkhorn potentials of small costs: like the reference, but row by row, on the support."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from geosoftmax.backends.numba.runtime import inner, jit, spread
from geosoftmax.backends.numba.tables import DenseTables
from geosoftmax.backends.settings import NEWTON_BELOW, STALLED, SUBNORMAL

#: Rounds of Chebyshev's method for a Newton step: it gains seven digits then, where it could.
ROUNDS = 10


class SinkhornRows(NamedTuple):
    """``v`` with ``v · Kv ≈ α``, and the largest error of ``log(v · Kv / α)`` on the support."""

    v: Tensor
    residual: Tensor
    iterations: Tensor


def sinkhorn(tables: DenseTables, alpha: Tensor, tol: float, max_iter: int) -> SinkhornRows:
    """Solve ``v · Kv = α`` for rows ``alpha`` of shape (rows, *shape)."""
    rows = alpha.shape[0]
    flat = alpha.detach().to(torch.float64).contiguous().reshape(rows, -1).numpy()
    v, residual = np.empty(flat.shape), np.empty(rows)
    iterations = np.empty(rows, dtype=np.int64)
    work = 32 * flat.size
    spread(_solve, rows, work, flat, tables.kernels, tol, max_iter, v, residual, iterations)
    found = torch.from_numpy(v).reshape(alpha.shape)
    return SinkhornRows(found, torch.from_numpy(residual), torch.from_numpy(iterations))


@functools.partial(inner, reassociate=True)
def _times(K, x, out, size):
    for p in range(size):
        total = 0.0
        for q in range(size):
            total += K[p, q] * x[q]
        out[p] = total


@inner
def _newton(K, v, h, error, size, z, direction, product):
    """Solve ``(I + P) z = error`` with ``P = diag(1/h) K diag(v)``; see `shifted_solve`."""
    rho = 1.0 / 3.0
    for p in range(size):
        direction[p] = error[p] / 1.5
        z[p] = direction[p]
    for _ in range(ROUNDS - 1):
        for p in range(size):
            product[p] = v[p] * z[p]
        _times(K, product, product[size:], size)
        after = 1.0 / (6.0 - rho)
        for p in range(size):
            left = error[p] - z[p] - product[size + p] / h[p]
            direction[p] = after * rho * direction[p] + 4.0 * after * left
            z[p] += direction[p]
        rho = after


@jit
def _solve(alpha, kernels, tol, max_iter, out, residual, iterations, first, last):
    d = alpha.shape[1]
    index = np.empty(d, dtype=np.int64)
    K = np.empty((d, d))
    a, v, best, h, error = np.empty(d), np.empty(d), np.empty(d), np.empty(d), np.empty(d)
    z, direction, product = np.empty(d), np.empty(d), np.empty(2 * d)
    for row in range(first, last):
        full = kernels[row if kernels.shape[0] > 1 else 0]
        size = 0
        for i in range(d):
            out[row, i] = 0.0
            if alpha[row, i] > 0.0:
                index[size] = i
                a[size] = alpha[row, i]
                size += 1
        for p in range(size):
            for q in range(size):
                K[p, q] = full[index[p], index[q]]
        _times(K, a, h, size)
        for p in range(size):
            v[p] = a[p] / math.sqrt(h[p])
            best[p] = v[p]
        smallest = np.inf
        stalled = 0
        step = 0
        while step < max_iter:
            step += 1
            _times(K, v, h, size)
            worst = 0.0
            for p in range(size):
                error[p] = math.log(v[p] / a[p] * h[p])
                if a[p] > SUBNORMAL and not abs(error[p]) <= worst:
                    worst = abs(error[p])
            improved = worst < smallest
            stalled = 0 if worst < 0.75 * smallest else stalled + 1
            if improved:
                smallest = worst
                for p in range(size):
                    best[p] = v[p]
            if smallest <= tol:  # a last step, as it needs no product
                for p in range(size):
                    best[p] -= v[p] * error[p] * (2.0 / 3.0)
                break
            if stalled > STALLED:
                break
            if improved and worst < NEWTON_BELOW:
                _newton(K, v, h, error, size, z, direction, product)
            else:
                for p in range(size):
                    z[p] = error[p] * (2.0 / 3.0)
            for p in range(size):
                v[p] *= math.exp(-z[p])
        for p in range(size):
            out[row, index[p]] = best[p]
        residual[row] = smallest
        iterations[row] = step
