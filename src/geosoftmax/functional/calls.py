"""What the functions share before they begin: precision, and options that were left open."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from geosoftmax import solvers
from geosoftmax.operators import Options
from geosoftmax.solvers.base import Purpose
from geosoftmax.validation import check_options, refuse_torchscript

F = TypeVar("F", bound=Callable[..., Any])


#: Devices that autocast knows (asking torch for them breaks the graphs of torch.compile).
_WITH_AUTOCAST = ("cpu", "cuda", "mps", "xpu")


def full_precision(function: F) -> F:
    """Keep autocast out: certificates need the digits that it would drop."""
    return _without_autocast(function, widen=False)


def full_precision_loss(function: F) -> F:
    """Keep autocast out, and return float32 under it, as torch does for its own losses.

    A loss in half precision overflows where a gradient scaler multiplies it.
    """
    return _without_autocast(function, widen=True)


def _without_autocast(function: F, widen: bool) -> F:
    name = next(iter(inspect.signature(function).parameters))

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        signal = args[0] if args else kwargs.get(name)
        if not isinstance(signal, Tensor):
            return function(*args, **kwargs)  # says what is wrong
        device = "cpu" if signal.is_cpu else signal.device.type
        if device not in _WITH_AUTOCAST or not torch.is_autocast_enabled(device):
            return function(*args, **kwargs)
        with torch.autocast(device, enabled=False):
            if widen and signal.dtype in (torch.float16, torch.bfloat16):
                args, kwargs = (signal.to(torch.float32), *args[1:]), _without(kwargs, name)
            return function(*args, **kwargs)

    wrapped.__prepare_scriptable__ = refuse_torchscript  # pyright: ignore  # torch.jit.script asks
    return cast(F, wrapped)


def _without(kwargs: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in kwargs.items() if key != name}


def computed(signal: Tensor) -> Tensor:
    """Return the signal in the dtype that we compute in."""
    return signal if signal.dtype in (torch.float32, torch.float64) else signal.to(torch.float32)


def settle(
    purpose: Purpose,
    came_in: torch.dtype,
    tol: float | None,
    max_iter: int | None,
    method: str,
) -> Options:
    """Check the options of a solve, and fill in those that were left open."""
    if tol is None and max_iter is None and method == "auto":
        found = _DEFAULTS.get((purpose, came_in))
        if found is not None:
            return found
    check_options(tol, max_iter)
    if tol is None:
        tol = solvers.default_tolerance(came_in, purpose)
    return Options(purpose, tol, solvers.MAX_ITER if max_iter is None else max_iter, method)


#: Where nothing is asked for.
_DEFAULTS: dict[tuple[Purpose, torch.dtype], Options] = {
    (purpose, dtype): Options(
        purpose, solvers.default_tolerance(dtype, purpose), solvers.MAX_ITER, "auto"
    )
    for purpose in ("value", "distribution", "loss")
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16)
}
