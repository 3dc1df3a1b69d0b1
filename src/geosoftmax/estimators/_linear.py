"""What the estimators share once they are fitted: probabilities and decisions of a linear model."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from geosoftmax.costs.base import Cost
from geosoftmax.estimators._reading import (
    measure_of,
    read_classes,
    read_decision,
    read_order,
    rule_for,
    warn_of_alphabet,
    warn_of_gaps,
    weigh,
)
from geosoftmax.functional import decide, geometric_softmax

FLOATS = (np.float64, np.float32)


class LinearGeometric(ClassifierMixin, BaseEstimator):
    """Scores ``f = coef_ x + intercept_``, probabilities ``geometric_softmax(f)``, a decision."""

    classes: Any
    cost: Any
    class_weight: Any
    decision: Any
    classes_: np.ndarray
    n_features_in_: int
    coef_: np.ndarray
    intercept_: np.ndarray
    cost_: Cost
    decision_: str

    @abstractmethod
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to samples."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # ------------------------------------------------------------------ predicting

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the geometric softmax of the scores, with exact zeros.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        scores = self._scores(X)
        alpha = geometric_softmax(torch.from_numpy(scores.astype(np.float64)), self.cost_)
        return alpha.numpy().astype(scores.dtype, copy=False)

    def predict_cost(self, X: Any) -> np.ndarray:
        """Return what predicting each class is expected to cost, by the measure of `decision`.

        The measure is the distance between positions for ``"median"``, its square for ``"mean"``,
        0 or 1 for ``"mode"`` and ``"scores"``, and `cost_` for ``"cost"``. ``"auto"`` stands for
        one of these.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        alpha = self.predict_proba(X)
        measure = measure_of(_rule(self), self.cost_)
        expected = measure.expected(torch.from_numpy(alpha.astype(np.float64)))
        return expected.detach().numpy().astype(alpha.dtype, copy=False)

    def decision_function(self, X: Any) -> np.ndarray:
        """Return what `predict` maximises: minus the expected costs, or the scores.

        Of classes that are equally good up to rounding, `predict` takes the first: see
        `geosoftmax.decide`.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            For two classes of shape (n_samples,): positive for the second.
        """
        check_is_fitted(self)
        values = self._scores(X) if self.decision == "scores" else -self.predict_cost(X)
        return values[:, 1] - values[:, 0] if len(self.classes_) == 2 else values

    def predict(self, X: Any) -> np.ndarray:
        """Return the class that the decision rule chooses for each sample.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        chosen = chosen_positions(self, X)
        return self.classes_[chosen]

    def _scores(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=FLOATS, reset=False)
        return np.asarray(X @ self.coef_.T) + self.intercept_

    # ------------------------------------------------------------------ reading

    def _read(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, np.ndarray, np.ndarray]:
        """Validate; set `classes_`; return X, the positions of the classes of y, the weights."""
        read_decision(self.decision)
        given = y
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=FLOATS, order="C")
        order = read_order(given, self.classes, self.cost)
        warn_of_alphabet(y, order, self.cost)
        self.classes_, target = read_classes(y, order)
        if order is None:
            warn_of_gaps(self.classes_, self.cost)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        return X, target, weigh(weight, self.class_weight, self.classes_, target, y)


def set_fitted(
    model: LinearGeometric,
    coef: np.ndarray,
    intercept: np.ndarray,
    cost: Cost,
    rule: str,
    dtype: Any,
) -> None:
    """Set the fitted attributes, in the dtype of the samples."""
    model.coef_, model.intercept_ = coef.astype(dtype), intercept.astype(dtype)
    model.cost_, model.decision_ = cost, rule


def _rule(model: LinearGeometric) -> str:
    return model.decision_ if model.decision == "auto" else rule_for(model.decision, [model.cost_])


def chosen_positions(model: LinearGeometric, X: Any) -> np.ndarray:
    """Return the positions of the classes to predict."""
    check_is_fitted(model)
    rule = _rule(model)
    if rule == "scores":
        values = model.decision_function(X)
        return (values > 0).astype(int) if values.ndim == 1 else values.argmax(1)
    alpha = torch.from_numpy(model.predict_proba(X))
    return decide(alpha, measure_of(rule, model.cost_)).numpy()
