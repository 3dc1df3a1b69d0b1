"""Choices are made inside the training fold, and nowhere else."""

from dataclasses import replace

import numpy as np
import pytest

from geosoftmax_experiments.data.ordinal import load_fold
from geosoftmax_experiments.ordinal.measures import CRITERIA, MEASURES
from geosoftmax_experiments.ordinal.models import MODELS
from geosoftmax_experiments.ordinal.selection import choose, inner_folds, measure_fold, standardise

QUICK = replace(MODELS["lr"], grid=({"alpha": 100.0}, {"alpha": 1.0}))


def test_inner_folds_deal_every_class():
    y = np.repeat([0, 1, 2], [30, 9, 2])
    number = inner_folds(y, 3)
    counts = np.array([np.bincount(y[number == k], minlength=3) for k in range(3)])
    assert (counts[:, 0] == 10).all()
    assert (counts[:, 1] == 3).all()
    assert counts[:, 2].max() == 1
    assert (inner_folds(y, 3) == number).all()


def test_no_choice_is_made_on_test_folds():
    fold = load_fold("skordinal", "balance-scale", 0)
    shuffled = replace(fold, y_test=np.random.default_rng(0).permutation(fold.y_test))
    ours, others = (measure_fold(QUICK, f, 3) for f in (fold, shuffled))
    assert [row["alpha"] for row in ours] == [row["alpha"] for row in others]
    assert [row["rule"] for row in ours] == [row["rule"] for row in others]
    assert [row["mae"] for row in ours] != [row["mae"] for row in others]


def test_choices_are_the_best_of_the_inner_folds():
    fold = load_fold("skordinal", "balance-scale", 0)
    chosen = choose(QUICK, fold.X_train, fold.y_train, 3, 3)
    number = inner_folds(fold.y_train, 3)
    errors = {}
    for point in QUICK.grid:
        wrong = 0
        for k in range(3):
            train, out = number != k, number == k
            mean, spread = standardise(fold.X_train[train])
            predict = QUICK.fit(
                (fold.X_train[train] - mean) / spread, fold.y_train[train], 3, **point
            )
            p = predict((fold.X_train[out] - mean) / spread).probabilities
            wrong += (p.argmax(1) != fold.y_train[out]).sum()
        errors[point["alpha"]] = wrong
    best = min(errors, key=lambda alpha: errors[alpha])
    assert chosen["mode", "accuracy"] == ("mode", {"alpha": best})


def test_rows_hold_every_decision_criterion_and_measure():
    rows = measure_fold(QUICK, load_fold("skordinal", "balance-scale", 0), 3)
    keys = {(row["decision"], row["selected_by"]) for row in rows}
    decisions = (*QUICK.decisions, "chosen")
    assert keys == {(rule, by) for rule in decisions for by in CRITERIA}
    assert all(np.isfinite(row[name]) for row in rows for name in MEASURES)


def test_constant_features_are_left_alone():
    X = np.column_stack([np.full(9, 0.1), np.arange(9)])
    mean, spread = standardise(X)
    assert spread[0] == 1
    assert spread[1] == pytest.approx(X[:, 1].std())
    assert mean.shape == (2,)
