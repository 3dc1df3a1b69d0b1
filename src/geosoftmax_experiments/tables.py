"""Tables of CSV and Parquet: how text is written is guessed, and said; sizes are limited."""

from __future__ import annotations

import codecs
import csv
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from geosoftmax_experiments.cells import listed, numbers
from geosoftmax_experiments.decimals import guess_decimal
from geosoftmax_experiments.errors import UserError

__all__ = ["GUESSED", "Table", "TextFormat", "read_csv", "read_table"]

#: pandas takes minutes for hundreds of thousands of columns of one name, and memory in gigabytes.
MOST_COLUMNS = 10_000
#: A table of Parquet with more values than this is refused before it is unpacked.
MOST_VALUES = 50_000_000
#: UTF-8, with a mark at the beginning of the file or without.
UTF_8 = "utf-8-sig"
SEPARATORS = (",", ";", "\t", "|")


@dataclass(frozen=True)
class TextFormat:
    """How a table is written as text; what is empty is guessed."""

    separator: str = ","
    decimal: str = "."
    encoding: str = "utf-8"


GUESSED = TextFormat("", "", "")


class Table(NamedTuple):
    """A table as it was read: cells of CSV are text. `notes` says what was guessed or changed."""

    cells: pd.DataFrame
    decimal: str
    notes: list[str]


def read_table(path: Path, form: TextFormat = GUESSED) -> Table:
    """Read a CSV or Parquet file."""
    readers = {".csv": _read_text, ".tsv": _read_text, ".txt": _read_text}
    readers |= {".parquet": _read_parquet, ".pq": _read_parquet}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise UserError(
            f"{path} is neither CSV nor Parquet by its name.",
            f"Let it end in {', '.join(readers)}.",
        )
    try:
        table = reader(path, form)
    except FileNotFoundError:
        raise UserError(f"There is no file {path}.", "Check the path.") from None
    except UserError:
        raise
    except (UnicodeError, LookupError) as error:
        raise UserError(
            f"Could not read {path}: {listed([error])}.", "Name its --encoding, as cp1252 or utf-8."
        ) from None
    except Exception as error:  # whatever a damaged file makes of pandas and pyarrow
        reason = listed([str(error).strip() or type(error).__name__])
        raise UserError(
            f"Could not read {path}: {reason}", "Is the file complete, and the --separator right?"
        ) from None
    if table.cells.empty:
        raise UserError(f"{path} holds no rows.", "Give a table with a header and samples.")
    return table


def read_csv(path: Path, form: TextFormat | None = None) -> pd.DataFrame:
    """Read a CSV file, as it is: never unpacked. Whatever is wrong with it is a ValueError.

    With a format, all cells are text, and so are those that pandas would take for missing.
    """
    known = form or TextFormat()
    options: Any = {}
    if form is not None:
        options = {"sep": form.separator, "encoding": form.encoding, "dtype": str}
        options |= {"keep_default_na": False, "na_filter": False, "index_col": False}
    try:
        records = _first_records(path, known.encoding, known.separator, 2)
        # pandas takes names from the first record, and perhaps an index from the second.
        widths = [len(record) for record in records]
        if max(widths, default=0) > MOST_COLUMNS:
            raise ValueError(f"it has {max(widths):,} columns; at most {MOST_COLUMNS:,} are read")
        if form is not None and len(widths) == 2 and widths[1] > widths[0]:
            raise ValueError(f"its first row has {widths[1]} cells, its header {widths[0]} names")
        return pd.read_csv(path, compression=None, **options)
    except (csv.Error, OverflowError, RecursionError, MemoryError) as error:
        raise ValueError(str(error)) from None


# ------------------------------------------------------------------ text


def _read_text(path: Path, form: TextFormat) -> Table:
    encoding = form.encoding or _guess_encoding(path)
    if codecs.lookup(encoding).name == "utf-8":
        encoding = UTF_8
    separator = form.separator or _guess_separator(path, encoding)
    cells = read_csv(path, TextFormat(separator, "", encoding))
    (header,) = _first_records(path, encoding, separator, 1)
    cells.columns = _distinct(header)
    empty = (cells == "").all(axis=1)
    cells = cells.loc[~empty]
    decimal = form.decimal or guess_decimal(path, cells, separator)

    notes = []
    if not form.encoding and encoding != UTF_8:
        notes.append(f"The file is not UTF-8; it is read as {encoding} (--encoding).")
    if not form.separator and separator != ",":
        sign = "tab" if separator == "\t" else repr(separator)
        notes.append(f"Guessed: columns are separated by {sign} (--separator).")
    if not form.decimal and decimal != ".":
        notes.append(f"Guessed: the decimal mark is {decimal!r} (--decimal).")
    for name, column in zip(header, cells.columns, strict=True):
        if name.strip() and name.strip() != column:
            notes.append(f"A second column is called {name.strip()!r}; it is read as {column!r}.")
    if empty.any():
        notes.append(f"Empty rows are left out: {empty.sum()}.")
    if not header[0].strip() and _numbers_rows(cells.iloc[:, 0]):
        cells = cells.iloc[:, 1:]
        notes.append("The first column has no name and numbers the rows; it is left out.")
    return Table(cells, decimal, notes)


def _distinct(header: list[str]) -> list[str]:
    """Return names without blanks around them, each once, and for columns without a name too."""
    names: dict[str, None] = {}
    for place, name in enumerate(header):
        new = first = name.strip() or f"Unnamed: {place}"
        for k in itertools.count(1):
            if new not in names:
                break
            new = f"{first}.{k}"
        names[new] = None
    return list(names)


def _numbers_rows(values: pd.Series) -> bool:
    """Whether cells count from 0 or 1, or are different whole numbers, as of rows once shuffled."""
    found, _ = numbers(values)
    counted = (found.diff().iloc[1:] == 1).all() and found.iloc[:1].isin((0, 1)).all()
    shuffled = len(found) >= 10 and (found % 1 == 0).all() and found.is_unique
    return bool(counted or shuffled)


def _first_records(path: Path, encoding: str, separator: str, number: int) -> list[list[str]]:
    with path.open(encoding=encoding, errors="replace", newline="") as file:
        records = filter(None, csv.reader(file, delimiter=separator))
        return list(itertools.islice(records, number))


def _guess_encoding(path: Path) -> str:
    """Return what the file's mark says, else UTF-8 if it is, else Windows' or Latin-1."""
    with path.open("rb") as file:
        if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return "utf-16"
    for name in (UTF_8, "cp1252"):
        try:
            with path.open(encoding=name, newline="") as file:
                while file.read(2**20):
                    pass
            return name
        except UnicodeDecodeError:
            continue
    return "latin-1"


def _guess_separator(path: Path, encoding: str) -> str:
    """Return what splits the header into most columns, and most of the first rows likewise."""
    best, most = ",", 1
    for separator in SEPARATORS:
        try:
            widths = [len(record) for record in _first_records(path, encoding, separator, 20)]
        except csv.Error:
            continue
        if widths and widths[0] > most and 2 * widths.count(widths[0]) > len(widths):
            best, most = separator, widths[0]
    return best


# ------------------------------------------------------------------ Parquet


def _read_parquet(path: Path, form: TextFormat) -> Table:
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
    cells = pd.read_parquet(path).reset_index(drop=True)
    cells.columns = [str(name) for name in cells.columns]
    return Table(cells, form.decimal or ".", [])
