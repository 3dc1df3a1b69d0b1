"""The models that are compared: one table, and one short function for each.

A function fits to standardised features and labels 0, 1, …, `classes` - 1 and returns what
predicts. Labels may miss classes (inner folds of small sets do): those get no probability.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from geosoftmax_experiments.ordinal.decisions import RULES, Prediction
from geosoftmax_experiments.ordinal.sparsemax import fit_sparsemax, sparsemax

__all__ = ["ALPHAS", "MODELS", "SCALES", "Model", "Predictor"]

#: Weights of the penalty, the most regular first: of equal ones the first is taken.
ALPHAS = (300.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.1, 0.01)
#: Scales of the squared cost, C = scale · (ŷ-y)²; the paper's is 0.5, and 8 is almost the softmax.
SCALES = (0.5, 1.0, 2.0, 4.0, 8.0, 0.25)

Predictor = Callable[[np.ndarray], Prediction]


@dataclass(frozen=True)
class Model:
    """A family of fitted models: how to fit one, and which parameters to choose from.

    Parameters
    ----------
    name, label : str
        For files and options, and for readers.
    fit : callable
        ``fit(X, y, classes, **parameters)`` returns a function from samples to a `Prediction`.
    grid : tuple of dict
        The parameters to choose from, by cross-validation inside the training fold.
    decisions : tuple of str
        Rules to predict by, the model's own first. Where there are several, "chosen" is added.
    note : str
        What it is and whose code.
    """

    name: str
    label: str
    fit: Callable[..., Predictor]
    grid: tuple[dict[str, float], ...]
    decisions: tuple[str, ...]
    note: str


# ------------------------------------------------------------------ fits


def _fit_logistic(X: np.ndarray, y: np.ndarray, classes: int, alpha: float) -> Predictor:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=1 / alpha, max_iter=2000).fit(X, y)
    return lambda new: Prediction(_spread(model.predict_proba(new), model.classes_, classes))


def _fit_geometric(
    X: np.ndarray, y: np.ndarray, classes: int, alpha: float, scale: float
) -> Predictor:
    from geosoftmax.estimators import GeometricClassifier

    model = GeometricClassifier("squared", scale=scale, alpha=alpha, classes=np.arange(classes))
    model.fit(X, y)

    def predict(new: np.ndarray) -> Prediction:
        return Prediction(model.predict_proba(new), new @ model.coef_.T + model.intercept_)

    return predict


def _fit_sparsemax(X: np.ndarray, y: np.ndarray, classes: int, alpha: float) -> Predictor:
    W, b = fit_sparsemax(X, y, classes, alpha)
    return lambda new: Prediction(sparsemax(new @ W.T + b))


def _fit_all_threshold(X: np.ndarray, y: np.ndarray, classes: int, alpha: float) -> Predictor:
    import mord

    return _fit_thresholds(mord.LogisticAT(alpha=alpha), X, y, classes)


def _fit_immediate_threshold(X: np.ndarray, y: np.ndarray, classes: int, alpha: float) -> Predictor:
    import mord

    return _fit_thresholds(mord.LogisticIT(alpha=alpha), X, y, classes)


def _fit_odds(X: np.ndarray, y: np.ndarray, classes: int, alpha: float) -> Predictor:
    from skordinal.classifiers import POM

    return _fit_thresholds(POM(alpha=alpha, max_iter=2000), X, y, classes)


def _fit_thresholds(model: Any, X: np.ndarray, y: np.ndarray, classes: int) -> Predictor:
    """Fit a model with thresholds, which needs labels without gaps."""
    present, packed = np.unique(y, return_inverse=True)
    with warnings.catch_warnings():
        # mord 0.7 hands scipy an option that scipy 1.17 will drop; the fit is not affected.
        warnings.filterwarnings("ignore", message=".*`disp` and `iprint`")
        model.fit(X, packed)
    return lambda new: Prediction(_spread(model.predict_proba(new), present, classes))


def _fit_reduction(X: np.ndarray, y: np.ndarray, classes: int, alpha: float) -> Predictor:
    from skordinal.classifiers import REDSVM

    model = REDSVM(C=1 / alpha, kernel="linear").fit(X, y)
    return lambda new: Prediction(np.eye(classes)[model.predict(new)], point=True)


def _fit_ridge(X: np.ndarray, y: np.ndarray, classes: int, alpha: float) -> Predictor:
    import mord

    model = mord.OrdinalRidge(alpha=alpha).fit(X, y)
    return lambda new: Prediction(np.eye(classes)[model.predict(new).astype(int)], point=True)


def _spread(probabilities: np.ndarray, present: np.ndarray, classes: int) -> np.ndarray:
    """Give the classes that the fit did not see their columns of zeros."""
    spread = np.zeros((len(probabilities), classes))
    spread[:, present] = probabilities
    return spread


# ------------------------------------------------------------------ the table


def _grid(**choices: tuple[float, ...]) -> tuple[dict[str, float], ...]:
    return tuple(
        dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())
    )


_PENALTY = _grid(alpha=ALPHAS)
_MEDIAN_FIRST = ("median", "mode", "mean")

MODELS = {
    model.name: model
    for model in (
        Model("lr", "LR", _fit_logistic, _PENALTY, RULES, "multinomial logistic (scikit-learn)"),
        Model("at", "LR(AT)", _fit_all_threshold, _PENALTY, _MEDIAN_FIRST, "all thresholds (mord)"),
        Model(
            "it",
            "LR(IT)",
            _fit_immediate_threshold,
            _PENALTY,
            _MEDIAN_FIRST,
            "immediate thresholds (mord)",
        ),
        Model(
            "g",
            "g-logistic",
            _fit_geometric,
            _grid(alpha=ALPHAS, scale=(0.5,)),
            ("scores", *RULES),
            "geometric logistic loss, C = (ŷ-y)²/2 as in the paper",
        ),
        Model(
            "g-scale",
            "g-logistic(scale)",
            _fit_geometric,
            _grid(alpha=ALPHAS, scale=SCALES),
            ("scores", *RULES),
            "geometric logistic loss, C = scale·(ŷ-y)², the scale chosen with the penalty",
        ),
        Model(
            "sparsemax",
            "sparsemax",
            _fit_sparsemax,
            _PENALTY,
            RULES,
            "sparsemax loss (entmax's link): sparse, without geometry",
        ),
        Model("pom", "POM", _fit_odds, _PENALTY, _MEDIAN_FIRST, "proportional odds (skordinal)"),
        Model(
            "redsvm",
            "REDSVM",
            _fit_reduction,
            _grid(alpha=(100.0, 10.0, 1.0)),
            ("own",),
            "reduction to a linear SVM (skordinal); three penalties only, as fits are slow",
        ),
        Model("ridge", "ordinal ridge", _fit_ridge, _PENALTY, ("own",), "rounded ridge (mord)"),
    )
}
