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
_TIMES |= {form.replace("H", "I") + " %p": f"{text} am/pm" for form, text in _TIMES.items() if form}
DATES = {"ISO8601": "year-month-day"} | {
    day + time: words + more for day, words in _DAYS.items() for time, more in _TIMES.items()
}
_MONTHS = (
    r"(jan(uary|uar|ner)?|feb(ruary|ruar)?|mar(ch)?|m[aä]rz|mrz|apr(il)?|ma[iy]|june?|juni|july?"
    r"|juli|aug(ust)?|sept?(ember)?|o[ck]t(ober)?|nov(ember)?|de[cz](ember)?)"
)
#: What dates and times look like that are not read, in small letters: 1.2.26, 31 Jan, 3:05 pm.
_LIKE_DATES = (
    r"\d\d?:\d\d(:\d\d)?([.,]\d+)?( ?[ap]m)?"
    r"|\d\d?(?P<a>[./-])\d\d?(?P=a)(\d\d){1,2}([ t,].*)?"
    r"|\d{4}(?P<b>[./-])\d\d?(?P=b)\d\d?([ t].*)?"
    r"|\d\d?/\d{4}|\d{4}-w\d\d(-\d)?"
    rf"|\d\d?\W*{_MONTHS}(?![a-zäöü]).*|{_MONTHS}\b\W+\d.*"
)
_LIKE_NUMBERS = r"[^\w.,]*\d[\d.,'’ ]*[^\W\d_]{0,4}[^\w.,]*"
#: A cell among numbers that is no word: a sign, an error of a spreadsheet, a number with marks.
_NO_WORD = r"[^\w]*|#.*|[-+]?\d+([.,]\d+)+"
#: Remedies.
_WRITE_DATES = "Write dates as 2026-01-31, or leave the column out with --ignore."
_WRITE_NUMBERS = "Write plain numbers: 1,234.5 kg as 1234.5."
#: Beyond it squares overflow.
LARGEST = 1e150


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
    left: dict[str, str] = {}
    found = [
        _learn_column(str(name), values, table.decimal, notes, problems, left)
        for name, values in table.cells.items()
    ]
    columns = [column for column in found if column is not None]
    if empty := [name for name, cell in left.items() if not cell]:
        notes.append(f"Columns without values are left out: {listed(map(repr, empty))}.")
    if strange := [f"{name!r} ({cell})" for name, cell in left.items() if cell]:
        notes.append(
            f"Columns that look like dates or times are left out: {listed(strange)}. Write dates "
            "as 2026-01-31 to have them read."
        )
    dates = [
        f"{column.name!r} ({DATES[column.dates]})" for column in columns if column.kind == "date"
    ]
    if dates:
        notes.append(f"Dates are read as numbers of days: {listed(dates)}.")
    return columns


def _learn_column(
    name: str,
    values: Any,
    decimal: str,
    notes: list[str],
    problems: dict[str, str],
    left: dict[str, str],
) -> Column | None:
    """Return a column, or None for one that is left out: `left` then holds a cell of it, if any."""
    if types.is_datetime64_any_dtype(values.dtype):
        return Column(name, "date", next(iter(DATES)))
    chosen = isinstance(values.dtype, pd.CategoricalDtype)
    numbers, wrong = cells.numbers(values, decimal)
    if not (chosen or wrong.any()):
        if not numbers.notna().any():
            left[name] = ""
            return None
        notes += _notes_on_numbers(name, numbers)
        return Column(name)
    text = cells.words(values).dropna()
    if not chosen:
        dates = [form for form in DATES if _are_dates(text, form)]
        if len(dates) > 1:
            problems[f"{name!r} holds dates that may be day/month or month/day"] = _WRITE_DATES
        if dates:
            return Column(name, "date", dates[0])
        nearly = _are_nearly(name, text, values, wrong, notes, problems)
        if not nearly and _look_like(text, _LIKE_DATES):
            left[name] = listed(text.iloc[:1])
            return None
        if nearly:
            return Column(name, "category")
    _check_words(name, text, chosen, notes, problems)
    return Column(name, "category")


