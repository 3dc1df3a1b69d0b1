"""Reading what users pass to the estimators: costs, decisions, numbers, weights."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sklearn.utils import compute_class_weight
from torch import Tensor

from geosoftmax.costs import DenseCost, LineCost, ZeroOneCost
from geosoftmax.costs.base import Cost
from geosoftmax.learnt import LearntCost
from geosoftmax.solvers.plans import PLANS

NAMED_COSTS = ("squared", "absolute", "zero-one")
DECISIONS = ("auto", "median", "mean", "mode", "cost", "scores")


def read_cost(cost: Any, scale: Any, n_classes: int, name: str = "cost") -> Cost:
    """Return ``scale · cost`` between the classes."""
    factor = read_number("scale", scale, positive=True)
    wanted = f"{name} must be {', '.join(map(repr, NAMED_COSTS))}, a matrix or a Cost"
    if isinstance(cost, LearntCost):
        raise TypeError(
            f"{wanted}; got {cost!r}, which modules of geosoftmax.nn learn. Pass its attribute "
            "`cost`, the current cost."
        )
    if _is_list_of_costs(cost):
        raise ValueError(
            f"{name} must be one cost; got a list of {len(cost)}. GeometricClassifierCV chooses "
            "among a list of costs."
        )
    if isinstance(cost, str):
        if cost not in NAMED_COSTS:
            raise ValueError(f"{wanted}; got {cost!r}.")
        if cost == "zero-one":
            return ZeroOneCost(n_classes) * factor
        return LineCost(n_classes, p=2 if cost == "squared" else 1) * factor
    if isinstance(cost, Cost):
        if cost.batch_shape:
            raise ValueError(f"{name} must be one cost for all samples; got {cost!r}.")
        found, kept = cost.shape, cost.detach().to("cpu")
    else:
        matrix = np.asarray(cost, dtype=np.float64)
        found = matrix.shape[:1] if matrix.ndim == 2 else matrix.shape
        kept = None if found != (n_classes,) else DenseCost(matrix)
    if kept is None or found != (n_classes,):
        raise ValueError(
            f"{name} is between outputs of shape {tuple(found)}, but there are {n_classes} "
            "classes. If some classes do not occur in y, name all of them, in order, in `classes`."
        )
    return kept * factor


def read_costs(cost: Any) -> list[Any]:
    """Return a list of candidate costs, which may be a single one."""
    if isinstance(cost, (list, tuple)):
        if len(cost) == 0:
            raise ValueError("cost is an empty list; pass at least one cost.")
        if _is_list_of_costs(cost) or all(np.ndim(one) == 2 for one in cost):
            return list(cost)
    return [cost]


def _is_list_of_costs(cost: Any) -> bool:
    """Return whether at least one of a list can only be a cost, and not a row of a matrix."""
    known = (str, Cost, LearntCost)
    return isinstance(cost, (list, tuple)) and any(isinstance(one, known) for one in cost)


def read_decisions(decision: Any) -> list[Any]:
    """Return a list of candidate decision rules, which may be a single one."""
    if isinstance(decision, str) or np.ndim(decision) != 1:
        return [decision]
    if len(decision) == 0:
        raise ValueError("decision is an empty list; pass at least one decision.")
    return list(decision)


def rules_for(decision: Any, costs: Sequence[Cost]) -> list[str]:
    """Return the decision rules to choose from, each once."""
    return list(dict.fromkeys(rule_for(one, costs) for one in read_decisions(decision)))


def rule_for(decision: Any, costs: Sequence[Cost]) -> str:
    """Return the decision rule for candidate costs; resolve "auto"."""
    if not isinstance(decision, str) or decision not in DECISIONS:
        named = ", ".join(map(repr, DECISIONS))
        raise ValueError(f"decision must be one of {named}; got {decision!r}.")
    rule = str(decision)
    on_tree = any(cost.structure == "tree" for cost in costs)
    if rule in ("median", "mean") and on_tree:
        raise ValueError(
            f"decision={decision!r} needs ordered classes, but the leaves of a tree have no order. "
            "Pass decision='cost' (least expected distance in the tree) or 'mode'."
        )
    if rule != "auto":
        return rule
    on_line = any(cost.positions is not None for cost in costs)
    if on_line and not on_tree:
        return "median"
    return "cost" if len(costs) == 1 else "mode"  # different costs cannot be compared


def by_rank(decision: Any, cost: Any) -> bool:
    """Return whether a decision counts in ranks, or positions; on trees it is refused later."""
    rules = [one for one in read_decisions(decision) if isinstance(one, str)]
    on_tree = any(getattr(one, "structure", None) == "tree" for one in read_costs(cost))
    return not on_tree and ("median" in rules or "mean" in rules)


def measure_of(decision: str, cost: Cost) -> Cost:
    """Return the cost of errors whose expected value a decision minimises.

    Medians and means use the positions of the cost, or ranks if it has none.
    """
    if decision == "cost":
        return cost
    return PLANS.get(cost, ("errors", decision), lambda: _errors_of(decision, cost))


def _errors_of(decision: str, cost: Cost) -> Cost:
    if decision in ("mode", "scores"):
        return ZeroOneCost(cost.size)
    positions = places_of(cost)
    p = 1 if decision == "median" else 2
    return LineCost(cost.size if positions is None else positions, p=p)


def places_of(cost: Cost) -> Tensor | None:
    """Return the positions of the classes, or None if they are not on a line."""
    return cost.factors[0].positions if len(cost.shape) == 1 else None


def common_measure(decision: str, costs: Sequence[Cost]) -> Cost:
    """Return the cost of errors that compares settings with different costs."""
    placed = [cost for cost in costs if places_of(cost) is not None]
    first, *others = [measure_of(decision, cost) for cost in placed or costs]
    if decision == "cost" and len(costs) > 1:
        raise ValueError(
            "decision='cost' measures errors by each cost itself, so several costs cannot be "
            "compared. Pass scoring, or one cost."
        )
    if any(not torch.equal(first.matrix(), other.matrix()) for other in others):
        raise ValueError(
            f"the costs put the classes at different positions, so errors of the {decision} "
            "cannot be compared. Pass scoring, or costs with the same positions."
        )
    return first


def read_number(name: str, value: Any, *, positive: bool = False) -> float:
    """Return a finite number that is non-negative, or positive."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        number = float(value)
        if np.isfinite(number) and (number > 0 or (number == 0 and not positive)):
            return number
    wanted = "positive" if positive else "non-negative"
    raise ValueError(f"{name} must be a {wanted} number; got {value!r}.")


