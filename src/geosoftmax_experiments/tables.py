"""Tables of CSV and Parquet: how text is written is guessed, and said; sizes are limited."""

from __future__ import annotations

import codecs
import csv
import itertools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
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
    separator: str = ","


def read_table(path: Path, form: TextFormat = GUESSED, *, keep_empty: bool = False) -> Table:
    """Read a CSV or Parquet file.

    Rows of text without any value are left out, unless `keep_empty`. Blank lines are never rows.
    """
    readers: dict[str, Any] = {".csv": _read_text, ".tsv": _read_text, ".txt": _read_text}
    readers |= {".parquet": _read_parquet, ".pq": _read_parquet}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise UserError(
            f"{path} is neither CSV nor Parquet by its name.",
            f"Let it end in {', '.join(readers)}.",
        )
    try:
        if not path.stat().st_size:
            raise _no_table(path)
        table = reader(path, form, keep_empty)
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


def read_csv(path: Path) -> pd.DataFrame:
    """Read a CSV file, as it is: never unpacked. Whatever is wrong with it is a ValueError."""
    try:
        # pandas takes names from the first record, and perhaps an index from the second.
        _check_width(_first_records(path, _Text(), 2))
        return pd.read_csv(path, compression=None)
    except (csv.Error, OverflowError, RecursionError, MemoryError) as error:
        raise ValueError(str(error)) from None


def _check_width(records: list[list[str]]) -> None:
    width = max(map(len, records), default=0)
    if width > MOST_COLUMNS:
        raise ValueError(f"it has {width:,} columns; at most {MOST_COLUMNS:,} are read")


def _no_table(path: Path) -> UserError:
    return UserError(f"{path} is empty.", "Give a table with a header and samples.")


# ------------------------------------------------------------------ text


class _Text(NamedTuple):
    """How text is read: `skip` lines come before the header, the first may name the separator."""

    separator: str = ","
    encoding: str = "utf-8"
    skip: int = 0
    named: str = ""


def _read_text(path: Path, form: TextFormat, keep_empty: bool) -> Table:
    encoding = form.encoding or _guess_encoding(path)
    if codecs.lookup(encoding).name == "utf-8":
        encoding = UTF_8
    text = _before_header(path, encoding)
    separator = form.separator or text.named or _guess_separator(path, text)
    text = text._replace(separator=separator)
    cells, header, blank = _read_cells(path, text)
    empty = pd.Series(_all_empty(cells), cells.index)
    filled = cells.loc[~empty]
    decimal = form.decimal or guess_decimal(path, filled, separator)

    notes = []
    if not form.encoding and encoding != UTF_8:
        notes.append(f"The file is not UTF-8; it is read as {encoding} (--encoding).")
    if text.named:
        notes.append(f"The first line names the separator, {_sign(text.named)}, and is skipped.")
    elif not form.separator and separator != ",":
        notes.append(f"Guessed: columns are separated by {_sign(separator)} (--separator).")
    if not form.decimal and decimal != ".":
        notes.append(f"Guessed: the decimal mark is {decimal!r} (--decimal).")
    for name, column in zip(header, cells.columns, strict=True):
        if name.strip() and name.strip() != column:
            notes.append(f"A second column is called {name.strip()!r}; it is read as {column!r}.")
    if keep_empty and blank:
        notes.append(f"Blank lines are left out: {blank}.")
    elif not keep_empty and (blank or empty.any()):
        notes.append(f"Empty rows are left out: {blank + empty.sum()}.")
    if not header[0].strip() and _numbers_rows(filled.iloc[:, 0]):
        cells, filled = cells.iloc[:, 1:], filled.iloc[:, 1:]
        notes.append("The first column has no name and numbers the rows; it is left out.")
    return Table(cells if keep_empty else filled, decimal, notes, separator)


def _sign(separator: str) -> str:
    return "tab" if separator == "\t" else repr(separator)


