"""What all functions do first: choose the precision, and fill in default options."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from geosoftmax import solvers
from geosoftmax.costs.base import Cost
from geosoftmax.operators import Options
from geosoftmax.solvers.base import Purpose
from geosoftmax.validation import check_options, is_readable, refuse_torchscript

F = TypeVar("F", bound=Callable[..., Any])


#: Devices that support autocast. Asking torch for them breaks the graphs of torch.compile.
_WITH_AUTOCAST = ("cpu", "cuda", "mps", "xpu")
_HALVES = (torch.float16, torch.bfloat16)


def full_precision(function: F) -> F:
    """Disable autocast: certificates need the digits that it would drop."""
    return _without_autocast(function, widen=False)


def full_precision_loss(function: F) -> F:
    """Disable autocast, but return float32 where it was enabled, as torch's own losses do.

    A loss in half precision would overflow when a gradient scaler multiplies it.
    """
    return _without_autocast(function, widen=True)


def _without_autocast(function: F, widen: bool) -> F:
    first = next(iter(inspect.signature(function).parameters))

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        signal = args[0] if args else kwargs.get(first)
        if not isinstance(signal, Tensor) or not _has_autocast(signal):
            return function(*args, **kwargs)
        with torch.autocast(signal.device.type, enabled=False):
            if widen and signal.dtype in _HALVES:
                signal = signal.to(torch.float32)
            if args:
                return function(signal, *args[1:], **kwargs)
            return function(**{**kwargs, first: signal})

    wrapped.__prepare_scriptable__ = refuse_torchscript  # pyright: ignore  # for torch.jit.script
    return cast(F, wrapped)


def _has_autocast(signal: Tensor) -> bool:
    device = "cpu" if signal.is_cpu else signal.device.type  # device.type is slower
    return device in _WITH_AUTOCAST and torch.is_autocast_enabled(device)


def divergence_dtype(alpha: Tensor, beta: Tensor) -> torch.dtype:
    """Return the dtype of a divergence: that of the distributions, or float32 under autocast.

    A divergence is a loss, so it gets float32. The distributions are not widened: the tolerance on
    their sum depends on their dtype.
    """
    dtype = torch.promote_types(alpha.dtype, beta.dtype)
    return torch.float32 if dtype in _HALVES and _has_autocast(alpha) else dtype


def check_learnt(cost: Cost) -> None:
    """Refuse a learnt cost that has become invalid. Functions with a plan leave this to it."""
    if cost.parameter.requires_grad and is_readable(*cost.tensors):
        cost.check()


def computed(signal: Tensor) -> Tensor:
    """Return the signal in the dtype of the computation."""
    return signal if signal.dtype in (torch.float32, torch.float64) else signal.to(torch.float32)


def settle(
    purpose: Purpose,
    came_in: torch.dtype,
    tol: float | None,
    max_iter: int | None,
    method: str,
) -> Options:
    """Check the options of a solve, and fill in the defaults."""
    if tol is None and max_iter is None and method == "auto":
        found = _DEFAULTS.get((purpose, came_in))
        if found is not None:
            return found
    check_options(tol, max_iter)
    if tol is None:
        tol = solvers.default_tolerance(came_in, purpose)
    return Options(purpose, tol, solvers.MAX_ITER if max_iter is None else max_iter, method)


#: The options where the caller gives none.
_DEFAULTS: dict[tuple[Purpose, torch.dtype], Options] = {
    (purpose, dtype): Options(
        purpose, solvers.default_tolerance(dtype, purpose), solvers.MAX_ITER, "auto"
    )
    for purpose in ("value", "distribution", "loss")
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16)
}
