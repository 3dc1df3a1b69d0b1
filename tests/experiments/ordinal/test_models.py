"""Every model of the table: distributions, missing classes, and what the penalty does."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from geosoftmax_experiments.data.ordinal import load_fold
from geosoftmax_experiments.ordinal.decisions import decide
from geosoftmax_experiments.ordinal.models import MODELS
from geosoftmax_experiments.ordinal.selection import fit
from geosoftmax_experiments.ordinal.sparsemax import fit_sparsemax, sparsemax


@pytest.mark.parametrize("name", MODELS)
def test_models_beat_guessing_and_give_distributions(name):
    fold = load_fold("skordinal", "ESL", 0)
    model = MODELS[name]
    X, y = fold.X_train, fold.y_train
    predict = fit(model, X, y, fold.classes, model.grid[-1] | {"alpha": 1.0})
    prediction = predict(fold.X_test)
    p = prediction.probabilities
    assert p.shape == (len(fold.y_test), fold.classes)
    assert (p >= -1e-12).all()
    assert np.allclose(p.sum(1), 1)
    guess = np.abs(fold.y_test - np.median(y)).mean()
    for rule in model.decisions:
        assert np.abs(decide(prediction, rule) - fold.y_test).mean() < guess / 2


@pytest.mark.parametrize("name", MODELS)
def test_a_class_that_is_missing_inside_is_not_in_the_way(name):
    fold = load_fold("skordinal", "ESL", 0)
    keep = ~np.isin(fold.y_train, [0, 4, 8])  # the ends and one in between
    model = MODELS[name]
    predict = fit(model, fold.X_train[keep], fold.y_train[keep], 9, model.grid[0])
    prediction = predict(fold.X_test)
    assert prediction.probabilities.shape == (len(fold.y_test), 9)
    assert decide(prediction, model.decisions[0]).max() < 9


def test_sparsemax_is_at_its_minimum():
    fold = load_fold("skordinal", "balance-scale", 0)
    X, y = fold.X_train, fold.y_train
    W, b = fit_sparsemax(X, y, 3, alpha=1.0)
    off = sparsemax(X @ W.T + b) - np.eye(3)[y]
    gradient = off.T @ X + W
    assert np.abs(gradient).max() < 1e-2 * len(y)
    assert np.abs(off.sum(0)).max() < 1e-2 * len(y)
    ours = (sparsemax(X @ W.T + b).argmax(1) == y).mean()
    assert ours == pytest.approx(LogisticRegression().fit(X, y).score(X, y), abs=0.05)
