"""Every model of the table: distributions, missing classes, and what the penalty does."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from geosoftmax_experiments.data.ordinal import load_fold
from geosoftmax_experiments.ordinal.decisions import decide, predict
from geosoftmax_experiments.ordinal.models import MODELS
from geosoftmax_experiments.ordinal.sparsemax import SparsemaxClassifier


@pytest.mark.parametrize("name", MODELS)
def test_models_beat_guessing_and_give_distributions(name):
    fold = load_fold("skordinal", "ESL", 0)
    model = MODELS[name]
    X, y = fold.X_train, fold.y_train
    prediction = predict(model.fit(X, y, fold.classes, 1.0), fold.X_test, fold.classes)
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
    fitted = model.fit(fold.X_train[keep], fold.y_train[keep], 9, model.alphas[0])
    prediction = predict(fitted, fold.X_test, 9)
    assert prediction.probabilities.shape == (len(fold.y_test), 9)
    assert decide(prediction, model.decisions[0]).max() < 9


def test_sparsemax_is_at_its_minimum():
    fold = load_fold("skordinal", "balance-scale", 0)
    X, y = fold.X_train, fold.y_train
    model = SparsemaxClassifier().fit(X, y)
    off = model.predict_proba(X) - np.eye(3)[y]
    gradient = off.T @ X + model.coef_
    assert np.abs(gradient).max() < 1e-2 * len(y)
    assert np.abs(off.sum(0)).max() < 1e-2 * len(y)
    theirs = LogisticRegression().fit(X, y).score(X, y)
    assert model.score(X, y) == pytest.approx(theirs, abs=0.05)
