"""Columns of a table as features of a model.

The kind of a column (numbers, dates, categories) is decided once, from the whole table. What is
learnt from its values, an `Encoder` learns: a transformer for scikit-learn's pipelines, so that
validations learn categories and medians from their training folds.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, final

import numpy as np
import pandas as pd
from pandas.api import types
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from geosoftmax_experiments import cells
from geosoftmax_experiments.cells import listed
from geosoftmax_experiments.tables import Table

__all__ = ["Column", "Encoder", "learn_columns", "read_columns", "row_number"]

#: Words with more values than this are names of samples, not categories.
MOST_CATEGORIES = 100
#: Rows that are looked at for what words may stand for.
SOME_ROWS = 1000
#: How dates may be written: for `pandas.to_datetime`, and for readers.
_DAYS = {"%d.%m.%Y": "day.month.year", "%d/%m/%Y": "day/month/year", "%m/%d/%Y": "month/day/year"}
_DAYS |= {form.replace("/", "-"): text.replace("/", "-") for form, text in _DAYS.items()}
_TIMES = {"": "", " %H:%M": " hour:minute", " %H:%M:%S": " hour:minute:second"}
DATES = {"ISO8601": "year-month-day"} | {
    day + time: words + more for day, words in _DAYS.items() for time, more in _TIMES.items()
}
_MONTHS = "jan|feb|m[aä]r|apr|ma[iy]|jun|jul|aug|sep|o[ck]t|nov|de[cz]"
#: What cells of words may stand for: how they look, and what to do about it.
ALIKE = {
    "dates or times": (
        r"\d+:\d\d(:\d\d)?|\d\d?([./-])\d\d?\2\d\d( .*)?"
        rf"|\d+\W*({_MONTHS}).*|({_MONTHS})\w*\W*\d.*",
        "Write dates as 2026-01-31, or leave the column out with --ignore.",
    ),
    "numbers with units or thousands marks": (
        r"[^\w.,]*\d[\d.,'’ ]*[^\W\d_]{0,4}[^\w.,]*",
        "Write plain numbers: 1,234.5 kg as 1234.5.",
    ),
}


@dataclass(frozen=True)
class Column:
    """A column of features: its kind, and what an `Encoder` has learnt of it.

    Parameters
    ----------
    name : str
    kind : {"number", "date", "category"}
        Dates become numbers, days since 1970.
    dates : str
        How dates are written.
    categories : tuple of str, optional
    fill : float or str, optional
        What stands for a missing value: the median, or the most frequent category.
    """

    name: str
    kind: str = "number"
    dates: str = ""
    categories: tuple[str, ...] | None = None
    fill: float | str | None = None

    @property
    def features(self) -> list[str]:
        """The names of its features: one for each category."""
        if self.categories is None:
            return [self.name]
        return [f"{self.name} = {category}" for category in self.categories]


def learn_columns(table: Table, notes: list[str], problems: dict[str, str]) -> list[Column]:
    """Decide which columns are numbers, dates and categories.

    What a user should know is added to `notes`, and what is wrong, with its remedy, to `problems`.
    """
    columns, empty = [], []
    for name, values in table.cells.items():
        column = _learn_column(str(name), values, table.decimal, notes, problems)
        if column is None:
            empty.append(name)
        else:
            columns.append(column)
    if empty:
        notes.append(f"Columns without values are left out: {listed(map(repr, empty))}.")
    dates = [
        f"{column.name!r} ({DATES[column.dates]})" for column in columns if column.kind == "date"
    ]
    if dates:
        notes.append(f"Dates are read as numbers of days: {listed(dates)}.")
    return columns


def _number_rows(numbers: Any) -> bool:
    """Whether a column counts: whole numbers, each one more than the last."""
    return len(numbers) >= 10 and bool((numbers.diff().iloc[1:] == 1).all())


def _learn_column(
    name: str, values: Any, decimal: str, notes: list[str], problems: dict[str, str]
) -> Column | None:
    if types.is_datetime64_any_dtype(values.dtype):
        return Column(name, "date", next(iter(DATES)))
    chosen = isinstance(values.dtype, pd.CategoricalDtype)
    numbers, wrong = cells.numbers(values, decimal)
    if not (chosen or wrong.any()):
        if _number_rows(numbers):
            notes.append(
                f"{name!r} numbers the rows, and is used as a feature: leave it out with --ignore."
            )
        return Column(name) if numbers.notna().any() else None
    text = cells.words(values).dropna()
    dates = [] if chosen else [form for form in DATES if _are_dates(text, form)]
    if len(dates) > 1:
        what = f"{name!r} holds dates that may be day/month or month/day"
        problems[what] = "Write dates as 2026-01-31, or leave the column out with --ignore."
    if dates:
        return Column(name, "date", dates[0])
    number = text.nunique()
    nearly = None if chosen else _nearly(text, values, wrong)
    if nearly is not None:
        what, bad = nearly
        strange = f"row {row_number(bad, bad)} holds {listed([values[bad].iloc[0]])!r}"
        if number > MOST_CATEGORIES:
            problems[f"{name!r} holds {what}, but {strange}"] = "Correct or empty such cells."
        else:
            notes.append(f"{name!r} is read as categories, not as {what}: {strange}.")
    elif not chosen and (alike := _alike(text)) is not None:
        what = f"look like {alike}, as {listed(text.iloc[:1])!r}"
        if number > MOST_CATEGORIES:
            problems[f"the cells of {name!r} {what}"] = ALIKE[alike][1]
        else:
            notes.append(f"{name!r} is read as categories; its cells {what}.")
    elif number > MOST_CATEGORIES:
        what = f"{name!r} holds {number} different words"
        problems[what] = "Leave words out with --ignore, and names of samples with --id."
    elif 10 < number == len(text):
        notes.append(f"{name!r} has another word in each row: --id {name} leaves it out.")
    return Column(name, "category")


def _nearly(text: pd.Series, values: Any, wrong: Any) -> tuple[str, Any] | None:
    """Return what at least half of the cells are, and which cells are not; None if neither."""
    if max(cells.numbers(text, mark)[0].notna().mean() for mark in ".,") >= 0.5:
        return "numbers", wrong
    some = text.iloc[:SOME_ROWS]
    shares = {form: cells.days(some, form)[0].notna().mean() for form in DATES}
    form = max(shares, key=lambda form: shares[form])
    bad = cells.days(values, form)[1] if shares[form] >= 0.5 else None
    return None if bad is None or not bad.any() else ("dates", bad)


def _alike(text: pd.Series) -> str | None:
    """Return what at least half of the cells look like, for a reader, if anything."""
    some = text.iloc[:SOME_ROWS].str.lower().str[:40]  # patterns take long for long cells
    for what, (look, _) in ALIKE.items():
        if some.str.fullmatch(look).mean() >= 0.5:
            return what
    return None


def _are_dates(text: pd.Series, form: str) -> bool:
    return not any(cells.days(part, form)[1].any() for part in (text.iloc[:1], text))


def read_columns(table: Table, columns: Sequence[Column], problems: dict[str, str]) -> pd.DataFrame:
    """Return numbers, days and words; cells that are none are problems."""
    parts = {}
    for column in columns:
        values: Any = table.cells[column.name]
        if column.kind == "category":
            parts[column.name] = cells.words(values)
            continue
        dates = column.kind == "date"
        found, wrong = (
            cells.days(values, column.dates) if dates else cells.numbers(values, table.decimal)
        )
        wrong |= np.isinf(found)
        if wrong.any():
            cell = listed([values[wrong].iloc[0]])
            wanted = f"dates, {DATES[column.dates]}" if dates else "finite numbers"
            what = (
                f"{column.name!r} must hold {wanted}, but row {row_number(wrong, wrong)} holds "
                f"{cell!r}"
            )
            problems[what] = (
                "Write all dates in that way." if dates
                else "Correct such cells: numbers have no thousands marks."
            )  # fmt: skip
        parts[column.name] = found
    return pd.DataFrame(parts, index=table.cells.index)


def row_number(values: pd.DataFrame | pd.Series, where: Any) -> int:
    """Return the number of the first such row, from 1 on."""
    return int(values.index[np.asarray(where)][0]) + 1


@final
class Encoder(TransformerMixin, BaseEstimator):
    """Numbers for a model: missing values filled in, one feature of 0 and 1 for each category.

    Parameters
    ----------
    columns : sequence of Column
        The columns to encode. Categories that they have are kept, others are learnt.

    Attributes
    ----------
    columns_ : list of Column
        With the categories and the values for missing cells that were learnt.

    Examples
    --------
    >>> import pandas as pd
    >>> X = pd.DataFrame({"size": [1.0, float("nan"), 3.0], "colour": ["red", "blue", "red"]})
    >>> encoder = Encoder([Column("size"), Column("colour", "category")])
    >>> encoder.fit_transform(X)
    array([[1., 0., 1.],
           [2., 1., 0.],
           [3., 0., 1.]])
    >>> Encoder.restore(encoder.columns_).transform(X.assign(colour="green"))[0]
    array([1., 0., 0.])
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = columns

    @classmethod
    def restore(cls, columns: Sequence[Column]) -> Self:
        """Return an encoder that has learnt these: it is fitted to one row of what fills gaps."""
        empty = {"category": "", "number": 0.0, "date": 0.0}
        row = {c.name: [empty[c.kind] if c.fill is None else c.fill] for c in columns}
        return cls(columns).fit(pd.DataFrame(row))

    def fit(self, X: pd.DataFrame, y: Any = None) -> Self:
        """Learn categories, medians and most frequent categories."""
        blocks = itertools.groupby(self.columns, lambda column: column.kind == "category")
        groups = [list(group) for _, group in blocks]
        steps = [
            (str(k), _block(group), [column.name for column in group])
            for k, group in enumerate(groups)
        ]
        self.transformer_ = ColumnTransformer(steps).fit(X)
        self.columns_ = []
        for k, group in enumerate(groups):
            found: Any = self.transformer_.named_transformers_[str(k)]
            for j, column in enumerate(group):
                if column.kind == "category":
                    learnt = tuple(found[1].categories_[j].tolist())
                    column = replace(column, categories=learnt, fill=found[0].statistics_[j])
                else:
                    column = replace(column, fill=float(found.statistics_[j]))
                self.columns_.append(column)
        return self

    def transform(self, X: pd.DataFrame) -> np.ndarray:
        """Return the features, of shape (n_samples, n_features)."""
        return np.asarray(self.transformer_.transform(X), dtype=np.float64)


def _block(columns: list[Column]) -> Any:
    """Return the transformer of columns of one kind."""
    if columns[0].kind != "category":
        return SimpleImputer(strategy="median", keep_empty_features=True)
    given = [column.categories for column in columns]
    categories: Any = "auto" if None in given else [np.array(one, object) for one in given]
    return make_pipeline(
        SimpleImputer(strategy="most_frequent", keep_empty_features=True),
        OneHotEncoder(categories=categories, handle_unknown="ignore", sparse_output=False),
    )
