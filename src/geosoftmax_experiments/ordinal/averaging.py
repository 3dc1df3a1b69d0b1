"""One unit of work: fit a model on a training fold, and measure it on the test fold.

There is one procedure for all models and sets. Features are standardised by the training fold.
Every candidate (a setting with a decision) is judged on inner folds (`selection.judge`). No
single one is chosen: on a few dozen samples the best is often so by chance.
They are averaged as `GeometricClassifierCV` does it with ``average=True``: by weights that fall
with the loss. Those with a weight are fitted to the whole training fold. Their distributions are
averaged. Their labels vote: the answer is the median of the votes, or the mode where the criterion
is accuracy. The test fold is seen by the measures alone.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from geosoftmax import LineCost, ZeroOneCost
from geosoftmax.estimators.averaging import vote, weigh_candidates
from geosoftmax_experiments.data.ordinal import Fold
from geosoftmax_experiments.ordinal.decisions import Prediction, decide, predict
from geosoftmax_experiments.ordinal.measures import (
    CRITERIA,
    measure_labels,
    measure_probabilities,
)
from geosoftmax_experiments.ordinal.models import Model
from geosoftmax_experiments.ordinal.selection import Judged, inner_splits, judge

__all__ = ["measure_average", "measure_fold", "weigh"]


def weigh(losses: np.ndarray) -> np.ndarray:
    """Return the weight of each candidate from its losses, of shape (..., samples); sum 1.

    Examples
    --------
    >>> import numpy as np
    >>> weigh(np.array([[0.0, 1.0, 0.0, 1.0], [0.0, 1.0, 1.0, 1.0], [9.0, 9.0, 9.0, 9.0]])).round(2)
    array([0.73, 0.27, 0.  ])
    """
    means = losses.mean(-1)
    least = losses.reshape(-1, losses.shape[-1])[means.argmin()]
    return weigh_candidates(means, least.std() / math.sqrt(len(least)))


def measure_fold(model: Model, fold: Fold, inner: int) -> list[dict[str, Any]]:
    """Return one row for each decision of the model and each criterion of choice.

    The decision "chosen" has the candidates of all decisions.
    """
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        warnings.simplefilter("always", ConvergenceWarning)
        with config_context(
            assume_finite=True, skip_parameter_validation=True
        ):  # files are checked
            rows = _rows(model, fold, inner)
    unconverged = sum(issubclass(w.category, ConvergenceWarning) for w in caught)
    for w in caught:
        if not issubclass(w.category, ConvergenceWarning):
            warnings.warn_explicit(w.message, w.category, w.filename, w.lineno)
    seconds = time.perf_counter() - start
    return [{**row, "unconverged": unconverged, "seconds": round(seconds, 4)} for row in rows]


def _rows(model: Model, fold: Fold, inner: int) -> list[dict[str, Any]]:
    scaler: Any = StandardScaler().fit(fold.X_train)
    X, y, classes = scaler.transform(fold.X_train), fold.y_train, fold.classes
    X_test = scaler.transform(fold.X_test)

    def fitted(parameters: dict[str, Any]) -> Prediction:
        return predict(model.fit(X, y, classes, **parameters), X_test, classes)

    judged = judge(model, X, y, classes, inner_splits(y, inner))
    empty = {"alpha": math.nan, "scale": math.nan, "cost": "its own"}
    return measure_average(judged, fitted, fold, model.name, empty)


def measure_average(
    judged: Judged,
    fitted: Callable[[dict[str, Any]], Prediction],
    fold: Fold,
    name: str,
    empty: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Return the rows of a model: what its candidates say together of the test samples.

    `fitted` returns what a setting says of them, fitted to the whole training fold; it is called
    for those that have a weight alone. Of the heaviest one, rows hold the parameters that `empty`
    names, and its values where a model has none.
    """
    weights = _weights(judged)
    together = _Together(judged, fitted, weights.values())
    rows = []
    for (decision, by), weight in weights.items():
        setting, rule = np.unravel_index(weight.argmax(), weight.shape)
        heaviest = judged.settings[setting]
        elected = together.elect(weight, mode=by == "accuracy")
        rows.append(
            {
                "set": fold.name,
                "fold": fold.number,
                "folds_by": fold.origin,
                "model": name,
                "decision": decision,
                "selected_by": by,
                "rule": judged.rules[rule],
                **{key: heaviest.get(key, value) for key, value in empty.items()},
                "settings": int((weight.sum(1) > 0).sum()),
                **together.measure(weight, fold.y_test),
                **measure_labels(fold.y_test, elected, fold.classes),
            }
        )
    return rows


def _weights(judged: Judged) -> dict[tuple[str, str], np.ndarray]:
    """Return the weights by setting and rule, for each decision and criterion."""
    found = {}
    for decision in (*judged.rules, *(["chosen"] if len(judged.rules) > 1 else [])):
        allowed = [decision in ("chosen", rule) for rule in judged.rules]
        for by in CRITERIA:
            weight = np.zeros(judged.losses[by].shape[:2])
            weight[:, allowed] = weigh(judged.losses[by][:, allowed])
            found[decision, by] = weight
    return found


class _Together:
    """What the settings with a weight say of the test samples."""

    def __init__(
        self,
        judged: Judged,
        fitted: Callable[[dict[str, Any]], Prediction],
        weights: Iterable[np.ndarray],
    ) -> None:
        self.used = np.flatnonzero(np.sum([weight.sum(1) for weight in weights], axis=0))
        found = [fitted(judged.settings[setting]) for setting in self.used]
        self.point = found[0].point
        self.distributions = np.array([one.distributions for one in found])
        self.labels = np.array([[decide(one, rule) for rule in judged.rules] for one in found])
        self.measured: dict[bytes, dict[str, float]] = {}

    def measure(self, weight: np.ndarray, y: np.ndarray) -> dict[str, float]:
        """Measure the average of the distributions; what has the same weights is measured once."""
        share = weight.sum(1)[self.used].round(12)
        if share.tobytes() not in self.measured:
            average = Prediction(np.tensordot(share, self.distributions, 1), point=self.point)
            self.measured[share.tobytes()] = measure_probabilities(y, average)
        return self.measured[share.tobytes()]

    def elect(self, weight: np.ndarray, mode: bool) -> np.ndarray:
        """Return the outcome of the vote of all candidates."""
        votes, classes = weight[self.used].ravel(), self.distributions.shape[-1]
        voters = votes.nonzero()[0]
        labels = self.labels.reshape(len(votes), -1)
        measure = ZeroOneCost(classes) if mode else LineCost(classes)
        return vote(labels[voters], votes[voters], measure)
