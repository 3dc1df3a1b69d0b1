"""Threads of torch, where many small products follow each other."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

__all__ = ["WORTH_THREADS", "few_threads", "small_on_one_thread"]

#: Entries of a batch up to which one thread is taken: where torch's own elementwise operations
#: begin to take several.
WORTH_THREADS = 1 << 15

Function = TypeVar("Function", bound=Callable[..., Any])


@functools.cache
def _can_change() -> bool:
    """Whether the number of threads may change after work has started: with OpenMP alone."""
    return "parallel backend: OpenMP" in torch.__config__.parallel_info()


@contextmanager
def few_threads(batch: Tensor) -> Iterator[None]:
    """Keep products of torch to one thread, for a small batch on a CPU.

    Several threads gain little on small products. On a busy machine they lose far more: a product
    ends only when the scheduler has run all of its threads, and those that wait spin.
    """
    threads = torch.get_num_threads()
    small = batch.device.type == "cpu" and batch.numel() <= WORTH_THREADS
    if threads == 1 or not small or not _can_change():
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def small_on_one_thread(place: int) -> Callable[[Function], Function]:
    """Return a decorator for `few_threads`; the batch is the argument at this place."""

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def calm(*args: Any) -> Any:
            with few_threads(args[place]):
                return function(*args)

        return cast(Function, calm)

    return decorate