def _read_cells(path: Path, text: _Text) -> tuple[pd.DataFrame, list[str], int]:
    """Return all cells as text, the header as it is, and how many blank lines were left out."""
    options: dict[str, Any] = {"sep": text.separator, "encoding": text.encoding, "dtype": str}
    options |= {"keep_default_na": False, "na_filter": False, "index_col": False, "header": None}
    options |= {"skiprows": text.skip, "skip_blank_lines": False, "compression": None}
    try:
        records = _first_records(path, text, 2)
        if not records:
            raise _no_table(path)
        _check_width(records)
        header, width = records[0], len(records[0])
        try:
            cells = pd.read_csv(path, names=range(width), **options)
        except pd.errors.ParserError:  # perhaps rows end with a separator
            cells = pd.read_csv(path, names=range(width + 1), **options)
        cells = cells.iloc[1:].reset_index(drop=True)
        extra = cells.iloc[:, width:]
        if not (ends := np.array(_all_empty(extra), dtype=bool)).all():
            row = int(ends.argmin()) + 1
            raise ValueError(f"row {row} has {width + 1} cells, its header {width} names")
        cells = cells.iloc[:, :width].set_axis(_distinct(header), axis=1)
        blank = _blank_lines(path, text, cells)
    except (csv.Error, OverflowError, RecursionError, MemoryError) as error:
        raise ValueError(str(error)) from None
    return cells.loc[~blank].reset_index(drop=True), header, int(blank.sum())


def _all_empty(cells: pd.DataFrame) -> np.ndarray:
    """Return which rows hold blanks at most."""
    empty = np.ones(len(cells), dtype=bool)
    for name in cells.columns:
        if not empty.any():
            break
        empty[empty] = cells.loc[empty, name].str.strip() == ""
    return empty


def _blank_lines(path: Path, text: _Text, cells: pd.DataFrame) -> np.ndarray:
    """Return which rows are blank lines. A line of separators, or of quotes, is a row."""
    blank = np.zeros(len(cells), dtype=bool)
    if _all_empty(cells).any():
        with _open_header(path, text) as file:
            rows = itertools.islice(csv.reader(file, delimiter=text.separator), 1, len(cells) + 1)
            found = [not row or (len(row) == 1 and row[0].isspace()) for row in rows]
        blank[: len(found)] = found
    return blank


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


def _open_header(path: Path, text: _Text) -> TextIO:
    """Open a file after the lines that come before its header."""
    file = path.open(encoding=text.encoding, errors="replace", newline="")
    for _ in range(text.skip):
        file.readline()
    return file


def _first_records(path: Path, text: _Text, number: int) -> list[list[str]]:
    with _open_header(path, text) as file:
        records = filter(None, csv.reader(file, delimiter=text.separator))
        return list(itertools.islice(records, number))


def _before_header(path: Path, encoding: str) -> _Text:
    """Find the header after blank lines and a line such as ``sep=;``, as Excel writes it."""
    named, skip = "", 0
    with path.open(encoding=encoding, errors="replace", newline="") as file:
        for line in file:
            found = re.fullmatch(r'"?sep=([^"\w])"?[\r\n]*', line, re.IGNORECASE)
            if line.strip() and (found is None or named):
                break
            named = found[1] if found else named
            skip += 1
    return _Text(encoding=encoding, skip=skip, named=named)


def _guess_encoding(path: Path) -> str:
    """Return what the file's mark says, else UTF-8 if it is, else Windows' or Latin-1."""
    with path.open("rb") as file:
        start = file.read(1000)
    if start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return "utf-16"
    if b"\0" in start[:2]:
        name = "utf-16-be" if start[:1] == b"\0" else "utf-16-le"
        raise UserError(
            f"{path} seems to be UTF-16 without a mark at its beginning.",
            f"Add --encoding {name} to the command.",
        )
    for name in (UTF_8, "cp1252"):
        try:
            with path.open(encoding=name, newline="") as file:
                while file.read(2**20):
                    pass
            return name
        except UnicodeDecodeError:
            continue
    return "latin-1"


def _guess_separator(path: Path, text: _Text) -> str:
    """Return what splits the header into most columns, and most of the first rows likewise."""
    best, most = ",", 1
    for separator in SEPARATORS:
        try:
            records = _first_records(path, text._replace(separator=separator), 20)
        except csv.Error:
            continue
        first = len(records[0]) if records else 0
        widths = [  # rows may end with one separator more
            len(record) - (len(record) == first + 1 and not record[-1].strip())
            for record in records
        ]
        if widths and widths[0] > most and 2 * widths.count(widths[0]) > len(widths):
            best, most = separator, widths[0]
    return best


# ------------------------------------------------------------------ Parquet


def _read_parquet(path: Path, form: TextFormat, keep_empty: bool) -> Table:
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
