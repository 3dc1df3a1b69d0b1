"""A comparison as a run: its settings, its units, and the rows that they give.

A unit is a model on a fold of a set.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from geosoftmax_experiments import files, runs
from geosoftmax_experiments.data.ordinal import Fold, load_fold, set_names
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.ordinal.averaging import measure_fold
from geosoftmax_experiments.ordinal.decisions import LABELS
from geosoftmax_experiments.ordinal.measures import CRITERIA, MEASURES
from geosoftmax_experiments.ordinal.models import MODELS
from geosoftmax_experiments.store import Store, versions

__all__ = ["OWN_TABLES", "Comparison", "Settings", "Unit", "load_folds", "refuse_older"]

#: Raised when rows change their meaning: older folders are then refused.
FORMAT = 3
PACKAGES = ("geosoftmax", "numpy", "scipy", "scikit-learn", "mord", "skordinal", "entmax")

#: The source of comparisons on one's own tables.
OWN_TABLES = "own tables"

#: The coarse grids of ``--quick``.
QUICK = {"alphas": (100.0, 10.0, 1.0), "scales": (0.5, 2.0), "costs": ("squared",)}

NUMBERS = ("seconds", "unconverged", *MEASURES)


@dataclass(frozen=True)
class Settings:
    """All that the rows depend on; a folder belongs to one of these."""

    source: str
    sets: tuple[str, ...]
    folds: int
    models: tuple[str, ...]
    inner: int
    grids: dict[str, dict[str, tuple[Any, ...]]]
    data: dict[str, str]
    versions: dict[str, str]
    format: int = FORMAT


@dataclass(frozen=True)
class Unit(runs.Unit):
    """A model on a fold of a set."""

    name: str
    fold: int
    model: str

    @property
    def key(self) -> str:
        """The name of its result."""
        return f"{self.name}.{self.fold}.{self.model}"

    def work(self, shared: Comparison) -> list[dict[str, Any]]:
        """Return its rows."""
        settings = shared.settings
        model = replace(MODELS[self.model], **settings.grids[self.model])
        return measure_fold(model, shared.folds[self.name, self.fold], settings.inner)

    def made(self, rows: Any) -> bool:
        """Whether rows are those of this unit."""
        return isinstance(rows, list) and all(
            (row["set"], row["fold"], row["model"]) == (self.name, self.fold, self.model)
            and (row["decision"] in LABELS and row["selected_by"] in CRITERIA)
            and isinstance(row["folds_by"], str)
            and all(isinstance(row[name], (int, float)) for name in NUMBERS)
            for row in rows
        )


@dataclass(frozen=True)
class Comparison:
    """What is compared: the settings, and the folds, read and checked."""

    settings: Settings
    folds: dict[tuple[str, int], Fold]

    @classmethod
    def of(
        cls, source: str, folds: list[Fold], models: tuple[str, ...], inner: int, quick: bool
    ) -> Comparison:
        """Return the comparison on folds, as many of each set; by default of all models."""
        for model in models:
            if model not in MODELS:
                known = ", ".join(MODELS)
                raise UserError(f"There is no model {model!r}.", f"Take some of {known}.")
        data: dict[str, str] = {}
        for fold in folds:
            data[fold.name] = data.get(fold.name, "") + fold.digest()[:4]
        settings = Settings(
            source=source,
            sets=tuple(data),
            folds=len(folds) // len(data),
            models=models or tuple(MODELS),
            inner=inner,
            grids={model: _grid(model, quick) for model in models or MODELS},
            data=data,
            versions=versions(*PACKAGES),
        )
        return cls(settings, {(fold.name, fold.number): fold for fold in folds})

    def units(self) -> list[Unit]:
        """Return all units, fold by fold, so that a part of the work covers all sets."""
        settings = self.settings
        return [
            Unit(name, fold, model)
            for fold in range(settings.folds)
            for name in settings.sets
            for model in settings.models
        ]

    def store(self, folder: Path) -> Store:
        """Return the store of the rows in a folder."""
        return Store(folder, asdict(self.settings))

    def run(self, store: Store, backend: runs.Backend, console: Console) -> pd.DataFrame:
        """Do what is missing; return all rows."""
        units = self.units()
        runs.run(store, units, self, backend, console, doing="comparing")
        return pd.DataFrame([row for unit in units for row in store.read(unit.key, unit.made)])


def load_folds(source: str, sets: tuple[str, ...], count: int) -> list[Fold]:
    """Read folds of the sets of a source, by default of all."""
    names = sets or tuple(set_names(source))
    return [load_fold(source, name, k) for name in names for k in range(count)]


def refuse_older(folder: Path) -> None:
    """Refuse a folder whose rows were chosen by another procedure."""
    try:
        found = files.read_json(folder / "settings.json").get("format")
    except (ValueError, OSError, AttributeError):
        return  # the store says what is wrong
    if isinstance(found, int) and found < FORMAT:
        raise UserError(
            f"{folder} was made by an earlier geosoftmax, which chose by another procedure.",
            "Choose another folder with --output, or forget its results with --fresh.",
        )


def _grid(name: str, quick: bool) -> dict[str, tuple[Any, ...]]:
    """Return the candidates of a model."""
    model = MODELS[name]
    every: dict[str, tuple[Any, ...]] = {
        "alphas": model.alphas, "scales": model.scales, "costs": model.costs,
    }  # fmt: skip
    if not quick:
        return every
    return {key: tuple(one for one in every[key] if one in QUICK[key]) for key in every}
