"""Averages over candidates, in place of the best one."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.model_selection import KFold, PredefinedSplit

from geosoftmax import LineCost, TreeCost, ZeroOneCost, decide
from geosoftmax.estimators import GeometricClassifier, GeometricClassifierCV
from geosoftmax.estimators.averaging import vote, weigh_candidates
from tests.test_estimators import ordered

SETTINGS = {"scales": (0.5, 2.0), "alphas": (30.0, 3.0, 0.3), "cv": KFold(4)}
RULES = ["median", "mode"]


def losses_by_hand(X, y, settings, wrong):
    """Return losses of shape (candidates, samples) by plain fits on the folds."""
    found = []
    for scale in settings["scales"]:
        for alpha in settings["alphas"]:
            labels = np.zeros((len(RULES), len(y)), dtype=int)
            for train, out in settings["cv"].split(X):
                model = GeometricClassifier(scale=scale, alpha=alpha, tol=1e-8)
                model.fit(X[train], y[train])
                for k, rule in enumerate(RULES):
                    labels[k, out] = model.set_params(decision=rule).predict(X[out])
            found += [wrong(row, y) for row in labels]
    return np.array(found, dtype=float)


@pytest.mark.parametrize(
    ("scoring", "wrong", "measure"),
    [
        (None, lambda a, b: np.abs(a - b), LineCost(4)),
        ("accuracy", lambda a, b: a != b, ZeroOneCost(4)),
    ],
)
def test_weights_distributions_and_votes_are_those_by_hand(scoring, wrong, measure):
    X, y = ordered()
    model = GeometricClassifierCV(
        decision=RULES, scoring=scoring, average=True, tol=1e-8, **SETTINGS
    ).fit(X, y)
    losses = losses_by_hand(X, y, SETTINGS, wrong)
    best = losses[losses.mean(1).argmin()]
    expected = np.exp((best.mean() - losses.mean(1)) / (best.std() / np.sqrt(len(y))))
    expected[expected < 0.01] = 0
    expected /= expected.sum()
    table = pd.DataFrame(model.scores_)
    np.testing.assert_allclose(table["weight"], expected, atol=1e-12)

    used = table.groupby(["scale", "alpha"], sort=False).filter(lambda rows: rows["weight"].any())
    alpha, labels, weights = 0.0, [], []
    fresh = ordered(seed=1)[0]
    for row in used.itertuples():
        one = GeometricClassifier(scale=row.scale, alpha=row.alpha, tol=1e-8, decision=row.decision)
        one.fit(X, y)
        alpha = alpha + row.weight * one.predict_proba(fresh)
        labels.append(one.predict(fresh))
        weights.append(row.weight)
    assert len(model.average_.members) == len(used) // 2 > 1
    np.testing.assert_allclose(model.predict_proba(fresh), alpha, atol=1e-9)
    np.testing.assert_array_equal(model.predict(fresh), vote(labels, weights, measure))


def test_the_heaviest_candidate_is_in_the_attributes():
    X, y = ordered()
    model = GeometricClassifierCV(average=True, decision=RULES, **SETTINGS).fit(X, y)
    heaviest = pd.DataFrame(model.scores_).sort_values("weight").iloc[-1]
    assert model.scale_ == heaviest["scale"]
    plain = GeometricClassifier(scale=model.scale_, alpha=model.alpha_).fit(X, y)
    np.testing.assert_array_equal(model.coef_, plain.coef_)
    assert GeometricClassifierCV(**SETTINGS).fit(X, y).average_ is None


@pytest.mark.parametrize("decision", ["median", "mean", "mode", "cost", "scores"])
def test_one_candidate_is_the_plain_classifier(decision):
    X, y = ordered()
    names = np.array(["poor", "fair", "good", "great"])
    options = {"decision": decision, "classes": names}
    model = GeometricClassifierCV(scales=(2.0,), alphas=(1.0,), average=True, **options)
    plain = GeometricClassifier(scale=2.0, alpha=1.0, **options).fit(X, names[y])
    model.fit(X, names[y])
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))
    np.testing.assert_allclose(model.predict_proba(X), plain.predict_proba(X), atol=1e-12)


@pytest.mark.parametrize("decision", ["median", "scores", RULES])
@pytest.mark.parametrize("classes", [2, 4])
def test_values_are_in_the_order_of_the_classes(classes, decision):
    X, y = ordered(classes=classes)
    names = np.array(["poor", "fair", "good", "great"])[:classes]
    options = {"average": True, "decision": decision, **SETTINGS}
    model = GeometricClassifierCV(classes=names, **options).fit(X, names[y])
    numbers = GeometricClassifierCV(**options).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), names[numbers.predict(X)])
    columns = np.argsort(names)
    np.testing.assert_array_equal(model.predict_proba(X), numbers.predict_proba(X)[:, columns])
    np.testing.assert_array_equal(model.predict_cost(X), numbers.predict_cost(X)[:, columns])
    values = model.decision_function(X)
    if classes == 2:
        values = np.column_stack([-values, values])
    elected = columns.argsort()[numbers.predict(X)]  # its column
    rows = np.arange(len(X))
    np.testing.assert_allclose(values[rows, elected], values.max(1), atol=1e-12)


@pytest.mark.parametrize("decision", ["median", RULES])
def test_a_weight_of_two_is_two_samples(decision):
    X, y = ordered(n=90)
    counts = np.random.default_rng(0).integers(0, 3, size=len(y))
    fold = np.arange(len(y)) % 3
    often = np.repeat(np.arange(len(y)), counts)
    settings = {"scales": (0.5, 2.0), "alphas": (3.0, 0.3), "decision": decision, "tol": 1e-9}
    one = GeometricClassifierCV(average=True, cv=PredefinedSplit(fold), **settings)
    two = GeometricClassifierCV(average=True, cv=PredefinedSplit(fold[often]), **settings)
    one.fit(X, y, sample_weight=counts)
    two.fit(X[often], y[often])
    np.testing.assert_allclose(one.scores_["weight"], two.scores_["weight"], atol=1e-9)
    np.testing.assert_allclose(one.predict_proba(X), two.predict_proba(X), atol=1e-6)
    assert (one.scores_["weight"] > 0).sum() > 1


def test_losses_that_weigh_candidates_use_sample_weights_without_class_weights():
    X, y = ordered(n=90)
    counts = np.random.default_rng(0).integers(1, 4, size=len(y))
    model = GeometricClassifierCV(
        average=True, scoring="accuracy", class_weight={0: 8.0, 3: 0.1}, **SETTINGS
    ).fit(X, y, sample_weight=counts)
    shares = [counts[test].sum() for _, test in SETTINGS["cv"].split(X)]
    folds = [model.scores_[f"split{k}_score"] for k in range(4)]
    losses = 1 - np.average(folds, axis=0, weights=shares)
    least = losses.min()
    expected = np.exp((least - losses) / np.sqrt(least * (1 - least) / counts.sum()))
    expected[expected < 0.01] = 0
    np.testing.assert_allclose(model.scores_["weight"], expected / expected.sum(), atol=1e-9)


@pytest.mark.parametrize("decision", ["median", "mean", "mode"])
def test_one_decision_is_taken_from_the_mean_distribution(decision):
    X, y = ordered(classes=6)
    model = GeometricClassifierCV(average=True, decision=decision, **SETTINGS).fit(X, y)
    alpha = torch.from_numpy(model.predict_proba(X))
    np.testing.assert_array_equal(model.predict(X), decide(alpha, LineCost(6), decision))
    cost = LineCost(6, p=2) if decision == "mean" else LineCost(6)
    if decision != "mode":
        np.testing.assert_allclose(model.predict_cost(X), cost.expected(alpha))


@pytest.mark.parametrize("rules", [["median", "mode"], "scores"])
def test_a_decision_that_is_named_after_a_vote_is_taken_from_the_mean_distribution(rules):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = np.digitize(X[:, 0] + 1.5 * rng.normal(size=60), [-1.0, 0.0, 1.0])
    settings = {"scales": (0.5, 4.0), "alphas": (10.0, 0.1), "cv": 3, "average": True}
    voting = GeometricClassifierCV(decision=rules, **settings).fit(X, y)
    votes, alpha = voting.predict(X), torch.from_numpy(voting.predict_proba(X))
    expected = decide(alpha, LineCost(len(voting.classes_), p=2)).numpy()
    assert (expected != votes).any()
    np.testing.assert_array_equal(voting.set_params(decision="mean").predict(X), expected)
    assert (voting.decision_function(X).argmax(1) == expected).all()
    np.testing.assert_array_equal(voting.set_params(decision="auto").predict(X), votes)


def test_trees_sparse_samples_and_single_precision():
    X, y = ordered()
    tree = TreeCost.from_dict({"low": ["a", "b"], "high": ["c", "d"]})
    names = np.array(tree.names)
    model = GeometricClassifierCV(tree, average=True, decision=["cost", "mode"],
                                  scoring="accuracy", **SETTINGS)  # fmt: skip
    X = np.ascontiguousarray(X, dtype=np.float32)
    dense = model.fit(X, names[y])
    assert dense.predict_proba(X).dtype == np.float32
    assert dense.score(X, names[y]) > 0.6
    same = model.predict(X)
    narrow = model.fit(sparse.csr_matrix(X), names[y]).predict(sparse.csr_matrix(X))
    assert (narrow == same).mean() > 0.98  # the order of sums differs


def test_averages_need_losses_of_samples():
    X, y = ordered()
    for scoring in ("neg_log_loss", lambda model, X, y: 0.0):
        with pytest.raises(ValueError, match="scoring must be None or 'accuracy'"):
            GeometricClassifierCV(average=True, scoring=scoring).fit(X, y)


def test_rounding_does_not_choose_where_the_best_has_no_error():
    weights = weigh_candidates(np.array([0.0, 1e-14, 0.1]), 0.0)
    np.testing.assert_allclose(weights, [0.5, 0.5, 0.0])
