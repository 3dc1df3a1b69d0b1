"""Decision rules, and that they are those of the estimator."""

import numpy as np
import pytest

from geosoftmax.estimators import GeometricClassifier
from geosoftmax_experiments.data.ordinal import load_fold
from geosoftmax_experiments.ordinal.decisions import RULES, Prediction, decide


def test_rules_minimise_expected_costs():
    p = np.random.default_rng(0).dirichlet(np.full(6, 0.3), 200)
    place = np.arange(6)
    median = (p.cumsum(1) < 0.5).sum(1)
    assert (decide(Prediction(p), "mode") == p.argmax(1)).all()
    assert (decide(Prediction(p), "median") == median).all()
    assert (decide(Prediction(p), "mean") == np.rint(p @ place)).all()


def test_ties_go_to_the_lower_class():
    p = np.array([[0.5, 0.0, 0.5], [0.1 + 0.2, 0.3, 0.4]])
    assert decide(Prediction(p), "mode").tolist() == [0, 2]
    assert decide(Prediction(p), "median").tolist() == [0, 1]
    assert decide(Prediction(np.array([[0.1 + 0.2, 0.3, 0.2, 0.2]])), "mode").tolist() == [0]


@pytest.mark.parametrize("rule", ["scores", "mean ", "least"])
def test_rules_that_do_not_fit_are_refused(rule):
    with pytest.raises(ValueError, match="scores"):
        decide(Prediction(np.eye(3)), rule)


def test_the_estimator_decides_alike():
    fold = load_fold("skordinal", "balance-scale", 0)
    for rule in (*RULES, "scores", "cost"):
        model = GeometricClassifier("squared", decision=rule).fit(fold.X_train, fold.y_train)
        scores = fold.X_test @ model.coef_.T + model.intercept_
        prediction = Prediction(model.predict_proba(fold.X_test), scores)
        ours = "mean" if rule == "cost" else rule  # the least squared cost is the mean
        assert (decide(prediction, ours) == model.predict(fold.X_test)).mean() > 0.99
