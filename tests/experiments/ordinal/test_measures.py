"""Measures, against closed forms."""

import numpy as np
import pytest

from geosoftmax_experiments.ordinal.decisions import Prediction
from geosoftmax_experiments.ordinal.measures import (
    MEASURES,
    hausdorff,
    measure_labels,
    measure_probabilities,
)


def test_divergence_of_a_class_is_its_cost():
    y = np.array([0, 1, 4])
    chosen = np.array([0, 3, 1])
    assert hausdorff(y, np.eye(5)[chosen]) == pytest.approx(((y - chosen) ** 2 / 2).mean())
    assert hausdorff(y, np.eye(5)[chosen], 2.0) == pytest.approx((2 * (y - chosen) ** 2).mean())


def test_divergence_of_two_classes():
    # K = [[1, k], [k, 1]], k = exp(-1/4). For β = (½, ½): v = (t, t), t²(1 + k) = ½, and
    # D(δ | β) = -2 log(K v) = -log((1 + k) / 2).
    k = np.exp(-0.25)
    found = hausdorff(np.array([0]), np.array([[0.5, 0.5]]))
    assert found == pytest.approx(-np.log((1 + k) / 2), rel=1e-9)


def test_a_perfect_prediction():
    y = np.array([0, 1, 2, 2])
    found = {
        **measure_probabilities(y, Prediction(np.eye(3)[y])),
        **measure_labels(y, y, 3),
    }
    assert found.keys() == MEASURES.keys()
    for name in ("hausdorff", "mae", "amae", "rps", "log_loss", "zero_share", "hausdorff_2"):
        assert found[name] == pytest.approx(0, abs=1e-9)
    assert found["accuracy"] == found["kappa"] == 1


def test_zeros_are_counted_and_classes_alone_have_no_log_loss():
    y = np.array([0, 1])
    p = np.array([[1.0, 0.0], [1.0, 0.0]])
    found = measure_probabilities(y, Prediction(p))
    assert found["zero_share"] == 0.5
    assert 15 < found["log_loss"] < 19  # half of -log of the machine epsilon
    assert np.isnan(measure_probabilities(y, Prediction(p, point=True))["log_loss"])
