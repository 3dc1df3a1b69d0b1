"""Judging candidates inside a training fold: one procedure for all models.

Each setting (penalty; for geometric classifiers cost and scale too) is fitted on the same inner
folds, and predicts the samples that were held out. A *candidate* is a setting with a decision; its
losses on those samples, by every criterion, are all that choices are made of. `best` takes one
candidate, `averaging.weigh` all of them.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import StratifiedKFold

from geosoftmax_experiments.ordinal.decisions import Prediction, decide, predict
from geosoftmax_experiments.ordinal.measures import CRITERIA, hausdorff_values, rps_values
from geosoftmax_experiments.ordinal.models import Model

__all__ = ["Judged", "best", "inner_splits", "judge", "judge_predictions", "search"]

Splits = list[tuple[np.ndarray, np.ndarray]]


def inner_splits(y: np.ndarray, folds: int) -> Splits:
    """Return stratified folds; classes with fewer samples than folds are missing from some."""
    folds = min(folds, int(np.bincount(y).max()))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The least populated class in y")
        splitter = StratifiedKFold(folds, shuffle=True, random_state=0)
        return list(splitter.split(y[:, None], y))


@dataclass(frozen=True)
class Judged:
    """What the inner folds say of a model.

    Parameters
    ----------
    settings : list of dict
        The parameters of each setting.
    rules : tuple of str
        The decisions.
    losses : dict of ndarray of shape (settings, rules, samples)
        For each criterion, what each candidate loses on each sample; smaller is better.
    """

    settings: list[dict[str, Any]]
    rules: tuple[str, ...]
    losses: dict[str, np.ndarray]


def judge(model: Model, X: np.ndarray, y: np.ndarray, classes: int, splits: Splits) -> Judged:
    """Fit every setting on every inner fold; return the losses on the samples held out."""
    settings = model.settings()
    probabilities = np.zeros((len(settings), len(y), classes))
    scores = np.zeros_like(probabilities)
    for row, parameters in enumerate(settings):
        for train, out in splits:
            found = predict(model.fit(X[train], y[train], classes, **parameters), X[out], classes)
            probabilities[row, out] = found.probabilities
            if found.scores is not None:
                scores[row, out] = found.scores
    return judge_predictions(settings, model.decisions, y, probabilities, scores)


def judge_predictions(
    settings: list[dict[str, Any]],
    rules: tuple[str, ...],
    y: np.ndarray,
    probabilities: np.ndarray,
    scores: np.ndarray,
) -> Judged:
    """Return the losses of predictions of shape (settings, samples, classes)."""
    # All settings at once: most sets are so small that calls take longer than numbers.
    shape, classes = probabilities.shape[:2], probabilities.shape[-1]
    held_out = Prediction(probabilities.reshape(-1, classes), scores.reshape(-1, scores.shape[-1]))
    labels = np.array([decide(held_out, rule) for rule in rules])
    labels = labels.reshape(len(rules), *shape).swapaxes(0, 1)
    every = np.tile(y, len(settings))
    losses = {
        "mae": np.abs(labels - y).astype(float),
        "accuracy": (labels != y).astype(float),
        "hausdorff": hausdorff_values(every, held_out.probabilities),
        "rps": rps_values(every, held_out.probabilities),
    }
    for by in ("hausdorff", "rps"):  # the same under every decision
        losses[by] = losses[by].reshape(shape[0], 1, shape[1]).repeat(len(rules), 1)
    return Judged(settings, rules, losses)


def search(model: Model, X: np.ndarray, y: np.ndarray, classes: int, splits: Splits) -> Any:
    """Return the mean scores of `judge` as a table: a row for each candidate.

    Columns are the parameters, ``decision``, and the criteria; larger is better.
    """
    judged = judge(model, X, y, classes, splits)
    rows = []
    for row, parameters in enumerate(judged.settings):
        for column, rule in enumerate(judged.rules):
            means = {by: -judged.losses[by][row, column].mean() for by in CRITERIA}
            means["accuracy"] += 1
            rows.append({**parameters, "decision": rule, **means})
    return pd.DataFrame(rows)


def best(table: Any, by: str) -> Any:
    """Return the row of a table of `search` that a criterion chooses.

    The largest mean wins; of equal ones the largest penalty, then what was named first.
    """
    top = table[by].max()
    near = table[table[by] >= top - 1e-12 * max(1.0, abs(top))]  # rounding errors do not choose
    return near.sort_values("alpha", ascending=False, kind="stable").iloc[0]
