"""Options of a solve and of a decision."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from geosoftmax.costs.base import Cost


#: The rules of a decision.
RULES = ("mode", "median", "mean", "cost")


def check_options(tol: float | None, max_iter: int | None) -> None:
    """Check solver options."""
    if tol is not None and not (isinstance(tol, (int, float)) and tol > 0 and math.isfinite(tol)):
        raise ValueError(f"tol must be a positive number; got {tol!r}.")
    if max_iter is not None and (isinstance(max_iter, bool) or not isinstance(max_iter, int)):
        raise TypeError(f"max_iter must be an integer; got {max_iter!r}.")
    if max_iter is not None and max_iter < 1:
        raise ValueError(f"max_iter must be at least 1; got {max_iter}.")


def check_rule(rule: str, cost: Cost) -> None:
    """Check the rule of a decision. Medians and means need outputs on a line or a grid."""
    if rule not in RULES:
        raise ValueError(f"rule must be one of {', '.join(RULES)}; got {rule!r}.")
    if rule in ("median", "mean") and any(axis.positions is None for axis in cost.factors):
        raise ValueError(
            f"the {rule} is not defined for {cost!r}: its outputs have no positions on a line or a "
            "grid. Use rule='cost', which returns the output of least expected cost. On a tree, it "
            "is the median."
        )
