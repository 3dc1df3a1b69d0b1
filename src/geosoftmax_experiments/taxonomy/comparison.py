"""The comparison as a run: its settings, its units, and the rows that they give.

A unit is a model on a draw of some posts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from geosoftmax_experiments import comparison as base
from geosoftmax_experiments.comparison import RowsUnit, check_known
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.store import versions
from geosoftmax_experiments.taxonomy.conditions import CLEAN, Condition
from geosoftmax_experiments.taxonomy.features import Corpus
from geosoftmax_experiments.taxonomy.measures import MEASURES
from geosoftmax_experiments.taxonomy.models import MODELS, PENALTIES, TEMPERATURES
from geosoftmax_experiments.taxonomy.selection import measure_draw

__all__ = ["Comparison", "Settings", "Unit"]

#: Raised when rows change their meaning: older folders are then refused.
FORMAT = 1
PACKAGES = ("geosoftmax", "numpy", "scipy", "scikit-learn", "torch")
#: The coarse grid of ``--quick``.
QUICK = (10.0, 100.0)


@dataclass(frozen=True)
class Settings:
    """All that the rows depend on; a folder belongs to one of these.

    More sizes, draws or models may be added to a folder: its rows stay as they are. The last two
    are the condition. They are None for clean labels, so that folders without them still count.
    """

    candidates: dict[str, tuple[float, ...]]
    shared: dict[str, tuple[float, ...]]
    penalties: tuple[float, ...]
    temperatures: tuple[float, ...]
    digest: str
    versions: dict[str, str]
    format: int = FORMAT
    noise: float | None = None
    unseen: bool | None = None


@dataclass(frozen=True)
class Unit(RowsUnit):
    """A model on a draw."""

    model: str
    size: int
    draw: int

    @property
    def key(self) -> str:
        """The name of its result."""
        return f"{self.model}.{self.size}.{self.draw}"

    def work(self, shared: Comparison) -> list[dict[str, Any]]:
        """Return its rows, one for each decision."""
        rows = measure_draw(
            MODELS[self.model], shared.corpus, self.size, self.draw, shared.settings.penalties,
            shared.condition,
        )  # fmt: skip
        return [{"model": self.model, **row} for row in rows]

    def made(self, rows: Any) -> bool:
        """Whether rows are those of this unit."""
        return (
            isinstance(rows, list)
            and [row["decision"] for row in rows] == list(Condition.criteria)
            and all(
                (row["model"], row["size"], row["draw"]) == (self.model, self.size, self.draw)
                and all(isinstance(row[name], float) for name in (*MEASURES, "support", "seconds"))
                for row in rows
            )
        )


@dataclass(frozen=True)
class Comparison(base.Comparison):
    """What is compared: the settings, and the posts as features."""

    settings: Settings
    corpus: Corpus
    sizes: tuple[int, ...]
    draws: tuple[int, ...]
    models: tuple[str, ...]
    condition: Condition

    @classmethod
    def of(
        cls,
        corpus: Corpus,
        sizes: tuple[int, ...],
        draws: tuple[int, ...],
        models: tuple[str, ...],
        quick: bool = False,
        condition: Condition = CLEAN,
    ) -> Comparison:
        """Return the comparison on so many draws of each size; by default of all models."""
        most = condition.most(corpus)
        least = 3 * len(corpus.names)
        for size in sizes:
            if not least <= size <= most:
                raise UserError(
                    f"--sizes {size} is not between {least} and {most}.",
                    "Each group needs 3 posts, and there are no more than that.",
                )
        if len(draws) != len(sizes) or min(draws, default=0) < 1:
            raise UserError(
                f"--draws {_listed(draws)} does not fit --sizes {_listed(sizes)}.",
                "Give a number, of at least 1, for each of the sizes.",
            )
        check_known("model", models, MODELS)
        return cls(
            Settings(
                candidates={name: model.candidates for name, model in MODELS.items()},
                shared={name: model.shared for name, model in MODELS.items()},
                penalties=QUICK if quick else PENALTIES,
                temperatures=TEMPERATURES,
                digest=corpus.digest(),
                versions=versions(*PACKAGES),
                **condition.settings,
            ),
            corpus,
            sizes,
            # All posts, with their own labels, can be drawn in one way.
            tuple(
                1 if n == most and not condition.varies else m
                for n, m in zip(sizes, draws, strict=True)
            ),
            models or tuple(MODELS),
            condition,
        )

    def units(self) -> list[Unit]:
        """Return all units, draw by draw, so that a part of the work covers all models."""
        return [
            Unit(model, size, draw)
            for draw in range(max(self.draws))
            for size, count in zip(self.sizes, self.draws, strict=True)
            if draw < count
            for model in self.models
        ]


def _listed(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))
