"""Steps that are recorded once as a CUDA graph, and replayed from then on.

A small network spends most of a step on launching its kernels one by one. A graph launches them
all at once.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

__all__ = ["WARM_UP", "Step", "constant", "record"]

#: Steps before the recording, in which algorithms are chosen and kernels compiled.
WARM_UP = 3

Step = Callable[..., tuple[Tensor, ...]]


def constant(values: Sequence[float], like: Tensor) -> Tensor:
    """Return numbers as a tensor with the dtype and device of another.

    Unlike `torch.tensor`, this copies nothing from the host, which a step that is recorded cannot.
    """
    return torch.stack([like.new_full((), value) for value in values])


def record(
    step: Step, inputs: tuple[Tensor, ...], state: Callable[[], dict[str, Tensor]]
) -> Step | None:
    """Return a function that does what `step` does; None where it cannot be recorded.

    A step that waits for the GPU cannot, which is as it should be; whatever else prevents it is
    warned of.

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
    possible = _warm_up(step, inputs)
    with torch.no_grad():
        for name, value in state().items():
            if name in before:
                value.copy_(before[name])
            else:
                value.zero_()
    if not possible:
        return None
    del before
    try:
        replay, outputs = _capture(step, inputs)
    except RuntimeError as error:  # not enough memory, say
        reason = str(error).partition("\n")[0]
        warnings.warn(f"Steps are not replayed, but done one by one: {reason}", stacklevel=2)
        return None

    def replayed(*values: Tensor | float) -> tuple[Tensor, ...]:
        for place, value in zip(inputs, values, strict=True):
            if isinstance(value, Tensor):
                place.copy_(value)
            else:
                place.fill_(value)
        replay()
        return outputs

    return replayed


def _warm_up(step: Step, inputs: tuple[Tensor, ...]) -> bool:
    """Do some steps; return whether the last of them did not wait for the GPU."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    try:
        with warnings.catch_warnings(), torch.cuda.stream(side):
            # Adam says that it could be captured, and the look for waiting that it is new.
            warnings.filterwarnings("ignore", r".*without CUDA graph capture", UserWarning)
            warnings.filterwarnings("ignore", r"Synchronization debug mode", UserWarning)
            for _ in range(WARM_UP - 1):
                step(*inputs)
            with _no_waiting():
                step(*inputs)
    except RuntimeError as error:
        if "synchronizing" not in str(error):
            raise
        return False
    finally:
        torch.cuda.current_stream().wait_stream(side)
    return True


def _capture(
    step: Step, inputs: tuple[Tensor, ...]
) -> tuple[Callable[[], None], tuple[Tensor, ...]]:
    """Return the graph of a step, to be called, and the tensors in which it leaves its outputs."""
    graph = torch.cuda.CUDAGraph()
    collecting = gc.isenabled()
    gc.collect()  # graphs of before, which must not be destroyed in the middle of a recording
    gc.disable()
    try:
        with torch.cuda.graph(graph):
            outputs = step(*inputs)
    finally:
        if collecting:
            gc.enable()
    return graph.replay, outputs


@contextmanager
def _no_waiting() -> Iterator[None]:
    """Let whatever waits for the GPU raise: it could not be recorded."""
    mode = torch.cuda.get_sync_debug_mode()
    try:
        with warnings.catch_warnings():
            prototype = "Synchronization debug mode is a prototype feature"
            warnings.filterwarnings("ignore", prototype, UserWarning)
            torch.cuda.set_sync_debug_mode("error")
        yield
    finally:
        torch.cuda.set_sync_debug_mode(mode)
