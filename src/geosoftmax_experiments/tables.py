"""Tables of text, read with a limit on their columns."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path

import pandas as pd

__all__ = ["MOST_COLUMNS", "read_csv"]

#: pandas takes minutes for hundreds of thousands of columns of one name, and memory in gigabytes.
MOST_COLUMNS = 10_000


def read_csv(path: Path) -> pd.DataFrame:
    """Read a CSV file, as it is: never unpacked. Whatever is wrong with it is a ValueError."""
    try:
        with path.open(encoding="utf8", errors="replace", newline="") as file:
            # pandas takes names from the first record, and perhaps an index from the second.
            for record in itertools.islice(filter(None, csv.reader(file)), 2):
                if len(record) > MOST_COLUMNS:
                    raise ValueError(
                        f"it has {len(record):,} columns; at most {MOST_COLUMNS:,} are read"
                    )
        return pd.read_csv(path, compression=None)
    except (csv.Error, OverflowError, RecursionError, MemoryError) as error:
        raise ValueError(str(error)) from None
