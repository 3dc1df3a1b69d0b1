"""Choices are made inside the training fold, by one rule for all models, and nowhere else."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import mean_absolute_error
from sklearn.preprocessing import StandardScaler
from skordinal.metrics import ranked_probability_score

from geosoftmax.estimators import GeometricClassifier, GeometricClassifierCV
from geosoftmax_experiments.data.ordinal import load_fold
from geosoftmax_experiments.ordinal.averaging import measure_fold, weigh
from geosoftmax_experiments.ordinal.measures import CRITERIA, MEASURES
from geosoftmax_experiments.ordinal.models import MODELS
from geosoftmax_experiments.ordinal.selection import best, inner_splits, judge, search

QUICK = replace(MODELS["lr"], alphas=(100.0, 1.0))
GEOMETRIC = replace(MODELS["g-scale"], alphas=(30.0, 1.0), scales=(0.5, 2.0), costs=("squared",))


@pytest.fixture
def fold():
    return load_fold("skordinal", "balance-scale", 0)


def test_inner_folds_deal_every_class():
    y = np.repeat([0, 1, 2], [30, 9, 2])
    splits = inner_splits(y, 3)
    counts = np.array([np.bincount(y[out], minlength=3) for _, out in splits])
    assert (counts[:, 0] == 10).all()
    assert (counts[:, 1] == 3).all()
    assert counts[:, 2].max() == 1
    for (train, out), (_, again) in zip(splits, inner_splits(y, 3), strict=True):
        assert sorted([*train, *out]) == list(range(len(y)))
        assert (out == again).all()
    assert len(inner_splits(y[:3], 10)) == 3  # no more folds than the largest class has samples


def test_no_choice_is_made_on_test_folds(fold):
    shuffled = replace(fold, y_test=np.random.default_rng(0).permutation(fold.y_test))
    for model in (QUICK, GEOMETRIC):
        ours, others = (measure_fold(model, f, 3) for f in (fold, shuffled))
        for key in ("alpha", "rule"):
            assert [row[key] for row in ours] == [row[key] for row in others]
        assert [row["mae"] for row in ours] != [row["mae"] for row in others]


def test_scores_are_means_over_the_samples_held_out(fold):
    X, y = fold.X_train, fold.y_train
    splits = inner_splits(y, 3)
    table = search(QUICK, X, y, 3, splits)
    for alpha in QUICK.alphas:
        right = []
        for train, out in splits:
            fitted = LogisticRegression(C=1 / alpha, max_iter=2000).fit(X[train], y[train])
            right.extend(fitted.predict(X[out]) == y[out])
        row = table[(table["alpha"] == alpha) & (table["decision"] == "mode")].iloc[0]
        assert row["accuracy"] == pytest.approx(np.mean(right))


def test_the_best_is_the_largest_mean_and_of_equal_ones_the_largest_penalty():
    table = pd.DataFrame(
        {
            "alpha": [1.0, 10.0, 10.0, 1.0],
            "decision": ["mode", "median", "mode", "mean"],
            "mae": [-0.5, -0.5, -0.5 - 1e-15, -0.6],
            "accuracy": [0.1, 0.2, 0.2, 0.3],
        }
    )
    assert best(table, "mae").name == 1
    assert best(table, "accuracy").name == 3


def test_one_setting_is_the_estimator_itself(fold):
    """Where there is nothing to weigh, the rows are those of a plain fit."""
    alone = replace(GEOMETRIC, alphas=(3.0,), scales=(2.0,), costs=("absolute",))
    scaler = StandardScaler().fit(fold.X_train)
    model = GeometricClassifier("absolute", scale=2.0, alpha=3.0, decision="median")
    model.fit(scaler.transform(fold.X_train), fold.y_train)
    rows = pd.DataFrame(measure_fold(alone, fold, 3))
    row = rows[(rows["decision"] == "median") & (rows["selected_by"] == "mae")].iloc[0]
    assert row["mae"] == mean_absolute_error(
        fold.y_test, model.predict(scaler.transform(fold.X_test))
    )
    assert row["settings"] == 1


def test_weights_fall_by_e_for_each_standard_error():
    rng = np.random.default_rng(0)
    best = rng.exponential(size=400)
    error = best.std() / 20
    losses = np.array([best + k * error for k in (2.0, 0.0, 1.0, 5.0)])
    weights = weigh(losses)
    np.testing.assert_allclose(weights[[0, 2]] / weights[1], np.exp([-2.0, -1.0]))
    assert weights[3] == 0  # below the least share
    assert weights.sum() == pytest.approx(1)


def test_candidates_that_are_always_right_share_all_the_weight():
    losses = np.zeros((2, 2, 5))
    losses[1, 0, 2] = 1
    np.testing.assert_allclose(weigh(losses), [[1 / 3, 1 / 3], [0, 1 / 3]])


@pytest.mark.parametrize(("by", "scoring"), [("mae", None), ("accuracy", "accuracy")])
def test_the_estimator_of_the_library_averages_by_the_same_procedure(fold, by, scoring):
    exact = replace(GEOMETRIC, estimator=GeometricClassifier("squared", tol=1e-9))
    rows = pd.DataFrame(measure_fold(exact, fold, 3))
    row = rows[(rows["decision"] == "chosen") & (rows["selected_by"] == by)].iloc[0]
    scaler = StandardScaler().fit(fold.X_train)
    X, X_test = scaler.transform(fold.X_train), scaler.transform(fold.X_test)
    model = GeometricClassifierCV(
        scales=exact.scales, alphas=exact.alphas, cv=inner_splits(fold.y_train, 3),
        decision=exact.decisions, scoring=scoring, average=True, tol=1e-9,
    ).fit(X, fold.y_train)  # fmt: skip
    assert len(model.average_.members) == row["settings"] > 1
    assert mean_absolute_error(fold.y_test, model.predict(X_test)) == row["mae"]
    score = ranked_probability_score(fold.y_test, model.predict_proba(X_test))
    assert score == pytest.approx(row["rps"], rel=1e-6)


def test_distributions_are_averaged_by_weight(fold):
    """Against fits and an average by hand."""
    X = StandardScaler().fit_transform(fold.X_train)
    X_test = StandardScaler().fit(fold.X_train).transform(fold.X_test)
    near = replace(QUICK, alphas=(1.5, 1.0))
    table = judge(near, X, fold.y_train, 3, inner_splits(fold.y_train, 3))
    weights = weigh(table.losses["rps"][:, 0])
    average = sum(
        weight * LogisticRegression(C=1 / alpha, max_iter=2000)
        .fit(X, fold.y_train).predict_proba(X_test)
        for weight, alpha in zip(weights, near.alphas, strict=True)
    )  # fmt: skip
    rows = pd.DataFrame(measure_fold(near, fold, 3))
    row = rows[(rows["decision"] == "mode") & (rows["selected_by"] == "rps")].iloc[0]
    assert row["rps"] == pytest.approx(ranked_probability_score(fold.y_test, average))
    assert weights.min() > 0


@pytest.mark.parametrize("model", [QUICK, GEOMETRIC])
def test_rows_hold_every_decision_criterion_and_measure(model, fold):
    rows = measure_fold(model, fold, 3)
    keys = {(row["decision"], row["selected_by"]) for row in rows}
    decisions = (*model.decisions, "chosen")
    assert keys == {(rule, by) for rule in decisions for by in CRITERIA}
    assert all(np.isfinite(row[name]) for row in rows for name in MEASURES)
