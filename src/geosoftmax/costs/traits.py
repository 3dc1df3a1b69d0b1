"""What a cost may know about itself, for solvers that can use it.

A solver does not ask for the class of a cost. It asks for its traits, such as `Cost.structure`, and
then for what describes it. All arrays are in float64 and carry no gradients.
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
    #: From each output to the one before, with all digits; 0 for the first.
    gaps: Tensor
    #: Whether all neighbours are at one distance.
    even: bool


class Tree(NamedTuple):
    """``K_ij`` is the product of ``r`` along the path from i to j.

    Nodes are in breadth-first order: parents come before children, level by level.
    """

    #: (n,), the parent of each node; the root is its own.
    parents: Tensor
    #: (d,), the node of each output.
    outputs: Tensor
    #: (n,), ``exp(-length / 2)`` of the edge above each node, 0 at the root; and ``1 - r²``.
    r: Tensor
    D: Tensor
    #: Where each level begins, and the end.
    levels: tuple[int, ...]
