"""The folder of a comparison: its settings, and one small file for each unit of work.

A unit is (set, fold, model). Its file is moved into place when it is complete, so a run that is
stopped, also by ``kill -9`` or a full disk, has lost nothing but the units under way, and the next
run does the rest.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from geosoftmax_experiments import files
from geosoftmax_experiments.claims import claim
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.ordinal.measures import MEASURES

__all__ = ["Settings", "Store", "Unit", "package_versions"]

#: Raised when rows change their meaning: older folders are then refused.
FORMAT = 1
PACKAGES = ("geosoftmax", "numpy", "scipy", "scikit-learn", "mord", "skordinal", "entmax")

#: What every row has besides the names of its unit.
WORDS = ("decision", "selected_by", "folds_by")
NUMBERS = ("seconds", "unconverged", *MEASURES)


class Unit(NamedTuple):
    """What is computed, written and counted as one."""

    name: str
    fold: int
    model: str


@dataclass(frozen=True)
class Settings:
    """All that the rows depend on; a folder belongs to one of these."""

    source: str
    sets: tuple[str, ...]
    folds: int
    models: tuple[str, ...]
    inner: int
    grids: dict[str, Any]
    data: dict[str, str]
    versions: dict[str, str]
    format: int = FORMAT

    def units(self) -> list[Unit]:
        """Return all units, fold by fold, so that a part of the work covers all sets."""
        return [
            Unit(name, fold, model)
            for fold in range(self.folds)
            for name in self.sets
            for model in self.models
        ]


class Store:
    """Reads and writes a comparison's folder.

    Parameters
    ----------
    folder : Path
        Made where it is missing.
    settings : Settings
        Those of this run. A folder that was made with others is refused.
    """

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder = folder
        self.settings = settings
        self._units = folder / "units"
        files.make_folder(self._units)
        files.remove_partial(self._units)
        files.remove_partial(folder)
        claim(
            folder / "settings.json",
            asdict(settings),
            holds_results=any(self._units.iterdir()),
        )

    def missing(self) -> list[Unit]:
        """Return the units that are still to be done."""
        return [unit for unit in self.settings.units() if not self._path(unit).exists()]

    def write(self, unit: Unit, rows: list[dict[str, Any]]) -> None:
        """Write the rows of a unit, whole or not at all."""
        files.write_text(self._path(unit), json.dumps(rows))

    def rows(self) -> pd.DataFrame:
        """Return the rows of all units that are done."""
        found = []
        for unit in self.settings.units():
            path = self._path(unit)
            if not path.exists():
                continue
            try:
                found += _read(path, unit)
            except (ValueError, OSError):
                raise UserError(
                    f"{path} is damaged.", "Remove it and run again: it alone is done anew."
                ) from None
        return pd.DataFrame(found)

    def _path(self, unit: Unit) -> Path:
        return self._units / f"{unit.name}.{unit.fold}.{unit.model}.json"


def _read(path: Path, unit: Unit) -> list[dict[str, Any]]:
    """Read the rows of a unit; others than it has are a ValueError."""
    rows = files.read_json(path)
    try:
        whole = isinstance(rows, list) and all(
            (row["set"], row["fold"], row["model"]) == unit
            and all(isinstance(row[name], str) for name in WORDS)
            and all(isinstance(row[name], (int, float)) for name in NUMBERS)
            for row in rows
        )
    except (TypeError, KeyError):
        whole = False
    if not whole:
        raise ValueError(f"these are not the rows of {unit}")
    return rows


def package_versions() -> dict[str, str]:
    """Return the versions of the packages whose results are compared."""
    return {name: version(name) for name in PACKAGES}
