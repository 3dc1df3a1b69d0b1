"""Reading what users pass to the estimators: the order of the classes, the cost, numbers."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sklearn.utils import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor

from geosoftmax.costs import DenseCost, LineCost, ZeroOneCost
from geosoftmax.costs.base import Cost

NAMED_COSTS = ("squared", "absolute", "zero-one")
DECISIONS = ("auto", "median", "mean", "mode", "cost", "scores")


def check_labels_present(y: Any) -> None:
    """Refuse missing labels, and say where the first is."""
    typed = hasattr(y, "dtype") or hasattr(y, "__array__")
    # Made an array of text, a list would have "nan" for NaN.
    labels = np.asarray(y) if typed else np.asarray(y, dtype=object)
    if labels.ndim == 0 or labels.dtype.kind not in "fmMO":
        return
    if labels.dtype.kind == "O":
        missing = np.array([_is_missing(label) for label in labels.ravel()], dtype=bool)
    else:
        missing = np.isnan(labels).ravel()
    if missing.any():
        count = int(missing.sum())
        row = int(missing.reshape(len(labels), -1).any(1).argmax())
        raise ValueError(
            f"y has {count} missing label{'' if count == 1 else 's'} (None or NaN), the first in "
            f"row {row}, counted from 0. Leave out the samples without a label."
        )


def _is_missing(label: Any) -> bool:
    if label is None:
        return True
    if isinstance(label, np.ndarray):
        return False
    try:
        return bool(label != label)
    except TypeError:  # pandas.NA is neither equal nor unequal to itself
        return True


def categories_of(y: Any) -> Any:
    """Return the categories of an ordered pandas categorical, in their order; else None."""
    kind: Any = getattr(y, "dtype", None)
    return kind.categories if getattr(kind, "ordered", False) else None


def read_order(y: Any, classes: Any, cost: Any) -> Any:
    """Return the labels in the order of the outputs of the cost, or None if it is not known.

    The order comes from the names of a cost (a taxonomy and a pandas table have them), else from
    `classes`, else from an ordered categorical.
    """
    names = _names_of(cost)
    if names is None:
        return categories_of(y) if classes is None else classes
    listed = list(classes) if np.iterable(classes) else classes
    if classes is not None and listed != list(names):
        raise ValueError(
            f"classes is {listed}, but the cost names its outputs {list(names)}. Do not "
            "pass `classes`: labels are then matched by these names."
        )
    unknown = sorted(set(np.unique(np.asarray(y)).tolist()) - set(names), key=str)
    if unknown:
        raise ValueError(
            f"y has labels that the cost does not name: {unknown[:10]}; it names {list(names)}."
        )
    return names


def _names_of(cost: Any) -> tuple[Any, ...] | None:
    given = [_names_of_outputs(one) for one in read_costs(cost)]
    named = list(dict.fromkeys(tuple(names) for names in given if names is not None))
    if len(named) > 1:
        raise ValueError(
            "the costs name their outputs differently, or in another order. Pass costs with the "
            "same names, in the same order."
        )
    return named[0] if named else None


def _names_of_outputs(cost: Any) -> Any:
    """Return the names that a cost has, or the labels of a pandas table."""
    columns = getattr(cost, "columns", None)
    if columns is None:
        return getattr(cost, "names", None)
    rows, columns = cost.index.tolist(), columns.tolist()
    if columns == list(range(len(columns))) == rows:  # as a table has without labels
        return None
    if rows != columns:
        raise ValueError(
            f"the rows of the cost are labelled {rows}, but its columns {columns}. Give both the "
            "classes, in the same order: C.loc[names, names]."
        )
    return rows


def warn_of_alphabet(y: np.ndarray, order: Any, cost: Any) -> None:
    """Warn if positions matter, and only the alphabet gives them."""
    if order is not None or not any(map(_by_position, read_costs(cost))):
        return
    found = np.unique(y)
    if len(found) > 2 and found.dtype.kind in "UO" and isinstance(found[0], str):
        warnings.warn(
            f"the classes are in alphabetical order: {found.tolist()[:10]}. This cost depends on "
            "their order. Name the classes in order in `classes`, or use an ordered pandas "
            "categorical.",
            UserWarning,
            stacklevel=4,
        )


def warn_of_gaps(labels: np.ndarray, cost: Any) -> None:
    """Warn if labels are unevenly spaced numbers, and a named cost spaces them evenly."""
    named = [one for one in read_costs(cost) if isinstance(one, str) and one != "zero-one"]
    if not named or len(labels) < 3 or labels.dtype.kind not in "iuf":
        return
    gaps = np.diff(labels.astype(np.float64))
    if gaps.max() > (1 + 1e-6) * gaps.min():
        power = 1 if named[0] == "absolute" else 2
        warnings.warn(
            f"the labels {labels.tolist()[:10]} are not evenly spaced, but are taken as 0, 1, 2, "
            f"…. If their distances matter, pass cost=LineCost(np.unique(y), p={power}). If only "
            "their order matters, or if some classes do not occur here, name all classes in "
            "`classes`.",
            UserWarning,
            stacklevel=4,
        )


def _by_position(cost: Any) -> bool:
    if isinstance(cost, str):
        return cost != "zero-one"
    # If a cost has names, these have given the order already.
    return not isinstance(cost, Cost) or cost.structure != "equal"


def read_classes(y: np.ndarray, classes: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the classes in their order, and the position of each label of `y` among them."""
    check_classification_targets(y)
    found, target = np.unique(y, return_inverse=True)
    if classes is None:
        return found, target
    if isinstance(classes, str):
        listed = [label.strip() for label in classes.split(",")]
        raise ValueError(f"classes must be a list of labels, such as {listed}; got {classes!r}.")
    if isinstance(classes, (set, frozenset)):
        raise ValueError(
            "classes must be a list of labels in their order; got a set, which has none."
        )
    ordered = np.asarray(classes)
    if ordered.ndim == 0:
        raise ValueError(
            f"classes must be a list of labels; got {classes!r}. Name the labels in their order, "
            f"such as {found.tolist()[:10]}."
        )
    if ordered.ndim != 1:
        raise ValueError(
            f"classes must be a list of labels; got an array with {ordered.ndim} axes."
        )
    place = {label: k for k, label in enumerate(ordered.tolist())}
    if len(place) < len(ordered):
        raise ValueError(f"classes has a label twice: {ordered.tolist()}.")
    unknown = [label for label in found.tolist() if label not in place]
    if unknown:
        remedy = "Add them to classes, in order, or remove these samples."
        if unknown == list(range(len(unknown))):
            remedy = (
                "If a meta-estimator such as VotingClassifier numbered them, number the labels "
                "yourself, 0, 1, 2, … in their order, and leave `classes` out."
            )
        raise ValueError(
            f"y has labels that are not in classes: {unknown}; classes is {ordered.tolist()}. "
            f"{remedy}"
        )
    return ordered, np.array([place[label] for label in found.tolist()])[target]


def read_cost(cost: Any, scale: Any, n_classes: int, name: str = "cost") -> Cost:
    """Return ``scale · cost`` between the classes."""
    factor = read_number("scale", scale, positive=True)
    if isinstance(cost, str):
        if cost not in NAMED_COSTS:
            named = ", ".join(map(repr, NAMED_COSTS))
            raise ValueError(f"{name} must be {named}, a matrix or a Cost; got {cost!r}.")
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
        if all(isinstance(one, (str, Cost)) or np.ndim(one) == 2 for one in cost):
            return list(cost)
    return [cost]


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


def measure_of(decision: str, cost: Cost) -> Cost:
    """Return the cost of errors whose expected value a decision minimises.

    Medians and means use the positions of the cost, or ranks if it has none.
    """
    if decision == "cost":
        return cost
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
        if isinstance(class_weight, str):  # "balanced", among the classes that occur
            seen = np.unique(target[weight > 0]) if (weight > 0).any() else np.unique(target)
            of_class = np.zeros(len(classes))
            of_class[seen] = compute_class_weight(
                class_weight, classes=classes[seen], y=y, sample_weight=weight
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
