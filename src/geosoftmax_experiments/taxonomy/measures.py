"""How wrong predictions are, in a tree. All lengths are numbers of edges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from geosoftmax import TreeCost
from geosoftmax_experiments.rivals.hierarchical import Hierarchy

__all__ = ["MEASURES", "Measure", "Yardstick"]


class Measure(NamedTuple):
    """What a column shows."""

    label: str
    short: str  # for tables in a terminal
    lower_is_better: bool


MEASURES = {
    "accuracy": Measure("accuracy", "accuracy", False),
    "distance": Measure("tree distance", "distance", True),
    "height": Measure("height of common ancestor", "height", True),
    "f": Measure("hierarchical F", "F", False),
    "group": Measure("group accuracy", "group", False),
}


@dataclass(frozen=True)
class Yardstick:
    """What the measures need of the tree."""

    distances: np.ndarray  # (d, d)
    heights: np.ndarray  # (d, d), of lowest common ancestors
    below: np.ndarray  # (n, d): which leaf lies below which node
    top: np.ndarray  # (d,), the child of the root that each leaf is or lies below

    @classmethod
    def of(cls, tree: TreeCost) -> Yardstick:
        """Return that of a tree whose outputs are its leaves."""
        hierarchy = Hierarchy.of(tree)
        below = hierarchy.below.numpy()
        top = below[(hierarchy.parents < 0).numpy()].argmax(0)
        # Two leaves are as far apart as there are nodes above one of them alone.
        depths = below.sum(0)
        shared = below.T.astype(int) @ below
        distances = depths[:, None] + depths - 2 * shared
        return cls(distances, hierarchy.common_heights.numpy(), below, top)

    def measure(self, predicted: np.ndarray, true: np.ndarray) -> dict[str, float]:
        """Return all `MEASURES` of predicted classes.

        Hierarchical precision and recall are of the nodes above a leaf, the leaf among them and the
        root not, summed over samples (Kiritchenko et al. 2005); F is their harmonic mean.
        """
        depths = self.below.sum(0)
        shared = (self.below[:, predicted] & self.below[:, true]).sum()
        return {
            "accuracy": float((predicted == true).mean()),
            "distance": float(self.distances[predicted, true].mean()),
            "height": float(self.heights[predicted, true].mean()),
            "f": float(2 * shared / (depths[predicted].sum() + depths[true].sum())),
            "group": float((self.top[predicted] == self.top[true]).mean()),
        }
