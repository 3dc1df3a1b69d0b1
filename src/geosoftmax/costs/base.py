"""The one abstraction of the library: a cost between outputs, seen through ``K = exp(-C/2)``."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from geosoftmax.validation import check_multiplier, is_concrete

_MULTIPLICATIONS = (torch.mul, torch.Tensor.mul, torch.Tensor.__mul__, torch.Tensor.__rmul__)
_DIVISIONS = (torch.div, torch.Tensor.div, torch.Tensor.__truediv__)

#: Whose parameter a tensor is. A compiled graph sends the tensors of a cost alone: by them the cost
#: is found again, with all that was derived from it.
_OWNERS: Any = WeakTensorKeyDictionary()


class Cost(ABC):
    """A symmetric cost ``C ≥ 0`` between outputs, with ``K = exp(-C/2)`` positive definite.

    A signal over the outputs has shape ``(*batch, *cost.shape)``. Costs are frozen: scaling,
    moving and casting return a new one. ``cost / epsilon`` is the ``C/ε`` of the paper.

    One tensor of each cost can be learnt, its `parameter`: the matrix of a dense cost, the scale
    of every other. Results are differentiable with respect to it.
    """

    shape: tuple[int, ...]
    spec: str  #: What its tensors do not say, as text: torch.compile makes symbols of numbers.
    _kinds: ClassVar[dict[str, type[Cost]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        Cost._kinds[cls.__name__] = cls

    # ------------------------------------------------------- what a cost is

    @property
    @abstractmethod
    def parameter(self) -> Tensor:
        """The tensor that gradients flow to."""

    def with_parameter(self, parameter: Tensor) -> Cost:
        """Return the same cost with another parameter (unchecked).

        With its own it is itself, with all that it remembers.
        """
        return self if parameter is self.parameter else self._replaced(parameter)

    @abstractmethod
    def _replaced(self, parameter: Tensor) -> Cost:
        """Return a new cost with the parameter."""

    @property
    @abstractmethod
    def tensors(self) -> list[Tensor]:
        """All tensors that it is made of, the parameter first."""

    def flatten(self) -> tuple[str, list[Tensor]]:
        """Return the cost as text and tensors; `Cost.unflatten` is its inverse."""
        return self.spec, self.tensors

    @classmethod
    @abstractmethod
    def _rebuild(cls, spec: str, tensors: list[Tensor]) -> Cost:
        """Make the cost that `flatten` described (unchecked)."""

    @staticmethod
    def unflatten(spec: str, tensors: list[Tensor]) -> Cost:
        """Rebuild a cost from what `flatten` returned."""
        return Cost._kinds[spec.split("|")[0]]._rebuild(spec, list(tensors))

    @staticmethod
    def recall(spec: str, tensors: list[Tensor]) -> Cost:
        """Return the cost that has these tensors, with all that it remembers; else rebuild it."""
        return _owner(spec, tensors) or Cost.unflatten(spec, tensors)

    # ------------------------------------------------------- what a cost does

    @abstractmethod
    def matvec(self, u: Tensor) -> Tensor:
        """``K u``, differentiable in ``u`` and in the parameter."""

    def average(self, u: Tensor) -> Tensor:
        """Means of ``u``, weighed by the rows of ``K``; differentiable as `matvec`."""
        return self.matvec(u) * self._once(f"shares_{u.dtype}", lambda: self._shares(u.dtype))

    def _shares(self, dtype: torch.dtype) -> Tensor:
        ones = torch.ones(self.batch_shape + self.shape, dtype=dtype, device=self.device)
        return 1 / self.matvec(ones)

    @abstractmethod
    def log_matvec(self, g: Tensor) -> Tensor:
        """``log(K exp(g))``, stable for any finite or ``-inf`` ``g``."""

    @abstractmethod
    def solve(self, rhs: Tensor, support: Tensor) -> Tensor:
        """``x`` with ``K_SS x_S = rhs_S`` on the support (a mask) and 0 elsewhere."""

    @abstractmethod
    def matrix(self) -> Tensor:
        """The dense ``C``, with shape ``(*shape, *shape)`` flattened to ``(d, d)``."""

    @abstractmethod
    def __mul__(self, factor: float | Tensor) -> Cost:
        """``factor · C``."""

    def __rmul__(self, factor: float | Tensor) -> Cost:
        return self * factor

    def __truediv__(self, epsilon: float | Tensor) -> Cost:
        return self * (1.0 / check_multiplier(epsilon))

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Let tensors multiply and divide a cost, also where torch.compile traces it."""
        if func in _MULTIPLICATIONS:
            left, right = args
            return left.__mul__(right) if isinstance(left, Cost) else right.__mul__(left)
        if func in _DIVISIONS and isinstance(args[0], Cost):
            return args[0].__truediv__(args[1])
        if func is torch.Tensor.__rtruediv__ and isinstance(args[1], Cost):
            return args[1].__truediv__(args[0])
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    # ------------------------------------------------------- where it lives

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of the batch of costs; empty unless there is one cost per sample."""
        return ()

    @property
    def diagonal(self) -> Tensor | None:
        """The diagonal of ``K`` where it is not exactly one (perturbed matrices), else None."""
        return None

    @property
    def device(self) -> torch.device:
        """The device of the cost's tensors."""
        return self.parameter.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the parameter. Scores of any other dtype may be used with it."""
        return self.parameter.dtype

    @property
    def size(self) -> int:
        """The number of outputs."""
        return torch.Size(self.shape).numel()

    def to(self, *args: Any, **kwargs: Any) -> Cost:
        """Move or cast, with the arguments of `torch.Tensor.to`. Index tensors keep their dtype.

        Where there is nothing to do, it is itself.
        """
        spec, tensors = self.flatten()
        moved = [_move(t, *args, **kwargs) for t in tensors]
        if all(a is b for a, b in zip(moved, tensors, strict=True)):
            return self
        return Cost.unflatten(spec, moved)

    def detach(self) -> Cost:
        """Return the cost without gradient history."""
        return self.with_parameter(self.parameter.detach())

    # ------------------------------------------------------- frozen

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(
            f"{type(self).__name__} is frozen; make a new one with cost * c or cost.to(...)."
        )

    def _store(self, **fields: Any) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        _own(self)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if not k.startswith("_cached")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        _own(self)

    def _once(self, name: str, build: Callable[[], Any]) -> Any:
        """Build a derived tensor once, unless gradients or tracing forbid to keep it."""
        if self.parameter.requires_grad or not is_concrete(self.parameter):
            return build()
        key = f"_cached_{name}"
        if key not in vars(self):
            with torch.inference_mode(False):  # what is kept may be differentiated through later
                vars(self)[key] = build()
        return vars(self)[key]


class ScaledCost(Cost):
    """A fixed geometry times a scale; the scale is the parameter."""

    scale: Tensor

    @property
    def parameter(self) -> Tensor:
        return self.scale

    def _replaced(self, parameter: Tensor) -> Cost:
        spec, tensors = self.flatten()
        return Cost.unflatten(spec, [parameter, *tensors[1:]])

    def __mul__(self, factor: float | Tensor) -> Cost:
        factor = check_multiplier(factor).to(self.scale.device)
        return self.with_parameter(self.scale * factor)

    def _scale_text(self) -> str:
        if not is_concrete(self.scale):
            return ""
        value = float(self.scale.detach())
        return "" if value == 1.0 else f" * {value:g}"


class _Owner(NamedTuple):
    cost: weakref.ref[Cost]
    spec: str
    others: list[Tensor]
    versions: list[int]

    def has(self, tensors: list[Tensor]) -> bool:
        """Whether the cost is still there, and nothing was written to its tensors since."""
        return self.cost() is not None and self.versions == [t._version for t in tensors]


def _own(cost: Cost) -> None:
    """Let a cost be found by its tensors, unless its parameter is that of another already."""
    if torch.compiler.is_compiling():
        return
    spec, tensors = cost.flatten()
    if all(_has_version(tensor) for tensor in tensors):
        known = _OWNERS.get(tensors[0])
        if known is None or not known.has([tensors[0], *known.others]):
            versions = [t._version for t in tensors]
            _OWNERS[tensors[0]] = _Owner(weakref.ref(cost), spec, tensors[1:], versions)


def _owner(spec: str, tensors: list[Tensor]) -> Cost | None:
    """Return the cost that has these tensors, if there is one."""
    known = _OWNERS.get(tensors[0]) if _has_version(tensors[0]) else None
    if known is None or known.spec != spec:
        return None
    same = all(a is b for a, b in zip(known.others, tensors[1:], strict=True))
    return known.cost() if same and known.has(tensors) else None


def _has_version(tensor: Tensor) -> bool:
    plain = type(tensor) in (Tensor, torch.nn.Parameter)
    return plain and not tensor.is_inference() and is_concrete(tensor)


def wide(tensor: Tensor) -> Tensor:
    """Return a tensor in float64, where the device has it: kernels are made with all digits.

    In float32 two roundings of one kernel would differ, and nearly singular ones lose their sign.
    """
    return tensor if tensor.device.type == "mps" else tensor.to(torch.float64)


def unit_scale(device: torch.device | None = None) -> Tensor:
    """Return the scale of a cost that nobody multiplied."""
    return torch.ones((), dtype=torch.float64, device=device)


def _move(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    moved = tensor.to(*args, **kwargs)
    if not tensor.is_floating_point() and moved.dtype != tensor.dtype:
        return tensor.to(moved.device)
    return moved
