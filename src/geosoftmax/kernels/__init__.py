"""The numerical work, row by row: one definition in plain torch, and faster twins of it.

`reference` defines every operation and runs on any device. `cpu` holds numba twins of those that
gain from it. `twin` is the only place that chooses between them: a twin where one exists for the
operation, the device and the size, else the reference. A few kernels do a whole solve, from scores
to the distribution and its bracket, in one go; `whole_solve` finds them.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import Any

import torch

from geosoftmax.costs.base import Cost
from geosoftmax.kernels import reference

__all__ = ["numba_installed", "reference", "twin", "whole_solve"]


@functools.cache
def numba_installed() -> bool:
    """Whether the compiled CPU kernels can be used."""
    return importlib.util.find_spec("numba") is not None


def twin(operation: str, cost: Cost, device: torch.device) -> Callable[..., Any]:
    """Return the fastest implementation of a reference operation for this cost and device."""
    if device.type == "cpu" and numba_installed():
        from geosoftmax.kernels import cpu

        if cpu.supports(operation, cost):
            return getattr(cpu, operation)
    return getattr(reference, operation)


def whole_solve(method: str, cost: Cost, device: torch.device) -> Callable[..., Any] | None:
    """Return a kernel ``(cost, scores) -> (alpha, u, lower, upper, iterations)``, if there is one.

    Bounds are NaN where a row has no solution: NaN or +inf scores, or none that is finite.
    """
    if device.type == "cpu" and numba_installed():
        from geosoftmax.kernels import cpu

        return cpu.WHOLE.get(method)
    return None
