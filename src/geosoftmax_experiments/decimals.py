"""The decimal mark of a table that is written as text: guessed where it is clear, else asked for.

A mark with exactly three digits after it may be of thousands: 1.050 is about 1, or about 1000.

- A mark is clear where it cannot be of thousands: a cell has another number of digits after it
  (0.5), or begins with 0 (0.125); or a number from 1000 on is beside it without a mark. One clear
  column is enough for the table.
- Without one, the mark is asked for if a column mixes such cells with whole numbers below 1000, as
  950 and 1.050: both readings are plausible there.
- A column where every cell has a point and three digits, as 1.234 and 2.345, has decimals. So it is
  with commas between semicolons. Other tables with such commas are asked about: 1,234 is usually
  written for a thousand there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from geosoftmax_experiments import cells
from geosoftmax_experiments.cells import listed
from geosoftmax_experiments.errors import UserError

__all__ = ["guess_decimal"]

#: Rows that the decimal mark is guessed from, if it is clear there.
SOME_ROWS = 1000
#: A number whose mark may be of thousands.
_THREE = r"[-+]?[1-9]\d{0,2}[.,]\d{3}"


def guess_decimal(path: Path, table: pd.DataFrame, separator: str) -> str:
    """Return the mark that is clear in more columns; refuse to guess where both are plausible.

    Where semicolons separate columns, the comma needs as many columns as the point.
    """
    for some in (table.head(SOME_ROWS), table):
        kinds = {mark: _kinds(some, mark) for mark in ".,"}
        points, commas = (list(kinds[mark].values()).count("clear") for mark in ".,")
        if points or commas:
            return "," if commas and commas + (separator == ";") > points else "."
    if not (kinds["."] or kinds[","]):
        return "."
    both = bool(kinds["."] and kinds[","])
    for mark, found in kinds.items():
        usual = mark == "." or separator == ";"
        doubtful = [name for name, kind in found.items() if both or kind == "mixed" or not usual]
        if doubtful:
            raise _ask(path, table, doubtful, mark)
    return "," if kinds[","] else "."


def _kinds(table: pd.DataFrame, mark: str) -> dict[str, str]:
    """Return what the mark is in each column of numbers that has it: clear, or mixed, or all."""
    found = {}
    for name in table.columns:
        values: Any = table[name]
        marked = values.str.contains(mark, regex=False)
        if not marked.any():
            continue
        numbers, wrong = cells.numbers(values, mark)
        if wrong.any():
            continue
        text = values[marked].str.strip()
        plain = numbers.mask(marked).dropna()
        if not text.str.fullmatch(_THREE).all() or (plain.abs() >= 1000).any():
            found[name] = "clear"
        else:
            found[name] = "mixed" if len(plain) else "all"
    return found


def _ask(path: Path, table: pd.DataFrame, names: list[str], mark: str) -> UserError:
    values: Any = table[names[0]]
    cell = values[values.str.contains(mark, regex=False)].iloc[0].strip()
    small, large = cell.replace(mark, "."), cell.replace(mark, "")
    return UserError(
        f"{path}: {cell} may be {small} or {large}; such cells are in {listed(map(repr, names))}.",
        f"If it is {small}, add --decimal {mark} to the command. If it is {large}, write it "
        "without the mark.",
    )
