"""The one abstraction of the library: a cost between outputs, seen through ``K = exp(-C/2)``."""

from __future__ import annotations

import functools
import math
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from geosoftmax.costs.traits import Equal, Line, Tree
from geosoftmax.validation import check_multiplier, check_scale, is_concrete

_MULTIPLICATIONS = (torch.mul, torch.Tensor.mul, torch.Tensor.__mul__, torch.Tensor.__rmul__)
_DIVISIONS = (torch.div, torch.Tensor.div, torch.Tensor.__truediv__)


class Cost(ABC):
    """A symmetric cost ``C ≥ 0`` between outputs, with ``K = exp(-C/2)`` positive definite.

    A signal over the outputs has shape ``(*batch, *cost.shape)``. Costs are frozen: scaling,
    moving and casting return a new one. ``cost / epsilon`` is the ``C/ε`` of the paper.

    Results are differentiable with respect to one tensor of each cost, its `parameter`: the matrix
    of a dense cost, the scale of every other. To learn a dense cost, learn what its matrix is made
    of (`geosoftmax.nn.LearntPoints`).
    """

    #: Names of the attributes that are tensors, the parameter first; and of all others.
    tensor_names: ClassVar[tuple[str, ...]]
    static_names: ClassVar[tuple[str, ...]] = ("shape", "signature")

    shape: tuple[int, ...]
    #: What the tensors do not say, as text: for state dicts, and for graphs of torch.compile, which
    #: make symbols of numbers.
    signature: str
    #: An empty tensor with a weak reference to its cost. See `operators`.
    handle: Tensor
    _kinds: ClassVar[dict[str, type[Cost]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        Cost._kinds[cls.__name__] = cls

    # ------------------------------------------------------- what a cost is

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors that it is made of, the parameter first."""
        return [getattr(self, name) for name in self.tensor_names]

    @property
    def parameter(self) -> Tensor:
        """The tensor that gradients flow to."""
        return getattr(self, self.tensor_names[0])

    def with_parameter(self, parameter: Tensor) -> Self:
        """Return the same cost with another parameter (unchecked); with its own it is itself."""
        if parameter is self.parameter:
            return self
        return self.with_tensors([parameter, *self.tensors[1:]])

    def with_tensors(self, tensors: list[Tensor]) -> Self:
        """Return the same cost with other tensors (unchecked), such as those of a module."""
        fields: dict[str, Any] = {name: getattr(self, name) for name in self.static_names}
        for name, tensor in zip(self.tensor_names, tensors, strict=True):
            fields[name] = tensor
        if torch.compiler.is_compiling():  # the graph then finds this cost, if its values are these
            fields["handle"] = self.handle
        return type(self)._make(fields)

    def check(self) -> None:
        """Refuse values that were written until they are no cost any more."""
        return

    @staticmethod
    def from_signature(signature: str, tensors: list[Tensor]) -> Cost:
        """Rebuild a cost from its signature and its tensors (unchecked)."""
        kind = Cost._kinds[signature.split("|")[0]]
        fields = kind.read_signature(signature, tensors)
        fields["signature"] = signature
        for name, tensor in zip(kind.tensor_names, tensors, strict=True):
            fields[name] = tensor
        return kind._make(fields)

    @classmethod
    @abstractmethod
    def read_signature(cls, signature: str, tensors: list[Tensor]) -> dict[str, Any]:
        """Return the attributes that are no tensors."""

    # ------------------------------------------------------- what a cost does

    @abstractmethod
    def matvec(self, u: Tensor) -> Tensor:
        """``K u``, differentiable in ``u`` and in the parameter."""

    @abstractmethod
    def log_matvec(self, g: Tensor) -> Tensor:
        """``log(K exp(g))``, stable for any finite or ``-inf`` ``g``."""

    @abstractmethod
    def solve(self, rhs: Tensor, support: Tensor) -> Tensor:
        """``x`` with ``K_SS x_S = rhs_S`` on the support (a mask) and 0 elsewhere."""

    @abstractmethod
    def matrix(self) -> Tensor:
        """The dense ``C``, with shape ``(*shape, *shape)`` flattened to ``(d, d)``.

        Parameters that are no matrix are turned into one in float64, whatever their dtype:
        certificates are of what it says.
        """

    @abstractmethod
    def __mul__(self, factor: float | Tensor) -> Cost:
        """``factor · C``."""

    def __rmul__(self, factor: float | Tensor) -> Cost:
        return self * factor

    def __truediv__(self, epsilon: float | Tensor) -> Cost:
        return self * (1.0 / check_multiplier(epsilon))

    def multiple(self, factor: float | Tensor) -> Cost:
        """``factor · C`` of a cost that `scales_freely`: not checked again at each factor."""
        return self.__mul__(factor)

    def average(self, u: Tensor) -> Tensor:
        """Means of ``u``, weighed by the rows of ``K``; differentiable as `matvec`."""
        ones = torch.ones(self.batch_shape + self.shape, dtype=u.dtype, device=self.device)
        return self.matvec(u) * (1 / self.matvec(ones))

    def expected(self, alpha: Tensor) -> Tensor:
        """``C α``: what each output is expected to cost where ``α`` is the distribution.

        Here it takes the matrix; costs with a structure do without.
        """
        flat = alpha.flatten(-len(self.shape))
        C = self.matrix().to(alpha.dtype)
        product = (C @ flat[..., None])[..., 0] if self.batch_shape else flat @ C
        return product.reshape(alpha.shape)

    def kernel(self) -> Tensor:
        """``K = exp(-C/2)`` as a matrix, with all digits."""
        return torch.exp(-wide(self.matrix()) / 2)

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

    # ------------------------------------------------------- traits that solvers ask for

    #: Whether the parameter itself may be learnt: whether gradient steps on it make valid costs.
    is_learnable: ClassVar[bool] = True
    #: The places of the outputs on a line, of shape (d,), where they have them.
    positions: Tensor | None = None
    #: The power of the distances, where the cost is ``|x - y|^p``.
    p: float | None = None
    #: Whether `matvec` takes linear time, also for few outputs: no matrix would be faster.
    has_linear_product: ClassVar[bool] = False

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of the batch of costs; empty unless there is one cost per sample."""
        return ()

    @property
    def diagonal(self) -> Tensor | None:
        """The diagonal of ``K`` where it is not exactly one (perturbed matrices), else None."""
        return None

    @property
    def scales_freely(self) -> bool:
        """Whether ``exp(-cC/2)`` is positive definite for every ``c > 0``, not for 1 alone."""
        return True

    @property
    def is_separable(self) -> bool:
        """Whether ``K`` is a Kronecker product of smaller kernels, one for each axis."""
        return False

    @property
    def factors(self) -> tuple[Cost, ...]:
        """Costs along the axes of a signal, of whose kernels ``K`` is the product; else itself."""
        return (self,)

    @property
    def structure(self) -> Literal["equal", "line", "tree"] | None:
        """What makes (QP) solvable in linear time. `as_equal`, `as_line`, `as_tree` describe it."""
        return None

    def as_equal(self) -> Equal:
        """Return the affinity of outputs that are all equally far apart."""
        raise TypeError(f"the outputs of {self!r} are not equally far apart.")

    def as_line(self) -> Line:
        """Return the positions of outputs on a line with the absolute value as cost."""
        raise TypeError(f"the outputs of {self!r} are not on a line with the absolute value.")

    def as_tree(self) -> Tree:
        """Return the tree along which the cost is measured."""
        raise TypeError(f"{self!r} is not measured along a tree.")

    # ------------------------------------------------------- where it lives

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
        return math.prod(self.shape)

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Move or cast, with the arguments of `torch.Tensor.to`. Index tensors keep their dtype.

        Where there is nothing to do, it is itself.
        """
        tensors = self.tensors
        moved = [_move(t, *args, **kwargs) for t in tensors]
        if all(a is b for a, b in zip(moved, tensors, strict=True)):
            return self
        return self.with_tensors(moved)

    def cpu(self) -> Self:
        """Move to the CPU."""
        return self.to("cpu")

    def cuda(self, device: int | str | torch.device | None = None) -> Self:
        """Move to a GPU: the current one, unless it is named."""
        return self.to(
            torch.device("cuda", device) if isinstance(device, int) else device or "cuda"
        )

    def float(self) -> Self:
        """Cast to float32."""
        return self.to(torch.float32)

    def double(self) -> Self:
        """Cast to float64."""
        return self.to(torch.float64)

    def detach(self) -> Self:
        """Return the cost without gradient history."""
        return self.with_parameter(self.parameter.detach())

    # ------------------------------------------------------- a frozen value

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(
            f"{type(self).__name__} is frozen; make a new one with cost * c or cost.to(...)."
        )

    def _set(self, fields: dict[str, Any]) -> None:
        """Set the attributes of a new cost, and give it a handle."""
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        if "handle" in fields:
            return
        handle = torch.empty(0, device=self.device)
        if not torch.compiler.is_compiling():
            handle.cost_reference = weakref.ref(self)  # pyright: ignore[reportAttributeAccessIssue]
        object.__setattr__(self, "handle", handle)

    @classmethod
    def _make(cls, fields: dict[str, Any]) -> Self:
        cost = object.__new__(cls)  # torch 2.6 compiles no cls.__new__(cls)
        cls._set(cost, fields)
        return cost

    def __reduce__(self) -> tuple[Any, ...]:
        names = (*self.static_names, *self.tensor_names)
        return _restore, (type(self), {name: getattr(self, name) for name in names})


class ScaledCost(Cost):
    """A fixed geometry times a scale; the scale is the parameter."""

    scale: Tensor

    def check(self) -> None:
        check_scale(self.scale)

    def __mul__(self, factor: float | Tensor) -> Self:
        factor = check_multiplier(factor).to(self.scale.device)
        return self.with_parameter(self.scale * factor)

    def _scale_text(self) -> str:
        if not is_concrete(self.scale):
            return ""
        value = float(self.scale.detach())
        return "" if value == 1.0 else f" * {value:g}"


def reads_values(make: Callable[..., Any]) -> Callable[..., Any]:
    """Let a constructor read the numbers that it is given, also under ``torch.device("meta")``.

    There, tensors that are made of numbers would hold none. So the cost is made and checked on the
    CPU, and then moved. A tensor that is on the meta device itself is refused where its values
    decide what the cost is.
    """

    @functools.wraps(make)
    def made(self: Cost, *args: Any, **kwargs: Any) -> None:
        if torch.compiler.is_compiling() or torch.get_default_device().type != "meta":
            return make(self, *args, **kwargs)
        with torch.device("cpu"):
            make(self, *args, **kwargs)
            moved = [tensor.to("meta") for tensor in self.tensors]
            self._set(dict(zip(self.tensor_names, moved, strict=True)))

    return made


def _restore(kind: type[Cost], fields: dict[str, Any]) -> Cost:
    return kind._make(fields)


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
