"""Small networks with every loss of `rivals`, on the larger sets: one procedure for all.

A unit is a loss on a fold of a set. The candidates are the values of the loss's parameter, the
number of steps and the decision; they are judged on inner folds and averaged as those of linear
models are (`averaging`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.preprocessing import StandardScaler

from geosoftmax_experiments.comparison import check_known
from geosoftmax_experiments.data.ordinal import Fold
from geosoftmax_experiments.ordinal.averaging import measure_average
from geosoftmax_experiments.ordinal.decisions import RULES, Prediction
from geosoftmax_experiments.ordinal.folds import FoldComparison, FoldUnit, fingerprints
from geosoftmax_experiments.ordinal.networks import Training, train
from geosoftmax_experiments.ordinal.selection import inner_splits, judge_predictions
from geosoftmax_experiments.rivals.table import RIVALS, Rival, line
from geosoftmax_experiments.store import versions

__all__ = [
    "LOSSES",
    "SETS",
    "DeepComparison",
    "DeepSettings",
    "DeepUnit",
    "measure_rival",
    "rules_of",
]

#: The sets of some 500 samples and more.
SETS = ("car", "winequality-red", "ERA", "LEV", "SWD", "balance-scale", "eucalyptus", "ESL")
#: On a line the energy distance is twice the squared EMD, so that it is left out.
LOSSES = tuple(name for name in RIVALS if name != "energy")
PACKAGES = ("geosoftmax", "numpy", "scipy", "scikit-learn", "torch", "skordinal", "entmax")


@dataclass(frozen=True)
class DeepSettings:
    """All that the rows depend on; a folder belongs to one of these."""

    source: str
    sets: tuple[str, ...]
    folds: int
    losses: tuple[str, ...]
    inner: int
    training: Training
    values: dict[str, tuple[float, ...]]
    data: dict[str, str]
    versions: dict[str, str]


@dataclass(frozen=True)
class DeepUnit(FoldUnit):
    """A loss on a fold of a set."""

    def work(self, shared: DeepComparison) -> list[dict[str, Any]]:
        """Return its rows."""
        settings = shared.settings
        fold = shared.folds[self.name, self.fold]
        return measure_rival(RIVALS[self.model], fold, settings.inner, settings.training)


@dataclass(frozen=True)
class DeepComparison(FoldComparison):
    """A comparison of losses on small networks."""

    settings: DeepSettings
    unit: ClassVar = DeepUnit
    doing: ClassVar = "training"

    @classmethod
    def of(
        cls, source: str, folds: list[Fold], losses: tuple[str, ...], inner: int, training: Training
    ) -> DeepComparison:
        """Return the comparison on folds, as many of each set; by default of `LOSSES`."""
        check_known("loss", losses, RIVALS)
        losses, data = losses or LOSSES, fingerprints(folds)
        settings = DeepSettings(
            source=source,
            sets=tuple(data),
            folds=len(folds) // len(data),
            losses=losses,
            inner=inner,
            training=training,
            values={name: RIVALS[name].values for name in losses},
            data=data,
            versions=versions(*PACKAGES),
        )
        return cls(settings, {(fold.name, fold.number): fold for fold in folds})

    @property
    def models(self) -> tuple[str, ...]:
        """The names of the losses."""
        return self.settings.losses


def rules_of(rival: Rival) -> tuple[str, ...]:
    """Return the decisions of a loss, its own first."""
    if rival.link is None:
        return ("own",)
    if rival.decision == "scores":
        return ("scores", *RULES)
    own = "median" if rival.decision == "cost" else rival.decision  # the cost is the distance
    return (own, *(rule for rule in RULES if rule != own))


def measure_rival(rival: Rival, fold: Fold, inner: int, training: Training) -> list[dict[str, Any]]:
    """Return the rows of a loss on a fold, one for each decision and criterion."""
    start = time.perf_counter()
    scaler: Any = StandardScaler().fit(fold.X_train)
    X, X_test = (
        torch.from_numpy(scaler.transform(part)).float() for part in (fold.X_train, fold.X_test)
    )
    splits = inner_splits(fold.y_train, inner)
    seen = torch.ones(len(splits) + 1, len(X))
    for row, (_, out) in enumerate(splits):
        seen[row, torch.from_numpy(out)] = 0
    cost, y = line(fold.classes), torch.from_numpy(fold.y_train)
    snapshots = train(rival, cost, X, y, seen, X_test, training, seed=fold.number)
    held_out, on_test = [], {}
    for one in snapshots:
        scores = torch.empty_like(one.train[0])
        for row, (_, out) in enumerate(splits):
            scores[out] = one.train[row, out]
        held_out.append(_prediction(rival, scores, cost, one.value))
        on_test[one.value, one.steps] = _prediction(rival, one.test[-1], cost, one.value)
    settings: list[dict[str, Any]] = [{"value": s.value, "steps": s.steps} for s in snapshots]
    judged = judge_predictions(
        settings,
        rules_of(rival),
        fold.y_train,
        np.array([one.probabilities for one in held_out]),
        np.array([one.scores for one in held_out]),
    )
    rows = measure_average(
        judged, lambda one: on_test[one["value"], one["steps"]], fold, rival.name,
        {"value": float("nan"), "steps": 0},
    )  # fmt: skip
    seconds = round(time.perf_counter() - start, 4)
    return [{**row, "seconds": seconds} for row in rows]


def _prediction(rival: Rival, scores: torch.Tensor, cost: Any, value: float) -> Prediction:
    p = rival.bind(cost, value).distributions(scores)
    if p is None:
        p = torch.nn.functional.one_hot(scores.argmax(-1), cost.size).double()
    return Prediction(p.numpy(), scores.numpy(), point=rival.link is None)
