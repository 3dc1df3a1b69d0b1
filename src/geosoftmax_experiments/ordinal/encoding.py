"""A user's table: read, checked, and turned into numbers.

Numbers stay; columns of words or categories become one column of 0 and 1 for each value. Nothing is
filled in or dropped silently.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.tables import read_csv

__all__ = ["Column", "complete_rows", "encode", "learn_columns", "read_classes", "read_table"]

#: Words with more values than this are names of samples, not categories.
MOST_CATEGORIES = 100
#: A target with more values than this is not a set of classes.
MOST_CLASSES = 50
#: A table of Parquet with more values than this is refused before it is unpacked.
MOST_VALUES = 50_000_000


@dataclass(frozen=True)
class Column:
    """A column of the table: a number, or one of some `categories` (None for numbers)."""

    name: str
    categories: tuple[str, ...] | None = None


def read_table(path: Path) -> pd.DataFrame:
    """Read a CSV or Parquet file."""
    readers = {".csv": read_csv, ".parquet": _read_parquet, ".pq": _read_parquet}
    reader: Any = readers.get(path.suffix.lower())
    if reader is None:
        raise UserError(
            f"{path} is neither CSV nor Parquet by its name.",
            f"Let it end in {', '.join(readers)}.",
        )
    try:
        table = reader(path)
    except FileNotFoundError:
        raise UserError(f"There is no file {path}.", "Check the path.") from None
    except UserError:
        raise
    except Exception as error:  # whatever a damaged file makes of pandas and pyarrow
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(f"Could not read {path}: {reason}", "Is the file complete?") from None
    if table.empty:
        raise UserError(f"{path} holds no rows.", "Give a table with a header and samples.")
    twice = [str(name) for name in table.columns[table.columns.duplicated()]]
    if twice:
        raise UserError(f"{path} has columns of the same name: {', '.join(twice)}.", "Rename them.")
    table.columns = [str(name) for name in table.columns]
    return table


def _read_parquet(path: Path) -> pd.DataFrame:
    """Read a Parquet file, unless it is a small one that unpacks to a table of enormous size."""
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        rows, columns = file.metadata.num_rows, file.metadata.num_columns
    if rows * columns > MOST_VALUES:
        raise UserError(
            f"{path} holds {rows:,} rows of {columns:,} columns; at most {MOST_VALUES:,} values "
            "are read.",
            "Take fewer rows.",
        )
    return pd.read_parquet(path)


def complete_rows(table: pd.DataFrame, path: Path, skip_missing: bool) -> np.ndarray:
    """Return which rows have all values, as a mask.

    Without `skip_missing`, a missing value is an error that names its column.
    """
    complete = table.notna().all(axis=1).to_numpy()
    if skip_missing:
        if not complete.any():
            raise UserError(f"Every row of {path} misses a value.", "Fill them in.")
        return complete
    counts: Any = table.isna().sum()
    found = [f"{name} ({count})" for name, count in counts.items() if count]
    if found:
        first = int(np.flatnonzero(~complete)[0]) + 1
        raise UserError(
            f"{path} misses values in {', '.join(found)}; the first in row {first}.",
            "Fill them in, or leave such rows out with --skip-missing.",
        )
    return complete


def read_classes(
    target: pd.Series, order: list[str] | None
) -> tuple[list[bool | int | float | str], np.ndarray]:
    """Return the classes in their order, and the class of each sample as an index.

    The order is the one given; else that of an ordered categorical column; else that of numbers.
    """
    found: list[Any] = target.drop_duplicates().tolist()
    if len(found) > MOST_CLASSES:
        raise UserError(
            f"The target {target.name!r} has {len(found)} values, which are not classes.",
            "Round or bin it to a few ordered classes first.",
        )
    if order is not None:
        classes = _given_order(target, found, order)
    elif isinstance(target.dtype, pd.CategoricalDtype) and target.dtype.ordered:
        classes = target.dtype.categories.tolist()
    elif types.is_numeric_dtype(target.dtype):
        classes = sorted(found)
    else:
        raise UserError(
            f"The order of the target's values is not known: {', '.join(map(str, found))}.",
            f"Give it from low to high, as in --order {','.join(sorted(map(str, found)))}",
        )
    place = {label: k for k, label in enumerate(classes)}
    index = np.array([place[label] for label in target.tolist()])
    if len(np.unique(index)) < 2:
        raise UserError(f"The target {target.name!r} has one class only.", "Give samples of more.")
    return classes, index


def _given_order(target: pd.Series, found: list[Any], order: list[str]) -> list[Any]:
    if len(set(order)) < len(order):
        raise UserError(f"--order names a class twice: {','.join(order)}.", "Name each once.")
    by_text = {str(label): label for label in found}
    unknown = [text for text in by_text if text not in order]
    if unknown:
        raise UserError(
            f"The target {target.name!r} holds {', '.join(unknown)}, which --order does not name.",
            "Name all classes, from low to high.",
        )
    return [by_text.get(text, text) for text in order]


def learn_columns(features: pd.DataFrame) -> list[Column]:
    """Decide which columns are numbers and which categories."""
    columns = []
    for name in features.columns:
        values: Any = features[name]
        if types.is_bool_dtype(values.dtype) or types.is_numeric_dtype(values.dtype):
            columns.append(Column(name))
            continue
        if not _is_words(values):
            raise UserError(
                f"The column {name!r} holds {values.dtype}, neither numbers nor words.",
                f"Turn it into numbers, or leave it out with --ignore {name}.",
            )
        categories = tuple(sorted({str(value) for value in values}))
        if len(categories) > MOST_CATEGORIES:
            raise UserError(
                f"The column {name!r} holds {len(categories)} different words.",
                f"If it names the samples, leave it out with --ignore {name}.",
            )
        columns.append(Column(name, categories))
    if not columns:
        raise UserError("There are no columns beside the target.", "Give features to learn from.")
    return columns


def _is_words(values: pd.Series) -> bool:
    return (
        isinstance(values.dtype, pd.CategoricalDtype)
        or types.is_string_dtype(values.dtype)
        or types.is_object_dtype(values.dtype)
    )


def encode(table: pd.DataFrame, columns: list[Column], path: Path) -> np.ndarray:
    """Return the features as numbers: (n_samples, n_features)."""
    absent = [column.name for column in columns if column.name not in table.columns]
    if absent:
        raise UserError(
            f"{path} lacks the columns {', '.join(absent)}.",
            "Give the columns that the model was fitted with; others may be there too.",
        )
    parts = []
    for column in columns:
        values: Any = table[column.name]
        if column.categories is None:
            parts.append(_numbers(values, path)[:, None])
            continue
        words = values.astype(str).to_numpy()
        unknown = sorted(set(words) - set(column.categories))
        if unknown:
            raise UserError(
                f"{path}: the column {column.name!r} holds {', '.join(unknown[:5])}, which the "
                f"samples of the fit did not.",
                f"They had {', '.join(column.categories[:8])}. Correct it, or fit again.",
            )
        parts.append((words[:, None] == np.array(column.categories)).astype(float))
    return np.hstack(parts)


def _numbers(values: pd.Series, path: Path) -> np.ndarray:
    try:
        numbers = values.to_numpy(dtype=np.float64)
    except (TypeError, ValueError):
        raise UserError(
            f"{path}: the column {values.name!r} must hold numbers.", "It did for the fit."
        ) from None
    if not np.isfinite(numbers).all():
        raise UserError(
            f"{path}: the column {values.name!r} holds infinite numbers.", "Correct these rows."
        )
    return numbers
