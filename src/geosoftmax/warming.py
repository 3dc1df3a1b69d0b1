"""Compile kernels ahead of time."""

from __future__ import annotations

import warnings

import torch

from geosoftmax.costs import GridCost, LineCost, TreeCost, ZeroOneCost
from geosoftmax.costs.base import Cost
from geosoftmax.functional import geometric_logistic_loss, geometric_softmax, sinkhorn_potential
from geosoftmax.solvers import ConvergenceWarning

#: A batch of this many rows is solved by the kernels for large batches.
MANY_ROWS = 256


def warm_up(*costs: Cost) -> None:
    """Compile the kernels for some costs ahead of time, so that no later call compiles them.

    Compiled kernels are cached in the folder of the installation. If that folder is writable, call
    this once after installing. Without this call, the first use of a cost compiles its kernels, and
    prints a line to stderr if that takes more than two seconds.

    Parameters
    ----------
    *costs : Cost
        By default one cost of each kind, on the CPU. Kernels do not depend on the size.

    Examples
    --------
    >>> import geosoftmax
    >>> geosoftmax.warm_up(geosoftmax.LineCost(5))
    """
    if not costs:
        tree = TreeCost([-1, 0, 0])
        lines = (LineCost(3, p=2), LineCost(3), ZeroOneCost(3), tree, tree / 100)
        costs = (*lines, GridCost((12, 12)), GridCost((36, 36), p=1) * 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for cost in costs:
            _use(cost)


def _use(cost: Cost) -> None:
    """Predict, train and measure once, with few rows and with many."""
    generator = torch.Generator().manual_seed(0)
    last = tuple(range(-len(cost.shape), 0))
    for batch in (cost.batch_shape,) if cost.batch_shape else ((1,), (MANY_ROWS,)):
        scores = torch.randn((*batch, *cost.shape), generator=generator).to(cost.device)
        alpha = geometric_softmax(scores, cost)
        target = torch.zeros(batch, dtype=torch.int64, device=cost.device)
        geometric_logistic_loss(scores.requires_grad_(), target, cost, dim=last).backward()
        sinkhorn_potential(alpha, cost)
