"""Candidates on the folds of a cross-validation: scores, weights, and fits to all samples."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import numpy as np

from geosoftmax.costs.base import Cost
from geosoftmax.estimators._classifier import GeometricClassifier
from geosoftmax.estimators._design import Design
from geosoftmax.estimators._fitting import Fit, Losses, Objective, minimise, start
from geosoftmax.estimators._linear import decided, set_fitted
from geosoftmax.estimators.averaging import (
    Average,
    standard_error,
    weigh_candidates,
)


class Task(NamedTuple):
    """The data and options that all folds share."""

    X: Any
    target: np.ndarray
    weight: np.ndarray  # in fits: sample weights times class weights
    sample_weight: np.ndarray  # in scores
    order: np.ndarray
    rules: list[str]
    scorer: Any
    measure: str  # the rule that goes with the scorer, if the scorer is a cost of errors
    fit_intercept: bool
    tol: float
    max_iter: int

    @property
    def perfect(self) -> float:
        """The score without any error: an accuracy of 1, or no loss."""
        return float(self.measure in ("mode", "scores"))


def score_fold(
    task: Task, settings: list[Cost], alphas: list[float], train: Any, test: Any
) -> tuple[np.ndarray, np.ndarray, Fit]:
    """Return scores and mean squares of losses, by setting, penalty and rule, and the worst fit."""
    X, target, weight = task.X[train], task.target[train], task.weight[train]
    total = weight.sum()
    if not (total > 0 and task.sample_weight[test].sum() > 0):
        raise ValueError("a fold of cv has no sample with a positive weight; choose another cv.")
    design = Design(X, weight / total, task.fit_intercept)
    scores = np.empty((len(settings), len(alphas), len(task.rules)))
    squares, worst = np.full_like(scores, np.nan), None
    paid = task.scorer.matrix().numpy() if isinstance(task.scorer, Cost) else None
    for row, cost in enumerate(settings):
        losses = Losses(cost, target, weight / total)
        V = start(design, losses)
        for column, alpha in enumerate(alphas):
            objective = Objective(design, losses, alpha / total)
            found = minimise(objective, V, task.tol, task.max_iter)
            V = found.V
            model = _fitted(task, design, V, cost, alpha)
            if paid is not None:
                scores[row, column], squares[row, column] = _errors(task, model, test, paid)
            else:
                scores[row, column] = _scores(task, model, test)
            worst = found if worst is None else max(worst, found, key=badness)
    assert worst is not None
    return scores, squares, worst


def _fitted(
    task: Task, design: Design, V: np.ndarray, cost: Cost, alpha: float
) -> GeometricClassifier:
    model = GeometricClassifier(cost, scale=1.0, alpha=alpha)
    model.order_, model.classes_ = task.order, np.sort(task.order)
    model.n_features_in_ = task.X.shape[1]
    set_fitted(model, *design.coefficients(V), cost, task.rules[0], task.X.dtype)
    return model


def _errors(
    task: Task, model: GeometricClassifier, test: Any, paid: np.ndarray
) -> tuple[list[float], list[float]]:
    """Return the score of a fitted model under each rule, and the mean square of its losses."""
    target, weight = task.target[test], task.sample_weight[test]
    losses = [paid[target, chosen] for chosen in decided(model, task.X[test], task.rules)]
    scores = [task.perfect - float(np.average(one, weights=weight)) for one in losses]
    return scores, [float(np.average(one**2, weights=weight)) for one in losses]


def _scores(task: Task, model: GeometricClassifier, test: Any) -> list[float]:
    """Return the score of a fitted model under each rule, by a scorer of scikit-learn."""
    X, weight = task.X[test], task.sample_weight[test]
    weighted = "sample_weight" in inspect.signature(task.scorer).parameters
    options = {"sample_weight": weight} if weighted and (weight != weight[0]).any() else {}
    labels = task.order[task.target[test]]
    try:
        return [
            float(task.scorer(model.set_params(decision=rule), X, labels, **options))
            for rule in task.rules
        ]
    except (TypeError, ValueError) as error:
        remedy = ""
        if labels.dtype.kind not in "biuf":
            remedy = (
                " Scorers such as 'neg_mean_absolute_error' need labels that are numbers. Without "
                "scoring, errors are measured in the positions of the classes, whatever the labels."
            )
        raise ValueError(
            f"scoring failed on labels such as {labels[:1].tolist()[0]!r}: {error}.{remedy}"
        ) from error


def weigh_settings(
    task: Task, scores: np.ndarray, squares: np.ndarray, tests: list[Any]
) -> np.ndarray:
    """Return the weight of each candidate, from its losses on all samples that were held out."""
    totals = [task.sample_weight[test].sum() for test in tests]
    losses = np.average(task.perfect - scores, axis=0, weights=totals)
    squares = np.average(squares, axis=0, weights=totals)
    return weigh_candidates(losses, standard_error(losses, squares, sum(totals)))


def average_settings(
    task: Task, settings: list[Cost], alphas: list[float], weights: np.ndarray
) -> tuple[Average, list[Fit]]:
    """Fit the settings that have a weight to all samples; return what they are together."""
    total = task.weight.sum()
    design = Design(task.X, task.weight / total, task.fit_intercept)
    members, fits = [], []
    used = weights.sum(-1) > 0
    for row in used.any(1).nonzero()[0]:
        losses = Losses(settings[row], task.target, task.weight / total)
        for column in used[row].nonzero()[0]:
            objective = Objective(design, losses, alphas[column] / total)
            found = minimise(objective, start(design, losses), task.tol, task.max_iter)
            members.append(_fitted(task, design, found.V, settings[row], alphas[column]))
            fits.append(found)
    return Average(members, task.rules, weights[used], task.scorer), fits


def badness(found: Fit) -> tuple[bool, float]:
    return not found.converged, found.largest