def read_numbers(name: str, values: Any, *, positive: bool = False) -> list[float]:
    """Return a list of at least one such number."""
    if isinstance(values, str) or np.ndim(values) != 1 or len(values) == 0:
        raise ValueError(f"{name} must be a list of at least one number; got {values!r}.")
    return [read_number(f"{name}[{k}]", value, positive=positive) for k, value in enumerate(values)]


def read_flag(name: str, value: Any) -> bool:
    """Return True or False."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise ValueError(f"{name} must be True or False; got {value!r}.")


def read_count(name: str, value: Any) -> int:
    """Return a positive integer."""
    if isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= 1:
        return int(value)
    raise ValueError(f"{name} must be a positive integer; got {value!r}.")


def weigh(
    weight: np.ndarray, class_weight: Any, classes: np.ndarray, target: np.ndarray, y: np.ndarray
) -> np.ndarray:
    """Return sample weights times class weights; check that two classes have positive weight."""
    if class_weight is not None:
        if isinstance(class_weight, str):  # "balanced", among the classes that have a weight
            used = weight > 0
            seen = np.unique(target[used])
            of_class = np.zeros(len(classes))
            of_class[seen] = compute_class_weight(
                class_weight, classes=classes[seen], y=y[used], sample_weight=weight[used]
            )
        else:
            of_class = compute_class_weight(class_weight, classes=classes, y=y)
        if not (np.isfinite(of_class) & (of_class >= 0)).all():
            raise ValueError(
                "class_weight must be finite and at least 0 for every class; got "
                f"{dict(zip(classes.tolist(), of_class.tolist(), strict=True))}."
            )
        weight = weight * of_class[target]
    seen = np.unique(target[weight > 0])
    if len(seen) < 2:
        held = f"only one class, {classes.tolist()[seen[0]]!r}" if len(seen) else "no class"
        raise ValueError(
            "the fit needs samples of at least 2 classes; those with a positive weight have "
            f"{held}."
        )
    return weight
