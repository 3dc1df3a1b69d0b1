"""Measures in a tree, by hand."""

import numpy as np
import pytest

from geosoftmax import TreeCost
from geosoftmax_experiments.taxonomy.measures import MEASURES, Yardstick

TREE = TreeCost.from_dict(
    {"pets": {"cats": ["tabby", "siamese"], "dog": None}, "wheels": ["bus", "van"], "cloud": None},
    order=["bus", "cloud", "dog", "siamese", "tabby", "van"],
)
YARDSTICK = Yardstick.of(TREE)


def test_distances_are_those_of_the_cost():
    assert np.array_equal(YARDSTICK.distances, TREE.matrix().numpy())


def test_the_right_answers_cost_nothing():
    found = YARDSTICK.measure(np.arange(6), np.arange(6))
    assert found == {"accuracy": 1, "distance": 0, "height": 0, "f": 1, "group": 1}
    assert list(found) == list(MEASURES)


@pytest.mark.parametrize(
    ("predicted", "true", "distance", "height", "f", "group"),
    [
        ("tabby", "siamese", 2, 1, 2 * 2 / (3 + 3), 1),  # they share pets and cats
        ("dog", "siamese", 3, 2, 2 * 1 / (2 + 3), 1),
        ("bus", "tabby", 5, 3, 0, 0),
        ("cloud", "bus", 3, 3, 0, 0),
    ],
)
def test_a_mistake_by_hand(predicted, true, distance, height, f, group):
    rows = np.array([TREE.index(predicted)]), np.array([TREE.index(true)])
    assert YARDSTICK.measure(*rows) == pytest.approx(
        {"accuracy": 0, "distance": distance, "height": height, "f": f, "group": group}
    )


def test_hierarchical_f_is_of_sums_over_samples():
    predicted = np.array([TREE.index("tabby"), TREE.index("cloud")])
    true = np.array([TREE.index("siamese"), TREE.index("cloud")])
    assert YARDSTICK.measure(predicted, true)["f"] == pytest.approx(2 * (2 + 1) / (4 + 4))
