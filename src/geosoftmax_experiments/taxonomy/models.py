"""The models that are compared: a loss with its candidates, and what leaves share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from geosoftmax import TreeCost, ZeroOneCost
from geosoftmax_experiments.data.newsgroups import tree_of_names
from geosoftmax_experiments.rivals.hierarchical import Hierarchy, soft_labels
from geosoftmax_experiments.taxonomy import losses
from geosoftmax_experiments.taxonomy.linear import shared_covariance

__all__ = ["MODELS", "PENALTIES", "TEMPERATURES", "Model"]

PENALTIES = (0.5, 3.0, 20.0, 120.0, 700.0, 4000.0)
#: Factors of the scores, for the decision alone: strong penalties make models too unsure.
TEMPERATURES = (1.0, 0.5, 0.25)
ZERO_ONE = (0.5, 2.0)
#: The mean distance of leaves is 4, so that these costs are as large as the zero-one costs.
TREE = (0.125, 0.5)
#: Decays of what leaves share, per edge.
SHARED = (0.3, 0.6)
#: The seed of the names that are dealt out anew to the leaves.
SHUFFLE = 0


@dataclass(frozen=True)
class Model:
    """How to make the loss of each candidate; `shared` are decays of the covariance of leaves."""

    label: str
    note: str
    make: Callable[[TreeCost, float], losses.Loss]
    candidates: tuple[float, ...] = (0.0,)
    shared: tuple[float, ...] = ()
    shuffled: bool = False

    def loss(self, tree: TreeCost, candidate: float) -> losses.Loss:
        """Return the loss for a candidate."""
        return self.make(tree, candidate)

    def covariance(self, tree: TreeCost, decay: float | None) -> np.ndarray | None:
        """Return that of the weights of leaves; None where they share nothing."""
        if decay is None:
            return None
        if self.shuffled:
            assert tree.names is not None
            order = np.random.default_rng(SHUFFLE).permutation(len(tree.names))
            dealt = [tree.names[k] for k in order]
            tree = TreeCost.from_dict(tree_of_names(tree.names), order=dealt)
        return shared_covariance(tree, decay)


def _cross_entropy(tree: TreeCost, _: float) -> losses.Loss:
    return losses.cross_entropy(tree.size)


def _zero_one(tree: TreeCost, scale: float) -> losses.Loss:
    return losses.geometric(ZeroOneCost(tree.size) * scale)


def _tree(tree: TreeCost, scale: float) -> losses.Loss:
    return losses.geometric(tree * scale)


def _mixed(tree: TreeCost, scale: float) -> losses.Loss:
    """Half of the cost is zero-one: edges of leaves that are longer, for it is a tree as well."""
    assert tree.names is not None
    far = float(tree.matrix().mean())
    longer = dict.fromkeys(tree.names, 1 + far / 2)
    lengthened = TreeCost.from_dict(tree_of_names(tree.names), longer, order=tree.names)
    return losses.geometric(lengthened * (scale / 2))


def _hierarchical_softmax(tree: TreeCost, _: float) -> losses.Loss:
    return losses.hierarchical_softmax(Hierarchy.of(tree))


def _hxe(tree: TreeCost, decay: float) -> losses.Loss:
    return losses.hxe(Hierarchy.of(tree), decay)


def _soft(tree: TreeCost, sharpness: float) -> losses.Loss:
    return losses.soft(soft_labels(Hierarchy.of(tree), sharpness))


MODELS = {
    "lr": Model("LR", "cross-entropy", _cross_entropy),
    "hs": Model("hierarchical softmax", "a softmax at each node", _hierarchical_softmax),
    "soft": Model("soft labels", "Bertinetto et al.", _soft, (4.0, 10.0)),
    "hxe": Model("HXE", "Bertinetto et al.", _hxe, (0.1, 0.5)),
    "zero-one": Model("g, zero-one", "the control: no tree in the loss", _zero_one, ZERO_ONE),
    "tree": Model("g, tree", "the cost is the distance in the tree", _tree, TREE),
    "mixed": Model("g, tree + zero-one", "longer edges of leaves", _mixed, TREE),
    "lr-shared": Model(
        "LR, shared", "near leaves have similar weights", _cross_entropy, shared=SHARED
    ),
    "zero-one-shared": Model(
        "g, zero-one, shared", "near leaves have similar weights", _zero_one, ZERO_ONE, SHARED
    ),
    "zero-one-shuffled": Model(
        "g, zero-one, shuffled", "shared along a tree with its names dealt out anew: the control",
        _zero_one, ZERO_ONE, SHARED, shuffled=True,
    ),
    "tree-shared": Model(
        "g, tree, shared", "near leaves have similar weights", _tree, TREE, SHARED
    ),
}  # fmt: skip
