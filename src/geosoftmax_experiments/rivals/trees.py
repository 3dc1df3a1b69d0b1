"""Losses for the leaves of a tree, in one form, and what is known of each.

The facts are tested in `tests/experiments/rivals/test_tree_claims.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from geosoftmax import TreeCost, geometric_logistic_loss, geometric_softmax
from geosoftmax_experiments.rivals.hierarchical import (
    Hierarchy,
    hierarchical_cross_entropy,
    hierarchical_log_softmax,
    soft_labels,
)

__all__ = ["TREE_RIVALS", "TreeRival"]


Loss = Callable[[Tensor, Tensor], Tensor]
Link = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class TreeRival:
    """A loss for labels that are leaves.

    Parameters
    ----------
    label : str
    make : callable
        From a tree and the parameter to a loss (from scores and labels to one value a sample) and a
        link (from scores to distributions over leaves).
    convex, proper, consistent, sparse, parameter
        As for `Rival`.
    value : float
        One value of the parameter.
    nodes : bool
        Whether all nodes but the root have a score, not the leaves alone.
    """

    label: str
    make: Callable[[TreeCost, float], tuple[Loss, Link]]
    proper: bool
    consistent: str
    sparse: bool = False
    parameter: str = ""
    value: float = 1.0
    nodes: bool = False
    convex: bool = True

    @property
    def link(self) -> bool:
        """Whether scores mean distributions: these always do."""
        return True

    def outputs(self, tree: TreeCost) -> int:
        """How many scores it takes."""
        return len(tree.parents) - 1 if self.nodes else tree.size


def _softmax(scores: Tensor) -> Tensor:
    return torch.softmax(scores, -1)


def _cross_entropy(tree: TreeCost, _: float) -> tuple[Loss, Link]:
    return lambda f, y: F.cross_entropy(f, y, reduction="none"), _softmax


def _geometric(tree: TreeCost, scale: float) -> tuple[Loss, Link]:
    cost = tree * scale
    return (
        lambda f, y: geometric_logistic_loss(f, y, cost, reduction="none"),
        lambda f: geometric_softmax(f, cost),
    )


def _hierarchical_softmax(tree: TreeCost, _: float) -> tuple[Loss, Link]:
    hierarchy = Hierarchy.of(tree)
    return (
        lambda f, y: F.nll_loss(hierarchical_log_softmax(f, hierarchy), y, reduction="none"),
        lambda f: hierarchical_log_softmax(f, hierarchy).exp(),
    )


def _soft_labels(tree: TreeCost, sharpness: float) -> tuple[Loss, Link]:
    labels = soft_labels(Hierarchy.of(tree), sharpness)
    return lambda f, y: F.cross_entropy(f, labels[y].to(f.dtype), reduction="none"), _softmax


def _hxe(tree: TreeCost, decay: float) -> tuple[Loss, Link]:
    hierarchy = Hierarchy.of(tree)
    return lambda f, y: hierarchical_cross_entropy(f, y, hierarchy, decay), _softmax


# fmt: off
TREE_RIVALS = (
    TreeRival("cross-entropy", _cross_entropy, proper=True, consistent="every cost"),
    TreeRival("g-logistic", _geometric, proper=True, consistent="every cost", sparse=True,
              parameter="scale"),
    TreeRival("hierarchical softmax", _hierarchical_softmax, proper=True, consistent="every cost",
              nodes=True),
    TreeRival("soft hierarchical labels", _soft_labels, proper=False,
              consistent="none in general", parameter="sharpness", value=4.0),
    TreeRival("HXE", _hxe, proper=False, consistent="none in general", parameter="decay"),
)
# fmt: on
