"""What the estimators minimise, and how: gradients, curvature, the optimum."""

import numpy as np
import pytest
import torch
from scipy import optimize, sparse
from sklearn.linear_model import LogisticRegression

from geosoftmax import DenseCost, LineCost, TreeCost, ZeroOneCost, geometric_logistic_loss
from geosoftmax.estimators import GeometricClassifier, _fitting
from geosoftmax.estimators._design import Design
from geosoftmax.estimators._fitting import Losses, Memory, Objective, _search, minimise, start
from geosoftmax.solvers import registry

COSTS = {
    "squared": LineCost(4, p=2) / 2,
    "absolute": LineCost(4),
    "zero-one": ZeroOneCost(4) * 2,
    "tree": TreeCost.from_dict({"pets": ["cat", "dog"], "things": ["bus", "cup"]}),
    "points": DenseCost.from_points([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [3.0, 1.0]], p=1),
    "many outputs": LineCost(40),
    "very many": LineCost(140, p=2) / 4,
}
INPUTS = ("dense", "sparse", "wide", "uneven")


def samples(kind="dense", n=60, p=5, classes=4):
    """Return features, positions of classes, and weights that sum to one."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3 * n if kind == "wide" else p)) + 2.0
    X[:, 1] = 7.0  # a constant feature
    if kind == "uneven":
        X[:, 2] *= 1e6
    target = rng.integers(classes, size=n)
    X[:, 0] += target
    weight = rng.uniform(0.5, 2.0, size=n)
    if kind == "sparse":
        X = sparse.csr_array(np.where(rng.uniform(size=X.shape) < 0.5, X, 0.0))
    return X, target, weight / weight.sum()


def objective(kind="dense", cost=COSTS["squared"], penalty=0.02, **kwargs):
    X, target, weight = samples(kind, classes=min(cost.size, 6), **kwargs)
    return Objective(Design(X, weight, True), Losses(cost, target, weight), penalty)


def by_definition(X, target, weight, cost, penalty, coef, intercept):
    """The objective, from the public functions."""
    X = X.toarray() if sparse.issparse(X) else X
    scores = torch.from_numpy(X @ coef.T + intercept)
    loss = geometric_logistic_loss(scores, torch.from_numpy(target), cost, reduction="none")
    return float(weight @ loss.numpy()) + 0.5 * penalty * (coef**2).sum()


# ------------------------------------------------------------------ value, gradient, curvature


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("cost", COSTS.values(), ids=COSTS)
def test_value_is_that_of_the_public_loss(cost, kind):
    problem = objective(kind, cost)
    V = start(problem.design, problem.losses)
    V += 0.1 * np.random.default_rng(1).normal(size=V.shape)
    coef, intercept = problem.design.coefficients(V)
    data = samples(kind, classes=min(cost.size, 6))
    expected = by_definition(*data, cost, problem.penalty, coef, intercept)
    assert problem.point(V).value == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("cost", COSTS.values(), ids=COSTS)
def test_gradient_against_differences(cost, kind):
    problem = objective(kind, cost)
    rng = np.random.default_rng(1)
    V = start(problem.design, problem.losses)
    # Steps of equal effect on the scores, whatever the size of a feature.
    size = 1 / np.sqrt(np.append(problem.design.variances, 1.0) + 1e-3)[:, None]
    V += 0.2 * size * rng.normal(size=V.shape)
    step = size * rng.normal(size=V.shape)
    gradient = problem.point(V).gradient
    eps = 1e-6
    ahead, back = (problem.point(V + sign * eps * step).value for sign in (1, -1))
    assert (gradient * step).sum() == pytest.approx((ahead - back) / (2 * eps), rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("kind", INPUTS)
def test_largest_entry_is_that_of_the_gradient_in_the_coefficients(kind):
    problem = objective(kind)
    X, target, weight = samples(kind)
    V = start(problem.design, problem.losses)
    V += 0.1 * np.random.default_rng(1).normal(size=V.shape)
    coef, intercept = problem.design.coefficients(V)
    dense = torch.from_numpy(X.toarray() if sparse.issparse(X) else X)
    W = torch.from_numpy(coef).requires_grad_()
    c = torch.from_numpy(intercept).requires_grad_()
    losses = geometric_logistic_loss(
        dense @ W.T + c, torch.from_numpy(target), COSTS["squared"], reduction="none"
    )
    value = (torch.from_numpy(weight) * losses).sum() + 0.5 * problem.penalty * W.square().sum()
    value.backward()
    expected = max(float(W.grad.abs().max()), float(c.grad.abs().max()))
    assert problem.design.largest(problem.point(V).gradient) == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("name", ["squared", "absolute", "zero-one", "tree", "points"])
def test_curvature_is_the_mean_second_derivative(name):
    cost = COSTS[name]
    _, target, weight = samples()
    losses = Losses(cost, target, weight)
    scores = np.random.default_rng(2).normal(size=(len(target), cost.size))
    losses.evaluate(scores)

    def total(f):
        each = geometric_logistic_loss(f, torch.from_numpy(target), cost, reduction="none")
        return (torch.from_numpy(weight) * each).sum()

    slope = torch.func.jacrev(total)
    rows = torch.func.jacrev(slope)(torch.from_numpy(scores))  # (n, d, n, d), zero off n = n
    expected = torch.einsum("nimj->ij", rows)
    np.testing.assert_allclose(losses.curvature(), expected, rtol=1e-7, atol=1e-9)


def test_supports_of_the_last_evaluation_do_not_change_the_next():
    cost = LineCost(7, p=2) / 2
    rng = np.random.default_rng(0)
    target, weight = rng.integers(7, size=300), np.full(300, 1 / 300)
    warm = Losses(cost, target, weight)
    for scale in (0.1, 5.0, 1.0, 30.0, 0.0):
        scores = scale * rng.normal(size=(300, 7))
        value, slope = warm.evaluate(scores)
        expected, cold_slope = Losses(cost, target, weight).evaluate(scores)
        assert value == pytest.approx(expected, rel=1e-12)
        np.testing.assert_allclose(slope, cold_slope, rtol=1e-9, atol=1e-15)


def test_supports_from_very_different_scores_do_not_mislead():
    # Nearly singular kernels, and scores so far apart that some of b is zero.
    cost = LineCost(13, p=2) * 0.13
    rng = np.random.default_rng(0)
    target, weight = rng.integers(13, size=400), np.full(400, 1 / 400)
    warm = Losses(cost, target, weight)
    for scale in (0.01, 2000.0, 1.0, 300.0, 0.1, 30.0, 3000.0, 3.0):
        walk = scale * np.cumsum(rng.normal(size=(400, 13)), axis=1)
        value, _ = warm.evaluate(walk)
        expected, _ = Losses(cost, target, weight).evaluate(walk)
        assert value == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_start_predicts_the_shares():
    X, target, weight = samples()
    design, losses = Design(X, weight, True), Losses(COSTS["squared"], target, weight)
    V = start(design, losses)
    shares = np.bincount(target, weights=weight)
    _, slope = losses.evaluate(design.scores(V))
    predicted = shares + slope.sum(0)
    np.testing.assert_allclose(predicted, shares, atol=0.02)  # near: it only has to be a start


def test_scores_that_overflow_are_a_step_too_far():
    problem = objective()
    V = start(problem.design, problem.losses)
    V[0] = 1e308
    with np.errstate(over="ignore", invalid="ignore"):  # as `minimise` does
        assert not problem.point(V).value < np.inf


# ------------------------------------------------------------------ the optimum


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("name", ["squared", "absolute", "zero-one", "tree", "points"])
def test_optimum_against_scipy_on_the_public_functions(name, kind):
    cost, penalty = COSTS[name], 0.05
    X, target, weight = samples(kind, n=40)
    problem = Objective(Design(X, weight, True), Losses(cost, target, weight), penalty)
    ours = minimise(problem, start(problem.design, problem.losses), 1e-8, 5000)
    assert ours.converged
    dense = X.toarray() if sparse.issparse(X) else X
    # The same problem for scipy, in features of equal size: it has no preconditioner.
    size = np.abs(dense).max(0)
    features = torch.from_numpy(dense / size)
    ridge = torch.from_numpy(penalty / size**2)
    labels, shares = torch.from_numpy(target), torch.from_numpy(weight)

    def fun(flat):
        W = torch.from_numpy(flat.reshape(cost.size, -1)).requires_grad_()
        scores = features @ W[:, :-1].T + W[:, -1]
        each = geometric_logistic_loss(scores, labels, cost, reduction="none")
        value = (shares * each).sum() + 0.5 * (ridge * W[:, :-1].square()).sum()
        value.backward()
        return float(value.detach()), W.grad.numpy().ravel()

    options = {"maxiter": 5000, "maxfun": 10000, "gtol": 1e-9, "ftol": 0.0}
    zero = np.zeros(cost.size * (dense.shape[1] + 1))
    theirs = optimize.minimize(fun, zero, jac=True, method="L-BFGS-B", options=options)
    value = problem.point(ours.V).value
    assert value <= theirs.fun + 1e-9
    assert value == pytest.approx(theirs.fun, rel=1e-4)


@pytest.mark.parametrize("alpha", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_far_apart_classes_give_logistic_regression(alpha, container, fit_intercept):
    # With K = I the geometric softmax is the softmax: here is somebody else's optimum.
    X, target, weight = samples("dense", n=150)
    X = container(X)
    ours = GeometricClassifier(
        "zero-one", scale=1e4, alpha=alpha, tol=1e-9, max_iter=3000, fit_intercept=fit_intercept
    ).fit(X, target, sample_weight=100 * weight)
    theirs = LogisticRegression(
        C=1 / alpha, tol=1e-9, max_iter=20000, solver="newton-cg", fit_intercept=fit_intercept
    ).fit(X, target, sample_weight=100 * weight)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-6)
    assert np.ptp(ours.intercept_ - theirs.intercept_) < 1e-5  # equal but for a constant


@pytest.mark.parametrize("seed", [2, 3, 5, 10])
def test_steps_that_are_far_too_long_are_cut(seed):
    # Few samples and many classes: the curvature jumps by orders of magnitude along a step.
    rng = np.random.default_rng(seed)
    X, target, weight = (
        rng.normal(size=(40, 70)),
        rng.integers(19, size=40),
        rng.exponential(size=40),
    )
    model = GeometricClassifier("absolute", scale=2.2, alpha=0.5, classes=range(19))
    model.fit(X, target, sample_weight=weight)  # a warning would be an error


@pytest.mark.parametrize("alpha", [0.0, 1e-10])
def test_hardly_any_penalty_fits_separable_classes_exactly(alpha):
    X = np.arange(9.0)[:, None]
    y = np.repeat([0, 1, 2], 3)
    model = GeometricClassifier(alpha=alpha).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X), np.eye(3)[y], atol=1e-3)


def test_columns_of_very_different_size_all_count():
    rng = np.random.default_rng(0)
    signal = rng.normal(size=300)
    X = np.column_stack([1e8 * rng.normal(size=300), signal])
    y = np.digitize(signal, [-0.5, 0.5])
    model = GeometricClassifier(max_iter=5000).fit(X, y)
    assert model.score(X, y) > 0.95


@pytest.mark.parametrize("n_classes", [40, 140])
def test_many_classes(n_classes):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(400, 3))
    y = np.clip(((X[:, 0] + 1) / 2 * n_classes).astype(int), 0, n_classes - 1)
    model = GeometricClassifier("absolute", scale=0.1, alpha=0.01, classes=range(n_classes))
    model.fit(X, y)
    assert np.abs(model.predict(X) - y).mean() < n_classes / 20


def test_many_coefficients_remember_fewer_steps(monkeypatch):
    """The memory of L-BFGS is bounded, and the optimum the same."""
    plan = registry.plan(COSTS["tree"], "fit", torch.float64)
    assert Memory(1000, plan).room == _fitting.MEMORY
    assert Memory(_fitting.MOST_NUMBERS // 24, plan).room == 12
    assert Memory(_fitting.MOST_NUMBERS, plan).room == _fitting.FEWEST_STEPS
    X, target, _ = samples("sparse")
    model = GeometricClassifier(COSTS["tree"], scale=1.0, tol=1e-9, alpha=0.01)
    labels = np.array(COSTS["tree"].names)[target]
    usual = model.fit(X, labels).coef_
    monkeypatch.setattr(_fitting, "MOST_NUMBERS", 1)
    monkeypatch.setattr(_fitting, "FEWEST_STEPS", 3)
    assert np.allclose(model.fit(X, labels).coef_, usual, atol=1e-6)


# ------------------------------------------------------------------ the axes


@pytest.mark.parametrize("sparse_input", [False, True])
def test_axes_of_many_features_are_found_where_features_are_correlated(sparse_input):
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(900, 400))
    weight = np.full(900, 1 / 900)
    mixed = noise @ (rng.normal(size=(400, 400)) * np.linspace(1, 0.01, 400)[:, None] ** 2)
    for X, correlated in ((noise + 3.0, False), (mixed + 3.0, True)):
        X = sparse.csr_array(X) if sparse_input else X
        assert (Design(X, weight, True).axes is not None) == correlated


def test_scores_of_a_search_are_those_of_its_point():
    problem = objective()
    here = problem.point(start(problem.design, problem.losses))
    ahead = _search(problem, here, -here.gradient)
    fresh = problem.point(ahead.V)
    np.testing.assert_allclose(ahead.scores, fresh.scores, rtol=0, atol=1e-13)
    np.testing.assert_allclose(ahead.gradient, fresh.gradient, rtol=0, atol=1e-13)
    assert ahead.value == pytest.approx(fresh.value, rel=1e-14)
