"""What the plans of one cost share: its spectrum, and the tables of the numba backend.

So plans for several requests need only one eigendecomposition. The cache of plans stores them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from geosoftmax.backends import reference
from geosoftmax.backends.reference import Spectrum
from geosoftmax.costs.base import Cost
from geosoftmax.solvers.plans import PLANS


def shared(cost: Cost, name: str, make: Callable[[], Any]) -> Any:
    """Return the tables of this cost with this name; call `make` if there are none."""
    return PLANS.get(cost, ("tables", name), make)


def spectrum(cost: Cost) -> Spectrum:
    """Return the eigendecompositions of the kernels of all axes."""
    return shared(cost, "spectrum", lambda: reference.spectrum(axis_kernels(cost)))


def axis_kernels(cost: Cost) -> list[Any]:
    """Return the kernels of all axes, in full precision."""
    return [factor.kernel() for factor in cost.detach().factors]


def dense_tables(cost: Cost) -> Any:
    """Return the tables of the numba backend for the full kernel of a cost."""
    from geosoftmax.backends.numba import tables

    return shared(cost, "dense", lambda: tables.dense_tables(cost.detach().kernel()))


def line_tables(cost: Cost) -> Any:
    """Return the tables of the numba backend for a line with p = 1."""
    from geosoftmax.backends.numba import tables

    line = cost.as_line()
    return shared(cost, "line", lambda: tables.line_tables(line.gaps, line.even))


def tree_tables(cost: Cost) -> Any:
    """Return the tables of the numba backend for a tree."""
    from geosoftmax.backends.numba import tables

    tree = cost.as_tree()
    arrays = tree.r, tree.D, tree.parents, tree.outputs
    return shared(cost, "tree", lambda: tables.tree_tables(*arrays))
