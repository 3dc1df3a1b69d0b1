"""Hierarchical softmax, HXE and soft labels against closed forms and plain loops over the tree."""

import numpy as np
import pytest
import torch

from geosoftmax import TreeCost
from geosoftmax_experiments.rivals.hierarchical import (
    Hierarchy,
    hierarchical_cross_entropy,
    hierarchical_log_softmax,
    soft_labels,
)

TREE = TreeCost.from_dict(
    {
        "animal": {"cat": ["tabby", "siamese"], "dog": ["beagle", "poodle"]},
        "vehicle": {"car": ["taxi", "jeep"], "bus": None},
        "cloud": None,
    },
    order=["bus", "tabby", "beagle", "poodle", "cloud", "siamese", "taxi", "jeep"],
)
HIERARCHY = Hierarchy.of(TREE)
FLAT = Hierarchy.of(TreeCost([-1, 0, 0, 0, 0], outputs="leaves"))


def path(leaf):
    """The nodes from a leaf up to the root, which is not among them."""
    node, found = int(HIERARCHY.leaves[leaf]), []
    while node >= 0:
        found.append(node)
        node = int(HIERARCHY.parents[node])
    return found


def children(node):
    return [k for k in range(len(HIERARCHY.parents)) if HIERARCHY.parents[k] == node]


@pytest.fixture
def random():
    return torch.Generator().manual_seed(0)


def test_the_hierarchy_by_hand():
    assert HIERARCHY.height == 3
    index = TREE.index
    heights = HIERARCHY.common_heights
    assert heights[index("tabby"), index("siamese")] == 1
    assert heights[index("tabby"), index("poodle")] == 2
    assert heights[index("taxi"), index("bus")] == 2
    assert heights[index("cloud"), index("bus")] == 3
    assert (heights.diagonal() == 0).all()
    # Edges of length 1: the distance is the number of nodes above one of two leaves alone.
    below = HIERARCHY.below.long()
    depths = below.sum(0)
    assert torch.equal(depths[:, None] + depths - 2 * below.T @ below, TREE.matrix().long())


def test_groups_must_not_be_outputs():
    with pytest.raises(ValueError, match="all leaves, and no group"):
        Hierarchy.of(TreeCost([-1, 0, 0, 1]))
    with pytest.raises(ValueError, match="all leaves, and no group"):
        Hierarchy.of(TreeCost([-1, 0, 0, 0], outputs=[1, 2]))


def test_hierarchical_softmax_multiplies_softmaxes_along_the_path(random):
    scores = torch.randn(5, len(HIERARCHY.parents), generator=random, dtype=torch.float64)
    found = hierarchical_log_softmax(scores, HIERARCHY)
    assert torch.allclose(found.exp().sum(-1), torch.ones(5, dtype=torch.float64))
    for leaf in range(len(HIERARCHY.leaves)):
        expected = sum(
            torch.log_softmax(scores[:, family], -1)[:, family.index(node)]
            for node in path(leaf)
            for family in [children(int(HIERARCHY.parents[node]))]
        )
        assert torch.allclose(found[:, leaf], expected)
    assert torch.allclose(  # without groups it is the softmax
        hierarchical_log_softmax(scores[:, :4], FLAT), torch.log_softmax(scores[:, :4], -1)
    )


def test_hierarchical_softmax_of_huge_scores_is_finite(random):
    scores = 1e4 * torch.randn(3, len(HIERARCHY.parents), generator=random, dtype=torch.float64)
    assert torch.isfinite(hierarchical_log_softmax(scores, HIERARCHY)).all()


def test_gradients(random):
    scores = torch.randn(3, len(HIERARCHY.parents), generator=random, dtype=torch.float64)
    leaves = torch.randn(3, 8, generator=random, dtype=torch.float64)
    target = torch.tensor([0, 3, 7])
    assert torch.autograd.gradcheck(
        lambda x: hierarchical_log_softmax(x, HIERARCHY), scores.requires_grad_()
    )
    assert torch.autograd.gradcheck(
        lambda x: hierarchical_cross_entropy(x, target, HIERARCHY, 0.4), leaves.requires_grad_()
    )


@pytest.mark.parametrize("decay", [0.0, 0.3, 2.0])
def test_hxe_sums_weighted_conditionals_along_the_path(decay, random):
    scores = torch.randn(8, 8, generator=random, dtype=torch.float64)
    target = torch.arange(8)
    alpha = torch.softmax(scores, -1).numpy()
    expected = []
    for row, leaf in enumerate(target.tolist()):
        total = 0.0
        for node in path(leaf):
            parent = int(HIERARCHY.parents[node])
            inside = alpha[row, HIERARCHY.below[node].numpy()].sum()
            around = 1.0 if parent < 0 else alpha[row, HIERARCHY.below[parent].numpy()].sum()
            total -= np.exp(-decay * int(HIERARCHY.heights[node])) * np.log(inside / around)
        expected.append(total)
    found = hierarchical_cross_entropy(scores, target, HIERARCHY, decay)
    assert np.allclose(found.numpy(), expected)
    if decay == 0:
        usual = torch.nn.functional.cross_entropy(scores, target, reduction="none")
        assert torch.allclose(found, usual)


def test_soft_labels_by_hand():
    found = soft_labels(HIERARCHY, 6.0)
    index = TREE.index
    weights = np.exp(-6.0 / 3 * np.array([0, 1, 2, 2, 3, 3, 3, 3]))
    expected = dict(
        zip(
            ["tabby", "siamese", "beagle", "poodle", "taxi", "jeep", "bus", "cloud"],
            weights / weights.sum(),
            strict=True,
        )
    )
    for name, value in expected.items():
        assert float(found[index("tabby"), index(name)]) == pytest.approx(value)
    assert torch.allclose(soft_labels(HIERARCHY, 1e4), torch.eye(8, dtype=torch.float64))
    assert torch.allclose(soft_labels(HIERARCHY, 0.0), torch.full((8, 8), 1 / 8).double())


def test_negative_weights_are_refused():
    with pytest.raises(ValueError, match="sharpness must be at least 0; got -1"):
        soft_labels(HIERARCHY, -1)
    with pytest.raises(ValueError, match="decay must be at least 0; got nan"):
        hierarchical_cross_entropy(torch.zeros(8), torch.tensor(0), HIERARCHY, float("nan"))
