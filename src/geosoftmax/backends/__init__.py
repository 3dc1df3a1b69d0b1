"""The numerical work, row by row: one definition in plain torch, and faster twins of it.

`reference` defines every operation (with `sinkhorn`, a file of its own) and runs on any device.
`cpu` holds numba twins of those that gain from it; `gpu` Triton kernels that do a whole solve, from
scores to the distribution and its bracket, in one launch. The functions here are the only place
that chooses: the fastest that exists for the operation, the device and the size, else the
reference.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import Any

import torch

from geosoftmax.backends import reference
from geosoftmax.costs.base import Cost

__all__ = [
    "numba_installed",
    "reference",
    "triton_installed",
    "twin",
    "whole_fit",
    "whole_potential_fit",
    "whole_sinkhorn",
    "whole_solve",
    "whole_support_solve",
]


@functools.cache
def numba_installed() -> bool:
    """Whether the compiled CPU kernels can be used."""
    return importlib.util.find_spec("numba") is not None


@functools.cache
def triton_installed() -> bool:
    """Whether the fused GPU kernels can be used."""
    return importlib.util.find_spec("triton") is not None


def twin(operation: str, cost: Cost, device: torch.device) -> Callable[..., Any]:
    """Return the fastest implementation of a reference operation for this cost and device."""
    if device.type == "cpu" and numba_installed():
        from geosoftmax.backends import numba as cpu

        if cpu.supports(operation, cost):
            return getattr(cpu, operation)
    return getattr(reference, operation)


def whole_fit(
    method: str, cost: Cost, device: torch.device, dtype: torch.dtype, tol: float
) -> Callable[..., Any] | None:
    """Return a kernel ``(cost, scores, target, tol, max_iter, share) -> loss, slope``.

    `dtype` is that of the scores and of the target. None if there is no such kernel.
    """
    if device.type == "cuda" and triton_installed():
        from geosoftmax.backends import triton as gpu

        return gpu.whole_fit(method, cost, dtype, tol)
    return None


def whole_potential_fit(
    cost: Cost, device: torch.device, dtype: torch.dtype
) -> Callable[..., Any] | None:
    """Return a kernel ``(cost, logits, target, share) -> loss, slope``, if there is one."""
    if device.type == "cuda" and triton_installed():
        from geosoftmax.backends import triton as gpu

        return gpu.whole_potential_fit(cost, dtype)
    return None


def whole_sinkhorn(cost: Cost, device: torch.device) -> Callable[..., Any] | None:
    """Return a kernel ``(cost, alpha) -> v`` in float32, if there is one."""
    if device.type == "cuda" and triton_installed():
        from geosoftmax.backends import triton as gpu

        return gpu.whole_sinkhorn(cost)
    return None


def whole_support_solve(
    cost: Cost, device: torch.device, dtype: torch.dtype
) -> Callable[..., Any] | None:
    """Return a kernel ``(cost, rhs, support, max_iter) -> x``, if there is one."""
    if device.type == "cuda" and dtype == torch.float32 and triton_installed():
        from geosoftmax.backends import triton as gpu

        return gpu.solve_on if gpu.refines(cost) else None
    return None


def whole_solve(
    method: str, cost: Cost, device: torch.device, dtype: torch.dtype, tol: float
) -> Callable[..., Any] | None:
    """Return a kernel for a whole solve, if there is one: scores in, everything out.

    It is called as ``(cost, scores, tol, max_iter) -> (alpha, u, lower, upper, iterations)``.
    Bounds are NaN where a row has no solution: NaN or +inf scores, or none that is finite.
    """
    if device.type == "cpu" and numba_installed():
        from geosoftmax.backends import numba as cpu

        return cpu.whole(method, cost, tol)
    if device.type == "cuda" and triton_installed():
        from geosoftmax.backends import triton as gpu

        return gpu.whole(method, cost, dtype, tol)
    return None
