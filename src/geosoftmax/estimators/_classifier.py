"""A linear classifier with the geometric logistic loss."""

from __future__ import annotations

import warnings
from typing import Any, Self

from sklearn.exceptions import ConvergenceWarning

from geosoftmax.estimators._fitting import Fit, fit_linear
from geosoftmax.estimators._linear import LinearGeometric, set_fitted
from geosoftmax.estimators._reading import read_cost, read_count, read_number, rule_for

__all__ = ["GeometricClassifier"]


class GeometricClassifier(LinearGeometric):
    r"""Linear classifier for classes with a geometry: :math:`f = W x + c`, geometric logistic loss.

    The fit minimises ``Σ_i w_i ℓ(y_i, f_i) + alpha/2 ‖W‖²``, which is convex, where
    ``ℓ(y, f) = geometric_logistic_loss(f, y, scale * cost)``. Probabilities are the geometric
    softmax of the scores.

    Parameters
    ----------
    cost : {"squared", "absolute", "zero-one"}, array of shape (n_classes, n_classes), or Cost
        The cost between classes. The names are for positions 0, 1, 2, … in the order of the
        classes, whatever numbers their labels are: labels 1, 2, 5, 10 lie as far apart as 0, 1, 2,
        3 (there is a warning). If their distances count, give ``LineCost([1, 2, 5, 10])``.
    scale : float
        The factor of the cost, also of one that is given. The paper's ordinal cost is the squared
        one times 0.5; see the notes for the default.
    alpha : float
        Weight of the penalty: ``1 / C`` of `sklearn.linear_model.LogisticRegression`.
    decision : {"auto", "median", "mean", "mode", "cost", "scores"}
        Which class to predict. By default ``"median"`` where classes lie on a line (``"squared"``,
        ``"absolute"``, a `LineCost`), and ``"cost"`` for other costs. ``"median"`` and ``"mean"``
        are the classes of least expected absolute and squared error, in the positions of the cost
        (0, 1, 2, … where it has none); ``"mode"`` is
        the most probable one, ``"cost"`` the one of least expected `cost`, and ``"scores"``, as in
        the paper, the one with the largest score. Only ``"mode"`` is always the largest entry of
        `predict_proba`: a median lies between classes that are more probable than itself.
    shared : as `cost`, optional
        Classes that are near under this cost get similar weights: the penalty is
        ``alpha/2 tr(W K⁻¹ Wᵀ)`` with ``K = exp(-shared/2)``, and alpha/2 ‖W‖² by default. With few
        samples, this is where a taxonomy helps most: ``GeometricClassifier("zero-one",
        shared=tree)``. A matrix between the classes is built for it.
    fit_intercept : bool
    classes : sequence, optional
        All classes in their order, for labels that do not sort by themselves, and to name classes
        that do not occur in the data. By default the names of the outputs of the cost, if it has
        any, else the order of `y` if it is an ordered pandas categorical, else the sorted labels
        that occur. Fitted models have it as `order_`.
    class_weight : dict, "balanced", optional
        As in scikit-learn.
    max_iter : int
        The most steps of the optimiser.
    tol : float
        The fit stops where no entry of the gradient of the objective, divided by the sum of the
        weights, is larger.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes, *sorted*, as scikit-learn's measures expect them: columns of probabilities and
        rows of `coef_` are in this order.
    order_ : ndarray of shape (n_classes,)
        The classes in the order of the cost.
    coef_ : ndarray of shape (n_classes, n_features)
    intercept_ : ndarray of shape (n_classes,)
    cost_ : Cost
        ``scale * cost``.
    decision_ : str
        What ``"auto"`` stands for.
    n_iter_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)

    See Also
    --------
    GeometricClassifierCV : Chooses the penalty, and the scale and cost, by cross-validation.

    Notes
    -----
    With smaller scales, probabilities that have a dip between two classes become rare, and the
    median is nearly always the mode. scikit-learn's checks of estimators demand that prediction and
    mode agree on three classes that have no order. They do with the default scale and penalty, and
    smaller penalties; with the paper's scale, 0.5, they differ on one or two samples of 300. On
    ordered classes the two scales predict about equally well.

    Meta-estimators such as `VotingClassifier` number the labels in sorted order before they fit.
    For those, number the labels yourself, 0, 1, 2, … in their order (``y.cat.codes`` of an ordered
    pandas categorical), and leave `classes` out.

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
        X, target, weight = self._read(X, y, sample_weight)
        cost = read_cost(self.cost, self.scale, len(self.classes_))
        rule = rule_for(self.decision, [cost])
        shared = self.shared
        if shared is not None:
            shared = read_cost(shared, 1.0, len(self.classes_), "shared")
        design, found = fit_linear(
            X, target, weight, cost, alpha, bool(self.fit_intercept), tol, max_iter, shared
        )
        warn_unless_converged(found, tol)
        set_fitted(self, *design.coefficients(found.V), cost, rule, X.dtype)
        self.n_iter_ = found.iterations
        return self


def warn_unless_converged(found: Fit, tol: float) -> None:
    """Say how far the fit came, and what to do."""
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
