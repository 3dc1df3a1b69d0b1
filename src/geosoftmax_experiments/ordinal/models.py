"""The models that are compared: one table of scikit-learn classifiers.

They are fitted to standardised features and labels 0, 1, …, `classes` - 1. Labels may miss classes
(inner folds of small sets do): those get no probability.
"""

from __future__ import annotations

import itertools
import warnings
from dataclasses import dataclass
from typing import Any, Self

import mord
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.linear_model import LogisticRegression
from skordinal.classifiers import POM, REDSVM

from geosoftmax.estimators import GeometricClassifier
from geosoftmax_experiments.ordinal.decisions import RULES
from geosoftmax_experiments.ordinal.sparsemax import SparsemaxClassifier

__all__ = ["ALPHAS", "MODELS", "SCALES", "Model"]

#: Weights of the penalty, the most regular first: of equal ones the first is taken.
ALPHAS = (300.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.1, 0.01)
#: Scales of costs, C = scale · |ŷ-y|^p; the paper's is 0.5 with p = 2, and 8 is almost the softmax.
SCALES = (0.5, 1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True)
class Model:
    """A family of classifiers, and what is chosen inside the training fold.

    Parameters
    ----------
    name, label : str
        For files and options, and for readers.
    estimator : classifier of scikit-learn
        Its penalty is called ``alpha``, or ``C`` (then ``1 / alpha``).
    note : str
        What it is and whose code.
    decisions : tuple of str
        Rules to predict by, the model's own first. Where there are several, "chosen" is added.
    alphas, scales : tuple of float
        Candidates for the penalty, and for the scale of a geometric classifier.
    costs : tuple of str
        Candidates for its cost.
    """

    name: str
    label: str
    estimator: Any
    note: str
    decisions: tuple[str, ...]
    alphas: tuple[float, ...] = ALPHAS
    scales: tuple[float, ...] = ()
    costs: tuple[str, ...] = ()

    def settings(self) -> list[dict[str, Any]]:
        """Return the parameters of all candidates."""
        named = {"cost": self.costs, "scale": self.scales, "alpha": self.alphas}
        named = {name: values for name, values in named.items() if values}
        return [
            dict(zip(named, values, strict=True)) for values in itertools.product(*named.values())
        ]

    def fit(self, X: np.ndarray, y: np.ndarray, classes: int, alpha: float, **rest: Any) -> Any:
        """Return a new classifier, fitted."""
        model: Any = clone(self.estimator)
        known = model.get_params()
        model.set_params(**({"C": 1 / alpha} if "C" in known else {"alpha": alpha}), **rest)
        if "classes" in known:
            model.set_params(classes=np.arange(classes))
        return model.fit(X, y)


class Thresholds(ClassifierMixin, BaseEstimator):
    """A model with thresholds of another package, which needs labels without gaps."""

    def __init__(self, model: Any, alpha: float = 1.0) -> None:
        self.model = model
        self.alpha = alpha

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        """Fit to samples."""
        self.classes_, packed = np.unique(y, return_inverse=True)
        with warnings.catch_warnings():
            # mord 0.7 hands scipy an option that scipy 1.17 will drop; the fit is not affected.
            warnings.filterwarnings("ignore", message=".*`disp` and `iprint`")
            model: Any = clone(self.model)
            self.model_ = model.set_params(alpha=self.alpha).fit(X, packed)
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Return the probabilities of the classes that the fit saw."""
        return self.model_.predict_proba(X)

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return the class that the model itself predicts."""
        return self.classes_[self.model_.predict(X)]


_MEDIAN_FIRST = ("median", "mode", "mean")
_SCORES_FIRST = ("scores", *RULES)

# fmt: off
MODELS = {
    model.name: model
    for model in (
        Model("lr", "LR", LogisticRegression(max_iter=2000),
              "multinomial logistic (scikit-learn)", RULES),
        Model("at", "LR(AT)", Thresholds(mord.LogisticAT()),
              "all thresholds (mord)", _MEDIAN_FIRST),
        Model("it", "LR(IT)", Thresholds(mord.LogisticIT()),
              "immediate thresholds (mord)", _MEDIAN_FIRST),
        Model("g", "g-logistic", GeometricClassifier("squared"),
              "geometric logistic loss, C = (ŷ-y)²/2 as in the paper", _SCORES_FIRST,
              scales=(0.5,)),
        Model("g-scale", "g-logistic(scale)", GeometricClassifier("squared"),
              "geometric logistic loss, C = scale·(ŷ-y)² or scale·abs(ŷ-y), candidates all",
              _SCORES_FIRST, scales=SCALES, costs=("squared", "absolute")),
        Model("sparsemax", "sparsemax", SparsemaxClassifier(),
              "sparsemax loss (entmax's link): sparse, without geometry", RULES),
        Model("pom", "POM", Thresholds(POM(max_iter=2000)),
              "proportional odds (skordinal)", _MEDIAN_FIRST),
        Model("redsvm", "REDSVM", REDSVM(kernel="linear"),
              "reduction to a linear SVM (skordinal); three penalties only, as fits are slow",
              ("own",), alphas=(100.0, 10.0, 1.0)),
        Model("ridge", "ordinal ridge", mord.OrdinalRidge(), "rounded ridge (mord)", ("own",)),
    )
}
# fmt: on
