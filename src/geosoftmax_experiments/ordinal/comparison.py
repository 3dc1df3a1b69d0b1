"""The comparison of linear models as a run: its settings, and its units."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from geosoftmax_experiments import files
from geosoftmax_experiments.comparison import check_known
from geosoftmax_experiments.data.ordinal import Fold, load_fold, set_names
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.ordinal.averaging import measure_fold
from geosoftmax_experiments.ordinal.folds import FoldComparison, FoldUnit, fingerprints
from geosoftmax_experiments.ordinal.models import MODELS
from geosoftmax_experiments.store import versions

__all__ = ["OWN_TABLES", "Comparison", "Settings", "Unit", "load_folds", "refuse_older"]

#: Raised when rows change their meaning: older folders are then refused.
FORMAT = 3
PACKAGES = ("geosoftmax", "numpy", "scipy", "scikit-learn", "mord", "skordinal", "entmax")

#: The source of comparisons on one's own tables.
OWN_TABLES = "own tables"

#: The coarse grids of ``--quick``.
QUICK = {"alphas": (100.0, 10.0, 1.0), "scales": (0.5, 2.0), "costs": ("squared",)}


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
class Unit(FoldUnit):
    """A model on a fold of a set."""

    numbers: ClassVar = (*FoldUnit.numbers, "unconverged")

    def work(self, shared: Comparison) -> list[dict[str, Any]]:
        """Return its rows."""
        settings = shared.settings
        model = replace(MODELS[self.model], **settings.grids[self.model])
        return measure_fold(model, shared.folds[self.name, self.fold], settings.inner)


@dataclass(frozen=True)
class Comparison(FoldComparison):
    """A comparison of linear models."""

    settings: Settings
    unit: ClassVar = Unit

    @classmethod
    def of(
        cls, source: str, folds: list[Fold], models: tuple[str, ...], inner: int, quick: bool
    ) -> Comparison:
        """Return the comparison on folds, as many of each set; by default of all models."""
        check_known("model", models, MODELS)
        data = fingerprints(folds)
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