def _notes_on_numbers(name: str, numbers: pd.Series) -> list[str]:
    """Mention numbers that count the rows, and dates that are written as whole numbers."""
    if len(numbers) >= 10 and bool((numbers.diff().iloc[1:] == 1).all()):
        return [f"{name!r} numbers the rows, and is used as a feature: leave it out with --ignore."]
    known = numbers.dropna()
    if known.between(19000101, 21001231).all() and (known % 1 == 0).all():
        written = known.astype(int).astype(str)
        if pd.to_datetime(written, format="%Y%m%d", errors="coerce").notna().all():
            return [
                f"{name!r} is read as numbers; they look like dates, as {written.iloc[0]}: write "
                "them as 2026-01-31 to have them read as days."
            ]
    return []


def _check_words(
    name: str, text: pd.Series, chosen: bool, notes: list[str], problems: dict[str, str]
) -> None:
    """Refuse words that are too many for categories; mention those that may be no categories."""
    number = text.nunique()
    if not chosen and _look_like(text, _LIKE_NUMBERS):
        what = f"look like numbers with units or thousands marks, as {listed(text.iloc[:1])!r}"
        if number > MOST_CATEGORIES:
            problems[f"the cells of {name!r} {what}"] = _WRITE_NUMBERS
        else:
            notes.append(f"{name!r} is read as categories; its cells {what}.")
    elif number > MOST_CATEGORIES:
        what = f"{name!r} holds {number} different words"
        problems[what] = "Leave words out with --ignore, and names of samples with --id."
    elif 10 < number == len(text) and not chosen:
        notes.append(f"{name!r} has another word in each row: --id {name} leaves it out.")


def _are_nearly(
    name: str,
    text: pd.Series,
    values: Any,
    wrong: Any,
    notes: list[str],
    problems: dict[str, str],
) -> bool:
    """Return whether at least half of the cells, but not all, are numbers, or dates of one form.

    Such columns are refused. Up to ten different cells are categories with a line, if the others
    are words: 2, 3, 4, 5more.
    """
    if max(cells.numbers(text, mark)[0].notna().mean() for mark in ".,") >= 0.5:
        others = cells.words(values[wrong])
        if text.nunique() <= 10 and not others.str.fullmatch(_NO_WORD).any():
            what = f"{name!r} is read as categories, not as numbers"
            notes.append(f"{what}: {_strange(values, wrong)}.")
        else:
            what = f"{name!r} holds numbers, but {_strange(values, wrong)}"
            problems[what] = "Correct or empty such cells."
            if others.str.contains(r"\d").any():
                problems[what] += f" {_WRITE_NUMBERS}"
        return True
    some = text.iloc[:SOME_ROWS]
    shares = {form: cells.days(some, form)[0].notna().mean() for form in DATES}
    form = max(shares, key=lambda form: shares[form])
    if shares[form] < 0.5:
        return False
    what = f"{name!r} holds dates, but {_strange(values, cells.days(values, form)[1])}"
    problems[what] = "Correct or empty such cells."
    return True


def _strange(values: Any, wrong: Any) -> str:
    """Name the first of the cells that are wrong, and what the others hold."""
    strange = values[wrong]
    words = f"row {row_number(wrong, wrong)} holds {listed(strange.iloc[:1])!r}"
    if len(strange) == 1:
        return words
    others = listed(map(repr, dict.fromkeys(map(str, strange))), 5)
    return f"{words} ({len(strange)} such cells: {others})"


def _look_like(text: pd.Series, look: str) -> bool:
    """Whether at least half of the cells match an expression."""
    some = text.iloc[:SOME_ROWS].str.lower().str[:40]  # patterns take long for long cells
    return some.str.fullmatch(look).mean() >= 0.5


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
        wrong |= found.abs() > LARGEST
        if wrong.any():
            wanted = f"dates, {DATES[column.dates]}" if dates else "finite numbers"
            what = f"{column.name!r} must hold {wanted}, but {_strange(values, wrong)}"
            problems[what] = (
                "Write all dates in that way." if dates
                else "Correct such cells: numbers have no thousands marks, and end at 1e150."
            )  # fmt: skip
        parts[column.name] = found.mask(wrong, 0.0)  # wrong, but not missing
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
