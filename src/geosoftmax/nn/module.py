"""The base of all modules: a cost that is stored as buffers, saved, loaded, and perhaps learnt."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from geosoftmax.costs.base import Cost
from geosoftmax.functional.axes import Dim, read_dim
from geosoftmax.learnt import LearntCost, warn_of_collapse
from geosoftmax.validation import LEARN_PLACES, are_classes, check_options, refuse_torchscript

#: Names under which the tensors of a cost are registered. No cost has more tensors.
_NAMES = tuple(f"cost_{k}" for k in range(16))


class CostModule(nn.Module):
    """A module with a cost. `cost` is on the module's device, and has the learnt scale.

    Plans for the cost are made once, and made again after its values change. Writes through
    ``.data``, which torch does not count, are not noticed.
    """

    cost_signature: Tensor
    learnt_cost: LearntCost | None
    #: The axes of the outputs, as for `geosoftmax.geometric_softmax`.
    dim: Dim = None
    #: Whether the tensors of the cost have no values yet: after `to_empty` from the meta device.
    _is_empty = False

    def __init__(
        self, cost: Cost | LearntCost, *, dim: Dim = None, learn_scale: bool = False
    ) -> None:
        super().__init__()
        self.learnt_cost = cost if isinstance(cost, LearntCost) else None
        self._unscaled: Cost | None = None
        if not isinstance(cost, LearntCost):
            _check_cost(cost, learn_scale)
            for k, tensor in enumerate(cost.tensors):
                if isinstance(tensor, nn.Parameter):
                    self.register_parameter(f"cost_{k}", tensor)
                else:
                    self.register_buffer(f"cost_{k}", tensor.clone())
            self._unscaled = cost.with_tensors(self._tensors(cost))
        # The kind of cost, as bytes: loading refuses a state with another kind.
        self.log_scale = nn.Parameter(torch.zeros(())) if learn_scale else None
        device = self.cost.device
        self.register_buffer("cost_signature", _as_bytes(cost.signature).to(device))
        self._warned = False
        if dim is not None:
            axes = read_dim(dim, self.cost)
            dim = dim if isinstance(dim, int) else axes
        self.dim = dim

    @property
    def cost(self) -> Cost:
        """The cost, with what was learnt."""
        cost = self._current() if self.learnt_cost is None else self.learnt_cost.cost
        return cost if self.log_scale is None else cost.multiple(torch.exp(self.log_scale))

    def _tensors(self, cost: Cost) -> list[Tensor]:
        return [getattr(self, name) for name in _NAMES[: len(cost.tensor_names)]]

    def _current(self) -> Cost:
        """Return the cost of the buffers: the same object until they change."""
        if self._is_empty:
            raise ValueError(
                f"the cost of {type(self).__name__} has no values yet: the module was made on "
                "the meta device. Load a state first, with load_state_dict."
            )
        cost = self._unscaled
        assert cost is not None
        if torch.compiler.is_compiling():
            return cost.with_tensors(self._tensors(cost))
        if all(map(operator.is_, map(self._buffers.get, _NAMES), cost.tensors)):
            return cost  # the usual case, without the slow lookup of attributes
        tensors = self._tensors(cost)
        if not all(map(operator.is_, tensors, cost.tensors)):
            cost = self._unscaled = cost.with_tensors(tensors)
        return cost

    def _warn_of_collapse(self, cost: Cost, target: Tensor) -> None:
        """Warn once if the cost is learnt from class indices alone."""
        if not cost.parameter.requires_grad or self._warned or not torch.is_grad_enabled():
            return
        if are_classes(target, cost, self.dim):
            if not torch.compiler.is_compiling():
                self._warned = True
            warn_of_collapse()

    def __prepare_scriptable__(self) -> Any:
        """Refuse ``torch.jit.script``."""
        refuse_torchscript()

    def extra_repr(self) -> str:
        """Describe the cost and the axes of the outputs."""
        if self._is_empty:
            cost = f"{_in_words(self._signature)}, not loaded"
        else:
            cost = repr(self.cost) if self.learnt_cost is None else ""
        where = "" if self.dim is None else f"dim={self.dim}"
        learnt = "" if self.log_scale is None else "learn_scale=True"
        return ", ".join(text for text in (cost, where, learnt) if text)

    @property
    def _signature(self) -> str:
        return (self.learnt_cost or self._unscaled).signature  # pyright: ignore

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> CostModule:
        """Move as every module does, but do not convert the geometry to half precision."""
        cost = self._unscaled
        if cost is None:
            super()._apply(fn, recurse)
            return self
        precise = {f"cost_{k}": tensor.data for k, tensor in enumerate(self._tensors(cost))}
        super()._apply(fn, recurse)
        if any(
            before.is_meta and not getattr(self, name).is_meta for name, before in precise.items()
        ):
            self._is_empty = True
            self.cost_signature.copy_(_as_bytes(cost.signature))
        for name, before in precise.items():
            after = getattr(self, name)
            if before.is_floating_point() and torch.finfo(after.dtype).bits < 32:
                after.data = before.to(after.device)
        self._unscaled = cost.with_tensors(self._tensors(cost))
        return self

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        saved, here = state_dict.get(f"{prefix}cost_signature"), self._signature
        if saved is not None and not saved.is_meta:
            there = bytes(saved.cpu().tolist()).decode("utf8", "replace")
            # States that early versions saved for trees with names have no names, or no groups.
            if there not in (here, *(here.partition(part)[0] for part in ("|names:", "|groups:"))):
                error_msgs.append(
                    f"the state was saved with another kind of cost ({_in_words(there)}) than that "
                    f"of this module ({_in_words(here)}). Build the module with that cost."
                )
                return
            state_dict = {**state_dict, f"{prefix}cost_signature": _as_bytes(here)}
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        names = _NAMES[: len(self._unscaled.tensor_names)] if self._unscaled else ()
        if all(f"{prefix}{name}" in state_dict for name in names):
            self._is_empty = False


def described(text: str, **options: Any) -> str:
    """Return the text of a repr with the options that are not None."""
    shown = [f"{name}={value!r}" for name, value in options.items() if value is not None]
    return ", ".join([*filter(None, [text]), *shown])


def unless(value: Any, default: Any) -> Any:
    """Return a value for a repr, or None if it is the default."""
    return None if value == default else value


def _as_bytes(signature: str) -> Tensor:
    return torch.tensor(list(signature.encode()), dtype=torch.uint8, device="cpu")


def _in_words(signature: str) -> str:
    return signature.replace("|", " ")


def _check_cost(cost: Any, learn_scale: bool) -> None:
    """Refuse a cost that a module cannot store, or cannot learn."""
    if not isinstance(cost, Cost):
        raise TypeError(
            "cost must be a geosoftmax Cost, or LearntPoints or LearntEmbeddings; got "
            f"{type(cost).__name__}. Wrap a cost matrix as DenseCost(C)."
        )
    if learn_scale and not cost.scales_freely:
        raise ValueError(
            f"the scale of {cost!r} cannot be learnt: the kernel of a multiple may not be "
            "positive definite. DenseCost.repair(C, every_scale=True).cost is the nearest "
            "cost that is usable at every scale."
        )
    if isinstance(cost.parameter, nn.Parameter) and not cost.is_learnable:
        raise ValueError(f"{cost!r} cannot be learnt by its matrix. {LEARN_PLACES}")
    if any(t.requires_grad and not isinstance(t, nn.Parameter) for t in cost.tensors):
        raise ValueError(
            "the cost requires gradients, and a module would cut them off. Pass "
            "LearntPoints(points, p) or LearntEmbeddings(embeddings) of geosoftmax.nn instead of "
            "the cost. To learn a scale, pass learn_scale=True. Or call geosoftmax.functional "
            "with the cost."
        )


class SolvingModule(CostModule):
    """A module that solves (QP)."""

    def __init__(
        self,
        cost: Cost | LearntCost,
        *,
        dim: Dim = None,
        learn_scale: bool = False,
        tol: float | None = None,
        max_iter: int | None = None,
    ) -> None:
        super().__init__(cost, dim=dim, learn_scale=learn_scale)
        check_options(tol, max_iter)
        self.tol = tol
        self.max_iter = max_iter

    def extra_repr(self) -> str:
        """Describe the cost, and what differs from the defaults."""
        return described(super().extra_repr(), tol=self.tol, max_iter=self.max_iter)
