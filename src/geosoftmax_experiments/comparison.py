"""A comparison as a run: units of one model each give rows, and all rows together a report."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from geosoftmax_experiments import runs
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.store import Store

__all__ = ["Comparison", "RowsUnit", "check_known"]


class RowsUnit(runs.Unit):
    """A unit whose result is a list of rows."""

    @abstractmethod
    def made(self, rows: Any) -> bool:
        """Whether rows are those of this unit."""


class Comparison(ABC):
    """What is compared. Subclasses are frozen dataclasses, and hold what all units need.

    `settings`, a dataclass, is all that the rows depend on; a folder belongs to one of these.
    """

    settings: Any
    #: What the progress bar says.
    doing = "comparing"

    @abstractmethod
    def units(self) -> Sequence[RowsUnit]:
        """Return all units, in an order in which a part of the work covers all models."""

    def store(self, folder: Path) -> Store:
        """Return the store of the rows in a folder."""
        return Store(folder, asdict(self.settings))

    def run(self, store: Store, backend: runs.Backend, console: Console) -> pd.DataFrame:
        """Do what is missing; return all rows."""
        units = self.units()
        runs.run(store, units, self, backend, console, doing=self.doing)
        return pd.DataFrame([row for unit in units for row in store.read(unit.key, unit.made)])


def check_known(what: str, names: Iterable[str], known: Collection[str]) -> None:
    """Refuse names that a table does not have."""
    for name in names:
        if name not in known:
            raise UserError(f"There is no {what} {name!r}.", f"Take some of {', '.join(known)}.")
