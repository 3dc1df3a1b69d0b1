"""Scores, distributions and other signals over the outputs of a cost."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from geosoftmax.validation.reading import is_readable, refuse_torchscript

if TYPE_CHECKING:
    from geosoftmax.costs.base import Cost


#: The tolerance for the sum of a distribution, by the dtype of the input.
SUM_TOLERANCE = {
    torch.float64: 1e-4,
    torch.float32: 1e-4,
    torch.float16: 2e-2,
    torch.bfloat16: 5e-2,
}


def check_signal(name: str, signal: Any, cost: Cost) -> None:
    """Check that ``signal`` is a floating tensor of shape ``(*batch, *cost.shape)``."""
    if torch.jit.is_tracing():  # pyright: ignore[reportPrivateImportUsage]
        refuse_torchscript()
    try:
        shape, batch_shape = cost.shape, cost.batch_shape
    except AttributeError:
        raise TypeError(
            f"cost must be a geosoftmax Cost; got {type(cost).__name__}. "
            "Wrap a cost matrix as DenseCost(C), or use LineCost, GridCost, TreeCost, ZeroOneCost."
        ) from None
    if (
        isinstance(signal, Tensor)
        and signal.is_floating_point()
        and signal.shape[-len(shape) :] == shape
        and not batch_shape
        and signal.device == cost.device
    ):
        return
    _refuse_signal(name, signal, cost)


def _refuse_signal(name: str, signal: Any, cost: Cost) -> None:
    """Raise the error for an invalid signal, if it is one."""
    if not isinstance(signal, Tensor):
        raise TypeError(
            f"{name} must be a torch.Tensor; got {type(signal).__name__}. "
            f"Convert it with torch.as_tensor({name}, dtype=torch.float64)."
        )
    if not signal.is_floating_point():
        hint = "" if signal.is_complex() else f" Use {name}.float()."
        raise TypeError(f"{name} must be a floating-point tensor; got {signal.dtype}.{hint}")
    n = len(cost.shape)
    if signal.dim() < n or tuple(signal.shape[signal.dim() - n :]) != cost.shape:
        raise ValueError(
            f"{name} must end with shape {cost.shape} to match {cost!r}; "
            f"got {tuple(signal.shape)}. {_shape_hint(name, signal, cost)}"
        )
    batch = tuple(signal.shape[: signal.dim() - n])
    if cost.batch_shape and batch[len(batch) - len(cost.batch_shape) :] != cost.batch_shape:
        raise ValueError(
            f"{cost!r} has one cost per sample, so {name} must have shape "
            f"(..., {', '.join(map(str, cost.batch_shape + cost.shape))}); got "
            f"{tuple(signal.shape)}. Pass one cost matrix per sample, or a single (d, d) matrix."
        )
    if signal.device != cost.device:
        raise ValueError(
            f"{name} is on {signal.device} but {cost!r} is on {cost.device}. "
            f"Move the cost once: cost = cost.to({str(signal.device)!r})."
        )


def _last(n: int) -> str:
    return "the last dimension" if n == 1 else f"the last {n} dimensions"


def _shape_hint(name: str, signal: Tensor, cost: Cost) -> str:
    n = len(cost.shape)
    if n > 1 and signal.dim() >= 1 and signal.shape[-1] == math.prod(cost.shape):
        return f"Signals must not be flattened: reshape with .unflatten(-1, {cost.shape})."
    if signal.dim() < n:
        return f"One sample takes {_last(n)}."
    shape = tuple(signal.shape[signal.dim() - n :])
    other = f"the cost with {f'{shape[0]} classes' if n == 1 else f'shape {shape}'}"
    axes = fitting_axes(signal, cost)
    if axes is None:
        return f"Build {other}."
    what = "Classes are the last dimension" if n == 1 else f"Sides are the last {n} dimensions"
    return f"{what} by default: pass dim={format_dim(axes)}, or build {other}."


def fitting_axes(signal: Tensor, cost: Cost) -> tuple[int, ...] | None:
    """Return neighbouring axes with the cost's shape. Axis 1 comes first, as in torch's losses."""
    n = len(cost.shape)
    starts = sorted(range(signal.dim() - n + 1), key=lambda start: (start != 1, start))
    fitting = (k for k in starts if tuple(signal.shape[k : k + n]) == cost.shape)
    first = next(fitting, None)
    return None if first is None else tuple(range(first, first + n))


def format_dim(axes: tuple[int, ...]) -> str:
    """Format axes as the argument ``dim``."""
    return str(axes[0] if len(axes) == 1 else axes)


def check_peaks(peak: Tensor) -> None:
    """Check scores by their row maxima: refuse NaN, +inf, and rows that are all -inf."""
    extremes = (float(peak.amin()), float(peak.amax()))  # NaN propagates into both
    if all(math.isfinite(x) for x in extremes):
        return
    if bool(torch.isnan(peak).any()):
        rows = int(torch.isnan(peak).sum())
        raise ValueError(
            f"scores have NaN in {rows} of {peak.numel()} rows. Check the layer before. To exclude "
            "an output, set its score to -inf."
        )
    if bool((peak == math.inf).any()):
        raise ValueError(
            f"scores have +inf in {int((peak == math.inf).sum())} of {peak.numel()} rows. "
            "Scores must be finite, or -inf to mask an output."
        )
    raise ValueError(
        f"{int((peak == -math.inf).sum())} of {peak.numel()} rows of scores are all -inf: "
        "every output is masked. Leave at least one finite score in each row."
    )


def check_finite(name: str, signal: Tensor, remedy: str) -> None:
    """Refuse NaN and infinities in a signal that cannot be masked."""
    if is_readable(signal) and not bool(torch.isfinite(signal).all()):
        raise ValueError(f"{name} must be finite; got NaN or infinite values. {remedy}")


def check_distribution_values(name: str, alpha: Tensor, cost: Cost, tolerance: float) -> None:
    """Refuse values that are not a probability distribution over the outputs of ``cost``."""
    if alpha.numel() == 0 or not is_readable(alpha):
        return
    alpha = alpha.detach()
    dims = tuple(range(-len(cost.shape), 0))
    if not bool(torch.isfinite(alpha).all()):
        raise ValueError(
            f"{name} must be a distribution; got NaN or infinite values. point_target returns NaN "
            "for missing points: leave them out, by `present`."
        )
    smallest = float(alpha.amin())
    if smallest < 0:
        raise ValueError(
            f"{name} must be a distribution; got negative entries (smallest {smallest:.3g}). "
            f"Clip it with {name}.clamp(min=0), then divide it by its sum."
        )
    total = alpha.sum(dim=dims, dtype=torch.float64)
    worst = float((total - 1).abs().amax())
    if worst > tolerance:
        row = total.flatten()[(total - 1).abs().flatten().argmax()]
        remedy = "Divide it by its sum first."
        if float(row) == 0:
            remedy = "Such a row says nothing: leave it out of the batch."
        raise ValueError(
            f"{name} must sum to 1 over the outputs ({_last(len(dims))}, or dim); "
            f"a row sums to {float(row):.6g} (tolerance {tolerance:g}). {remedy}"
        )


def check_same_shape(name: str, tensor: Tensor, like_name: str, like: Tensor) -> None:
    """Check that two signals agree in shape and device."""
    if tuple(tensor.shape) != tuple(like.shape):
        raise ValueError(
            f"{name} must have shape {tuple(like.shape)}, as {like_name}; "
            f"got {tuple(tensor.shape)}."
        )
    if tensor.device != like.device:
        raise ValueError(
            f"{name} is on {tensor.device} but {like_name} is on {like.device}. Move one of them."
        )


def check_finite_where_positive(f: Tensor, alpha: Tensor) -> None:
    """Refuse ``f`` that is NaN, or infinite where the distribution has mass."""
    if bool((torch.isnan(f) | ((alpha > 0) & torch.isinf(f))).any()):
        raise ValueError("f must not be NaN, nor infinite where alpha is positive.")


def check_init_values(init: Tensor) -> None:
    """Refuse a warm start that is not a non-negative, finite vector."""
    if init.numel() and not bool((torch.isfinite(init) & (init >= 0)).all()):
        raise ValueError(
            "init must be finite and non-negative: pass the `u` of an earlier Solution "
            "(or the Solution itself)."
        )
