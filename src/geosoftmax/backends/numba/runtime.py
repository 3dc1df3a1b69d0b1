"""Compiling, threads, and the bracket of a row: what all compiled kernels share."""

from __future__ import annotations

import functools
import itertools
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from geosoftmax.backends.reference import Rows

#: Work, in entries, below which threads do not pay.
WORTH_A_THREAD = 4096
#: Work from which on it is cut into more parts than threads.
WORTH_BALANCING = 1 << 22


def jit(function: Callable[..., Any], *, reassociate: bool = False) -> Callable[..., Any]:
    """Compile; `reassociate` lets sums be vectorised (in one fixed order: still deterministic)."""
    fast = {"contract", "reassoc"} if reassociate else {"contract"}
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": fast}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no folder can hold the cache: compile in this process only
        return numba.njit(**options)(function)


@functools.lru_cache(maxsize=2)
def _pool(_pid: int, threads: int) -> ThreadPoolExecutor:
    """Return the pool of this process; a forked child gets one of its own."""
    return ThreadPoolExecutor(threads, thread_name_prefix="geosoftmax")


def spread(kernel: Callable[..., None], rows: int, work: int, *arguments: Any) -> None:
    """Run ``kernel(*arguments, first, last)`` over slices of the rows."""
    threads = min(torch.get_num_threads(), rows)
    if threads <= 1 or work < WORTH_A_THREAD:
        kernel(*arguments, 0, rows)
        return
    # Long work is cut finer, so that no thread waits for another with harder rows.
    parts = threads if work < WORTH_BALANCING or rows < 64 * threads else 4 * threads
    bounds = [rows * i // parts for i in range(parts + 1)]
    pool = _pool(os.getpid(), threads)
    slices = list(itertools.pairwise(bounds))
    jobs = [pool.submit(kernel, *arguments, first, last) for first, last in slices[1:]]
    kernel(*arguments, *slices[0])
    for job in jobs:
        job.result()


def flat64(signal: Tensor, rows: int) -> np.ndarray:
    """Return a signal as contiguous float64 rows."""
    return signal.detach().to(torch.float64).contiguous().reshape(rows, -1).numpy()


def new_outputs(b: Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return arrays for u, lower, upper and iterations."""
    rows = b.shape[0]
    u = np.empty((rows, b[0].numel() if rows else 0))
    return u, np.empty(rows), np.empty(rows), np.zeros(rows, dtype=np.int64)


def as_rows(b: Tensor, u: np.ndarray, *rest: np.ndarray) -> Rows:
    """Return what a kernel wrote, with the shape of the signals."""
    lower, upper, iterations = (torch.from_numpy(x) for x in rest)
    return Rows(torch.from_numpy(u).reshape(b.shape), lower, upper, iterations)


@jit
def bracket(b, u, h, slack):
    """Rescale u and h in place so that ⟨b,u⟩ = uᵀKu; return lower, upper.

    As `reference.certify`, with vᵀKv bounded by (Σv)² instead of one more product.
    """
    bu = 0.0
    uh = 0.0
    for i in range(b.shape[0]):
        bu += b[i] * u[i]
        uh += u[i] * h[i]
    return bracket_from(b, u, h, bu, uh, slack)


@jit
def bracket_from(b, u, h, bu, uh, slack):
    """The same, where ⟨b,u⟩ and uᵀKu have been summed already."""
    scale = bu / uh
    energy = bu * scale
    vh = 0.0
    v_sum = 0.0
    ratio = 1.0
    for i in range(b.shape[0]):
        u[i] *= scale
        hi = h[i] * scale
        h[i] = hi
        v = b[i] - hi
        if v > 0.0:
            vh += v * hi
            v_sum += v
            if b[i] > ratio * hi:
                ratio = b[i] / hi
    return bounds_of(energy, vh, v_sum, ratio, slack)


@jit
def bounds_of(energy, vh, v_sum, ratio, slack):
    """Return the bracket for uᵀKu, with ⟨v,h⟩, Σv and max b/h for v = max(b - h, 0)."""
    lower = math.log(energy)
    added = (2.0 * vh + v_sum * v_sum) / energy
    raised = ratio - 1.0
    if added > 1e-8:  # below, log(1 + x) ≤ x is sharp enough
        added = math.log1p(added)
        raised = math.log1p(raised)
    return lower - slack, lower + min(added, 2.0 * raised) + slack
