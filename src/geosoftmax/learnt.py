"""Costs that are learnt: modules whose parameter is the points or embeddings behind a cost.

Distances between points are valid costs wherever the points are. Gradient steps on the entries of a
matrix can make it invalid. The modules of `geosoftmax.nn` accept these modules in place of a cost.
"""

from __future__ import annotations

import functools
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from geosoftmax.costs import DenseCost
from geosoftmax.validation import as_float_tensor, check_multiplier, check_power, is_concrete

__all__ = ["LearntCost", "LearntEmbeddings", "LearntPoints", "warn_of_collapse"]


class LearntCost(nn.Module, ABC):
    """A module with one parameter, from which it makes a cost. `cost` is the current cost."""

    #: The name of the parameter, an attribute.
    parameter_name: ClassVar[str]
    #: Compared with that of a state dict on loading.
    signature: str
    #: The parameter as `to_empty` left it, without values, and its version, which a write changes.
    _empty: tuple[Tensor, int] | None = None

    def __init__(self, values: Any, scale: float) -> None:
        super().__init__()
        values = as_float_tensor(self.parameter_name, values)
        if not isinstance(values, nn.Parameter):
            values = nn.Parameter(values.detach().clone())
        self.register_parameter(self.parameter_name, values)
        self.scale = float(check_multiplier(scale))
        self._known: tuple[Tensor, int, DenseCost] | None = None

    @abstractmethod
    def _make(self, values: Tensor, validate: bool) -> DenseCost:
        """Return the cost for these values of the parameter."""

    @property
    def cost(self) -> DenseCost:
        """The cost. Without gradients, it stays the same object until the values change."""
        values = getattr(self, self.parameter_name)
        if self._is_empty:
            raise ValueError(
                f"the {self.parameter_name} of {type(self).__name__} have no values yet: the "
                "module was made on the meta device. Load a state first, with load_state_dict."
            )
        # A check on a GPU would synchronise with the host.
        validate = not values.is_cuda
        learning = torch.is_grad_enabled() and values.requires_grad
        if learning or not is_concrete(values) or values.is_inference():
            return self._make(values, validate)
        known = self._known
        if known is None or known[0] is not values or known[1] != values._version:
            made = self._make(values.detach(), validate)
            known = self._known = (values, values._version, made)
        return known[2]

    def extra_repr(self) -> str:
        """Describe the parameter."""
        shape = tuple(getattr(self, self.parameter_name).shape)
        scale = "" if self.scale == 1 else f", scale={self.scale:g}"
        empty = ", not loaded" if self._is_empty else ""
        return f"{self.parameter_name} of shape {shape}{scale}{empty}"

    @property
    def _is_empty(self) -> bool:
        values = getattr(self, self.parameter_name)
        empty = self._empty
        return empty is not None and empty[0] is values and empty[1] == values._version

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> LearntCost:
        """Move as every module does, but do not convert the geometry to half precision."""
        before = getattr(self, self.parameter_name).data
        super()._apply(fn, recurse)
        after = getattr(self, self.parameter_name)
        if torch.finfo(after.dtype).bits < 32:
            after.data = before.to(after.device)
        self._known = None
        if before.is_meta and not after.is_meta:
            self._empty = (after, after._version)
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_known": None}


def _reads_values(make: Callable[..., None]) -> Callable[..., None]:
    """Let a constructor check the values of its arguments, also under ``torch.device("meta")``."""

    @functools.wraps(make)
    def made(self: LearntCost, *args: Any, **kwargs: Any) -> None:
        if torch.get_default_device().type != "meta":
            return make(self, *args, **kwargs)
        with torch.device("cpu"):
            make(self, *args, **kwargs)
        values = getattr(self, self.parameter_name)
        if not any(given is values for given in (*args, *kwargs.values())):
            self.to("meta")

    return made


class LearntPoints(LearntCost):
    """``scale · |x_i - x_j|^p`` between points that are learnt.

    Pass it to a module of `geosoftmax.nn` in place of a cost. Several modules may share one.

    Parameters
    ----------
    points : array_like or nn.Parameter, shape (d, n) or (*batch, d, n)
        The initial points. No two may coincide. An ``nn.Parameter`` is used itself, not copied.
    p : float
        As for `DenseCost.from_points`.
    scale : float
        The factor of the cost, which is not learnt.

    Examples
    --------
    >>> import torch
    >>> from geosoftmax.nn import GeometricLogisticLoss, LearntPoints
    >>> places = LearntPoints(torch.randn(5, 2), p=1)
    >>> loss = GeometricLogisticLoss(places)
    >>> target = torch.softmax(torch.randn(3, 5), -1)
    >>> loss(torch.zeros(3, 5), target).backward()
    >>> places.points.grad.shape
    torch.Size([5, 2])
    """

    parameter_name = "points"
    points: nn.Parameter

    @_reads_values
    def __init__(self, points: Any, p: float = 2.0, *, scale: float = 1.0) -> None:
        super().__init__(points, scale)
        self.p = check_power(p)
        self._make(self.points.detach(), validate=True)  # raises an error if the cost is invalid
        self.signature = f"LearntPoints|{self.p!r}|{self.scale!r}"

    def _make(self, values: Tensor, validate: bool) -> DenseCost:
        cost = DenseCost.from_points(values, self.p, validate=validate)
        return _times(cost, self.scale)

    def extra_repr(self) -> str:
        """Describe the points."""
        return f"{super().extra_repr()}, p={self.p:g}"


class LearntEmbeddings(LearntCost):
    """``scale · (1 - cos(e_i, e_j))`` between embeddings that are learnt.

    Parameters
    ----------
    embeddings : array_like or nn.Parameter, shape (d, n) or (*batch, d, n)
        The initial embeddings. No two may have the same direction. An ``nn.Parameter``, such as the
        weight of a `torch.nn.Embedding`, is used itself, not copied.
    scale : float
        The factor of the cost, which is not learnt.

    Examples
    --------
    >>> import torch
    >>> from geosoftmax.nn import GeometricSoftmax, LearntEmbeddings
    >>> words = torch.nn.Embedding(5, 16)
    >>> layer = GeometricSoftmax(LearntEmbeddings(words.weight, scale=4.0))
    >>> layer(torch.randn(2, 5)).shape
    torch.Size([2, 5])
    """

    parameter_name = "embeddings"
    embeddings: nn.Parameter

    @_reads_values
    def __init__(self, embeddings: Any, *, scale: float = 1.0) -> None:
        super().__init__(embeddings, scale)
        self._make(self.embeddings.detach(), validate=True)
        self.signature = f"LearntEmbeddings|{self.scale!r}"

    def _make(self, values: Tensor, validate: bool) -> DenseCost:
        return _times(DenseCost.from_embeddings(values, validate=validate), self.scale)


def _times(cost: DenseCost, scale: float) -> DenseCost:
    """Return a multiple without a check: costs between points are valid at every scale."""
    return cost if scale == 1 else cost.with_parameter(cost.C * scale)


def warn_of_collapse() -> None:
    """Warn that a cost learnt from class indices shrinks to zero."""
    warnings.warn(
        "the cost is learnt from class indices, or from distributions with one class each. It "
        "will shrink to zero: for such targets a smaller cost always has a smaller loss, whatever "
        "the scores are. Learn it from distributions (label_smoothing makes some), or choose its "
        "scale by validation.",
        UserWarning,
        stacklevel=6,
    )


# Compiled calls warn when they are traced. `torch.compiler.assume_constant_result` would do this,
# but it imports the compiler, which takes as long as importing torch.
setattr(warn_of_collapse, "_dynamo_marked_constant", True)  # noqa: B010
