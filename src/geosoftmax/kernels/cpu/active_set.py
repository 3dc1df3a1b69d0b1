"""Small dense costs: principal pivoting with Cholesky on the support."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from geosoftmax.costs.base import Cost
from geosoftmax.kernels.cpu.pivoting import not_covered, pivot_blocks, pivot_singly, times
from geosoftmax.kernels.cpu.runtime import as_rows, bracket, flat64, jit, new_outputs, spread
from geosoftmax.kernels.reference import Rows, rounding_allowance


def active_set(cost: Cost, b: Tensor, start: Tensor | None) -> Rows:
    """Exact solves with the dense kernel of the cost, one or one per row."""
    K = torch.exp(-cost.matrix().detach().to(torch.float64) / 2)
    out = new_outputs(b)
    slack = rounding_allowance(cost.size, torch.float64)
    kernels = K.reshape(-1, *K.shape[-2:]).contiguous().numpy()
    rows = b.shape[0]
    warm = start is not None
    guess = flat64(start, rows) if start is not None else np.empty((0, 0))
    work = 32 * b.numel()
    spread(_active_sets, rows, work, kernels, flat64(b, rows), warm, guess, slack, *out)
    return as_rows(b, *out)


@jit
def _active_sets(kernels, b, warm, guess, slack, u, lower, upper, iterations, first, last):
    d = b.shape[1]
    index = np.empty(d, dtype=np.int64)
    inside = np.empty(d, dtype=np.bool_)
    L = np.empty((d, d))
    x = np.empty(d)
    h = np.empty(d)
    shared = kernels.shape[0] == 1
    for row in range(first, last):
        K = kernels[0] if shared else kernels[row]
        brow = b[row]
        if warm:
            for i in range(d):
                inside[i] = guess[row, i] > 0.0 and brow[i] > 0.0
        else:
            not_covered(K, brow, inside)
        steps, found = pivot_blocks(K, brow, inside, index, L, x, h)
        iterations[row] = steps
        if not found:
            iterations[row] += pivot_singly(K, brow, inside, index, L, x, h)
        size = 0
        for i in range(d):
            u[row, i] = max(x[i], 0.0)
            if x[i] > 0.0:
                index[size] = i
                size += 1
        times(K, u[row], index, size, h)
        lower[row], upper[row] = bracket(brow, u[row], h, slack)
