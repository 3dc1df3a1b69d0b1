"""Descriptions of the structure of a cost, for solvers that can use it.

A solver does not ask for the class of a cost. It reads its traits, such as `Cost.structure`, and
then gets one of these descriptions. All arrays are in float64 and carry no gradients.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Equal(NamedTuple):
    """All outputs are equally far apart: ``K = (1 - k) I + k 11ᵀ``."""

    k: Tensor
    one_minus_k: Tensor


class Line(NamedTuple):
    """``K_ij = exp(-|x_i - x_j|)`` for increasing ``x``, of shape (d,)."""

    x: Tensor
    #: The distance from each output to the one before, in full precision; 0 for the first.
    gaps: Tensor
    #: Whether neighbours are equally spaced.
    even: bool


class Tree(NamedTuple):
    """``K_ij`` is the product of ``r`` along the path from i to j.

    Nodes are in breadth-first order: parents come before children, level by level.
    """

    #: (n,), the parent of each node; the root is its own parent.
    parents: Tensor
    #: (d,), the node of each output.
    outputs: Tensor
    #: (n,), ``exp(-length / 2)`` of the edge above each node, 0 at the root; and ``1 - r²``.
    r: Tensor
    D: Tensor
    #: The first node of each level, and the number of nodes.
    levels: tuple[int, ...]
