"""Penalty, scale, cost and decision chosen by cross-validation."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer, make_scorer, mean_absolute_error
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold
from sklearn.utils import compute_class_weight

from geosoftmax import DenseCost, LineCost
from geosoftmax.estimators import GeometricClassifier, GeometricClassifierCV
from tests.test_estimators import ordered

ALPHAS = (0.1, 10.0, 1.0, 100.0)
MEASURES = {
    "median": "neg_mean_absolute_error",
    "mean": "neg_mean_squared_error",
    "mode": "accuracy",
    "scores": "accuracy",
    "cost": "neg_mean_absolute_error",  # the absolute cost, below, without its scale
}


@pytest.mark.parametrize("decision", MEASURES)
def test_scores_and_choice_are_those_of_a_grid_search(decision):
    X, y = ordered(n=200)
    cost = "absolute" if decision == "cost" else "squared"
    cv, scales = KFold(4), (0.3, 1.0)
    ours = GeometricClassifierCV(
        cost, decision=decision, scales=scales, alphas=ALPHAS, cv=cv, tol=1e-8
    ).fit(X, y)
    grid = {"alpha": sorted(ALPHAS, reverse=True), "scale": scales}
    theirs = GridSearchCV(
        GeometricClassifier(cost, decision=decision, tol=1e-8), grid,
        scoring=MEASURES[decision], cv=cv,
    ).fit(X, y)  # fmt: skip
    table = {
        (p["alpha"], p["scale"]): score
        for p, score in zip(
            theirs.cv_results_["params"], theirs.cv_results_["mean_test_score"], strict=True
        )
    }
    rows = zip(ours.scores_["alpha"], ours.scores_["scale"], strict=True)
    expected = [table[row] for row in rows]
    np.testing.assert_allclose(ours.scores_["mean_score"], expected, atol=1e-12)
    assert ours.best_score_ == pytest.approx(theirs.best_score_)
    assert table[ours.alpha_, ours.scale_] == pytest.approx(theirs.best_score_)


def test_the_last_fit_is_that_of_the_plain_classifier():
    X, y = ordered()
    chosen = GeometricClassifierCV(alphas=ALPHAS, scales=(0.3, 1.0)).fit(X, y)
    plain = GeometricClassifier(alpha=chosen.alpha_, scale=chosen.scale_).fit(X, y)
    np.testing.assert_array_equal(chosen.coef_, plain.coef_)
    np.testing.assert_array_equal(chosen.intercept_, plain.intercept_)
    assert chosen.n_iter_ == plain.n_iter_


def test_ties_go_to_the_larger_penalty():
    X = np.repeat([[-3.0], [0.0], [3.0]], 20, axis=0)  # every setting predicts perfectly
    y = np.repeat([0, 1, 2], 20)
    model = GeometricClassifierCV(alphas=(0.01, 1.0, 0.1), scales=(1.0, 0.5)).fit(X, y)
    assert model.best_score_ == 0.0
    assert model.alpha_ == 1.0
    assert model.scale_ == 1.0  # the one that was named first


def test_table_of_scores_is_a_data_frame():
    X, y = ordered()
    model = GeometricClassifierCV(["squared", LineCost(4)], alphas=ALPHAS, cv=3).fit(X, y)
    table = pd.DataFrame(model.scores_)
    assert len(table) == 8
    folds = table[[f"split{k}_score" for k in range(3)]]
    np.testing.assert_allclose(folds.mean(axis=1), table["mean_score"])
    assert set(table["cost"]) == {"squared", repr(LineCost(4))}
    assert table["mean_score"].max() == pytest.approx(model.best_score_)


def test_costs_are_candidates():
    X, y = ordered()
    costs = ["zero-one", "absolute", LineCost(4, p=2), (LineCost(4) * 2).matrix().numpy()]
    model = GeometricClassifierCV(costs, alphas=(1.0,), cv=3).fit(X, y)
    means = model.scores_["mean_score"]
    best = GeometricClassifierCV(costs[int(means.argmax())], alphas=(1.0,), cv=3).fit(X, y)
    np.testing.assert_array_equal(best.coef_, model.coef_)
    with pytest.raises(ValueError, match="cannot be compared"):
        GeometricClassifierCV(costs, decision="cost").fit(X, y)
    GeometricClassifierCV(costs, decision="cost", scoring="accuracy", cv=3).fit(X, y)
    with pytest.raises(ValueError, match="empty list"):
        GeometricClassifierCV([]).fit(X, y)


@pytest.mark.parametrize("scoring", [None, "accuracy", "neg_mean_squared_error"])
def test_decisions_are_candidates_judged_by_one_measure(scoring):
    X, y = ordered(n=200, classes=6)
    rules = ("mode", "median", "mean", "scores")
    settings = {"scales": (2.0, 0.3), "alphas": ALPHAS, "cv": KFold(4)}
    model = GeometricClassifierCV(decision=rules, scoring=scoring, **settings).fit(X, y)
    table = pd.DataFrame(model.scores_)
    assert len(table) == 2 * 4 * 4
    measure = scoring or "neg_mean_absolute_error"
    best = {}
    for rule in rules:
        one = GeometricClassifierCV(decision=rule, scoring=measure, **settings).fit(X, y)
        rows = table[table["decision"] == rule]
        np.testing.assert_allclose(rows["mean_score"], one.scores_["mean_score"], atol=1e-12)
        best[rule] = one
    assert len({one.best_score_ for one in best.values()}) > 1  # the rule matters here
    winner = max(best.values(), key=lambda one: one.best_score_)
    assert model.best_score_ == winner.best_score_
    assert model.decision_ == winner.decision_
    assert (model.alpha_, model.scale_) == (winner.alpha_, winner.scale_)
    np.testing.assert_array_equal(model.predict(X), winner.predict(X))
    np.testing.assert_array_equal(model.decision_function(X), winner.decision_function(X))


def test_decisions_without_a_line_are_judged_by_the_cost_or_the_accuracy():
    X, y = ordered()
    matrix = DenseCost(LineCost(4).matrix() * 3)
    settings = {"decision": ["mode", "cost"], "alphas": (1.0,), "cv": KFold(3)}
    for cost, measure in ((matrix, None), (["zero-one", matrix], "accuracy")):
        found = GeometricClassifierCV(cost, **settings).fit(X, y).scores_
        modes = found["mean_score"][found["decision"] == "mode"]
        one = GeometricClassifierCV(cost, **settings | {"decision": "mode"}, scoring=measure)
        if measure is None:
            one.set_params(scoring=lambda model, X, y: -3 * np.abs(model.predict(X) - y).mean())
        np.testing.assert_allclose(modes, one.fit(X, y).scores_["mean_score"])


def test_equal_decisions_are_one_and_ties_go_to_the_first():
    X, y = ordered()
    auto = GeometricClassifierCV(decision=["auto", "median"], alphas=(1.0,), cv=3).fit(X, y)
    assert auto.scores_["decision"].tolist() == ["median"]
    by_loss = GeometricClassifierCV(
        decision=np.array(["mean", "mode"]), scoring="neg_log_loss", alphas=(1.0,), cv=3
    )
    with pytest.warns(UserWarning, match="gives the same scores for all of decision"):
        by_loss.fit(X, y)
    assert by_loss.decision_ == "mean"
    alike = GeometricClassifierCV("zero-one", decision=["cost", "mode"], alphas=(1.0,), cv=3)
    alike.fit(X, y)  # the same predictions: nothing to be warned of
    with pytest.raises(ValueError, match="decision is an empty list"):
        GeometricClassifierCV(decision=[]).fit(X, y)
    with pytest.raises(ValueError, match=r"decision must be one of .*got 'best'"):
        GeometricClassifierCV(decision=["mode", "best"]).fit(X, y)
    with pytest.raises(ValueError, match=r"decision must be one of .*got \['mode', 'mean'\]"):
        GeometricClassifier(decision=["mode", "mean"]).fit(X, y)


def test_a_matrix_is_one_cost_also_as_lists():
    X, y = ordered()
    matrix = LineCost(4).matrix().tolist()
    model = GeometricClassifierCV(matrix, alphas=(1.0,), cv=3).fit(X, y)
    assert len(model.scores_["cost"]) == 1


def test_scoring_by_name_by_callable_and_weighted():
    X, y = ordered(n=150)
    weight = np.random.default_rng(0).uniform(0.1, 3.0, size=150)
    settings = {"alphas": ALPHAS, "cv": KFold(3)}
    default = GeometricClassifierCV(**settings).fit(X, y, sample_weight=weight)
    for scoring in (
        "neg_mean_absolute_error",
        make_scorer(mean_absolute_error, greater_is_better=False),
    ):
        named = GeometricClassifierCV(scoring=scoring, **settings).fit(X, y, sample_weight=weight)
        np.testing.assert_allclose(named.scores_["mean_score"], default.scores_["mean_score"])

    def plain(model, X, y):
        return -np.abs(model.predict(X) - y).mean()

    unweighted = GeometricClassifierCV(scoring=plain, **settings).fit(X, y, sample_weight=weight)
    gap = unweighted.scores_["mean_score"] - default.scores_["mean_score"]
    assert 0 < np.abs(gap).max() < 0.2


def test_groups_reach_the_splitter():
    X, y = ordered()
    groups = np.arange(len(y)) // 30
    model = GeometricClassifierCV(cv=GroupKFold(4), alphas=(1.0, 0.1)).fit(X, y, groups=groups)
    assert "split3_score" in model.scores_
    with pytest.raises(ValueError, match="groups"):
        GeometricClassifierCV(cv=GroupKFold(4)).fit(X, y)


def test_processes_give_the_same():
    X, y = ordered()
    one = GeometricClassifierCV(cv=4, alphas=ALPHAS).fit(X, y)
    two = GeometricClassifierCV(cv=4, alphas=ALPHAS, n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(one.scores_["mean_score"], two.scores_["mean_score"])
    np.testing.assert_array_equal(one.coef_, two.coef_)


def test_folds_may_lack_a_class():
    X, y = ordered(classes=4)
    order = np.argsort(y, kind="stable")
    model = GeometricClassifierCV(cv=KFold(4), alphas=(1.0, 0.1)).fit(X[order], y[order])
    assert list(model.classes_) == [0, 1, 2, 3]
    assert np.isfinite(model.scores_["mean_score"]).all()


def test_a_fold_without_weight_is_refused():
    X, y = ordered(n=90)
    weight = np.repeat([1.0, 1.0, 0.0], 30)
    with pytest.raises(ValueError, match="no sample with a positive weight"):
        GeometricClassifierCV(cv=KFold(3)).fit(X, y, sample_weight=weight)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alphas": ()}, "alphas must be a list of at least one number"),
        ({"alphas": 3.0}, "alphas must be a list of at least one number"),
        ({"alphas": [1.0, -1.0]}, r"alphas\[1\] must be a non-negative number; got -1.0"),
        ({"scales": [0.0]}, r"scales\[0\] must be a positive number"),
        ({"scales": "wide"}, "scales must be a list of at least one number"),
        ({"scoring": "no such"}, "no such"),
        ({"scoring": ["accuracy"]}, r"scoring must be .* one scorer.*got \['accuracy'\]"),
        ({"scoring": {"a": "accuracy"}}, "scoring must be .* one scorer"),
        ({"average": "yes"}, "average must be True or False; got 'yes'"),
        ({"cost": ["squared", 3.0]}, "cost is between outputs of shape"),
        ({"cv": 1}, "k-fold"),
    ],
)
def test_bad_settings_are_explained(settings, message):
    X, y = ordered()
    with pytest.raises(ValueError, match=message):
        GeometricClassifierCV(**settings).fit(X, y)


def test_penalty_is_chosen_where_it_matters():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 60))
    y = np.digitize(X[:, 0] + rng.normal(size=80), [-0.7, 0.7])
    model = GeometricClassifierCV(alphas=(1000.0, 30.0, 1e-3)).fit(X, y)
    assert model.alpha_ == 30.0
    rival = LogisticRegression(C=1e3, max_iter=10000).fit(X, y)
    fresh = rng.normal(size=(500, 60))
    truth = np.digitize(fresh[:, 0], [-0.7, 0.7])
    errors = [np.abs(m.predict(fresh) - truth).mean() for m in (model, rival)]
    assert errors[0] < errors[1]


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("scoring", ["neg_log_loss", "roc_auc_ovr", "accuracy"])
def test_scorers_read_probabilities_of_classes_in_any_order(scoring, classes):
    """scikit-learn's scorers take columns for those of sorted labels; these are not sorted."""
    X, y = ordered(classes=classes)
    labels = np.array(["poor", "fair", "good"])[:classes]
    settings = {"scales": (0.4, 2.0), "alphas": (10.0, 0.1), "scoring": scoring, "cv": 3}
    numbers = GeometricClassifierCV(**settings).fit(X, y)
    named = GeometricClassifierCV(**settings, classes=labels).fit(X, labels[y])
    assert named.order_.tolist() == labels.tolist()
    np.testing.assert_allclose(named.scores_["mean_score"], numbers.scores_["mean_score"])


