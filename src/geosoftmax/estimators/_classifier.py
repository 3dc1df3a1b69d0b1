"""A linear classifier with the geometric logistic loss."""

from __future__ import annotations

import warnings
from typing import Any, Self

from sklearn.exceptions import ConvergenceWarning

from geosoftmax.estimators._fitting import Fit, fit_linear
from geosoftmax.estimators._linear import LinearGeometric, set_fitted
from geosoftmax.estimators._reading import (
    read_cost,
    read_count,
    read_flag,
    read_number,
    rule_for,
)

__all__ = ["GeometricClassifier"]


class GeometricClassifier(LinearGeometric):
    r"""Linear classifier for classes with a geometry: :math:`f = W x + c`, geometric logistic loss.

    The fit minimises the convex objective ``Σ_i w_i ℓ(y_i, f_i) + alpha/2 ‖W‖²``, where
    ``ℓ(y, f) = geometric_logistic_loss(f, y, scale * cost)``. Probabilities are the geometric
    softmax of the scores. Many are exactly 0. That is no guarantee: on new samples such a class may
    come true. `GeometricClassifierCV` with ``average=True`` makes this rare.

    Parameters
    ----------
    cost : {"squared", "absolute", "zero-one"}, array of shape (n_classes, n_classes), or Cost
        The cost between classes. A name puts the classes at positions 0, 1, 2, … in their order,
        even if their labels are numbers: labels 1, 2, 5, 10 get positions 0, 1, 2, 3, with a
        warning. If the distances between labels matter, pass ``LineCost([1, 2, 5, 10])``.
        The labels of a pandas table are those of the classes.
    scale : float
        The factor of the cost. It also multiplies a `Cost` or a matrix that you pass. The paper's
        ordinal cost is the squared one with scale 0.5; the notes explain the default.
    alpha : float
        The weight of the penalty: ``1 / C`` of `sklearn.linear_model.LogisticRegression`.
    decision : {"auto", "median", "mean", "mode", "cost", "scores"}
        Which class to predict. ``"median"`` and ``"mean"`` minimise the expected absolute and
        squared error, in the positions of the cost (0, 1, 2, … if it has none). ``"mode"`` is the
        most probable class. ``"cost"`` minimises the expected `cost`. ``"scores"`` takes the
        largest score, as in the paper. ``"auto"`` is ``"median"`` for classes on a line
        (``"squared"``, ``"absolute"``, a `LineCost`), and ``"cost"`` for other costs. Only
        ``"mode"`` is always the largest entry of `predict_proba`: a median may lie between two
        classes that are more probable.
    shared : as `cost`, optional
        Classes that are near under this cost get similar weights. The penalty is then
        ``alpha/2 tr(W K⁻¹ Wᵀ)`` with ``K = exp(-shared/2)``, instead of ``alpha/2 ‖W‖²``. A
        taxonomy helps most here, when samples are few: ``GeometricClassifier("zero-one",
        shared=tree)``. It needs a dense matrix between the classes.
    fit_intercept : bool
    classes : sequence, optional
        All classes in order. Needed if the sorted labels are in another order, or if some classes
        do not occur in the data. The default is the names of the outputs of the cost, if it has
        them; else the order of `y`, if it is an ordered pandas categorical; else the sorted labels.
        Names in another order than `classes`, or than that categorical, are refused if the cost or
        the decision needs the order: ``TreeCost.from_dict(tree, order=[...])``. A fitted model
        stores the order as `order_`.
    class_weight : dict, "balanced", optional
        As in scikit-learn: multiplies the sample weights.
    max_iter : int
        The largest number of steps of the optimiser.
    tol : float
        The fit stops when no entry of the gradient of the objective, divided by the sum of the
        weights, is larger than this.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes, *sorted*, as scikit-learn's metrics expect them. The columns of probabilities
        and the rows of `coef_` are in this order.
    order_ : ndarray of shape (n_classes,)
        The classes in the order of the cost.
    coef_ : ndarray of shape (n_classes, n_features)
    intercept_ : ndarray of shape (n_classes,)
    cost_ : Cost
        ``scale * cost``.
    decision_ : str
        The decision in use: what ``"auto"`` chose, or the one that you passed.
    n_iter_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)

    See Also
    --------
    GeometricClassifierCV : Chooses the penalty, and the scale and cost, by cross-validation.

    Notes
    -----
    At smaller scales, few distributions have a dip between two classes, and the median is nearly
    always the mode. scikit-learn's estimator checks require that the prediction is the mode, on
    three classes without an order. This holds with the default scale and penalty, and with smaller
    penalties. With the paper's scale, 0.5, they differ on one or two samples of 300. On ordered
    classes the two scales predict about equally well.

    `VotingClassifier`, and ``cross_val_predict(…, method="predict_proba")``, number labels in
    sorted order before they fit. The order of a categorical is lost there without a word; with
    `classes` the fit is refused. For these, number the labels yourself as 0, 1, 2, … in their order
    (``y.cat.codes`` of an ordered pandas categorical), and do not pass `classes`.

    Examples
    --------
    >>> import numpy as np
    >>> from geosoftmax.estimators import GeometricClassifier
    >>> X = np.linspace(0.0, 3.0, 12)[:, None]
    >>> y = np.repeat(["poor", "fair", "good"], 4)
    >>> model = GeometricClassifier(classes=["poor", "fair", "good"], alpha=0.01).fit(X, y)
    >>> model.predict([[0.2], [1.5], [2.9]])
    array(['poor', 'fair', 'good'], dtype='<U4')
    >>> model.classes_  # sorted, as everywhere in scikit-learn; model.order_ is as given
    array(['fair', 'good', 'poor'], dtype='<U4')
    >>> model.predict_proba([[0.2], [1.0]]).round(2)
    array([[0.  , 0.  , 1.  ],
           [0.65, 0.  , 0.35]])
    """

    n_iter_: int

    def __init__(
        self,
        cost: Any = "squared",
        *,
        scale: float = 0.4,
        alpha: float = 1.0,
        decision: str = "auto",
        shared: Any = None,
        fit_intercept: bool = True,
        classes: Any = None,
        class_weight: Any = None,
        max_iter: int = 1000,
        tol: float = 1e-4,
    ) -> None:
        self.cost = cost
        self.scale = scale
        self.alpha = alpha
        self.decision = decision
        self.shared = shared
        self.fit_intercept = fit_intercept
        self.classes = classes
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.tol = tol

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to samples.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
        y : array of shape (n_samples,)
            Class labels.
        sample_weight : array of shape (n_samples,), optional
            A weight of 2 counts as two equal samples.

        Returns
        -------
        GeometricClassifier
            Itself.
        """
        alpha, tol = read_number("alpha", self.alpha), read_number("tol", self.tol, positive=True)
        max_iter = read_count("max_iter", self.max_iter)
        fit_intercept = read_flag("fit_intercept", self.fit_intercept)
        X, target, weight, _ = self._read(X, y, sample_weight)
        cost = read_cost(self.cost, self.scale, len(self.classes_))
        rule = rule_for(self.decision, [cost])
        shared = self.shared
        if shared is not None:
            shared = read_cost(shared, 1.0, len(self.classes_), "shared")
        design, found = fit_linear(
            X, target, weight, cost, alpha, fit_intercept, tol, max_iter, shared
        )
        warn_unless_converged(found, tol)
        set_fitted(self, *design.coefficients(found.V), cost, rule, X.dtype)
        self.n_iter_ = found.iterations
        return self


def warn_unless_converged(found: Fit, tol: float) -> None:
    """Warn if the fit did not converge: how far it came, and what to do."""
    if found.converged:
        return
    why = "rounding allows no further step" if found.stuck else "max_iter was reached"
    what = "Increase tol" if found.stuck else "Increase max_iter, or scale the features"
    warnings.warn(
        f"the fit stopped before it converged: {why}, and the largest entry of the gradient is "
        f"{found.largest:.1e}, above tol={tol:g}. {what}.",
        ConvergenceWarning,
        stacklevel=3,
    )
