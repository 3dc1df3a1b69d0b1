"""One unit of work: fit a model on a training fold, choosing its parameters inside, and measure.

Inner folds are the same for every model. Each point of the grid is fitted once on each, and its
held-out predictions are judged under every decision and by every criterion at once; what is chosen
is then fitted on the whole training fold. The test fold is seen by the measures alone.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from geosoftmax_experiments.data.ordinal import Fold
from geosoftmax_experiments.ordinal.decisions import Prediction, decide
from geosoftmax_experiments.ordinal.measures import (
    CRITERIA,
    hausdorff,
    measure_labels,
    measure_probabilities,
)
from geosoftmax_experiments.ordinal.models import Model, Predictor

__all__ = ["Chosen", "choose", "fit", "inner_folds", "measure_fold", "one_thread", "standardise"]

Parameters = dict[str, float]
#: By decision and criterion: the rule to decide by, and the parameters of the fit.
Chosen = dict[tuple[str, str], tuple[str, Parameters]]


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Keep linear algebra to one thread: in fits this small, several wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(threads)


def measure_fold(model: Model, fold: Fold, inner: int) -> list[dict[str, Any]]:
    """Return one row for each decision of the model and each criterion of choice."""
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        warnings.simplefilter("always", ConvergenceWarning)
        chosen = choose(model, fold.X_train, fold.y_train, fold.classes, inner)
        rows = _rows(model, fold, chosen)
    unconverged = sum(issubclass(w.category, ConvergenceWarning) for w in caught)
    for w in caught:
        if not issubclass(w.category, ConvergenceWarning):
            warnings.warn_explicit(w.message, w.category, w.filename, w.lineno)
    seconds = time.perf_counter() - start
    return [{**row, "unconverged": unconverged, "seconds": round(seconds, 4)} for row in rows]


def choose(model: Model, X: np.ndarray, y: np.ndarray, classes: int, inner: int) -> Chosen:
    """Return the best parameters for each decision and criterion, by `inner`-fold validation.

    The decision "chosen" is the rule that does best itself; of equal rules, the model's own.
    """
    predictions = _held_out(model, X, y, classes, inner)
    divergences = [hausdorff(y, prediction.probabilities) for prediction in predictions]
    losses = {}
    for rule in model.decisions:
        labels = np.array([decide(prediction, rule) for prediction in predictions])
        losses[rule] = {"mae": np.abs(labels - y).mean(1), "accuracy": (labels != y).mean(1)}
    found: Chosen = {}
    for by in CRITERIA:
        best = {}
        for rule in model.decisions:
            values = divergences if by == "hausdorff" else losses[rule][by]
            values = np.round(values, 12)  # rounding errors do not choose
            k = int(values.argmin())
            found[rule, by] = rule, model.grid[k]
            best[rule] = values[k]
        if len(best) > 1:
            rule = min(best, key=lambda rule: best[rule])
            found["chosen", by] = found[rule, by]
    return found


def inner_folds(y: np.ndarray, folds: int, seed: int = 0) -> np.ndarray:
    """Deal the samples of each class in turn; return the number of the fold of each sample.

    Classes may be smaller than the number of folds.
    """
    order = np.random.default_rng(seed).permutation(len(y))
    dealt = order[np.argsort(y[order], kind="stable")]
    number = np.empty(len(y), dtype=int)
    number[dealt] = np.arange(len(y)) % min(folds, len(y))
    return number


def standardise(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and deviation of the features; constant ones are left at their size."""
    spread = X.std(0)
    constant = spread <= 1e-12 * np.maximum(1.0, np.abs(X).max(0))
    return X.mean(0), np.where(constant, 1.0, spread)


def fit(
    model: Model, X: np.ndarray, y: np.ndarray, classes: int, parameters: Parameters
) -> Predictor:
    """Fit on features that are standardised by the same samples."""
    mean, spread = standardise(X)
    predict = model.fit((X - mean) / spread, y, classes, **parameters)
    return lambda new: predict((new - mean) / spread)


def _held_out(
    model: Model, X: np.ndarray, y: np.ndarray, classes: int, inner: int
) -> list[Prediction]:
    """Return, for each point of the grid, what it predicts of samples that it did not see."""
    number = inner_folds(y, inner)
    predictions = []
    for parameters in model.grid:
        probabilities = np.empty((len(y), classes))
        scores = np.empty((len(y), classes)) if "scores" in model.decisions else None
        for k in np.unique(number):
            out = number == k
            found = fit(model, X[~out], y[~out], classes, parameters)(X[out])
            probabilities[out] = found.probabilities
            if scores is not None and found.scores is not None:
                scores[out] = found.scores
        predictions.append(Prediction(probabilities, scores))
    return predictions


def _rows(model: Model, fold: Fold, chosen: Chosen) -> list[dict[str, Any]]:
    """Fit what was chosen, each once, and measure it on the test fold."""
    fitted: dict[tuple[tuple[str, float], ...], tuple[Prediction, dict[str, float]]] = {}
    rows = []
    for (decision, by), (rule, parameters) in chosen.items():
        key = tuple(parameters.items())
        if key not in fitted:
            predict = fit(model, fold.X_train, fold.y_train, fold.classes, parameters)
            prediction = predict(fold.X_test)
            fitted[key] = prediction, measure_probabilities(fold.y_test, prediction)
        prediction, of_probabilities = fitted[key]
        of_labels = measure_labels(fold.y_test, decide(prediction, rule), fold.classes)
        rows.append(
            {
                "set": fold.name,
                "fold": fold.number,
                "folds_by": fold.origin,
                "model": model.name,
                "decision": decision,
                "selected_by": by,
                "rule": rule,
                "alpha": parameters["alpha"],
                "scale": parameters.get("scale", float("nan")),
                **of_probabilities,
                **of_labels,
            }
        )
    return rows
