"""How settings are chosen, for all models: on folds of the posts to train on, never on test posts.

A setting is a candidate of the loss, a decay of what leaves share, a penalty and a temperature.
There are two decisions, each with the measure that it is best for: the likeliest class and
accuracy, the class of least expected distance and the mean distance. Each chooses its own setting.
Folds, and the measure for the likeliest class, are those of the condition.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from geosoftmax import TreeCost, decide
from geosoftmax_experiments.taxonomy.conditions import CLEAN, Condition
from geosoftmax_experiments.taxonomy.features import Corpus, Sample
from geosoftmax_experiments.taxonomy.linear import ROUGHLY, Linear, fit_path
from geosoftmax_experiments.taxonomy.losses import Loss
from geosoftmax_experiments.taxonomy.measures import MEASURES, Yardstick
from geosoftmax_experiments.taxonomy.models import PENALTIES, TEMPERATURES, Model

__all__ = ["Setting", "choose", "measure_draw"]


class Setting(NamedTuple):
    """What is chosen."""

    candidate: float
    shared: float | None
    penalty: float
    temperature: float


def measure_draw(
    model: Model,
    corpus: Corpus,
    size: int,
    number: int,
    penalties: Sequence[float] = PENALTIES,
    condition: Condition = CLEAN,
) -> list[dict[str, Any]]:
    """Choose the settings on a draw, fit to all of it, and measure on the test posts."""
    began = time.perf_counter()
    tree = corpus.tree()
    (sample, test), yardstick = condition.draw(corpus, size, number), Yardstick.of(tree)
    chosen = choose(model, tree, sample, number, penalties, condition)
    rows = []
    for decision, setting in chosen.items():
        loss = model.loss(tree, setting.candidate)
        covariance = model.covariance(tree, setting.shared)
        ((_, fitted),) = fit_path(loss, sample, [setting.penalty], covariance)
        alpha = _distributions(loss, fitted, test.X, setting.temperature)
        found = yardstick.measure(_decided(alpha, tree, decision), test.y)
        support = float((alpha > 0).sum(-1).double().mean())
        rows.append({"decision": decision, **setting._asdict(), **found, "support": support})
    seconds = time.perf_counter() - began
    return [{"size": size, "draw": number, **row, "seconds": seconds} for row in rows]


def choose(
    model: Model,
    tree: TreeCost,
    sample: Sample,
    seed: int,
    penalties: Sequence[float] = PENALTIES,
    condition: Condition = CLEAN,
) -> dict[str, Setting]:
    """Return the best setting for each decision; of equally good ones the first."""
    yardstick = Yardstick.of(tree)
    criteria = condition.criteria
    totals: dict[str, dict[Setting, list[float]]] = {decision: {} for decision in criteria}
    for part, held in condition.folds(sample, yardstick, seed):
        for candidate, shared in itertools.product(model.candidates, model.shared or (None,)):
            loss, covariance = model.loss(tree, candidate), model.covariance(tree, shared)
            for penalty, fitted in fit_path(loss, part, penalties, covariance, ROUGHLY):
                for temperature in TEMPERATURES:
                    setting = Setting(candidate, shared, penalty, temperature)
                    alpha = _distributions(loss, fitted, held.X, temperature)
                    for decision, by in criteria.items():
                        found = yardstick.measure(_decided(alpha, tree, decision), held.y)
                        sign = 1 if MEASURES[by].lower_is_better else -1
                        totals[decision].setdefault(setting, []).append(sign * found[by])
    return {
        decision: min(found, key=lambda setting: float(np.mean(found[setting])))
        for decision, found in totals.items()
    }


def _distributions(loss: Loss, fitted: Linear, X: np.ndarray, temperature: float) -> torch.Tensor:
    return loss.probabilities(fitted.scores(X) / temperature)


def _decided(alpha: torch.Tensor, tree: TreeCost, decision: str) -> np.ndarray:
    return (alpha.argmax(-1) if decision == "mode" else decide(alpha, tree)).numpy()