def test_a_scorer_that_needs_numbers_says_what_to_do_with_names():
    X, y = ordered(classes=3)
    names = np.array(["poor", "fair", "good"])
    settings = {"classes": names, "alphas": (10.0, 0.1), "cv": 3}
    with pytest.raises(ValueError, match=r"labels such as '\w+': .* Without scoring, errors are"):
        GeometricClassifierCV(scoring="neg_mean_absolute_error", **settings).fit(X, names[y])
    named = GeometricClassifierCV(**settings).fit(X, names[y])
    numbers = GeometricClassifierCV(
        scoring="neg_mean_absolute_error", **settings | {"classes": None}
    ).fit(X, y)
    np.testing.assert_allclose(named.scores_["mean_score"], numbers.scores_["mean_score"])


@pytest.mark.parametrize("decision", ["mode", "median"])
@pytest.mark.parametrize("class_weight", ["balanced", {0: 5.0, 1: 1.0, 2: 0.2, 3: 0.0}], ids=str)
def test_class_weights_count_in_fits_but_not_in_scores(class_weight, decision):
    """As in scikit-learn; "balanced" weights are those of all samples, as in its own CV."""
    X, y = ordered(n=150)
    y[y == 3] = np.where(np.arange((y == 3).sum()) % 3, 2, 3)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, size=150)
    settings = {"alphas": (10.0, 1.0), "cv": KFold(3), "decision": decision, "tol": 1e-8}
    measure = MEASURES[decision]
    of_class = class_weight
    if class_weight == "balanced":
        values = compute_class_weight("balanced", classes=np.arange(4), y=y, sample_weight=weight)
        of_class = dict(enumerate(values))
    expected = []
    for train, test in KFold(3).split(X):
        model = GeometricClassifier(class_weight=of_class, alpha=1.0, decision=decision, tol=1e-8)
        model.fit(X[train], y[train], sample_weight=weight[train])
        expected.append(get_scorer(measure)(model, X[test], y[test], sample_weight=weight[test]))
    for options in ({}, {"scoring": measure}, {"average": True}):
        model = GeometricClassifierCV(class_weight=class_weight, **settings, **options)
        model.fit(X, y, sample_weight=weight)
        found = [model.scores_[f"split{k}_score"][1] for k in range(3)]
        np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_a_score_that_is_no_number_is_refused_with_its_scorer_and_fold(value):
    X, y = ordered()
    last = X[-1, 0]

    def fickle(model, X, y):
        return value if last in X[:, 0] and model.alpha < 1 else 1.0

    model = GeometricClassifierCV(scoring=fickle, cv=KFold(3), alphas=(1.0, 0.1))
    with pytest.raises(ValueError, match=rf"fickle.* gave {value} in fold 2, counted from 0"):
        model.fit(X, y)
