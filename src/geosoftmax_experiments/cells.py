"""Cells of a table as words, numbers and days."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
from pandas.api import types

__all__ = ["NO_VALUE", "days", "listed", "numbers", "words"]

#: Words, in lower case, that stand for a missing value among numbers and dates.
NO_VALUE = ("na", "n/a", "#n/a", "<na>", "nan", "null", "none", "?")


def words(values: pd.Series) -> pd.Series:
    """Return cells as text without blanks around it; empty ones are NaN."""
    text = values.astype(object)
    text = text.where(text.notna(), "")
    return text.map(lambda value: str(value).strip() or float("nan")).astype(object)


def numbers(values: pd.Series, decimal: str = ".") -> tuple[pd.Series, pd.Series]:
    """Return cells as numbers, and which are neither numbers nor missing.

    Text that says NA, null or the like is missing; true and false, where there is nothing else, are
    1 and 0.
    """
    if types.is_numeric_dtype(values.dtype):
        found = pd.Series(values.to_numpy(float, na_value=float("nan")), index=values.index)
        return found, found.isna() & False
    if decimal == "." and isinstance(values.dtype, pd.StringDtype):  # the usual case, and fast
        found = pd.Series(pd.to_numeric(values, errors="coerce"), dtype=float)
        if found.notna().all():
            return found, found.isna()
    text = _words_of_values(values)
    small = text.str.lower()
    if small.dropna().isin(("true", "false")).all():
        text = small.map({"true": "1", "false": "0"}).astype(object)
    if decimal == ",":
        text = text.str.translate(str.maketrans(",.", ".,"))
    found = pd.Series(pd.to_numeric(text, errors="coerce"), dtype=float)
    return found, text.notna() & found.isna()


def days(values: pd.Series, form: str) -> tuple[pd.Series, pd.Series]:
    """Return dates as days since 1970, and which cells are neither dates nor missing.

    `form` says how text is written, as for `pandas.to_datetime`.
    """
    text = values if types.is_datetime64_any_dtype(values.dtype) else _words_of_values(values)
    found = pd.to_datetime(text, format=form, errors="coerce", utc=True)
    found = (found - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)
    return found.astype(float), text.notna() & found.isna()


def _words_of_values(values: pd.Series) -> pd.Series:
    text = words(values)
    return text.mask(text.str.lower().isin(NO_VALUE))


def listed(values: Iterable[object], most: int = 10) -> str:
    """Return things as a list in one line: no control characters, and not without end."""
    shown = [" ".join(str(value).split())[:200] for value in values]
    more = [f"… ({len(shown)} in all)"] if len(shown) > most else []
    line = ", ".join([*shown[:most], *more])
    return "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in line
    )
