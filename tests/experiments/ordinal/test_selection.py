"""Choices are made inside the training fold, by one rule for all models, and nowhere else."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import mean_absolute_error
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from geosoftmax.estimators import GeometricClassifierCV
from geosoftmax_experiments.data.ordinal import load_fold
from geosoftmax_experiments.ordinal.measures import CRITERIA, MEASURES
from geosoftmax_experiments.ordinal.models import MODELS
from geosoftmax_experiments.ordinal.selection import (
    best,
    inner_splits,
    measure_fold,
    search,
    search_geometric,
)

QUICK = replace(MODELS["lr"], alphas=(100.0, 1.0))
GEOMETRIC = replace(MODELS["g-scale"], alphas=(30.0, 1.0), scales=(0.5, 2.0))


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


def test_scores_are_means_over_the_inner_folds(fold):
    X, y = fold.X_train, fold.y_train
    splits = inner_splits(y, 3)
    table = search(QUICK, X, y, 3, splits)
    for alpha in QUICK.alphas:
        right = []
        for train, out in splits:
            fitted = LogisticRegression(C=1 / alpha, max_iter=2000).fit(X[train], y[train])
            right.append(fitted.score(X[out], y[out]))
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


def test_the_estimators_own_search_is_the_one_for_all_models(fold):
    X, y = StandardScaler().fit_transform(fold.X_train), fold.y_train
    splits = inner_splits(y, 3)
    precise = replace(GEOMETRIC, estimator=GEOMETRIC.estimator.set_params(tol=1e-8))
    by_hand = search(precise, X, y, 3, splits)
    theirs, fits = search_geometric(GEOMETRIC, X, y, 3, splits)
    columns = ["scale", "alpha", "decision"]
    pd.testing.assert_frame_equal(theirs[columns], by_hand[columns])
    np.testing.assert_allclose(theirs[list(CRITERIA)], by_hand[list(CRITERIA)], atol=5e-3)
    for by, one in zip(CRITERIA, fits, strict=True):
        row = best(theirs, by)
        assert (one.scale_, one.alpha_, one.decision_) == tuple(row[columns])


def test_the_headline_is_the_estimator_itself(fold):
    model = make_pipeline(
        StandardScaler(),
        GeometricClassifierCV(
            scales=GEOMETRIC.scales,
            alphas=GEOMETRIC.alphas,
            decision=GEOMETRIC.decisions,
            cv=inner_splits(fold.y_train, 3),
        ),
    ).fit(fold.X_train, fold.y_train)
    rows = pd.DataFrame(measure_fold(GEOMETRIC, fold, 3))
    row = rows[(rows["decision"] == "chosen") & (rows["selected_by"] == "mae")].iloc[0]
    assert row["rule"] == model[-1].decision_
    assert row["mae"] == mean_absolute_error(fold.y_test, model.predict(fold.X_test))


@pytest.mark.parametrize("model", [QUICK, GEOMETRIC])
def test_rows_hold_every_decision_criterion_and_measure(model, fold):
    rows = measure_fold(model, fold, 3)
    keys = {(row["decision"], row["selected_by"]) for row in rows}
    decisions = (*model.decisions, "chosen")
    assert keys == {(rule, by) for rule in decisions for by in CRITERIA}
    assert all(np.isfinite(row[name]) for row in rows for name in MEASURES)
