"""``dim``, the axes of a signal that hold the outputs: check them, move them last and back."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from geosoftmax.costs.base import Cost
from geosoftmax.validation import (
    check_not_floating_indices,
    check_same_shape,
    check_signal,
    fitting_axes,
    format_dim,
)

#: One axis, or one for each side of a grid. None means the last ones.
Dim = int | tuple[int, ...] | None


def read_dim(dim: Any, cost: Cost) -> tuple[int, ...]:
    """Check that dim has one integer for each dimension of the cost, and return the axes."""
    axes = tuple(dim) if isinstance(dim, (tuple, list)) else (dim,)
    for axis in axes:
        if isinstance(axis, bool) or not isinstance(axis, int):
            raise TypeError(f"dim must be an integer, or a tuple of integers; got {axis!r}.")
    n = len(cost.shape)
    if len(axes) != n:
        count, example = ("one axis", "dim=1") if n == 1 else (f"{n} axes", f"dim={_last(n)}")
        raise ValueError(f"dim must name {count} for {cost!r}, as in {example}; got dim={dim}.")
    return axes


def axes_of(name: str, signal: Any, cost: Cost, dim: Any) -> tuple[int, ...]:
    """Return the axes of a signal that hold its outputs, counted from 0, in the cost's order."""
    known = isinstance(cost, Cost) and isinstance(signal, Tensor)
    if not known or not signal.is_floating_point():
        check_signal(name, signal, cost)  # raises the error
    axes, count, shape = read_dim(dim, cost), signal.dim(), tuple(signal.shape)
    for axis in axes:
        if not -count <= axis < count:
            has = f"its axes are {-count}…{count - 1}" if count else "it has no axes"
            raise ValueError(
                f"dim={format_dim(axes)} is out of range for {name} of shape {shape}: {has}."
            )
    numbers = tuple(range(count))  # a lookup keeps the axis a constant under torch.compile
    found = tuple(numbers[axis] for axis in axes)
    for k, axis in enumerate(found):
        if axis in found[:k]:
            raise ValueError(
                f"dim={format_dim(axes)} names axis {axis} of {name} (shape {shape}) twice. "
                f"Each dimension of {cost!r} needs an axis of its own."
            )
    for axis, size in zip(found, cost.shape, strict=True):
        if shape[axis] != size:
            raise ValueError(
                f"axis {axis} of {name} must have size {size} to match {cost!r}; got size "
                f"{shape[axis]} (shape {shape}). {_remedy(signal, found, cost)}"
            )
    return found


def _remedy(signal: Tensor, axes: tuple[int, ...], cost: Cost) -> str:
    sizes = tuple(signal.shape[axis] for axis in axes)
    other = f"the cost with {f'{sizes[0]} classes' if len(sizes) == 1 else f'shape {sizes}'}"
    fitting = fitting_axes(signal, cost)
    if fitting is None:
        return f"Build {other}."
    return f"Pass dim={format_dim(fitting)}, or build {other}."


def _last(n: int) -> tuple[int, ...]:
    return tuple(range(-n, 0))


# ------------------------------------------------------------------ moving


def outputs_last(signal: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Return a view with the outputs in the last axes."""
    return signal.movedim(axes, _last(len(axes)))


def outputs_back(signal: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Return a view with the outputs back in their own axes."""
    return signal.movedim(_last(len(axes)), axes)


def second_last(name: str, other: Any, like_name: str, like: Tensor, axes: tuple[int, ...]) -> Any:
    """Return the same view of a second signal. Anything but a tensor is refused later."""
    if not isinstance(other, Tensor):
        return other
    check_same_shape(name, other, like_name, like)
    return outputs_last(other, axes)


def target_last(target: Any, name: str, scores: Tensor, axes: tuple[int, ...]) -> Any:
    """Return the same view of distributions; return class indices unchanged."""
    if not isinstance(target, Tensor):
        return target
    batch = tuple(size for k, size in enumerate(scores.shape) if k not in axes)
    if tuple(target.shape) == batch:
        return target
    if target.is_floating_point():
        check_not_floating_indices(target, scores, axes, name)
        return second_last("target", target, name, scores, axes)
    without = f"axis {axes[0]}" if len(axes) == 1 else f"axes {axes}"
    raise ValueError(
        f"class-index target must have shape {batch}: that of {name}, {tuple(scores.shape)}, "
        f"without {without}; got {tuple(target.shape)}. For distributions, pass a floating-point "
        f"target with the shape of {name}."
    )
