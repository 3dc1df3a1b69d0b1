"""The main abstraction of the library: a cost between outputs, and its ``K = exp(-C/2)``."""

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

    A signal over the outputs has shape ``(*batch, *cost.shape)``. Costs are frozen: scaling, moving
    and casting return a new cost. ``cost / epsilon`` is the ``C/ε`` of the paper.

    Results are differentiable with respect to one tensor of each cost, its `parameter`: the matrix
    of a dense cost, the scale of any other cost. To learn a dense cost, learn the points behind its
    matrix (`geosoftmax.nn.LearntPoints`).
    """

    #: Names of the attributes that are tensors, the parameter first; then names of all others.
    tensor_names: ClassVar[tuple[str, ...]]
    static_names: ClassVar[tuple[str, ...]] = ("shape", "signature")

    shape: tuple[int, ...]
    #: All that is not in the tensors, as text: for state dicts, and for graphs of torch.compile,
    #: which would make symbols of numbers.
    signature: str
    #: An empty tensor with a weak reference to its cost. See `operators`.
    handle: Tensor
    _kinds: ClassVar[dict[str, type[Cost]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        Cost._kinds[cls.__name__] = cls

    # ------------------------------------------------------- values

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors of the cost, the parameter first."""
        return [getattr(self, name) for name in self.tensor_names]

    @property
    def parameter(self) -> Tensor:
        """The tensor that receives gradients."""
        return getattr(self, self.tensor_names[0])

    def with_parameter(self, parameter: Tensor) -> Self:
        """Return the cost with another parameter (unchecked), or itself if it is the same one."""
        if parameter is self.parameter:
            return self
        return self.with_tensors([parameter, *self.tensors[1:]])

    def with_tensors(self, tensors: list[Tensor]) -> Self:
        """Return the cost with other tensors (unchecked), such as those of a module."""
        fields: dict[str, Any] = {name: getattr(self, name) for name in self.static_names}
        for name, tensor in zip(self.tensor_names, tensors, strict=True):
            fields[name] = tensor
        if (
            torch.compiler.is_compiling()
        ):  # the graph finds this cost again, if its values are equal
            fields["handle"] = self.handle
        return type(self)._make(fields)

    def check(self) -> None:
        """Raise an error if the values were changed in place and are no longer a valid cost."""
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
        """Return the attributes that are not tensors."""

    # ------------------------------------------------------- products

    @abstractmethod
    def matvec(self, u: Tensor) -> Tensor:
        """Return ``K u``, differentiable in ``u`` and in the parameter."""

    @abstractmethod
    def log_matvec(self, g: Tensor) -> Tensor:
        """Return ``log(K exp(g))``, stable for any ``g`` that is finite or ``-inf``."""

    @abstractmethod
    def solve(self, rhs: Tensor, support: Tensor) -> Tensor:
        """Return ``x`` with ``K_SS x_S = rhs_S`` on the support (a mask), and 0 elsewhere."""

    @abstractmethod
    def matrix(self) -> Tensor:
        """Return the dense ``C``, with shape ``(*shape, *shape)`` flattened to ``(d, d)``.

        If the parameter is not a matrix, the result is float64 whatever its dtype: certificates
        hold for this matrix.
        """

    @abstractmethod
    def __mul__(self, factor: float | Tensor) -> Cost:
        """Return ``factor · C``."""

    def __rmul__(self, factor: float | Tensor) -> Cost:
        return self * factor

    def __truediv__(self, epsilon: float | Tensor) -> Cost:
        return self * (1.0 / check_multiplier(epsilon))

    def multiple(self, factor: float | Tensor) -> Cost:
        """Return ``factor · C`` of a cost that `scales_freely`, without a check."""
        return self.__mul__(factor)

    def average(self, u: Tensor) -> Tensor:
        """Return means of ``u`` with the rows of ``K`` as weights; differentiable as `matvec`."""
        ones = torch.ones(self.batch_shape + self.shape, dtype=u.dtype, device=self.device)
        return self.matvec(u) * (1 / self.matvec(ones))

    def expected(self, alpha: Tensor) -> Tensor:
        """Return ``C α``: the expected cost of each output under the distribution ``α``.

        This default uses the matrix. Costs with a structure do not need it.
        """
        flat = alpha.flatten(-len(self.shape))
        C = self.matrix().to(alpha.dtype)
        product = (C @ flat[..., None])[..., 0] if self.batch_shape else flat @ C
        return product.reshape(alpha.shape)

    def kernel(self) -> Tensor:
        """Return ``K = exp(-C/2)`` as a matrix, in full precision."""
        return torch.exp(-wide(self.matrix()) / 2)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Let tensors multiply and divide a cost, also under torch.compile."""
        if func in _MULTIPLICATIONS:
            left, right = args
            return left.__mul__(right) if isinstance(left, Cost) else right.__mul__(left)
        if func in _DIVISIONS and isinstance(args[0], Cost):
            return args[0].__truediv__(args[1])
        if func is torch.Tensor.__rtruediv__ and isinstance(args[1], Cost):
            return args[1].__truediv__(args[0])
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    # ------------------------------------------------------- traits, for solvers

    #: Whether the parameter itself may be learnt: gradient steps on it give valid costs.
    is_learnable: ClassVar[bool] = True
    #: The positions of the outputs on a line, of shape (d,), if they have positions.
    positions: Tensor | None = None
    #: The power ``p``, if the cost is ``|x - y|^p``.
    p: float | None = None
    #: Whether `matvec` takes linear time and beats a matrix product, also for few outputs.
    has_linear_product: ClassVar[bool] = False

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of a batch of costs, one for each sample; empty for a single cost."""
        return ()

    @property
    def diagonal(self) -> Tensor | None:
        """The diagonal of ``K`` if it is not exactly one (perturbed matrices), else None."""
        return None

    @property
    def scales_freely(self) -> bool:
        """Whether ``exp(-cC/2)`` is positive definite for every ``c > 0``, not only for 1."""
        return True

    @property
    def is_separable(self) -> bool:
        """Whether ``K`` is a Kronecker product of smaller kernels, one per axis."""
        return False

    @property
    def factors(self) -> tuple[Cost, ...]:
        """One cost per axis if ``K`` is the product of their kernels, else the cost itself."""
        return (self,)

    @property
    def structure(self) -> Literal["equal", "line", "tree"] | None:
        """The structure that makes (QP) linear-time: see `as_equal`, `as_line` and `as_tree`."""
        return None

    def as_equal(self) -> Equal:
        """Return the kernel between outputs that are all equally far apart."""
        raise TypeError(f"the outputs of {self!r} are not equally far apart.")

    def as_line(self) -> Line:
        """Return the positions of outputs on a line whose cost is the absolute difference."""
        raise TypeError(
            f"the cost of {self!r} is not the absolute difference of positions on a line."
        )

    def as_tree(self) -> Tree:
        """Return the tree whose path lengths are the cost."""
        raise TypeError(f"{self!r} is not a distance along a tree.")

    # ------------------------------------------------------- device and dtype

    @property
    def device(self) -> torch.device:
        """The device of the cost's tensors."""
        return self.parameter.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the parameter. Scores may have any other dtype."""
        return self.parameter.dtype

    @property
    def size(self) -> int:
        """The number of outputs."""
        return math.prod(self.shape)

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Move or cast, with the arguments of `torch.Tensor.to`. Index tensors keep their dtype.

        Returns the cost itself if there is nothing to do.
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
        """Move to a GPU, by default the current one."""
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
        """Set the attributes and the handle of a new cost."""
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
        cost._set(fields)
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
    """Let a constructor read the values of its arguments, also under ``torch.device("meta")``.

    On the meta device, tensors made from numbers have no values. So the cost is made and checked on
    the CPU, and then moved. An argument that is itself on the meta device is refused if its values
    are needed.
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
    """Return a tensor in float64, if the device supports it: kernels need the precision.

    In float32, rounding would make two computations of one kernel differ, and nearly singular
    kernels would lose positive definiteness.
    """
    return tensor if tensor.device.type == "mps" else tensor.to(torch.float64)


def unit_scale(device: torch.device | None = None) -> Tensor:
    """Return the scale of a new cost, 1."""
    return torch.ones((), dtype=torch.float64, device=device)


def _move(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    moved = tensor.to(*args, **kwargs)
    if not tensor.is_floating_point() and moved.dtype != tensor.dtype:
        return tensor.to(moved.device)
    return moved
