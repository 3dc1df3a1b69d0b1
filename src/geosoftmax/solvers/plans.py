"""The one cache of plans: by cost, then by request. A cost's plans go when the cost goes.

Costs are frozen, but their tensors can be written to: by an optimiser, by `load_state_dict`, by
DistributedDataParallel, which broadcasts buffers in each step. Torch counts writes to a tensor.
Where that count has moved, values are compared with those that the plans were made of: plans are
kept if nothing changed, and made anew if something did. Writes through ``.data`` are not counted,
and not seen.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch

from geosoftmax.costs.base import Cost

T = TypeVar("T")


class PlanCache:
    """Plans by cost and key."""

    def __init__(self) -> None:
        self._entries: weakref.WeakKeyDictionary[Cost, _Entry] = weakref.WeakKeyDictionary()

    def find(self, cost: Cost, key: Hashable) -> Any:
        """Return what was made for this cost and key, or None."""
        entry = self._entries.get(cost)
        if entry is None or not entry.is_current():
            return None
        return entry.plans.get(key)

    def get(self, cost: Cost, key: Hashable, make: Callable[[], T]) -> T:
        """Return what `make` made for this cost and key, or makes now."""
        entry = self._entries.get(cost)
        if entry is None or not entry.is_current():
            entry = self._entries[cost] = _Entry(cost)
        if key not in entry.plans:
            # What is kept may be differentiated through later, and must not remember gradients.
            with torch.inference_mode(False), torch.no_grad():
                entry.plans[key] = make()
        return entry.plans[key]

    def clear(self) -> None:
        """Forget all plans."""
        self._entries.clear()


class _Entry:
    """The plans of one cost, and the values of its tensors that they were made of."""

    __slots__ = ("counted", "counts", "plans", "tensors", "values")

    def __init__(self, cost: Cost) -> None:
        self.tensors = cost.tensors
        # Tensors that were made in inference mode are not counted: their values are compared.
        self.counted = not any(t.is_inference() for t in self.tensors)
        self.counts = [t._version for t in self.tensors] if self.counted else []
        with torch.inference_mode(False):
            self.values = [t.detach().clone() for t in self.tensors]
        self.plans: dict[Hashable, Any] = {}

    def is_current(self) -> bool:
        """Whether the tensors have the values of which the plans were made."""
        if self.counted and [t._version for t in self.tensors] == self.counts:
            return True
        if self.tensors[0].is_cuda and torch.cuda.is_current_stream_capturing():
            return False  # values cannot be read while a graph is recorded
        if not all(map(torch.equal, self.values, (t.detach() for t in self.tensors))):
            return False
        if self.counted:
            self.counts = [t._version for t in self.tensors]
        return True


#: What the library uses. Tests make their own.
PLANS = PlanCache()
