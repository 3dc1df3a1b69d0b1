"""The estimators as scikit-learn's users meet them."""

import itertools
import json
import os
import pickle
import re
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV, CalibrationDisplay
from sklearn.ensemble import VotingClassifier
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning, NotFittedError
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from geosoftmax import (
    DenseCost,
    GridCost,
    LineCost,
    TreeCost,
    ZeroOneCost,
    decide,
    geometric_logistic_loss,
    geometric_softmax,
)
from geosoftmax.estimators import GeometricClassifier, GeometricClassifierCV
from geosoftmax.nn import LearntPoints
from tests.conftest import data_file

ESTIMATORS = {
    "GeometricClassifier": GeometricClassifier(),
    "GeometricClassifierCV": GeometricClassifierCV(alphas=(10.0, 1.0, 0.1), cv=3),
}
each_estimator = pytest.mark.parametrize("model", ESTIMATORS.values(), ids=ESTIMATORS)

CHECKS = """
import json, sys, warnings
from sklearn.utils.estimator_checks import check_estimator
from geosoftmax import estimators
model = eval(f"estimators.{sys.argv[1]}")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the checks are about errors
    found = check_estimator(model, on_skip=None, on_fail=None)
print(json.dumps([(one["check_name"], one["status"], str(one["exception"])) for one in found]))
"""


