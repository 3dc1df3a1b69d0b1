"""The cache of all plans, by cost and request, and what the plans of one cost share.

A cost's plans are freed with the cost. Its spectrum and its tables of the numba backend are in the
cache, too, so plans for several requests need only one eigendecomposition.

Costs are frozen, but their tensors can be written to: by an optimiser, by `load_state_dict`, or by
DistributedDataParallel, which broadcasts buffers in each step. Torch counts writes to a tensor. If
that count has changed, the values are compared with those at the time the plans were made. The
plans stay in the cache if the values are equal, and are made again if not. Torch does not count
writes through ``.data``, so they go unnoticed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch

from geosoftmax.backends import reference
from geosoftmax.backends.reference import Spectrum
from geosoftmax.costs.base import Cost

T = TypeVar("T")


class PlanCache:
    """Plans by cost and key."""

    def __init__(self) -> None:
        self._entries: weakref.WeakKeyDictionary[Cost, _Entry] = weakref.WeakKeyDictionary()

    def find(self, cost: Cost, key: Hashable) -> Any:
        """Return the entry for this cost and key, or None."""
        entry = self._entries.get(cost)
        if entry is None or not entry.is_current():
            return None
        return entry.plans.get(key)

    def get(self, cost: Cost, key: Hashable, make: Callable[[], T]) -> T:
        """Return the entry for this cost and key; call `make` if there is none."""
        entry = self._entries.get(cost)
        if entry is None or not entry.is_current():
            entry = self._entries[cost] = _Entry(cost)
        if key not in entry.plans:
            # Later calls may differentiate through the entry, so it must not record gradients.
            with torch.inference_mode(False), torch.no_grad():
                entry.plans[key] = make()
        return entry.plans[key]

    def clear(self) -> None:
        """Remove all plans."""
        self._entries.clear()


class _Entry:
    """The plans of one cost, and the values of its tensors when they were made."""

    __slots__ = ("counted", "counts", "plans", "tensors", "values")

    def __init__(self, cost: Cost) -> None:
        self.tensors = cost.tensors
        # Torch does not count writes to inference tensors: compare their values.
        self.counted = not any(t.is_inference() for t in self.tensors)
        self.counts = [t._version for t in self.tensors] if self.counted else []
        with torch.inference_mode(False):
            self.values = [t.detach().clone() for t in self.tensors]
        self.plans: dict[Hashable, Any] = {}

    def is_current(self) -> bool:
        """Return whether the tensors still have the values that the plans were made for."""
        if self.counted and [t._version for t in self.tensors] == self.counts:
            return True
        if self.tensors[0].is_cuda and torch.cuda.is_current_stream_capturing():
            return False  # values cannot be read while a CUDA graph is captured
        if not all(map(torch.equal, self.values, (t.detach() for t in self.tensors))):
            return False
        if self.counted:
            self.counts = [t._version for t in self.tensors]
        return True


#: The cache of the library. Tests make their own.
PLANS = PlanCache()


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
