"""Comparisons whose units are a model on a fold of a set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from geosoftmax_experiments.comparison import Comparison, RowsUnit
from geosoftmax_experiments.data.ordinal import Fold
from geosoftmax_experiments.ordinal.decisions import LABELS
from geosoftmax_experiments.ordinal.measures import CRITERIA, MEASURES

__all__ = ["FoldComparison", "FoldUnit", "fingerprints"]


@dataclass(frozen=True)
class FoldUnit(RowsUnit):
    """A model on a fold of a set."""

    name: str
    fold: int
    model: str
    #: Columns that rows have besides, all numbers.
    numbers: ClassVar[tuple[str, ...]] = ("seconds", *MEASURES)

    @property
    def key(self) -> str:
        """The name of its result."""
        return f"{self.name}.{self.fold}.{self.model}"

    def made(self, rows: Any) -> bool:
        """Whether rows are those of this unit."""
        return isinstance(rows, list) and all(
            (row["set"], row["fold"], row["model"]) == (self.name, self.fold, self.model)
            and (row["decision"] in LABELS and row["selected_by"] in CRITERIA)
            and isinstance(row["folds_by"], str)
            and all(isinstance(row[name], (int, float)) for name in self.numbers)
            for row in rows
        )


@dataclass(frozen=True)
class FoldComparison(Comparison):
    """What is compared: the settings, and the folds, read and checked."""

    settings: Any
    folds: dict[tuple[str, int], Fold]
    unit: ClassVar[type[FoldUnit]]

    def units(self) -> list[FoldUnit]:
        """Return all units, fold by fold, so that a part of the work covers all sets."""
        settings = self.settings
        return [
            self.unit(name, fold, model)
            for fold in range(settings.folds)
            for name in settings.sets
            for model in self.models
        ]

    @property
    def models(self) -> tuple[str, ...]:
        """The names of what is compared."""
        return self.settings.models


def fingerprints(folds: list[Fold]) -> dict[str, str]:
    """Return a text for each set that changes with its folds."""
    found: dict[str, str] = {}
    for fold in folds:
        found[fold.name] = found.get(fold.name, "") + fold.digest()[:4]
    return found
