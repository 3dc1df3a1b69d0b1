"""The classes: their labels, and their order."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets

from geosoftmax.costs.base import Cost
from geosoftmax.estimators._reading import read_costs


def check_labels(y: Any) -> None:
    """Refuse missing labels, and say where the first is; refuse intervals."""
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
    if labels.size and hasattr(labels.flat[0], "closed"):
        raise ValueError(
            "y holds intervals, as pandas.cut makes them. To name the classes, pass labels=[…] to "
            "pd.cut or pd.qcut. labels=False numbers them."
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
    """Return the categories of an ordered pandas categorical, in their order; else None.

    It may be the one column of a table.
    """
    if len(getattr(y, "columns", ())) == 1 and hasattr(y, "iloc"):
        y = y.iloc[:, 0]
    kind: Any = getattr(y, "dtype", None)
    return kind.categories if getattr(kind, "ordered", False) else None


def read_order(y: Any, classes: Any, costs: list[Any], ranked: bool) -> Any:
    """Return the labels in the order of the outputs of the costs, or None if it is not known.

    The order comes from the names of a cost (a taxonomy and a pandas table have them), else from
    `classes`, else from an ordered categorical. If positions matter, the names must not contradict
    the others; `ranked` says that a decision needs the ranks of the classes.
    """
    names = _names_of(costs)
    stated = categories_of(y) if classes is None else classes
    if names is None:
        return stated
    listed = _listed(stated)
    matters = _order_matters(costs, ranked) and len(names) > 2
    if classes is not None and listed != list(names):
        remedy = "Do not pass `classes`: labels are then matched by these names."
        same = isinstance(listed, list) and sorted(map(str, listed)) == sorted(map(str, names))
        if matters and same:
            remedy = _say_how_to_order(listed)
        raise ValueError(
            f"classes is {listed}, but the cost names its outputs {list(names)}. {remedy}"
        )
    unknown = sorted(set(np.unique(np.asarray(y)).tolist()) - set(names), key=str)
    if unknown:
        raise ValueError(
            f"y has labels that the cost does not name: {unknown[:10]}; it names {list(names)}."
        )
    if matters and stated is not None:
        shared = [label for label in listed if label in names]
        if shared != [name for name in names if name in shared]:
            raise ValueError(
                f"y is an ordered categorical with the order {listed}, but the cost names its "
                f"outputs {list(names)}. {_say_how_to_order(listed)}"
            )
    return names


def _listed(labels: Any) -> Any:
    if hasattr(labels, "tolist"):
        return labels.tolist()
    return list(labels) if np.iterable(labels) else labels


def _say_how_to_order(labels: list[Any]) -> str:
    return (
        "Here the order of the classes matters. Give the cost that order: "
        f"TreeCost.from_dict(tree, order={labels}), or C.loc[order, order] for a table."
    )


def _names_of(costs: list[Any]) -> tuple[Any, ...] | None:
    given = [_names_of_outputs(one) for one in costs]
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


def warn_of_order(y: np.ndarray, order: Any, costs: list[Any], ranked: bool) -> None:
    """Warn if positions matter, and only the alphabet or the names of a cost give them.

    To be called if neither `classes` nor an ordered categorical gives the order.
    """
    found = np.unique(y)
    if len(found) <= 2 or not _order_matters(costs, ranked):
        return
    is_text = found.dtype.kind in "UO" and isinstance(found[0], str)
    if order is None and is_text:
        warnings.warn(
            f"the classes are in alphabetical order: {found.tolist()[:10]}. This cost depends on "
            "their order. Name the classes in order in `classes`, or use an ordered pandas "
            "categorical.",
            UserWarning,
            stacklevel=4,
        )
    elif order is not None and (is_text or list(order) != sorted(order)):
        warnings.warn(
            f"the classes are in the order of the names of the cost: {list(order)[:10]}. The "
            "other costs, or the decision, depend on it. If it is right, pass these names in "
            "`classes`. Otherwise build the cost in the order of the classes: "
            "TreeCost.from_dict(tree, order=[…]).",
            UserWarning,
            stacklevel=4,
        )


def warn_of_gaps(labels: np.ndarray, cost: Any) -> None:
    """Warn if labels are unevenly spaced numbers, and a named cost spaces them evenly."""
    named = [one for one in read_costs(cost) if isinstance(one, str) and one != "zero-one"]
    kind = labels.dtype.kind
    if not named or len(labels) < 3 or kind not in "iufmM":
        return
    shown, positions = labels[:10].tolist(), "np.unique(y)"
    if kind in "mM":  # dates, or times between them
        shown = labels[:10].astype(str).tolist()
        positions = "(np.unique(y) - y.min()) / np.timedelta64(1, 'D')"
    gaps = np.diff(labels if kind in "mM" else labels.astype(np.float64)).astype(np.float64)
    if gaps.max() > (1 + 1e-6) * gaps.min():
        power = 1 if named[0] == "absolute" else 2
        warnings.warn(
            f"the labels {shown} are not evenly spaced, but are taken as 0, 1, 2, …. If their "
            f"distances matter, pass cost=LineCost({positions}, p={power}). If only their order "
            "matters, or if some classes do not occur here, name all classes in `classes`.",
            UserWarning,
            stacklevel=4,
        )


def _order_matters(costs: list[Any], ranked: bool) -> bool:
    """Return whether results depend on the order of classes, beyond their names in a cost."""
    return ranked or any(_by_position(one) for one in costs if _names_of_outputs(one) is None)


def _by_position(cost: Any) -> bool:
    if isinstance(cost, str):
        return cost != "zero-one"
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
    missing = [k for k, label in enumerate(classes) if _is_missing(label)]
    if missing:
        raise ValueError(
            f"classes has a missing label (None or NaN) at position {missing[0]}, counted from 0. "
            "Leave it out."
        )
    place = {label: k for k, label in enumerate(ordered.tolist())}
    if len(place) < len(ordered):
        raise ValueError(f"classes has a label twice: {ordered.tolist()}.")
    unknown = [label for label in found.tolist() if label not in place]
    if unknown:
        remedy = "Add them to classes, in order, or remove these samples."
        if unknown == list(range(len(unknown))):
            remedy = (
                "If scikit-learn numbered them, as in VotingClassifier or cross_val_predict with "
                "method='predict_proba', number the labels yourself, 0, 1, 2, … in their order, "
                "and leave `classes` out."
            )
        raise ValueError(
            f"y has labels that are not in classes: {unknown}; classes is {ordered.tolist()}. "
            f"{remedy}"
        )
    return ordered, np.array([place[label] for label in found.tolist()])[target]
