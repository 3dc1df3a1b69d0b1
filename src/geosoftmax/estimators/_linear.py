"""The base class of the estimators: probabilities and decisions of a fitted linear model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from geosoftmax.costs.base import Cost
from geosoftmax.estimators._labels import (
    categories_of,
    check_labels,
    read_classes,
    read_order,
    warn_of_gaps,
    warn_of_order,
)
from geosoftmax.estimators._reading import (
    by_rank,
    measure_of,
    read_costs,
    rule_for,
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
    shared: Any = None
    classes_: np.ndarray
    order_: np.ndarray
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
            One column per class, in the order of `classes_`.
        """
        check_is_fitted(self)
        return self._distributions(X)[:, _sorted(self)]

    def predict_cost(self, X: Any) -> np.ndarray:
        """Return the expected cost of predicting each class, as `decision` measures it.

        The cost of an error is the distance between positions for ``"median"``, its square for
        ``"mean"``, 1 for ``"mode"`` and ``"scores"``, and `cost_` for ``"cost"``. With ``"auto"``,
        it is that of `decision_`.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            One column per class, in the order of `classes_`.
        """
        check_is_fitted(self)
        alpha = self._distributions(X)
        expected = self._measure().expected(torch.from_numpy(alpha.astype(np.float64)))
        return expected.detach().numpy().astype(alpha.dtype, copy=False)[:, _sorted(self)]

    def decision_function(self, X: Any) -> np.ndarray:
        """Return what `predict` maximises: minus the expected costs, or the scores.

        If classes are equally good up to rounding, `predict` takes the first: see
        `geosoftmax.decide`.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            One column per class, in the order of `classes_`. With two classes, the shape is
            (n_samples,), and positive values mean the second class.
        """
        check_is_fitted(self)
        values = self._values(X)
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
        check_is_fitted(self)
        return self.order_[self._chosen(X)]

    # What a model of several candidates does in another way.

    def _rule(self) -> str:
        """Return the decision rule: that of the fit, unless `decision` names one."""
        rule = rule_for(self.decision, [self.cost_])
        return self.decision_ if self.decision == "auto" else rule

    def _distributions(self, X: Any) -> np.ndarray:
        """Return the distributions, with columns in the order of the cost."""
        return distributions_of(self, X)

    def _measure(self) -> Cost:
        """Return the cost of errors that the decision minimises."""
        return measure_of(self._rule(), self.cost_)

    def _values(self, X: Any) -> np.ndarray:
        """Return what `predict` maximises, with columns in the order of `classes_`."""
        by_scores = self._rule() == "scores"
        return _scores(self, X)[:, _sorted(self)] if by_scores else -self.predict_cost(X)

    def _chosen(self, X: Any) -> np.ndarray:
        """Return the predicted classes, as positions in `order_`."""
        if self._rule() == "scores":
            return _scores(self, X).argmax(1)
        return decide(torch.from_numpy(self._distributions(X)), self._measure()).numpy()

    # ------------------------------------------------------------------ reading

    def _read(
        self, X: Any, y: Any, sample_weight: Any
    ) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
        """Validate; set `order_` and `classes_`.

        Return X, the positions of the labels, the weights in fits, and the sample weights alone.
        """
        given = y
        check_labels(y)
        X, y = _validated(self, X, y, order="C")
        costs = [*read_costs(self.cost), *([] if self.shared is None else [self.shared])]
        ranked = by_rank(self.decision, self.cost)
        order = read_order(given, self.classes, costs, ranked)
        if self.classes is None and categories_of(given) is None:
            warn_of_order(y, order, costs, ranked)
        self.order_, target = read_classes(y, order)
        self.classes_ = np.sort(self.order_)
        if order is None:
            warn_of_gaps(self.order_, self.cost)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        return X, target, weigh(weight, self.class_weight, self.order_, target, y), weight


def set_fitted(
    model: LinearGeometric,
    coef: np.ndarray,
    intercept: np.ndarray,
    cost: Cost,
    rule: str,
    dtype: Any,
) -> None:
    """Set the fitted attributes, in the dtype of the samples; rows of `coef` are in `order_`."""
    rows = _sorted(model)
    model.coef_, model.intercept_ = coef[rows].astype(dtype), intercept[rows].astype(dtype)
    model.cost_, model.decision_ = cost, rule


def _sorted(model: LinearGeometric) -> np.ndarray:
    """Return the positions in `order_` of the sorted `classes_`."""
    return np.argsort(model.order_)


def read_features(model: LinearGeometric, X: Any) -> Any:
    """Return samples as a fitted model takes them, checked."""
    check_is_fitted(model)
    return _validated(model, X, reset=False)


def _validated(model: LinearGeometric, *arrays: Any, **options: Any) -> Any:
    try:
        return validate_data(model, *arrays, accept_sparse="csr", dtype=FLOATS, **options)
    except ValueError as error:
        if "could not convert string to float" not in str(error):
            raise
        raise ValueError(
            f"{error}. Features must be numbers. Encode columns of text first: a ColumnTransformer "
            "with a OneHotEncoder for them, in a pipeline."
        ) from error


def _scores(model: LinearGeometric, X: Any) -> np.ndarray:
    """Return the scores, with columns in the order of the cost."""
    return linear(model, read_features(model, X))


def linear(model: LinearGeometric, X: Any) -> np.ndarray:
    """Return the scores of samples that have been read."""
    scores = np.asarray(X @ model.coef_.T) + model.intercept_
    return scores[:, np.searchsorted(model.classes_, model.order_)]


def distributions_of(model: LinearGeometric, X: Any) -> np.ndarray:
    """Return the geometric softmax of the scores, with columns in the order of the cost."""
    return _probabilities(model, _scores(model, X))


def _probabilities(model: LinearGeometric, scores: np.ndarray) -> np.ndarray:
    alpha = geometric_softmax(torch.from_numpy(scores.astype(np.float64)), model.cost_)
    return alpha.numpy().astype(scores.dtype, copy=False)


def decided(model: LinearGeometric, X: Any, rules: Sequence[str]) -> list[np.ndarray]:
    """Return the predicted classes of samples that have been read, as positions in `order_`.

    There is an array for each of the rules.
    """
    scores = linear(model, X)
    alpha = None
    if any(rule != "scores" for rule in rules):
        alpha = torch.from_numpy(_probabilities(model, scores))
    return [
        scores.argmax(1) if alpha is None or rule == "scores"
        else decide(alpha, measure_of(rule, model.cost_)).numpy()
        for rule in rules
    ]  # fmt: skip
