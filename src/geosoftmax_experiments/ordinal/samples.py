"""A user's table as samples: features, and classes in their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from geosoftmax_experiments import cells, tables
from geosoftmax_experiments.cells import listed
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.ordinal.encoding import Column, learn_columns, read_columns, row_number
from geosoftmax_experiments.tables import GUESSED, Table, TextFormat

__all__ = [
    "MOST_CLASSES",
    "Samples",
    "check_columns",
    "read_classes",
    "read_features",
    "read_samples",
]

#: A target with more values than this is not a set of classes.
MOST_CLASSES = 50


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
    rows: Any = table.cells
    check_columns(path, table, (target, *ignore))
    classes, y = read_classes(rows[target], order, table.decimal)
    notes = [*table.notes, *_uneven(classes, order)]
    table = table._replace(cells=rows.drop(columns=[target, *ignore]))
    copies = [name for name in table.cells if table.cells[name].equals(rows[target])]
    problems = {
        f"{name!r} is a copy of the target": f"Leave it out with --ignore {name}."
        for name in copies
    }
    columns = learn_columns(table, notes, problems)
    X = read_columns(table, columns, problems)
    known = pd.Series(y, X.index, name=target).where(y >= 0)
    checked = X if missing == "impute" else pd.concat([known, X], axis=1)
    complete = _complete(checked, missing, notes, problems) & (y >= 0)
    _raise_all(path, problems, table.notes)
    if not columns:
        raise UserError("There are no columns beside the target.", "Give features to learn from.")
    if not complete.all():
        notes.append(f"Rows left out for missing values: {(~complete).sum()}.")
    X, y = X.loc[complete], y[complete]
    if len(np.unique(y)) < 2:
        raise UserError(f"The target {target!r} has one class only.", "Give samples of more.")
    empty = [label for k, label in enumerate(classes) if k not in y]
    if empty:
        notes.append(
            f"No samples: {listed(empty)}. Such classes keep their place in the order; their "
            "probability may be 0."
        )
    return Samples(X, y, classes, columns, notes)


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


# ------------------------------------------------------------------ classes


def _uneven(classes: Sequence[Any], order: Sequence[str] | None) -> list[str]:
    """Say so where classes are numbers whose distances do not count."""
    if order is not None or any(isinstance(label, (str, bool)) for label in classes):
        return []
    if len(np.unique(np.round(np.diff(classes), 9))) < 2:
        return []
    return [
        f"The classes {listed(classes)} are at uneven distances. Their order counts, not their "
        "values: errors are counted in ranks."
    ]


def read_classes(
    target: pd.Series, order: Sequence[str] | None, decimal: str = "."
) -> tuple[list[Any], np.ndarray]:
    """Return the classes in their order, and the position of each sample's; -1 where it is missing.

    The order is the one given; else that of an ordered categorical column; else that of numbers.
    Empty cells are missing. NA, None and null are classes, unless all others are numbers and the
    order does not name them.
    """
    text = cells.words(target)
    found = list(dict.fromkeys(text.dropna()))
    named = [*(order or ())]
    rest = [word for word in found if word.lower() not in cells.NO_VALUE or word in named]
    if rest and not any(isinstance(key, str) for key in _keys(rest, decimal).values()):
        found = rest
    keys = _keys([*found, *named], decimal)
    if len(found) > MOST_CLASSES:
        raise UserError(
            f"The target {target.name!r} has {len(found)} values, which are not classes.",
            "Round or bin it to a few ordered classes first.",
        )
    if order is not None:
        classes = _given_order(target, found, named, keys)
    elif isinstance(target.dtype, pd.CategoricalDtype) and target.dtype.ordered:
        keys = {word: word for word in map(str, target.dtype.categories)}
        classes = list(keys)
    elif not any(isinstance(keys[word], str) for word in found):
        classes = sorted({keys[word] for word in found})
    else:
        raise UserError(
            f"The order of the target's values is not known: {listed(found, MOST_CLASSES)}.",
            "Give it from low to high, separated by commas, as in --order bad,fair,good",
        )
    place = {word: classes.index(keys[word]) for word in found}
    return classes, text.map(place).fillna(-1).to_numpy(dtype=int)


def _keys(found: Any, decimal: str) -> dict[str, Any]:
    """Return what words stand for: all truth values, all numbers, or themselves."""
    text = pd.Series(sorted(set(found)), dtype=object)
    values, wrong = cells.numbers(text, decimal)
    if wrong.any() or values.isna().any() or np.isinf(values).any():
        return {word: word for word in text}
    if text.str.lower().isin(("true", "false")).all():
        return {word: word.lower() == "true" for word in text}
    return {w: int(v) if v == int(v) else v for w, v in zip(text, values.tolist(), strict=True)}


def _given_order(
    target: pd.Series, found: list[str], order: list[str], keys: dict[str, Any]
) -> list[Any]:
    classes = [keys[word] for word in order]
    if len(set(classes)) < len(classes):
        raise UserError(f"--order names a class twice: {listed(order, 50)}.", "Name each once.")
    unknown = [word for word in found if keys[word] not in classes]
    if unknown:
        raise UserError(
            f"The target {target.name!r} holds {listed(unknown)}, which --order does not name.",
            "Name all classes, from low to high; empty the cells that are missing values.",
        )
    return classes
