"""Losses for classes that are the leaves of a tree.

Hierarchical softmax (Morin and Bengio 2005), and the two losses of Bertinetto et al., *Making
Better Mistakes* (CVPR 2020): the hierarchical cross-entropy (HXE) and soft labels. Cross-entropy
with the decision of least expected cost needs nothing here: that is `geosoftmax.decide`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from geosoftmax import TreeCost

__all__ = [
    "Hierarchy",
    "conditional_log_probabilities",
    "hierarchical_cross_entropy",
    "hierarchical_log_softmax",
    "soft_labels",
]


@dataclass(frozen=True)
class Hierarchy:
    """Which leaf hangs below which node. Edges count 1, whatever their lengths in the cost.

    Nodes are all but the root, parents before children. Leaves are the outputs of the tree, in
    their order; groups must not be outputs.

    Examples
    --------
    >>> tree = TreeCost.from_dict({"pets": ["cat", "dog"], "bus": None})
    >>> Hierarchy.of(tree).heights.tolist(), Hierarchy.of(tree).common_heights.tolist()
    ([1, 0, 0, 0], [[0, 1, 2], [1, 0, 2], [2, 2, 0]])
    """

    parents: Tensor  # (n,), places among the nodes; -1 for the root
    leaves: Tensor  # (d,), places among the nodes

    @classmethod
    def of(cls, tree: TreeCost) -> Hierarchy:
        """Return that of a tree whose outputs are its leaves."""
        parents, leaves = tree.parents[1:] - 1, tree.outputs - 1
        inner = torch.zeros(len(parents), dtype=torch.bool)
        inner[parents[parents >= 0]] = True
        if bool(inner[leaves].any()) or len(leaves) != int((~inner).sum()):
            raise ValueError(f"the outputs must be all leaves, and no group; got {tree!r}.")
        return cls(parents, leaves)

    @cached_property
    def below(self) -> Tensor:
        """Whether a leaf is a node, or hangs below it: shape (n, d)."""
        found = torch.zeros(len(self.parents), len(self.leaves), dtype=torch.bool)
        found[self.leaves, torch.arange(len(self.leaves))] = True
        for node in range(len(self.parents) - 1, -1, -1):
            if self.parents[node] >= 0:
                found[self.parents[node]] |= found[node]
        return found

    @cached_property
    def heights(self) -> Tensor:
        """The number of edges from each node down to the furthest leaf below it: shape (n,)."""
        return self._all_heights[1:]

    @property
    def height(self) -> int:
        """That of the root."""
        return int(self._all_heights[0])

    @cached_property
    def _all_heights(self) -> Tensor:
        found = torch.zeros(len(self.parents) + 1, dtype=torch.int64)
        for node in range(len(self.parents) - 1, -1, -1):
            above = int(self.parents[node]) + 1
            found[above] = max(int(found[above]), int(found[node + 1]) + 1)
        return found

    @cached_property
    def common_heights(self) -> Tensor:
        """The height of the lowest common ancestor of each two leaves, 0 for a leaf itself."""
        found = torch.full((len(self.leaves), len(self.leaves)), self.height)
        for node in range(len(self.parents)):  # parents first, so that the lowest comes last
            held = self.below[node]
            found[held[:, None] & held] = self.heights[node]
        return found


def conditional_log_probabilities(node_scores: Tensor, hierarchy: Hierarchy) -> Tensor:
    r"""Return :math:`\log p(v \mid parent(v))`: a softmax among the children of each node.

    Parameters
    ----------
    node_scores : Tensor, shape (*batch, n)
        A score for each node but the root.
    hierarchy : Hierarchy

    Returns
    -------
    Tensor, shape (*batch, n)
    """
    family = (hierarchy.parents + 1).expand(node_scores.shape)
    room = (*node_scores.shape[:-1], len(hierarchy.parents) + 1)
    peak = torch.full(room, -torch.inf, dtype=node_scores.dtype)
    peak = peak.scatter_reduce(-1, family, node_scores.detach(), "amax")
    shifted = node_scores - peak.gather(-1, family)
    total = torch.zeros(room, dtype=node_scores.dtype).scatter_add(-1, family, shifted.exp())
    return shifted - total.gather(-1, family).log()


def hierarchical_log_softmax(node_scores: Tensor, hierarchy: Hierarchy) -> Tensor:
    r"""Return :math:`\log p(y) = \sum_{v \ni y} \log p(v \mid parent(v))` of each leaf.

    Its cross-entropy is the loss of hierarchical softmax.

    Parameters
    ----------
    node_scores : Tensor, shape (*batch, n)
        A score for each node but the root.
    hierarchy : Hierarchy

    Returns
    -------
    Tensor, shape (*batch, d)

    Examples
    --------
    >>> tree = TreeCost.from_dict({"pets": ["cat", "dog"], "bus": None})
    >>> hierarchical_log_softmax(torch.zeros(4), Hierarchy.of(tree)).exp()
    tensor([0.2500, 0.2500, 0.5000])
    """
    conditional = conditional_log_probabilities(node_scores, hierarchy)
    return conditional @ hierarchy.below.to(node_scores.dtype)


def hierarchical_cross_entropy(
    scores: Tensor, target: Tensor, hierarchy: Hierarchy, decay: float
) -> Tensor:
    r"""Return HXE, :math:`-\sum_{v \ni y} e^{-\alpha h(v)} \log p(v \mid parent(v))`, of each row.

    Probabilities are the softmax of the scores, summed below each node; :math:`h(v)` is the height
    of a node, and :math:`\alpha` the decay. With a decay of 0 it is the cross-entropy.

    Parameters
    ----------
    scores : Tensor, shape (*batch, d)
    target : Tensor, shape batch
        Class indices.
    hierarchy : Hierarchy
    decay : float
        At least 0. The larger, the less groups count beside leaves.

    Returns
    -------
    Tensor, shape batch

    Examples
    --------
    >>> tree = TreeCost.from_dict({"pets": ["cat", "dog"], "bus": None})
    >>> scores, cat = torch.zeros(3, dtype=torch.float64), torch.tensor(0)
    >>> [
    ...     round(float(hierarchical_cross_entropy(scores, cat, Hierarchy.of(tree), a)), 4)
    ...     for a in (0.0, 1.0)
    ... ]
    [1.0986, 0.8423]
    """
    if not decay >= 0:
        raise ValueError(f"decay must be at least 0; got {decay}.")
    held = hierarchy.below
    outside = torch.where(held, 0.0, -torch.inf).to(scores.dtype)
    nodes = torch.logsumexp(scores[..., None, :] + outside, -1)
    root = torch.logsumexp(scores, -1, keepdim=True)
    above = torch.cat([root, nodes], -1)[..., hierarchy.parents + 1]
    weight = torch.exp(-decay * hierarchy.heights.to(scores.dtype))
    return ((above - nodes) * weight * held.T[target].to(scores.dtype)).sum(-1)


def soft_labels(hierarchy: Hierarchy, sharpness: float) -> Tensor:
    r"""Return distributions to train on, :math:`\propto e^{-\beta d(y, \cdot)}`: shape (d, d).

    The distance of two leaves is the height of their lowest common ancestor over that of the tree.
    The loss is the cross-entropy with row `y` as the target; for a large sharpness, the usual one.

    Parameters
    ----------
    hierarchy : Hierarchy
    sharpness : float
        :math:`\beta`, at least 0.

    Examples
    --------
    >>> tree = TreeCost.from_dict({"pets": ["cat", "dog"], "bus": None})
    >>> soft_labels(Hierarchy.of(tree), 2.0)[0]
    tensor([0.6652, 0.2447, 0.0900], dtype=torch.float64)
    """
    if not sharpness >= 0:
        raise ValueError(f"sharpness must be at least 0; got {sharpness}.")
    distance = hierarchy.common_heights.double() / hierarchy.height
    return torch.softmax(-sharpness * distance, -1)
