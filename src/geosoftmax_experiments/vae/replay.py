"""Steps that are recorded once as a CUDA graph, and replayed from then on.

A small network spends most of a step on launching its kernels one by one. A graph launches them
all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

__all__ = ["WARM_UP", "record"]

#: Steps before the recording, in which algorithms are chosen and kernels compiled.
WARM_UP = 3

Step = Callable[..., tuple[Tensor, ...]]


def record(
    step: Step, inputs: tuple[Tensor, ...], state: Callable[[], dict[str, Tensor]]
) -> Step | None:
    """Return a function that does what `step` does; None where `step` waits for the GPU.

    What it returns is overwritten by its next call.

    Parameters
    ----------
    step : callable
        Given the inputs, does the same operations each time.
    inputs : tuple of Tensor
        On the GPU, valid for `step`. Those of later calls have the same shapes, or are numbers.
    state : callable
        Returns all tensors that steps change, by name. They are left as they were; those that are
        made by the first step begin at zero.
    """
    before = {name: value.detach().clone() for name, value in state().items()}
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    try:
        with torch.cuda.stream(side):
            for _ in range(WARM_UP - 1):
                step(*inputs)
            with _no_waiting():
                step(*inputs)
    except RuntimeError as error:
        if "synchronizing" not in str(error):
            raise
        return None
    finally:
        torch.cuda.current_stream().wait_stream(side)
        _put_back(state(), before)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = step(*inputs)

    def replayed(*values: Tensor | float) -> tuple[Tensor, ...]:
        for place, value in zip(inputs, values, strict=True):
            if isinstance(value, Tensor):
                place.copy_(value)
            else:
                place.fill_(value)
        graph.replay()
        return outputs

    return replayed


@torch.no_grad()
def _put_back(state: dict[str, Tensor], before: dict[str, Tensor]) -> None:
    for name, value in state.items():
        if name in before:
            value.copy_(before[name])
        else:
            value.zero_()


@contextmanager
def _no_waiting() -> Iterator[None]:
    """Let whatever waits for the GPU raise: it could not be recorded."""
    mode = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(mode)