def ordered(n=120, classes=4, seed=0):
    """Return features, and classes that are ordered along the first of them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    noisy = X[:, 0] + 0.4 * rng.normal(size=n)
    return X, np.digitize(noisy, np.linspace(-1, 1, classes - 1))


# ------------------------------------------------------------------ scikit-learn's own checks


# The checks want the most probable of three classes without an order, and weights that count as
# repeated samples to 1e-7: of several fits some differ by more with the default `tol`.
AVERAGED = "GeometricClassifierCV(average=True, decision='mode', tol=1e-10)"


@pytest.mark.parametrize(
    "made",
    [
        "GeometricClassifier()",
        pytest.param("GeometricClassifierCV()", marks=pytest.mark.slow),
        pytest.param(AVERAGED, marks=pytest.mark.slow),
    ],
    ids=["plain", "CV", "averaged"],
)
def test_every_check_of_scikit_learn_passes_and_none_is_skipped(made):
    # In a process of its own: the check of array API inputs asks for it before scipy is imported.
    done = subprocess.run(
        [sys.executable, "-c", CHECKS, made],
        env={**os.environ, "SCIPY_ARRAY_API": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) > 50
    assert [one for one in found if one[1] != "passed"] == []


# ------------------------------------------------------------------ fitted attributes, predictions


@each_estimator
def test_fitted_attributes(model):
    X, y = ordered()
    model = clone(model).fit(X, y)
    assert model.coef_.shape == (4, 3)
    assert model.intercept_.shape == (4,)
    assert model.cost_.shape == (4,)
    assert model.n_iter_ >= 1
    assert model.n_features_in_ == 3
    assert list(model.classes_) == [0, 1, 2, 3]
    assert model.score(X, y) > 0.6


@each_estimator
def test_probabilities_are_the_geometric_softmax_of_the_scores(model):
    X, y = ordered()
    model = clone(model).fit(X, y)
    scores = torch.from_numpy(X @ model.coef_.T + model.intercept_)
    expected = geometric_softmax(scores, model.cost_).numpy()
    np.testing.assert_allclose(model.predict_proba(X), expected, atol=1e-12)
    assert (expected == 0).any()


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("decision", ["median", "mean", "mode", "cost", "scores"])
def test_decisions_minimise_what_they_say(decision, classes):
    X, y = ordered(classes=classes)
    cost = LineCost(classes, p=1.5)
    model = GeometricClassifier(cost, decision=decision, alpha=3.0).fit(X, y)
    alpha, at = model.predict_proba(X), np.arange(classes)
    scores = X @ model.coef_.T + model.intercept_
    expected = {
        "median": lambda: [np.argmin([(p * abs(at - k)).sum() for k in at]) for p in alpha],
        "mean": lambda: np.rint(alpha @ at),
        "mode": lambda: alpha.argmax(1),
        "cost": lambda: (alpha @ cost.matrix().numpy()).argmin(1),
        "scores": lambda: scores.argmax(1),
    }[decision]()
    np.testing.assert_array_equal(model.predict(X), expected)
    values = model.decision_function(X)
    if classes == 2:
        assert values.shape == (len(X),)
        np.testing.assert_array_equal(values > 0, model.predict(X) == 1)
    else:
        np.testing.assert_array_equal(values.argmax(1), model.predict(X))


def test_by_default_the_decision_suits_the_cost():
    X, y = ordered(classes=5)
    taxonomy = TreeCost.from_dict({"a": ["0", "1"], "b": ["2", "3", "4"]})
    matrix = DenseCost.from_points(torch.arange(5.0)[:, None] ** 2, p=1).matrix().numpy()
    for cost, labels, rule in (
        ("squared", y, "median"),
        (LineCost(5, p=1.5), y, "median"),
        ("zero-one", y, "mode"),
        (matrix, y, "cost"),
        (taxonomy, y.astype(str), "cost"),
    ):
        model = GeometricClassifier(cost).fit(X, labels)
        expected = clone(model).set_params(decision=rule).fit(X, labels)
        np.testing.assert_array_equal(model.predict(X), expected.predict(X))
    with pytest.raises(ValueError, match=r"leaves of a tree.*decision='cost'"):
        GeometricClassifier(taxonomy, decision="median").fit(X, y.astype(str))


def test_rows_of_a_matrix_in_the_order_of_the_alphabet_are_warned_of():
    X, y = ordered(classes=3)
    labels = np.array(["low", "mid", "high"])[y]
    matrix = np.abs(np.subtract.outer(np.arange(3.0), np.arange(3.0)))
    for cost in (matrix, DenseCost(matrix)):
        with pytest.warns(UserWarning, match=r"alphabetical order.*depends on their order"):
            GeometricClassifier(cost).fit(X, labels)
        GeometricClassifier(cost, classes=["low", "mid", "high"]).fit(X, labels)


def test_decision_may_be_changed_after_fitting():
    X, y = ordered()
    model = GeometricClassifier().fit(X, y)
    other = GeometricClassifier(decision="mode").fit(X, y)
    np.testing.assert_array_equal(model.set_params(decision="mode").predict(X), other.predict(X))
    with pytest.raises(ValueError, match="decision must be one of"):
        model.set_params(decision="best").predict(X)


def test_expected_costs():
    X, y = ordered(classes=3)
    model = GeometricClassifier("absolute", scale=2.0, decision="cost").fit(X, y)
    alpha = model.predict_proba(X)
    expected = 2 * alpha @ [[0, 1, 2], [1, 0, 1], [2, 1, 0]]
    np.testing.assert_allclose(model.predict_cost(X), expected, atol=1e-12)


def test_a_cost_changes_what_is_learnt():
    X, y = ordered()
    costs = ["squared", "absolute", "zero-one", (LineCost(4) * 3).matrix().numpy(), LineCost(4)]
    fits = [GeometricClassifier(cost).fit(X, y) for cost in costs]
    for one, other in itertools.pairwise(fits):
        assert np.abs(one.coef_ - other.coef_).max() > 1e-3


def test_scale_multiplies_every_cost():
    X, y = ordered()
    matrix = (LineCost(4, p=2)).matrix().numpy()
    named = GeometricClassifier("squared", scale=0.7, tol=1e-8).fit(X, y)
    for cost in (matrix, matrix.tolist(), DenseCost(matrix), LineCost(4, p=2)):
        given = GeometricClassifier(cost, scale=0.7, tol=1e-8).fit(X, y)
        np.testing.assert_allclose(given.coef_, named.coef_, atol=1e-5)


def test_results_do_not_depend_on_threads(threads):
    X, y = ordered(n=3000, classes=9)
    fits = []
    for n in (1, 2):
        threads(n)
        fits.append(GeometricClassifier().fit(X, y))
    np.testing.assert_allclose(fits[0].coef_, fits[1].coef_, rtol=1e-9)


# ------------------------------------------------------------------ the order of the classes


def test_classes_give_the_order():
    X, y = ordered(classes=3)
    words = np.array(["low", "mid", "high"])
    model = GeometricClassifier(classes=words).fit(X, words[y])
    assert list(model.order_) == ["low", "mid", "high"]
    by_number = GeometricClassifier().fit(X, y)
    np.testing.assert_array_equal(model.predict(X), words[by_number.predict(X)])
    # Columns are sorted by name, as everywhere in scikit-learn: its measures take them for that.
    assert list(model.classes_) == ["high", "low", "mid"]
    for name in ("predict_proba", "predict_cost", "decision_function"):
        columns, numbered = getattr(model, name)(X), getattr(by_number, name)(X)
        np.testing.assert_allclose(columns, numbered[:, [2, 0, 1]], atol=1e-6)
    np.testing.assert_allclose(model.coef_, by_number.coef_[[2, 0, 1]], atol=1e-6)
    names = words[y]
    assert log_loss(names, model.predict_proba(X)) == pytest.approx(
        log_loss(y, by_number.predict_proba(X))
    )
    scores = cross_val_score(GeometricClassifier(classes=words), X, names, scoring="neg_log_loss")
    numbers = cross_val_score(GeometricClassifier(), X, y, scoring="neg_log_loss")
    np.testing.assert_allclose(scores, numbers, rtol=1e-5)


def test_two_classes_in_another_order():
    X, y = ordered(classes=2)
    words = np.array(["poor", "fair"])
    model = GeometricClassifier(classes=words).fit(X, words[y])
    by_number = GeometricClassifier().fit(X, y)
    np.testing.assert_allclose(
        model.decision_function(X), -by_number.decision_function(X), atol=1e-6
    )
    area = roc_auc_score(words[y], model.predict_proba(X)[:, 1])
    assert area == pytest.approx(roc_auc_score(y, by_number.predict_proba(X)[:, 1]))


@pytest.mark.parametrize("wrap", [pd.Series, pd.Categorical])
def test_ordered_categories_give_the_order(wrap):
    X, y = ordered(classes=3)
    words = np.array(["low", "mid", "high"])
    column = pd.Categorical(words[y], categories=["low", "mid", "high", "extreme"], ordered=True)
    model = GeometricClassifier().fit(X, wrap(column))
    assert list(model.order_) == ["low", "mid", "high", "extreme"]
    assert set(model.predict(X)) <= {"low", "mid", "high"}


def test_categories_without_order_are_sorted_labels():
    X, y = ordered(classes=3)
    column = pd.Series(pd.Categorical(np.array(["b", "c", "a"])[y], categories=["b", "c", "a"]))
    with pytest.warns(UserWarning, match="in alphabetical order"):
        model = GeometricClassifier().fit(X, column)
    assert list(model.classes_) == ["a", "b", "c"]


@each_estimator
@pytest.mark.parametrize("missing", [0, 2, 5])
def test_a_class_that_never_occurs_is_never_predicted(model, missing):
    X, y = ordered(classes=5)
    y = y + (y >= missing)
    model = clone(model).set_params(classes=range(6)).fit(X, y)
    assert model.coef_.shape == (6, 3)
    assert missing not in model.predict(X)
    assert model.predict_proba(X)[:, missing].mean() < 0.02


@pytest.mark.parametrize("scale", [0.01, 1.0, 1e4])
@pytest.mark.parametrize("cost", ["squared", "absolute", "zero-one"])
def test_a_class_that_never_occurs_at_any_scale(cost, scale):
    X, y = ordered(classes=3)
    model = GeometricClassifier(cost, scale=scale, classes=[7, 0, 1, 2, 9]).fit(X, y)
    assert np.isfinite(model.coef_).all()
    assert set(model.predict(X)) <= {0, 1, 2}


def test_labels_outside_the_order_are_named():
    X, y = ordered(classes=4)
    with pytest.raises(ValueError, match=r"not in classes: \[3\]; classes is \[0, 1, 2\]"):
        GeometricClassifier(classes=[0, 1, 2]).fit(X, y)


@each_estimator
@pytest.mark.parametrize("text", ["a, b", "ab"])
def test_classes_that_are_text_are_refused(model, text):
    X, y = ordered(classes=2)
    with pytest.raises(ValueError, match=rf"a list of labels, such as \['a.*; got '{text}'"):
        clone(model).set_params(classes=text).fit(X, np.array(["a", "b"])[y])


def test_meta_estimators_that_number_the_labels():
    """They lose the order, and the error says what to do; the order survives that."""
    X, y = ordered(classes=3)
    ratings = ["poor", "fair", "good"]
    vote = VotingClassifier([("ours", GeometricClassifier(classes=ratings))], voting="soft")
    with pytest.raises(ValueError, match=r"VotingClassifier .*leave `classes` out"):
        vote.fit(X, np.array(ratings)[y])
    numbered = clone(vote).set_params(ours__classes=None).fit(X, y)
    alone = GeometricClassifier().fit(X, y)
    np.testing.assert_allclose(numbered.predict_proba(X), alone.predict_proba(X))


# ------------------------------------------------------------------ weights


@each_estimator
def test_a_weight_is_a_number_of_repetitions(model):
    X, y = ordered(n=90)
    times = np.random.default_rng(1).integers(0, 4, size=90)
    split = [(np.arange(45), np.arange(45, 90))]
    again = np.repeat(np.arange(90), times)
    first, second = clone(model).set_params(tol=1e-9), clone(model).set_params(tol=1e-9)
    if isinstance(model, GeometricClassifierCV):
        first.set_params(cv=split)
        second.set_params(cv=[((again < 45).nonzero()[0], (again >= 45).nonzero()[0])])
    first.fit(X, y, sample_weight=times)
    second.fit(X[again], y[again])
    np.testing.assert_allclose(first.coef_, second.coef_, atol=1e-6)
    np.testing.assert_allclose(np.ptp(first.intercept_ - second.intercept_), 0, atol=1e-6)


def test_class_weights_are_sample_weights():
    X, y = ordered()
    weighted = GeometricClassifier(class_weight={0: 2.0, 3: 0.5}, tol=1e-9).fit(X, y)
    by_sample = np.array([2.0, 1.0, 1.0, 0.5])[y]
    expected = GeometricClassifier(tol=1e-9).fit(X, y, sample_weight=by_sample)
    np.testing.assert_allclose(weighted.coef_, expected.coef_, atol=1e-7)


def test_balanced_weights_with_a_class_that_never_occurs():
    X, y = ordered()
    balanced = GeometricClassifier(class_weight="balanced", classes=range(5), tol=1e-9).fit(X, y)
    by_sample = (len(y) / 4 / np.bincount(y))[y]
    expected = GeometricClassifier(classes=range(5), tol=1e-9).fit(X, y, sample_weight=by_sample)
    np.testing.assert_allclose(balanced.coef_, expected.coef_, atol=1e-7)


def test_balanced_weights_with_a_class_without_weight():
    X, y = ordered()
    weight = (y != 1) * np.linspace(0.5, 2.0, len(y))
    model = GeometricClassifier(class_weight="balanced", classes=range(4), tol=1e-9)
    balanced = model.fit(X, y, sample_weight=weight)
    without = clone(model).fit(X[y != 1], y[y != 1], sample_weight=weight[y != 1])
    np.testing.assert_allclose(balanced.coef_, without.coef_, atol=1e-7)


def test_weights_that_leave_one_class():
    X, y = ordered()
    with pytest.raises(ValueError, match="have only one class, 1"):
        GeometricClassifier().fit(X, y, sample_weight=y == 1)
    with pytest.raises(ValueError, match=r"[Nn]egative"):
        GeometricClassifier().fit(X, y, sample_weight=-np.ones(len(y)))


# ------------------------------------------------------------------ inputs


@each_estimator
@pytest.mark.parametrize("container", [sparse.csr_array, sparse.csr_matrix, sparse.csc_array])
def test_sparse_samples_give_the_same_model(model, container):
    X, y = ordered()
    X[np.abs(X) < 0.5] = 0.0
    model = clone(model).set_params(tol=1e-9)
    dense, thin = clone(model).fit(X, y), clone(model).fit(container(X), y)
    np.testing.assert_allclose(thin.coef_, dense.coef_, atol=1e-6)
    np.testing.assert_array_equal(thin.predict(container(X)), dense.predict(X))


def test_single_precision_stays_single():
    X, y = ordered()
    model = GeometricClassifier().fit(X.astype(np.float32), y)
    assert model.coef_.dtype == model.intercept_.dtype == np.float32
    assert model.predict_proba(X.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(model.coef_, GeometricClassifier().fit(X, y).coef_, atol=1e-3)


@each_estimator
def test_data_frames_keep_their_names(model):
    X, y = ordered()
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = clone(model).fit(frame, y)
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    model.predict(frame)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["b", "a", "c"]])


def test_constant_features_get_no_weight():
    X, y = ordered()
    X = np.column_stack([X, np.full(len(X), 3.0), np.zeros(len(X))])
    model = GeometricClassifier().fit(X, y)
    np.testing.assert_allclose(model.coef_[:, 3:], 0.0, atol=1e-8)
    flat = GeometricClassifier().fit(X[:, 3:], y)  # nothing to learn but the shares
    shares = np.bincount(y) / len(y)
    np.testing.assert_allclose(flat.predict_proba(X[:1, 3:])[0], shares, atol=1e-3)


def test_one_sample_per_class():
    X = np.array([[0.0], [1.0], [2.0]])
    model = GeometricClassifier(alpha=1e-3, classes=["1", "2", "3"]).fit(X, ["1", "2", "3"])
    assert list(model.predict(X)) == ["1", "2", "3"]


def test_more_features_than_samples():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 2000)), np.repeat([0, 1, 2], 10)
    assert GeometricClassifier().fit(X, y).score(X, y) == 1.0


def test_without_intercept():
    X, y = ordered()
    for data in (X, sparse.csr_array(X)):
        model = GeometricClassifier(fit_intercept=False).fit(data, y)
        np.testing.assert_array_equal(model.intercept_, 0.0)


def test_inputs_are_left_alone():
    X, y = ordered()
    weight = np.ones(len(y))
    before = X.copy(), y.copy()
    GeometricClassifier().fit(X, y, sample_weight=weight).predict_proba(X)
    np.testing.assert_array_equal(X, before[0])
    np.testing.assert_array_equal(y, before[1])
    np.testing.assert_array_equal(weight, 1.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cost": "cubic"}, "cost must be 'squared', 'absolute', 'zero-one', a matrix or a Cost"),
        ({"cost": np.zeros((3, 3))}, r"shape \(3,\), but there are 4 classes"),
        ({"cost": np.zeros(4)}, "cost"),
        ({"cost": LineCost(5)}, r"shape \(5,\), but there are 4 classes"),
        ({"cost": GridCost((2, 2))}, r"shape \(2, 2\), but there are 4 classes"),
        ({"cost": DenseCost(LineCost(4).matrix().expand(2, 4, 4))}, "one cost for all samples"),
        ({"cost": -np.ones((4, 4))}, "cost matrix"),
        ({"scale": 0.0}, "scale must be a positive number; got 0.0"),
        ({"scale": "big"}, "scale must be a positive number; got 'big'"),
        ({"alpha": -1.0}, "alpha must be a non-negative number; got -1.0"),
        ({"alpha": np.nan}, "alpha must be a non-negative number; got nan"),
        ({"tol": 0}, "tol must be a positive number"),
        ({"max_iter": 0}, "max_iter must be a positive integer; got 0"),
        ({"max_iter": 1.5}, "max_iter must be a positive integer; got 1.5"),
        ({"decision": "best"}, "decision must be one of 'auto', 'median'.*got 'best'"),
        ({"classes": [0, 1, 2, 2, 3]}, "classes has a label twice"),
        ({"classes": [[0, 1], [2, 3]]}, "classes must be a list of labels"),
        ({"classes": {0, 1, 2, 3}}, "got a set, which has none"),
        ({"classes": 4}, r"got 4\. Name the labels in their order, such as \[0, 1, 2, 3\]"),
        ({"class_weight": "heavy"}, "class_weight"),
        ({"cost": ["squared", "absolute"]}, "one cost; .*GeometricClassifierCV chooses among"),
        ({"shared": ["squared"]}, "shared must be one cost; "),
        ({"classes": [0, 1, 2, 3, None]}, "classes has a missing label .* at position 4"),
        ({"classes": [0, 1, np.nan, 2, 3]}, "classes has a missing label .* at position 2"),
        ({"fit_intercept": "no"}, "fit_intercept must be True or False; got 'no'"),
        ({"fit_intercept": 1}, "fit_intercept must be True or False; got 1"),
    ],
)
def test_bad_settings_are_explained(settings, message):
    X, y = ordered()
    with pytest.raises(ValueError, match=message):
        GeometricClassifier(**settings).fit(X, y)


@each_estimator
def test_a_learnt_cost_is_refused(model):
    X, y = ordered()
    for option in {"cost", "shared"} & model.get_params().keys():
        learnt = LearntPoints(np.arange(4.0)[:, None])
        with pytest.raises(TypeError, match=rf"{option} must be .*LearntPoints.*attribute `cost`"):
            clone(model).set_params(**{option: learnt}).fit(X, y)
    GeometricClassifier(LearntPoints(np.arange(4.0)[:, None]).cost).fit(X, y)


@each_estimator
def test_flags_of_numpy_are_flags(model):
    X, y = ordered()
    assert not clone(model).set_params(fit_intercept=np.False_).fit(X, y).intercept_.any()


@each_estimator
@pytest.mark.parametrize("wrap", [pd.Series, np.asarray, lambda y: pd.DataFrame({"y": y})])
def test_intervals_are_no_labels(model, wrap):
    X, _ = ordered()
    with pytest.raises(ValueError, match=r"y holds intervals.*pass labels=.* to pd\.cut"):
        clone(model).fit(X, wrap(pd.cut(X[:, 0], 4)))


def test_several_decisions_are_refused_after_the_fit_too():
    X, y = ordered()
    model = GeometricClassifier().fit(X, y)
    with pytest.raises(ValueError, match=r"decision must be one of .*got \['median', 'mode'\]"):
        model.set_params(decision=["median", "mode"]).predict(X)


@each_estimator
@pytest.mark.parametrize("kind", [object, "category", "string"])
def test_features_that_are_text_are_refused_with_the_way_on(model, kind):
    X, y = ordered()
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    fitted = clone(model).fit(table, y)
    table["c"] = pd.Series(np.array(["A", "B"])[y % 2]).astype(kind)
    for call in (lambda: clone(model).fit(table, y), lambda: fitted.predict(table)):
        with pytest.raises(ValueError, match=r"to float: '[AB]'.*ColumnTransformer.*OneHotEncoder"):
            call()


def test_bad_samples_are_explained():
    X, y = ordered()
    model = GeometricClassifier()
    with pytest.raises(NotFittedError):
        model.predict(X)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.where(X > 2, np.nan, X), y)
    with pytest.raises(ValueError, match="only one class"):
        model.fit(X, np.zeros(len(X)))
    with pytest.raises(ValueError, match="Unknown label type"):
        model.fit(X, X[:, 0])
    with pytest.raises(ValueError, match="3 features"):
        model.fit(X, y).predict(X[:, :2])


@each_estimator
@pytest.mark.parametrize(
    "wrap",
    [
        list,
        lambda y: np.array(y, dtype=object),
        lambda y: pd.Series(y),
        lambda y: pd.Series(y).astype("string"),
        lambda y: pd.Series(pd.Categorical(y, ["a", "b", "c"], ordered=True)),
    ],
    ids=["list", "object", "series", "string", "categorical"],
)
@pytest.mark.parametrize("missing", [None, np.nan, pd.NA], ids=["None", "NaN", "NA"])
def test_missing_labels_are_counted(model, wrap, missing):
    X, y = ordered(classes=3)
    labels = np.array(["a", "b", "c"])[y].astype(object)
    labels[[5, 9]] = missing
    with pytest.raises(ValueError, match=r"y has 2 missing labels.*first in row 5"):
        clone(model).fit(X, wrap(labels.tolist()))


@pytest.mark.parametrize("kind", ["float64", "Int64", "Float64"])
def test_missing_numbers_are_counted(kind):
    X, y = ordered()
    column = pd.Series(y).astype(kind)
    column[7] = None
    with pytest.raises(ValueError, match=r"y has 1 missing label .*row 7"):
        GeometricClassifier().fit(X, column)


def test_classes_that_are_a_number_beside_a_cost_with_names():
    tree = TreeCost.from_dict({"x": ["a", "b"], "y": ["c"]})
    X, y = ordered(classes=3)
    with pytest.raises(ValueError, match="classes is 3, but the cost names its outputs"):
        GeometricClassifier(cost=tree, classes=3).fit(X, np.array(["a", "b", "c"])[y])


# ------------------------------------------------------------------ convergence


def test_a_fit_that_does_not_converge_warns():
    X, y = ordered()
    with pytest.warns(ConvergenceWarning, match=r"max_iter was reached.*Increase max_iter"):
        model = GeometricClassifier(max_iter=2).fit(X, y)
    assert model.n_iter_ == 2
    with pytest.warns(ConvergenceWarning, match="max_iter was reached"):
        GeometricClassifierCV(max_iter=2, cv=3).fit(X, y)


def test_a_tolerance_below_rounding_ends_with_a_warning():
    X, y = ordered()
    with pytest.warns(ConvergenceWarning, match=r"rounding allows no further step.*Increase tol"):
        GeometricClassifier(tol=1e-30, max_iter=5000).fit(X, y)


def test_tolerance_bounds_the_gradient():
    # The objective cannot be improved by more than the gradient allows: compare with a tight fit.
    X, y = ordered()
    loose, tight = (GeometricClassifier(tol=tol).fit(X, y) for tol in (1e-3, 1e-9))
    assert loose.n_iter_ < tight.n_iter_
    assert 0 < np.abs(loose.coef_ - tight.coef_).max() < 0.1


# ------------------------------------------------------------------ tools of scikit-learn


@each_estimator
def test_clones_and_pickles(model):
    X, y = ordered()
    for cost in ("squared", LineCost(4, p=2), (LineCost(4) * 2).matrix().numpy()):
        fitted = clone(model).set_params(cost=cost).fit(X, y)
        assert not hasattr(clone(fitted), "coef_")
        again = pickle.loads(pickle.dumps(fitted))
        np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
        repr(fitted)


def test_searches_and_pipelines():
    X, y = ordered()
    pipe = make_pipeline(StandardScaler(), GeometricClassifier()).set_output(transform="pandas")
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    assert list(pipe.fit(frame, y)[-1].feature_names_in_) == ["a", "b", "c"]
    grid = {"geometricclassifier__alpha": [0.1, 10.0], "geometricclassifier__scale": [0.4, 2.0]}
    search = GridSearchCV(pipe, grid, scoring="neg_mean_absolute_error", cv=3).fit(X, y)
    assert search.best_score_ > -0.5
    scores = cross_validate(pipe, X, y, cv=3, scoring=["accuracy", "neg_mean_absolute_error"])
    assert scores["test_accuracy"].min() > 0.5
    assert cross_val_predict(pipe, X, y, cv=3, method="predict_proba").shape == (120, 4)


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_calibration(method):
    X, y = ordered(n=300)
    calibrated = CalibratedClassifierCV(GeometricClassifier(), method=method, cv=3).fit(X, y)
    np.testing.assert_allclose(calibrated.predict_proba(X).sum(1), 1.0)
    binary = GeometricClassifier().fit(X, y > 1)
    display = CalibrationDisplay.from_estimator(binary, X, y > 1, n_bins=5)
    assert len(display.prob_true) >= 2
    display.figure_.clear()


def test_metadata_is_routed():
    X, y = ordered()
    weight = np.random.default_rng(0).uniform(0.1, 2.0, size=len(y))
    with sklearn.config_context(enable_metadata_routing=True):
        model = GeometricClassifier().set_fit_request(sample_weight=True)
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        pipe = make_pipeline(scaler, model).fit(X, y, sample_weight=weight)
    direct = GeometricClassifier().fit(StandardScaler().fit_transform(X), y, sample_weight=weight)
    np.testing.assert_allclose(pipe[-1].coef_, direct.coef_, atol=1e-12)
    plain = GeometricClassifier().fit(StandardScaler().fit_transform(X), y)
    assert np.abs(plain.coef_ - direct.coef_).max() > 1e-3


def test_no_warnings_on_ordinary_data():
    X, y = ordered()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for model in ESTIMATORS.values():
            clone(model).fit(X, y).predict(X)


# ------------------------------------------------------------------ real data


@pytest.mark.data
@pytest.mark.parametrize("name", ["ERA", "ESL", "car", "eucalyptus", "squash-stored"])
def test_real_ordinal_sets(name):
    train, test = (
        np.loadtxt(data_file("ordinal-regression", name, "matlab", f"{part}_{name}.0"))
        for part in ("train", "test")
    )
    model = make_pipeline(StandardScaler(), GeometricClassifier()).fit(train[:, :-1], train[:, -1])
    truth = test[:, -1]
    error = np.abs(model.predict(test[:, :-1]) - truth).mean()
    assert error < 0.9 * np.abs(np.median(train[:, -1]) - truth).mean()


# ------------------------------------------------------------------ which class is which

ANIMALS = TreeCost.from_dict({"pets": ["cat", "dog"], "wheels": ["bus", "van"]})


def animals(n=80):
    rng = np.random.default_rng(0)
    position = rng.integers(4, size=n)
    return rng.normal(size=(n, 3)) + position[:, None], np.array(ANIMALS.names)[position], position


def test_labels_are_matched_with_the_names_of_a_taxonomy():
    X, y, position = animals()
    model = GeometricClassifier(ANIMALS).fit(X, y)
    assert model.order_.tolist() == ["cat", "dog", "bus", "van"]
    unnamed = GeometricClassifier(DenseCost(ANIMALS.matrix())).fit(X, position)
    places = np.searchsorted(model.classes_, model.order_)
    np.testing.assert_allclose(model.coef_[places], unnamed.coef_, atol=1e-6)
    one_unseen = y != "bus"  # a class that does not occur keeps its place
    model = GeometricClassifier(ANIMALS).fit(X[one_unseen], y[one_unseen])
    assert model.order_.tolist() == ["cat", "dog", "bus", "van"]
    chosen = GeometricClassifierCV([ANIMALS, "zero-one"], cv=2).fit(X, y)
    assert chosen.order_.tolist() == ["cat", "dog", "bus", "van"]


def test_labels_are_matched_with_those_of_a_table():
    X, y, position = animals()
    order = ["van", "cat", "bus", "dog"]
    places = [ANIMALS.index(name) for name in order]
    matrix = ANIMALS.matrix()[places][:, places]
    table = pd.DataFrame(matrix.numpy(), index=order, columns=order)
    model = GeometricClassifier(table).fit(X, y)
    assert model.order_.tolist() == order
    expected = GeometricClassifier(ANIMALS).fit(X, y)
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-6)
    with pytest.raises(ValueError, match="Do not pass `classes`"):
        GeometricClassifier(table, classes=sorted(order)).fit(X, y)
    with pytest.raises(ValueError, match=r"C\.loc\[names, names\]"):
        GeometricClassifier(table[sorted(order)]).fit(X, y)
    plain = GeometricClassifier(pd.DataFrame(ANIMALS.matrix().numpy())).fit(X, position)
    assert plain.order_.tolist() == [0, 1, 2, 3]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(DenseCost(table).matrix(), matrix)


def test_labels_that_a_taxonomy_does_not_name_are_refused():
    X, y, position = animals()
    with pytest.raises(ValueError, match="does not name"):
        GeometricClassifier(ANIMALS).fit(X, position)
    with pytest.raises(ValueError, match="Do not pass `classes`"):
        GeometricClassifier(ANIMALS, classes=["bus", "cat", "dog", "van"]).fit(X, y)
    other = TreeCost.from_dict({"a": ["dog", "cat"], "b": ["bus", "van"]})
    with pytest.raises(ValueError, match="differently"):
        GeometricClassifierCV([ANIMALS, other], cv=2).fit(X, y)


@pytest.mark.parametrize("cost", ["squared", "absolute", LineCost(3)], ids=str)
def test_an_alphabetical_order_is_warned_of(cost):
    X, y, _ = animals()
    y = np.array(["low", "medium", "high"])[np.unique(y, return_inverse=True)[1] % 3]
    with pytest.warns(UserWarning, match=r"in alphabetical order: \['high', 'low', 'medium'\]"):
        GeometricClassifier(cost).fit(X, y)
    GeometricClassifier(cost, classes=["low", "medium", "high"]).fit(X, y)
    ordered = pd.Categorical(y, ["low", "medium", "high"], ordered=True)
    GeometricClassifier(cost).fit(X, pd.Series(ordered))
    GeometricClassifier("zero-one").fit(X, y)  # any order will do


def test_scales_that_a_matrix_does_not_bear_are_refused():
    x = np.arange(3.0)
    model = GeometricClassifier(np.abs(x[:, None] - x) ** 4, scale=0.1)
    with pytest.raises(ValueError, match="every_scale=True"):
        model.fit(np.random.default_rng(0).normal(size=(30, 2)), np.arange(30) % 3)


UNEVEN = np.array([1, 2, 5, 10])


@pytest.mark.parametrize("cost", ["squared", "absolute"])
@pytest.mark.parametrize("kind", [int, float, "f4"])
def test_numbers_at_uneven_distances_are_warned_of(cost, kind):
    """1, 2, 5, 10 are put at 0, 1, 2, 3; and so are 1, 2, 3, 5 where no 4 occurs."""
    X, y = ordered(classes=4)
    labels = UNEVEN.astype(kind)
    listed = re.escape(str(labels.tolist()))
    with pytest.warns(UserWarning, match=rf"{listed}.*LineCost.*name all classes in `classes`"):
        by_rank = GeometricClassifier(cost).fit(X, labels[y])
    with pytest.warns(UserWarning, match=rf"{listed}.*LineCost"):
        GeometricClassifierCV(["zero-one", cost], alphas=(1.0,)).fit(X, labels[y])
    # What the warning advises is taken without one.
    there = GeometricClassifier(LineCost(UNEVEN, p=1 if cost == "absolute" else 2))
    assert not np.allclose(there.fit(X, labels[y]).coef_, by_rank.coef_)
    named = GeometricClassifier(cost, classes=labels).fit(X, labels[y])
    np.testing.assert_array_equal(named.coef_, by_rank.coef_)
    GeometricClassifier(cost, classes=[1, 2, 3, 4, 5]).fit(X, np.array([1, 2, 3, 5])[y])
    GeometricClassifier(cost).fit(X, pd.Series(pd.Categorical(labels[y], labels, ordered=True)))
    GeometricClassifier("zero-one").fit(X, labels[y])


@pytest.mark.parametrize("unit", ["D", "s", "ns"])
def test_dates_at_uneven_distances_are_warned_of(unit):
    X, y = ordered(classes=4)
    days = np.array(["2026-01-01", "2026-01-02", "2026-01-05", "2026-02-01"]).astype(f"M8[{unit}]")
    for labels in (days, days - days[0]):
        with pytest.warns(UserWarning, match=r"not evenly spaced.*name all classes in `classes`"):
            GeometricClassifier().fit(X, labels[y])
        GeometricClassifier(classes=labels).fit(X, labels[y])
    with pytest.warns(UserWarning, match="not evenly spaced") as found:
        by_rank = GeometricClassifier().fit(X, days[y])
    # What the warning advises.
    advised = re.search(r"cost=(LineCost\(.*?, p=2\))", str(found[0].message))
    there = eval(advised[1], {"LineCost": LineCost, "np": np, "y": days[y]})
    assert torch.equal(there.positions.double(), torch.tensor([0.0, 1.0, 4.0, 31.0]).double())
    assert not np.allclose(GeometricClassifier(there).fit(X, days[y]).coef_, by_rank.coef_)
    even = np.array(["2026-01-01", "2026-01-02", "2026-01-03", "2026-01-04"]).astype(days.dtype)
    GeometricClassifier().fit(X, even[y])


@pytest.mark.parametrize("labels", [[3, 4, 5, 6], [-10, 0, 10, 20]], ids=str)
@pytest.mark.parametrize("dtype", [int, float, "f4"])
def test_numbers_at_even_distances_are_their_ranks(labels, dtype):
    X, y = ordered(classes=4)
    model = GeometricClassifier().fit(X, np.array(labels, dtype)[y])
    np.testing.assert_array_equal(model.coef_, GeometricClassifier().fit(X, y).coef_)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("rule", ["median", "mean"])
def test_decisions_count_in_the_positions_of_the_cost(rule, p):
    X, y = ordered(classes=4)
    cost, labels = LineCost(UNEVEN, p=p), UNEVEN[y]
    model = GeometricClassifier(cost, scale=0.3, alpha=30.0, decision=rule).fit(X, labels)
    alpha = model.predict_proba(X)
    chosen = decide(torch.from_numpy(alpha), cost, rule).numpy()
    np.testing.assert_array_equal(model.predict(X), UNEVEN[chosen])
    by_rank = decide(torch.from_numpy(alpha), LineCost(4), rule).numpy()
    assert (chosen != by_rank).any() == (rule == "mean")
    measure = np.abs(np.subtract.outer(UNEVEN, UNEVEN)) ** {"median": 1, "mean": 2}[rule]
    np.testing.assert_allclose(model.predict_cost(X), alpha @ measure, atol=1e-9)

    searched = GeometricClassifierCV(cost, scales=(0.3,), decision=rule).fit(X, labels)
    scoring = f"neg_mean_{'absolute' if rule == 'median' else 'squared'}_error"
    expected = clone(searched).set_params(scoring=scoring).fit(X, labels)
    np.testing.assert_allclose(searched.scores_["mean_score"], expected.scores_["mean_score"])


def test_costs_with_other_positions_are_not_compared():
    X, y = ordered(classes=4)
    uneven = LineCost(UNEVEN)
    model = GeometricClassifierCV([uneven, LineCost(4)], alphas=(1.0,), decision="median")
    with pytest.raises(ValueError, match=r"positions.*Pass scoring"):
        model.fit(X, UNEVEN[y])
    model.set_params(scoring="accuracy").fit(X, UNEVEN[y])
    same = GeometricClassifierCV([uneven, LineCost(UNEVEN, p=2), ZeroOneCost(4)], alphas=(1.0,))
    same.fit(X, UNEVEN[y])


@pytest.mark.parametrize("weights", [{0: -1.0}, {1: np.nan}, {2: np.inf}], ids=str)
def test_weights_of_classes_that_are_no_weights(weights):
    X, y = ordered()
    with pytest.raises(ValueError, match="class_weight must be finite and at least 0"):
        GeometricClassifier(class_weight=weights).fit(X, y)


# ------------------------------------------------------------------ weights that are shared


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_weights_are_shared_along_a_taxonomy(container):
    """At the optimum the gradient of the losses is minus that of ``alpha/2 tr(W K⁻¹ Wᵀ)``."""
    X, y, position = animals()
    shared = ANIMALS * 0.6
    model = GeometricClassifier("zero-one", scale=2.0, alpha=3.0, shared=shared, tol=1e-9)
    model.fit(container(X), y)
    assert model.order_.tolist() == list(ANIMALS.names)  # its names give the order
    rows = np.searchsorted(model.classes_, model.order_)
    W = torch.from_numpy(model.coef_[rows]).requires_grad_()
    c = torch.from_numpy(model.intercept_[rows]).requires_grad_()
    loss = geometric_logistic_loss(
        torch.from_numpy(X) @ W.T + c, torch.from_numpy(position), model.cost_, reduction="sum"
    )
    K = torch.exp(-shared.matrix() / 2)
    penalty = 1.5 * (W * torch.linalg.solve(K, W)).sum()
    for gradient in torch.autograd.grad(loss + penalty, (W, c)):
        assert float(gradient.abs().max()) < 1e-5


def test_far_classes_share_nothing_and_near_ones_almost_all():
    X, y, _ = animals()
    alone = GeometricClassifier(ANIMALS, tol=1e-9).fit(X, y)
    far = GeometricClassifier(ANIMALS, shared=ANIMALS * 100, tol=1e-9).fit(X, y)
    np.testing.assert_allclose(far.coef_, alone.coef_, atol=1e-6)
    near = GeometricClassifier(ANIMALS, shared=ANIMALS * 1e-4, tol=1e-9).fit(X, y)
    cat, dog = (near.coef_[list(near.classes_).index(name)] for name in ("cat", "dog"))
    assert np.abs(cat - dog).max() < 0.02


def test_shared_weights_are_checked():
    X, y, position = animals()
    with pytest.raises(ValueError, match=r"shared is between outputs of shape \(3,\), but there"):
        GeometricClassifier("zero-one", shared=np.ones((3, 3))).fit(X, position)
    other = TreeCost.from_dict({"a": ["dog", "cat"], "b": ["bus", "van"]})
    with pytest.raises(ValueError, match="differently"):
        GeometricClassifier(ANIMALS, shared=other).fit(X, y)


# ------------------------------------------------------------------ names are not yet an order

GRADES = ["bad", "poor", "fair", "good"]
GRADED = {"extreme": ["good", "bad"], "middle": ["fair", "poor"]}


def graded():
    X, y = ordered(classes=4)
    return X, np.array(GRADES)[y]


def as_table(tree):
    return pd.DataFrame(tree.matrix().numpy(), index=tree.names, columns=tree.names)


@pytest.mark.parametrize("made", [lambda tree: tree, as_table], ids=["tree", "table"])
@pytest.mark.parametrize(
    "model",
    [
        lambda tree: GeometricClassifier("squared", shared=tree),
        lambda tree: GeometricClassifier("zero-one", shared=tree, decision="median"),
        lambda tree: GeometricClassifier(LineCost(4), shared=tree),
        lambda tree: GeometricClassifierCV(["squared", tree], alphas=(1.0,), cv=3),
    ],
    ids=["shared", "decision", "line", "candidates"],
)
def test_names_of_a_cost_do_not_replace_the_order_of_the_classes(model, made):
    """The leaves of a tree have some order, but "squared" would take it for that of the grades."""
    X, y = graded()
    column = pd.Series(pd.Categorical(y, GRADES, ordered=True))
    wrong, right = TreeCost.from_dict(GRADED), TreeCost.from_dict(GRADED, order=GRADES)
    message = r"\['bad', 'poor', 'fair', 'good'\].*names its outputs \['good', 'bad'.*order=\["
    with pytest.raises(ValueError, match=f"ordered categorical.*{message}"):
        model(made(wrong)).fit(X, column)
    with pytest.raises(ValueError, match=f"classes is {message}"):
        model(made(wrong)).set_params(classes=np.array(GRADES)).fit(X, y)
    with pytest.warns(UserWarning, match=r"of the names of the cost: \['good', .*in `classes`"):
        model(made(wrong)).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(made(wrong)).set_params(classes=wrong.names).fit(X, y)  # it is meant
        for given, classes in ((column, None), (y, GRADES)):
            fitted = model(made(right)).set_params(classes=classes).fit(X, given)
            assert fitted.order_.tolist() == GRADES


def test_the_order_of_names_is_free_where_positions_do_not_matter():
    X, y = graded()
    tree = TreeCost.from_dict(GRADED)
    column = pd.Categorical(y, GRADES, ordered=True)
    for model in (GeometricClassifier(tree), GeometricClassifier("zero-one", shared=tree)):
        assert model.fit(X, column).order_.tolist() == list(tree.names)


def test_a_tree_may_name_more_classes_than_a_categorical():
    X, y = graded()
    tree = TreeCost.from_dict({"a": ["none", "bad"], "b": ["poor", "fair", "good"]})
    model = GeometricClassifierCV(["squared", tree], alphas=(1.0,), cv=3)
    model.fit(X, pd.Categorical(y, GRADES, ordered=True))
    assert model.order_.tolist() == ["none", *GRADES]


def test_a_table_of_numbers_in_their_order_needs_no_classes():
    X, y = ordered(classes=4)
    table = pd.DataFrame(LineCost(4).matrix().numpy())
    table.index = table.columns = [1, 2, 3, 4]
    assert GeometricClassifier("squared", shared=table).fit(X, y + 1).order_.tolist() == [
        1,
        2,
        3,
        4,
    ]


def test_decisions_by_rank_need_the_order_too():
    X, y = graded()
    with pytest.warns(UserWarning, match="alphabetical order"):
        GeometricClassifier("zero-one", decision="median").fit(X, y)


def test_an_ordered_categorical_in_a_frame_keeps_its_order():
    X, y = graded()
    frame = pd.DataFrame({"grade": pd.Categorical(y, GRADES, ordered=True)})
    with pytest.warns(DataConversionWarning):
        model = GeometricClassifier().fit(X, frame)
    assert model.order_.tolist() == GRADES
