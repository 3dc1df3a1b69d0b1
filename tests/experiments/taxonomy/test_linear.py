"""Linear fits against scikit-learn and the estimators; what leaves share."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from geosoftmax import TreeCost, ZeroOneCost
from geosoftmax.estimators import GeometricClassifier
from geosoftmax_experiments.rivals.hierarchical import Hierarchy
from geosoftmax_experiments.taxonomy.features import Sample
from geosoftmax_experiments.taxonomy.linear import fit_path, shared_covariance
from geosoftmax_experiments.taxonomy.losses import cross_entropy, geometric, hierarchical_softmax

TREE = TreeCost.from_dict({"pets": ["cat", "dog"], "wheels": ["bus", "van"]})


@pytest.fixture
def sample():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5)) * [1, 1, 2, 0.3, 1]
    y = (X @ rng.normal(size=(5, 4)) + rng.gumbel(size=(300, 4))).argmax(1)
    return Sample(X, y)


def fitted(loss, sample, penalty, covariance=None):
    ((_, model),) = fit_path(loss, sample, [penalty], covariance)
    return model


def test_cross_entropy_is_logistic_regression(sample):
    model = fitted(cross_entropy(4), sample, 2.0)
    theirs = LogisticRegression(C=1 / 2.0, tol=1e-8).fit(sample.X, sample.y)
    assert np.allclose(model.coefficients[:-1].T, theirs.coef_, atol=3e-3)


@pytest.mark.parametrize("cost", [TREE * 0.5, ZeroOneCost(4) * 2], ids=repr)
def test_the_geometric_loss_is_the_estimator(cost, sample):
    model = fitted(geometric(cost), sample, 2.0)
    names = list(TREE.names)
    ours = GeometricClassifier(cost, scale=1.0, alpha=2.0, tol=1e-8, classes=names)
    ours.fit(sample.X, np.array(names)[sample.y])
    order = [list(ours.classes_).index(name) for name in names]
    assert np.allclose(model.coefficients[:-1].T, ours.coef_[order], atol=3e-3)


def test_hierarchical_softmax_is_a_logistic_regression_at_each_node(sample):
    hierarchy = Hierarchy.of(TREE)
    model = fitted(hierarchical_softmax(hierarchy), sample, 2.0)
    for parent in (-1, 0, 1):
        nodes = [k for k in range(6) if hierarchy.parents[k] == parent]
        held = hierarchy.below[nodes].numpy()  # (2, leaves)
        part = held.any(0)[sample.y]
        y = held[1][sample.y[part]].astype(int)
        # Two scores of weight w and -w have half the penalty of one of weight 2w.
        theirs = LogisticRegression(C=2 / 2.0, tol=1e-8).fit(sample.X[part], y)
        difference = model.coefficients[:-1, nodes[1]] - model.coefficients[:-1, nodes[0]]
        assert np.allclose(difference, theirs.coef_[0], atol=3e-3)


def test_weights_that_are_shared_minimise_their_penalty(sample):
    """The gradient vanishes: that of the losses is minus ``penalty K⁻¹ W``."""
    K = shared_covariance(TREE, 0.4)
    assert np.allclose(K, (TREE * 0.8).kernel())
    model = fitted(cross_entropy(4), sample, 20.0, K)
    W = torch.from_numpy(model.coefficients).requires_grad_()
    X = torch.from_numpy(sample.X)
    loss = torch.nn.functional.cross_entropy(
        X @ W[:-1] + W[-1], torch.from_numpy(sample.y), reduction="sum"
    )
    penalty = 10.0 * (W[:-1].T * torch.linalg.solve(torch.from_numpy(K), W[:-1].T)).sum()
    (gradient,) = torch.autograd.grad(loss + penalty, W)
    assert float(gradient.abs().max()) < 0.05  # of sums over 300 samples
    # What a large decay shares is nothing.
    alone, unshared = (
        fitted(cross_entropy(4), sample, 20.0, covariance).coefficients
        for covariance in (None, shared_covariance(TREE, 50.0))
    )
    assert np.allclose(alone, unshared, atol=1e-6)


def test_a_path_ends_where_single_fits_do(sample):
    path = dict(fit_path(cross_entropy(4), sample, [1.0, 100.0, 10.0]))
    assert list(path) == [100.0, 10.0, 1.0]
    alone = fitted(cross_entropy(4), sample, 1.0)
    assert np.allclose(path[1.0].coefficients[:-1], alone.coefficients[:-1], atol=3e-3)
