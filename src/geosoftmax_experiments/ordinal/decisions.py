"""From a distribution over ordered classes to one of them.

The rules are those of `geosoftmax.decide`, the same for every model, so that no gain comes from the
rule alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import geosoftmax
from geosoftmax import LineCost
from geosoftmax.estimators import GeometricClassifier, GeometricClassifierCV

__all__ = ["LABELS", "RULES", "Prediction", "decide", "predict"]

#: Rules that need a distribution. For a squared cost, "mean" is the least-cost decision.
RULES = ("mode", "median", "mean")
LABELS = {
    "mode": "mode",
    "median": "median",
    "mean": "mean (least squared cost)",
    "scores": "argmax of the scores",
    "own": "the model's own",
    "chosen": "all of these rules are candidates",
}


@dataclass(frozen=True)
class Prediction:
    """What a model says of some samples.

    Parameters
    ----------
    probabilities : ndarray of shape (n_samples, n_classes)
        Models that predict a class alone give it all the probability.
    scores : ndarray of the same shape, optional
        What the decision "scores" takes the largest of.
    point : bool
        Whether the model predicts a class alone.
    """

    probabilities: np.ndarray
    scores: np.ndarray | None = None
    point: bool = False

    @property
    def distributions(self) -> np.ndarray:
        """The probabilities without their rounding: none is below 0, and they sum to 1."""
        p = np.clip(np.asarray(self.probabilities, dtype=np.float64), 0, None)
        return p / p.sum(1, keepdims=True)


def predict(model: Any, X: np.ndarray, classes: int) -> Prediction:
    """Return what a fitted classifier says of samples; its labels are some of 0 … `classes` - 1."""
    if not hasattr(model, "predict_proba"):
        return Prediction(np.eye(classes)[model.predict(X).astype(int)], point=True)
    probabilities = np.zeros((len(X), classes))
    probabilities[:, model.classes_] = model.predict_proba(X)
    if not isinstance(model, (GeometricClassifier, GeometricClassifierCV)):
        return Prediction(probabilities)
    return Prediction(probabilities, X @ model.coef_.T + model.intercept_)


def decide(prediction: Prediction, rule: str) -> np.ndarray:
    """Return the class, 0, 1, …, that a rule chooses for each sample.

    Examples
    --------
    >>> import numpy as np
    >>> skewed = Prediction(np.array([[0.4, 0.0, 0.3, 0.3]]))
    >>> [int(decide(skewed, rule)[0]) for rule in RULES]
    [0, 2, 1]
    """
    if rule == "scores":
        if prediction.scores is None:
            raise ValueError("the decision 'scores' needs a model with scores.")
        return prediction.scores.argmax(1)
    if rule not in (*RULES, "own"):
        raise ValueError(f"rule must be one of {', '.join(RULES)}, scores or own; got {rule!r}.")
    p = prediction.distributions
    own = "mode" if rule == "own" else rule  # a class alone has all the probability
    return geosoftmax.decide(torch.from_numpy(p), LineCost(p.shape[1]), own).numpy()
