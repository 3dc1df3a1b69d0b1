"""From a distribution to one output: the best decision for a measure of mistakes."""

from __future__ import annotations

import torch
from torch import Tensor

from geosoftmax.costs.base import Cost, wide
from geosoftmax.functional.axes import Dim, axes_of, outputs_last
from geosoftmax.functional.calls import full_precision
from geosoftmax.validation import (
    SUM_TOLERANCE,
    check_distribution_values,
    check_rule,
    check_signal,
    is_readable,
)

#: The relative difference up to which probabilities count as equal in float64. In other dtypes it
#: is the machine epsilon.
ROUNDING = 1e-12


@full_precision
def decide(alpha: Tensor, cost: Cost, rule: str = "cost", *, dim: Dim = None) -> Tensor:
    r"""Decide for one output: :math:`\arg\min_i \sum_j M_{ij} \alpha_j`, with ``M`` from the rule.

    ``M_ij`` is the penalty for deciding on ``i`` when ``j`` is true:

    ========== ============================ ===========================================
    rule       measure ``M``                defined for
    ========== ============================ ===========================================
    "mode"     0 if right, 1 if wrong       every cost: the most probable output
    "median"   the distance ``|x - y|``     lines and grids (there axis by axis)
    "mean"     its square                   lines and grids: the output nearest the mean
    "cost"     the cost itself              every cost
    ========== ============================ ===========================================

    Where several outputs are equally good, the first is returned. Outputs count as equally good if
    they differ by rounding only: relatively 1e-12 in float64, and the machine epsilon in other
    dtypes.

    Parameters
    ----------
    alpha : Tensor, shape (*batch, *cost.shape)
        Distributions. No gradients flow through a decision.
    cost : Cost
        The geometry of the outputs. Its scale does not change the decision.
    rule : {"cost", "mode", "median", "mean"}
    dim : int or tuple of int, optional
        The axes of the outputs, as for `geometric_softmax`. By default the last ones.

    Returns
    -------
    Tensor, shape batch, int64
        The index of an output. On a grid it counts row by row, and
        ``torch.unravel_index(index, cost.shape)`` gives the pixel. Rows that are not distributions
        give -1 where values are not checked: on GPUs, and under ``torch.compile`` and
        ``torch.func``.

    Examples
    --------
    >>> import torch
    >>> from geosoftmax import LineCost, decide
    >>> alpha = torch.tensor([0.4, 0.0, 0.3, 0.3])
    >>> [int(decide(alpha, LineCost(4), rule)) for rule in ("mode", "median", "mean")]
    [0, 2, 1]
    """
    if dim is not None:
        alpha = outputs_last(alpha, axes_of("alpha", alpha, cost, dim))
    check_signal("alpha", alpha, cost)
    check_rule(rule, cost)
    tolerance = SUM_TOLERANCE[alpha.dtype]
    check_distribution_values("alpha", alpha, cost, tolerance)
    mass = wide(alpha.detach())
    slack = max(ROUNDING, torch.finfo(alpha.dtype).eps)
    chosen = _mode(mass, cost, slack) if rule == "mode" else _least(mass, cost, rule, slack)
    if is_readable(alpha):
        return chosen
    flat = mass.flatten(-len(cost.shape))
    valid = (flat >= 0).all(-1) & ((flat.sum(-1) - 1).abs() <= tolerance)
    return torch.where(valid, chosen, -1)


def _mode(mass: Tensor, cost: Cost, slack: float) -> Tensor:
    return first_of_largest(mass.flatten(-len(cost.shape)), slack)


def first_of_largest(flat: Tensor, slack: float) -> Tensor:
    """Return the first index whose value is the largest, up to a relative slack."""
    return _first(flat >= (1 - slack) * flat.amax(-1, keepdim=True))


def _least(mass: Tensor, cost: Cost, rule: str, slack: float) -> Tensor:
    """Return the output of least expected cost, axis by axis if the cost is a sum over axes."""
    if cost.structure == "equal":
        return _mode(mass, cost, slack)  # differences between sums would be lost to rounding
    if len(cost.factors) == 1:
        return _along_axis(mass, cost.factors[0], rule, slack)
    index = torch.zeros((), dtype=torch.int64, device=mass.device)
    dims = range(-len(cost.shape), 0)
    for k, axis in zip(dims, cost.factors, strict=True):
        marginal = mass.sum([other for other in dims if other != k])
        index = index * axis.size + _along_axis(marginal, axis, rule, slack)
    return index


def _along_axis(mass: Tensor, axis: Cost, rule: str, slack: float) -> Tensor:
    x = axis.positions
    power = axis.p if rule == "cost" else {"median": 1, "mean": 2}[rule]
    if x is None or power not in (1, 2):
        expected = axis.expected(mass).flatten(-len(axis.shape))
        return _first(expected <= (1 + slack) * expected.amin(-1, keepdim=True))
    if power == 1:  # the first with half of the mass before or at it
        return _first(mass.cumsum(-1) >= (1 - slack) / 2 * mass.sum(-1, keepdim=True))
    x = wide(x)
    share = mass / mass.sum(-1, keepdim=True)
    apart = (x - x[0] - (share * (x - x[0])).sum(-1, keepdim=True)).abs()
    deviation = (share * apart).sum(-1, keepdim=True)  # the effect of rounding on the mean
    return _first(apart <= apart.amin(-1, keepdim=True) + slack * deviation)


def _first(mask: Tensor) -> Tensor:
    return mask.to(torch.uint8).argmax(-1)
