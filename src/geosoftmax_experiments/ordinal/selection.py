"""One unit of work: fit a model on a training fold, choosing its parameters inside, and measure.

There is one procedure for all models. Features are standardised by the training fold. Within it,
each candidate (penalty, scale) is fitted on the same inner folds, and judged on the samples that
were held out, under every decision and by every criterion. The largest mean over the inner folds
wins; of equal ones the largest penalty, then what was named first. What was chosen is fitted to the
whole training fold. The test fold is seen by the measures alone.

`GeometricClassifierCV` is this procedure for geometric classifiers; `search` is the same for any
other classifier.
"""

from __future__ import annotations

import itertools
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler

from geosoftmax.estimators import GeometricClassifier, GeometricClassifierCV
from geosoftmax_experiments.data.ordinal import Fold
from geosoftmax_experiments.ordinal.decisions import Prediction, decide, predict
from geosoftmax_experiments.ordinal.measures import (
    CRITERIA,
    hausdorff,
    measure_labels,
    measure_probabilities,
)
from geosoftmax_experiments.ordinal.models import Model

__all__ = ["best", "inner_splits", "measure_fold", "search", "search_geometric"]

Splits = list[tuple[np.ndarray, np.ndarray]]


# ------------------------------------------------------------------ choosing


def inner_splits(y: np.ndarray, folds: int) -> Splits:
    """Return stratified folds; classes with fewer samples than folds are missing from some."""
    folds = min(folds, int(np.bincount(y).max()))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The least populated class in y")
        splitter = StratifiedKFold(folds, shuffle=True, random_state=0)
        return list(splitter.split(y[:, None], y))


def search(model: Model, X: np.ndarray, y: np.ndarray, classes: int, splits: Splits) -> Any:
    """Return the mean scores over the inner folds: a row for each candidate and decision.

    Columns are the parameters, ``decision``, and the criteria; larger is better.
    """
    named = {"scale": model.scales} if model.scales else {}
    rows = []
    for values in itertools.product(*named.values(), model.alphas):
        parameters = dict(zip((*named, "alpha"), values, strict=True))
        scores = []
        for train, out in splits:
            fitted = model.fit(X[train], y[train], classes, **parameters)
            scores.append(_scores(y[out], predict(fitted, X[out], classes), model.decisions))
        for rule, means in zip(model.decisions, np.mean(scores, axis=0), strict=True):
            rows.append({**parameters, "decision": rule, **dict(zip(CRITERIA, means, strict=True))})
    return pd.DataFrame(rows)


def _scores(y: np.ndarray, found: Prediction, rules: tuple[str, ...]) -> np.ndarray:
    """Return the criteria (columns), larger is better, of predictions under each rule (rows)."""
    divergence = hausdorff(y, found.probabilities)
    chosen = (decide(found, rule) for rule in rules)
    return np.array([(-np.abs(k - y).mean(), (k == y).mean(), -divergence) for k in chosen])


def search_geometric(
    model: Model, X: np.ndarray, y: np.ndarray, classes: int, splits: Splits
) -> tuple[Any, list[GeometricClassifierCV]]:
    """Return the table of `search` as `GeometricClassifierCV` finds it, and its fits."""
    # Without a scorer, several decisions on a line are judged by minus the mean absolute error.
    scorers = {"mae": None, "accuracy": _accuracy, "hausdorff": _minus_hausdorff}
    fits = {
        by: GeometricClassifierCV(
            model.estimator.cost,
            scales=model.scales,
            alphas=model.alphas,
            cv=splits,
            scoring=scorers[by],
            decision=model.decisions if by != "hausdorff" else model.decisions[:1],
            classes=np.arange(classes),
        ).fit(X, y)
        for by in CRITERIA
    }
    table = pd.DataFrame(fits["mae"].scores_)[["scale", "alpha", "decision"]]
    for by, one in fits.items():  # the divergence is the same under every decision
        means = one.scores_["mean_score"]
        table[by] = np.repeat(means, len(table) // len(means))
    return table, list(fits.values())


def _accuracy(model: Any, X: np.ndarray, y: np.ndarray) -> float:
    return (model.predict(X) == y).mean()  # as scikit-learn's, which would take half of all time


def _minus_hausdorff(model: Any, X: np.ndarray, y: np.ndarray) -> float:
    return -hausdorff(y, model.predict_proba(X))


def best(table: Any, by: str) -> Any:
    """Return the row of a table of `search` that a criterion chooses."""
    top = table[by].max()
    near = table[table[by] >= top - 1e-12 * max(1.0, abs(top))]  # rounding errors do not choose
    return near.sort_values("alpha", ascending=False, kind="stable").iloc[0]


# ------------------------------------------------------------------ measuring


def measure_fold(model: Model, fold: Fold, inner: int) -> list[dict[str, Any]]:
    """Return one row for each decision of the model and each criterion of choice."""
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        warnings.simplefilter("always", ConvergenceWarning)
        rows = _rows(model, fold, inner)
    unconverged = sum(issubclass(w.category, ConvergenceWarning) for w in caught)
    for w in caught:
        if not issubclass(w.category, ConvergenceWarning):
            warnings.warn_explicit(w.message, w.category, w.filename, w.lineno)
    seconds = time.perf_counter() - start
    return [{**row, "unconverged": unconverged, "seconds": round(seconds, 4)} for row in rows]


def _rows(model: Model, fold: Fold, inner: int) -> list[dict[str, Any]]:
    """Fit what is chosen, each once, and measure it on the test fold."""
    scaler: Any = StandardScaler().fit(fold.X_train)
    X, y, classes = scaler.transform(fold.X_train), fold.y_train, fold.classes
    splits = inner_splits(y, inner)
    fitted: dict[tuple[float, ...], Any] = {}
    if isinstance(model.estimator, GeometricClassifier):
        table, fits = search_geometric(model, X, y, classes, splits)
        fitted = {(one.scale_, one.alpha_): one for one in fits}
    else:
        table = search(model, X, y, classes, splits)
    measured: dict[tuple[float, ...], tuple[Prediction, dict[str, float]]] = {}
    rows = []
    for decision in (*model.decisions, *(["chosen"] if len(model.decisions) > 1 else [])):
        part = table if decision == "chosen" else table[table["decision"] == decision]
        for by in CRITERIA:
            choice = best(part, by)
            parameters = {name: float(choice[name]) for name in ("scale", "alpha") if name in table}
            key = tuple(parameters.values())
            if key not in measured:
                if key not in fitted:
                    fitted[key] = model.fit(X, y, classes, **parameters)
                prediction = predict(fitted[key], scaler.transform(fold.X_test), classes)
                measured[key] = prediction, measure_probabilities(fold.y_test, prediction)
            prediction, of_probabilities = measured[key]
            labels = decide(prediction, choice["decision"])
            rows.append(
                {
                    "set": fold.name,
                    "fold": fold.number,
                    "folds_by": fold.origin,
                    "model": model.name,
                    "decision": decision,
                    "selected_by": by,
                    "rule": choice["decision"],
                    "alpha": parameters["alpha"],
                    "scale": parameters.get("scale", float("nan")),
                    **of_probabilities,
                    **measure_labels(fold.y_test, labels, classes),
                }
            )
    return rows
