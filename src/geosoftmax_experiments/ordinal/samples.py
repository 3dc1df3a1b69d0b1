"""A user's table as samples: features, and classes in their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from geosoftmax_experiments import tables
from geosoftmax_experiments.cells import listed
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.ordinal.classes import notes_on_classes, read_classes
from geosoftmax_experiments.ordinal.encoding import Column, learn_columns, read_columns, row_number
from geosoftmax_experiments.tables import GUESSED, Table, TextFormat

__all__ = ["Samples", "check_columns", "read_features", "read_samples"]


@dataclass(frozen=True)
class Samples:
    """Samples of a table: features for an `Encoder`, and positions `y` in `classes`.

    `notes` says, in a line each, what was guessed, changed or left out.
    """

    X: pd.DataFrame
    y: np.ndarray
    classes: list[Any]
    columns: list[Column]
    notes: list[str]


def read_samples(
    path: Path,
    target: str,
    *,
    order: Sequence[str] | None = None,
    ignore: Sequence[str] = (),
    missing: str = "refuse",
    form: TextFormat = GUESSED,
) -> Samples:
    """Read a table of samples.

    Parameters
    ----------
    path : Path
        CSV or Parquet.
    target : str
        The column of the classes.
    order : sequence of str, optional
        The classes from low to high, with those that have no samples. Numbers and ordered
        categoricals have an order of their own.
    ignore : sequence of str
        Columns that are not features.
    missing : {"refuse", "drop", "impute"}
        What to do about missing values. A missing class is never filled in: where features are, its
        sample is dropped.
    form : TextFormat

    Returns
    -------
    Samples
    """
    table = tables.read_table(path, form)
    _check_roles(path, table, target, ignore)
    labels: Any = table.cells[target]
    problems: dict[str, str] = {}
    notes = [*table.notes]
    found = _classes(labels, order, table.decimal, notes, problems)
    classes, y = found or ([], np.zeros(len(labels), dtype=int))
    known = len(notes)
    table = table._replace(cells=table.cells.drop(columns=[target, *ignore]))
    for name in table.cells:
        if table.cells[name].equals(labels):
            problems[f"{name!r} is a copy of the target"] = f"Leave it out with --ignore {name}."
    columns = learn_columns(table, notes, problems)
    X = read_columns(table, columns, problems)
    gaps = pd.Series(y, X.index, name=target).where(y >= 0)
    checked = X if missing == "impute" else pd.concat([gaps, X], axis=1)
    complete = np.asarray(_complete(checked, missing, notes, problems) & (y >= 0))
    seen = np.unique(y[complete if complete.any() else y >= 0])
    if found and len(seen) < 2:
        what = "one class only" if len(seen) else "no values"
        problems[f"the target {target!r} has {what}"] = "Give samples of two classes or more."
    if not columns and not problems:
        problems["there are no columns beside the target"] = "Give features to learn from."
    _raise_all(path, problems, notes[:known])
    notes += _notes_on_samples(X.loc[complete], y, complete, classes)
    return Samples(X.loc[complete], y[complete], classes, columns, notes)


def _tells(column: Any, y: np.ndarray) -> bool:
    """Return whether a column with few values determines the class of every sample."""
    known = column.notna().to_numpy()
    pairs = pd.DataFrame({"value": column[known].to_numpy(), "class": y[known]})
    found: Any = pairs.nunique()
    if not 1 < found["value"] <= len(pairs) / 5 or found["class"] < 2:
        return False
    return len(pairs.drop_duplicates()) == found["value"]


def _check_roles(path: Path, table: Table, target: str, ignore: Sequence[str]) -> None:
    check_columns(path, table, (target, *ignore))
    if target in ignore:
        raise UserError(
            f"{target!r} is the target, and --id or --ignore names it too.",
            "Name other columns there.",
        )


def _classes(
    labels: pd.Series,
    order: Sequence[str] | None,
    decimal: str,
    notes: list[str],
    problems: dict[str, str],
) -> tuple[list[Any], np.ndarray] | None:
    """Read the classes. What is wrong with them is a problem beside those of the columns."""
    try:
        classes, y = read_classes(labels, order, decimal)
    except UserError as error:
        what = error.message.removesuffix(".")
        problems[what[0].lower() + what[1:]] = error.hint
        return None
    notes += notes_on_classes(labels, classes, y, order, decimal)
    return classes, y


def _notes_on_samples(
    X: pd.DataFrame, y: np.ndarray, complete: np.ndarray, classes: list[Any]
) -> list[str]:
    """Say how many rows are left out, and which classes and features tell little."""
    notes = []
    if not complete.all():
        notes.append(f"Rows left out for missing values: {(~complete).sum()}.")
    counts = np.bincount(y[complete], minlength=len(classes))
    empty, single = ([classes[k] for k in np.flatnonzero(counts == n)] for n in (0, 1))
    if empty:
        notes.append(
            f"No samples: {listed(empty)}. Such classes keep their place in the order; their "
            "probability may be 0."
        )
    if single:
        notes.append(
            f"One sample only: {listed(single)}. The scores say little of such classes: where the "
            "sample is predicted, there is none to learn from."
        )
    values: Any = X.nunique(dropna=False)
    constant = [*values.index[values < 2]]
    if len(constant) == len(X.columns):
        notes.append("All features are constant: all samples will be predicted alike.")
    elif constant:
        notes.append(f"Columns with one value only tell nothing: {listed(map(repr, constant))}.")
    notes += [
        f"Each value of {name!r} belongs to one class. If it was derived from the target, leave it "
        f"out with --ignore {name}: scores would be too good to be true."
        for name in X.columns
        if _tells(X[name], y[complete])
    ]
    return notes


def read_features(
    path: Path, table: Table, columns: Sequence[Column], missing: str, unknown: str
) -> tuple[pd.DataFrame, np.ndarray, list[str]]:
    """Return the features of the rows that are complete, which these are, and notes.

    Unknown categories are refused, or ignored: they count as none of those that are known.
    """
    notes: list[str] = []
    absent = [column.name for column in columns if column.name not in table.cells.columns]
    problems: dict[str, str] = {}
    if absent:
        what = f"there is no column {listed(map(repr, absent))}"
        problems[what] = "Give the columns of the fit; others may be there too."
    present = [column for column in columns if column.name in table.cells.columns]
    X: Any = read_columns(table, present, problems)
    for column in present:
        if column.categories is None:
            continue
        strange = X[column.name].notna() & ~X[column.name].isin(column.categories)
        if strange.any():
            values = listed(X.loc[strange, column.name].unique(), 5)
            found = f"{column.name!r} holds {values}, unknown to the model (rows: {strange.sum()})"
            if unknown == "refuse":
                problems[found] = "--unknown ignore takes unknown categories for none."
            else:
                notes.append(f"{found}: taken for no category.")
    complete = _complete(X, missing, notes, problems)
    _raise_all(path, problems, table.notes)
    return X.loc[complete], complete, notes


def check_columns(path: Path, table: Table, names: Sequence[str]) -> None:
    """Refuse names that no column has."""
    absent = [repr(name) for name in names if name not in table.cells.columns]
    if absent:
        found = f"It has {listed(table.cells.columns, 20)}."
        doubt = " Is the --separator right?" if len(table.cells.columns) == 1 else ""
        raise UserError(f"{path} has no column {listed(absent)}.", found + doubt)


def _raise_all(path: Path, problems: dict[str, str], notes: list[str]) -> None:
    """Report all problems at once, in a line, with their remedies and how the table was read."""
    if problems:
        some = [*problems][:20]
        more = [f"and {len(problems) - 20} more"] if len(problems) > 20 else []
        hints = dict.fromkeys([*problems.values(), *notes])
        raise UserError(f"{path}: {'; '.join([*some, *more])}.", " ".join(hints))


def _complete(
    table: pd.DataFrame, missing: str, notes: list[str], problems: dict[str, str]
) -> np.ndarray:
    """Return which rows are to be used; missing values are refused, dropped or noted."""
    gaps = table.isna()
    counts: Any = gaps.sum()
    partial = gaps.any(axis=1).to_numpy()
    complete = ~partial if missing == "drop" else np.ones(len(table), dtype=bool)
    if partial.any():
        found = listed(f"{name!r} ({count})" for name, count in counts.items() if count)
        if missing == "impute":
            notes.append(f"Missing values are filled in: {found}.")
        elif missing == "refuse":
            what = f"values are missing in {found}, the first in row {row_number(table, partial)}"
            problems[what] = (
                "--missing impute fills features in, --missing drop leaves such rows out."
            )
        elif not complete.any():
            problems[f"every row misses a value: {found}"] = "Fill them in, or --missing impute."
    return complete
