"""A linear classifier with penalty, scale, cost and decision chosen or averaged over folds."""

from __future__ import annotations

import itertools
import warnings
from typing import Any, Self

import numpy as np
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils.parallel import Parallel, delayed

from geosoftmax.costs.base import Cost
from geosoftmax.estimators._classifier import GeometricClassifier, warn_unless_converged
from geosoftmax.estimators._fitting import fit_linear
from geosoftmax.estimators._folds import Task, average_settings, badness, score_fold, weigh_settings
from geosoftmax.estimators._linear import LinearGeometric, decided, read_features, set_fitted
from geosoftmax.estimators._reading import (
    common_measure,
    read_cost,
    read_costs,
    read_count,
    read_decisions,
    read_flag,
    read_number,
    read_numbers,
    rule_for,
    rules_for,
)
from geosoftmax.estimators.averaging import Average

__all__ = ["GeometricClassifierCV"]


class GeometricClassifierCV(LinearGeometric):
    r"""`GeometricClassifier` with penalty, scale, cost and decision chosen by cross-validation.

    In each fold, penalties go from the largest to the smallest, and each fit starts from the last
    one. Each fit is scored under every decision. The best setting is then fitted to all samples.

    On a few dozen samples the best of many settings is often so by chance. With ``average=True``
    good ones predict together. A probability of 0 is no guarantee that a class does not come true
    on new samples; averaging makes such errors rare.

    Parameters
    ----------
    cost : as for `GeometricClassifier`, or a list of such
        A list is a list of candidates.
    scales : sequence of float
        Candidates for the factor of the cost.
    alphas : sequence of float
        Candidates for the weight of the penalty.
    cv : int, splitter or iterable of splits, optional
        As in scikit-learn. The default is 5 stratified folds.
    scoring : str or callable, optional
        A scikit-learn scorer. The setting with the largest mean score over folds wins. The default
        depends on the decision: minus the mean absolute error in positions for ``"median"``, minus
        the mean squared error for ``"mean"``, the accuracy for ``"mode"`` and ``"scores"``, and
        minus the mean cost (without its scale) for ``"cost"``. With several decisions, all are
        scored as ``"auto"`` is: on a line, by minus the mean absolute error. These scores use the
        sample weights, and so do scorers that accept ``sample_weight``. Class weights count in the
        fits alone.
    decision : as for `GeometricClassifier`, or a sequence of such
        A sequence is a list of candidates. With several costs, ``"auto"`` is ``"median"`` if one of
        them is on a line, and ``"mode"`` otherwise.
    average : bool
        Average over candidates (settings with a decision), with weights
        ``exp(-(loss - least loss) / s)``. Losses are means over the samples held out, with their
        sample weights; ``s`` is the standard error of the least one. Weights below a hundredth of
        the largest count as 0. `predict_proba` is the mean of the distributions. One `decision` is
        taken from this mean. With several, or ``"scores"``, the labels of the candidates vote:
        `predict` is the median of the votes where the loss is the absolute error, and the mode
        where it is the accuracy. `scoring` must be None or ``"accuracy"``.
    fit_intercept, classes, class_weight, max_iter, tol
        As for `GeometricClassifier`. ``class_weight="balanced"`` takes the shares of the classes
        from all samples, also in the folds, as `sklearn.linear_model.LogisticRegressionCV` does.
    n_jobs : int, optional
        The number of folds that run in parallel, as in scikit-learn.

    Attributes
    ----------
    alpha_, scale_ : float
    decision_ : str
        What was chosen. If settings score equally, the one with the largest penalty wins; then the
        one whose cost, scale and decision come first.
    cost_ : Cost
        The chosen cost, times `scale_`.
    best_score_ : float
    scores_ : dict of ndarray
        A table with one row per setting, which `pandas.DataFrame` accepts. Its columns are
        ``cost``, ``scale``, ``alpha``, ``decision``, ``mean_score``, ``std_score`` and one
        ``split<k>_score`` per fold; with ``average=True``, also ``weight``.
    average_ : Average or None
        With ``average=True``: ``members``, a list of fitted `GeometricClassifier`, and ``weights``,
        of shape (n_members, n_decisions). All other attributes are those of the heaviest candidate.
    classes_, order_, coef_, intercept_, n_iter_, n_features_in_, feature_names_in_
        As for `GeometricClassifier`, from the fit to all samples.

    Examples
    --------
    >>> import numpy as np
    >>> from geosoftmax.estimators import GeometricClassifierCV
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> y = np.digitize(X[:, 0], [-0.5, 0.5])
    >>> model = GeometricClassifierCV(scales=(0.4, 1.0), alphas=(10.0, 1.0, 0.1)).fit(X, y)
    >>> model.alpha_, model.scale_
    (0.1, 0.4)
    >>> model.scores_["mean_score"].shape
    (6,)

    Decisions can be candidates, too, here scored by the accuracy:

    >>> model.set_params(decision=["median", "mode"], scoring="accuracy").fit(X, y).decision_
    'median'
    >>> model.scores_["mean_score"].shape
    (12,)

    Or let candidates vote, as in the comparison with other ordinal models:

    >>> model = GeometricClassifierCV(decision=["median", "mode", "scores"], average=True)
    >>> len(model.fit(X, y).average_.members) > 1
    True
    """

    n_iter_: int

    def __init__(
        self,
        cost: Any = "squared",
        *,
        scales: Any = (0.4,),
        alphas: Any = (100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01),
        cv: Any = None,
        scoring: Any = None,
        decision: Any = "auto",
        average: bool = False,
        fit_intercept: bool = True,
        classes: Any = None,
        class_weight: Any = None,
        max_iter: int = 1000,
        tol: float = 1e-4,
        n_jobs: int | None = None,
    ) -> None:
        self.cost = cost
        self.scales = scales
        self.alphas = alphas
        self.cv = cv
        self.scoring = scoring
        self.decision = decision
        self.average = average
        self.fit_intercept = fit_intercept
        self.classes = classes
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.tol = tol
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Choose the best setting, then fit it to all samples.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
        y : array of shape (n_samples,)
            Class labels.
        sample_weight : array of shape (n_samples,), optional
            Weights in the fits and in the scores.
        groups : array of shape (n_samples,), optional
            The group of each sample, if `cv` splits by groups.

        Returns
        -------
        GeometricClassifierCV
            Itself.
        """
        alphas = sorted(set(read_numbers("alphas", self.alphas)), reverse=True)
        scales = read_numbers("scales", self.scales, positive=True)
        tol = read_number("tol", self.tol, positive=True)
        max_iter = read_count("max_iter", self.max_iter)
        fit_intercept = read_flag("fit_intercept", self.fit_intercept)
        average = read_flag("average", self.average)
        X, target, weight, sample_weight = self._read(X, y, sample_weight)
        given = read_costs(self.cost)
        costs = [read_cost(one, 1.0, len(self.classes_)) for one in given]
        rules = rules_for(self.decision, costs)
        task = Task(
            X, target, weight, sample_weight, self.order_, rules, *self._judge(rules, costs),
            fit_intercept, tol, max_iter,
        )  # fmt: skip
        splitter: Any = check_cv(self.cv, target, classifier=True)
        splits = list(splitter.split(X, target, groups))
        settings = [cost * scale for cost, scale in itertools.product(costs, scales)]
        found: Any = Parallel(n_jobs=self.n_jobs)(
            delayed(score_fold)(task, settings, alphas, *split) for split in splits
        )
        scores = np.array([fold for fold, _, _ in found])  # (folds, settings, alphas, rules)
        _check_scores(scores, self.scoring)
        named = [one if isinstance(one, str) else repr(one) for one in given]
        self.scores_ = _table(named, scales, alphas, rules, scores)
        means = weights = scores.mean(0)
        self.average_ = None
        worst = [fit for _, _, fit in found]
        if average:
            squares = np.array([fold for _, fold, _ in found])
            weights = weigh_settings(task, scores, squares, [test for _, test in splits])
            self.scores_["weight"] = weights.ravel()
            self.average_, fits = average_settings(task, settings, alphas, weights)
            worst += fits
        at_setting, at_alpha, at_rule = _first_of_largest(weights)
        cost, self.scale_ = settings[at_setting], scales[at_setting % len(scales)]
        self.alpha_ = alphas[at_alpha]
        self.best_score_ = float(means[at_setting, at_alpha, at_rule])
        design, last = fit_linear(
            X, target, weight, cost, self.alpha_, fit_intercept, tol, max_iter
        )
        warn_unless_converged(max((last, *worst), key=badness), tol)
        set_fitted(self, *design.coefficients(last.V), cost, rules[at_rule], X.dtype)
        self.n_iter_ = last.iterations
        if len(rules) > 1 and (scores == scores[..., :1]).all():
            self._warn_of_equal_decisions(X, rules)
        return self

    def _warn_of_equal_decisions(self, X: Any, rules: list[str]) -> None:
        """Warn if decisions differ, but their scores do not."""
        first, *others = decided(self, X, rules)
        if any((other != first).any() for other in others):
            warnings.warn(
                f"scoring={self.scoring!r} gives the same scores for all of decision={rules}, so "
                "the first one was taken. Pass one decision, or a scorer that depends on the "
                "predictions, such as 'accuracy'.",
                UserWarning,
                stacklevel=3,
            )

    def _judge(self, rules: list[str], costs: list[Cost]) -> tuple[Any, str]:
        """Return the scorer, or the cost of errors, and the rule that goes with the latter."""
        if self.average and self.scoring is not None:
            if not isinstance(self.scoring, str) or self.scoring != "accuracy":
                raise ValueError(
                    "average=True compares candidates sample by sample: scoring must be None or "
                    f"'accuracy'; got {self.scoring!r}."
                )
            return common_measure("mode", costs), "mode"
        if not (self.scoring is None or isinstance(self.scoring, str) or callable(self.scoring)):
            raise ValueError(
                "scoring must be None, or one scorer (a name such as 'accuracy', or a callable); "
                f"got {self.scoring!r}. One measure has to choose."
            )
        if self.scoring is not None:
            return check_scoring(GeometricClassifier(), self.scoring), ""
        rule = rules[0] if len(rules) == 1 else rule_for("auto", costs)
        return common_measure(rule, costs), rule

    def _rule(self) -> str:
        named = read_decisions(self.decision)
        if len(named) > 1 or named == ["auto"]:
            return self.decision_
        return rule_for(named[0], [self.cost_])

    def _distributions(self, X: Any) -> np.ndarray:
        if self.average_ is None:
            return super()._distributions(X)
        return self.average_.distributions(read_features(self, X))

    @property
    def _voters(self) -> Average | None:
        """The candidates, if their labels vote; not once `decision` names another rule."""
        if self.average_ is None or not self.average_.votes:
            return None
        named = read_decisions(self.decision)
        other = len(named) == 1 and named != ["auto"] and named != self.average_.rules
        return None if other else self.average_

    def _measure(self) -> Cost:
        return super()._measure() if self._voters is None else self._voters.measure

    def _values(self, X: Any) -> np.ndarray:
        if self._voters is None:
            return super()._values(X)
        return -self._voters.paid(read_features(self, X))[:, np.argsort(self.order_)]

    def _chosen(self, X: Any) -> np.ndarray:
        if self._voters is None:
            return super()._chosen(X)
        return self._voters.elect(read_features(self, X))


def _check_scores(scores: np.ndarray, scoring: Any) -> None:
    """Refuse scores that are no finite numbers, and name the scorer and the fold."""
    wrong = np.argwhere(~np.isfinite(scores))
    if len(wrong):
        raise ValueError(
            f"scoring={scoring!r} gave {scores[tuple(wrong[0])]} in fold {wrong[0][0]}, counted "
            "from 0. Perhaps the fold lacks a class, or the scorer takes the logarithm of a "
            "probability of 0. Pass another cv or scorer."
        )


def _first_of_largest(values: np.ndarray) -> tuple[int, int, int]:
    """Return where they are largest, by setting, penalty and rule; rounding does not decide.

    Of equal ones the first wins. Penalties are compared first, in descending order.
    """
    near = values >= values.max() - 1e-12 * max(1.0, abs(values.max()))
    at_alpha, at_setting, at_rule = (int(k[0]) for k in near.swapaxes(0, 1).nonzero())
    return at_setting, at_alpha, at_rule


def _table(
    costs: list[str], scales: list[float], alphas: list[float], rules: list[str], scores: np.ndarray
) -> dict[str, np.ndarray]:
    rows = zip(*itertools.product(costs, scales, alphas, rules), strict=True)
    cost, scale, alpha, rule = map(np.array, rows)
    flat = scores.reshape(len(scores), -1)
    return {
        "cost": cost,
        "scale": scale,
        "alpha": alpha,
        "decision": rule,
        "mean_score": flat.mean(0),
        "std_score": flat.std(0),
        **{f"split{k}_score": fold for k, fold in enumerate(flat)},
    }
