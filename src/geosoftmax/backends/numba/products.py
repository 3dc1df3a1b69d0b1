"""Products with ``K`` on lines and trees, in time linear in the number of outputs."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from geosoftmax.backends.numba.runtime import inner, jit, spread
from geosoftmax.backends.numba.tables import LineTables, TreeTables


def matvec(tables: LineTables | TreeTables, u: Tensor) -> Tensor:
    """``K u`` for signals of shape (*batch, d), computed in float64."""
    signals = u.detach().to(torch.float64).contiguous()
    if isinstance(tables, LineTables):
        kernel, d, arrays = _line, len(tables.E), tables
    else:
        kernel, d = _tree, len(tables.outputs)
        arrays = tables.r, tables.D, tables.parents, tables.outputs
    h = np.empty((signals.numel() // d, d))
    spread(kernel, len(h), h.size, signals.reshape(h.shape).numpy(), *arrays, h)
    return torch.from_numpy(h).reshape(u.shape).to(u.dtype)


@inner
def from_the_left(u, E, h):
    """Set h to what arrives at each class from those before it, and its own."""
    carried = u[0]
    h[0] = carried
    for i in range(1, u.shape[0]):
        carried = E[i] * carried + u[i]
        h[i] = carried


@inner
def from_the_right(u, E, h):
    """Add to h what arrives from the classes after it."""
    carried = 0.0
    for i in range(u.shape[0] - 2, -1, -1):
        carried = E[i + 1] * (carried + u[i + 1])
        h[i] += carried


@inner
def tree_product(u, r, D, parents, outputs, below, total, h):
    """Compute h = K u: sums over subtrees from the leaves upwards, then the rest downwards."""
    n = parents.shape[0]
    for i in range(n):
        below[i] = 0.0
    for j in range(outputs.shape[0]):
        below[outputs[j]] = u[j]
    for i in range(n - 1, 0, -1):
        below[parents[i]] += r[i] * below[i]
    total[0] = below[0]
    for i in range(1, n):
        total[i] = D[i] * below[i] + r[i] * total[parents[i]]
    for j in range(outputs.shape[0]):
        h[j] = total[outputs[j]]


@jit
def _line(u, E, D, h, first, last):
    for row in range(first, last):
        from_the_left(u[row], E, h[row])
        from_the_right(u[row], E, h[row])


@jit
def _tree(u, r, D, parents, outputs, h, first, last):
    below = np.empty(parents.shape[0])
    total = np.empty(parents.shape[0])
    for row in range(first, last):
        tree_product(u[row], r, D, parents, outputs, below, total, h[row])
