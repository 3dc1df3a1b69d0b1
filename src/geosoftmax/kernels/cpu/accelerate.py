"""Accelerated projected gradient on grids."""

from __future__ import annotations

import functools
import math

import numpy as np
import torch
from torch import Tensor

from geosoftmax.costs import GridCost
from geosoftmax.costs.base import Cost
from geosoftmax.kernels import reference
from geosoftmax.kernels.cpu.factors import grid_product, kernel_factors
from geosoftmax.kernels.cpu.runtime import jit, spread
from geosoftmax.kernels.reference import Rows, largest_eigenvalue


def accelerate(
    cost: Cost, b: Tensor, start: Tensor, tol: float, max_iter: int, dtype: torch.dtype
) -> Rows:
    """Accelerated projected gradient on a grid, in the given dtype; certified in float64."""
    assert isinstance(cost, GridCost)
    rows = b.shape[0]
    sides, kernels, bands = kernel_factors(cost, dtype)
    step = float(1 / largest_eigenvalue(cost, torch.float64))
    u = start.to(dtype).contiguous().clone().reshape(rows, *sides).numpy()
    flat_b = b.to(dtype).contiguous().reshape(rows, *sides).numpy()
    iterations = np.zeros(rows, dtype=np.int64)
    K0, K1, K2 = (k[0] for k in kernels)
    tol_here = 0.9 * tol
    spread(
        _accelerated, rows, 100 * b.numel(), flat_b, K0, K1, K2, bands, step, tol_here, max_iter,
        u, iterations,
    )  # fmt: skip
    u, lower, upper = reference.certify(cost, b, torch.from_numpy(u).reshape(b.shape))
    return Rows(u, lower, upper, torch.from_numpy(iterations))


@functools.partial(jit, reassociate=True)
def _accelerated(b, K0, K1, K2, bands, step_size, tol, max_iter, u, iterations, first, last):
    n0, n1, n2 = b.shape[1:]
    y = np.empty_like(b[0])
    middle = np.empty_like(b[0])
    h = np.empty_like(b[0])
    for row in range(first, last):
        step = b.dtype.type(step_size)
        brow = b[row]
        urow = u[row]
        for a in range(n0):
            for i in range(n1):
                for j in range(n2):
                    y[a, i, j] = urow[a, i, j]
        momentum = 1.0
        iteration = 0
        while iteration < max_iter:
            iteration += 1
            grid_product(K0, K1, K2, bands, y, middle, h)
            uphill = b.dtype.type(0)
            for a in range(n0):
                for i in range(n1):
                    for j in range(n2):
                        ahead = y[a, i, j] - step * (h[a, i, j] - brow[a, i, j])
                        ahead = max(ahead, ahead * 0)
                        moved = ahead - urow[a, i, j]
                        uphill += (y[a, i, j] - ahead) * moved
                        urow[a, i, j] = ahead
                        h[a, i, j] = moved
            grown = (1.0 + math.sqrt(1.0 + 4.0 * momentum * momentum)) / 2.0
            weight = b.dtype.type(0.0 if uphill > 0 else (momentum - 1.0) / grown)
            momentum = 1.0 if uphill > 0 else grown
            for a in range(n0):
                for i in range(n1):
                    for j in range(n2):
                        y[a, i, j] = urow[a, i, j] + weight * h[a, i, j]
            if iteration % 10 == 0:
                grid_product(K0, K1, K2, bands, urow, middle, h)
                if _gap_bound(brow, urow, h) <= tol:
                    break
        iterations[row] = iteration


@functools.partial(jit, reassociate=True)
def _gap_bound(b, u, h):
    """An upper bound of the gap of u, given h = Ku, for scaled u."""
    n0, n1, n2 = b.shape
    bu = 0.0
    uh = 0.0
    for a in range(n0):
        for i in range(n1):
            for j in range(n2):
                bu += b[a, i, j] * u[a, i, j]
                uh += u[a, i, j] * h[a, i, j]
    if uh <= 0.0:
        return np.inf
    scale = bu / uh
    vh = 0.0
    v_sum = 0.0
    for a in range(n0):
        for i in range(n1):
            for j in range(n2):
                hi = h[a, i, j] * scale
                v = b[a, i, j] - hi
                if v > 0.0:
                    vh += v * hi
                    v_sum += v
    return math.log1p((2.0 * vh + v_sum * v_sum) / (bu * scale))
