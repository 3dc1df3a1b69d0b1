"""Whether the values of tensors can be read: not where a call is traced, nor while a GPU works."""

from __future__ import annotations

from typing import NoReturn

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor as _is_wrapped


def is_concrete(*tensors: Tensor) -> bool:
    """Whether the values of ``tensors`` can be read: no tracing, no ``torch.func`` wrapper."""
    if torch.compiler.is_compiling():
        return False
    for tensor in tensors:  # noqa: SIM110  (faster than a generator, and each call comes here)
        if _is_wrapped(tensor) or tensor.is_meta:
            return False
    return True


def is_onnx_export() -> bool:
    """Whether ``torch.onnx.export`` traces the call: it needs operators that ONNX has."""
    return torch.compiler.is_compiling() and torch.onnx.is_in_onnx_export()


def is_readable(*tensors: Tensor) -> bool:
    """Whether values can be read at once: not while a GPU is still at work on them.

    There, values are not checked: what is wrong with them shows as NaN in the results.
    """
    return is_concrete(*tensors) and not any(t.is_cuda for t in tensors)


def refuse_torchscript() -> NoReturn:
    """Say what to use instead of TorchScript: it cannot hold a solver."""
    raise TypeError(
        "geosoftmax does not work with TorchScript (torch.jit.trace, torch.jit.script, and "
        "torch.onnx.export with dynamo=False, which traces): a trace would hold one answer, not "
        "the solver. Use torch.export.export, torch.compile, or torch.onnx.export with "
        "dynamo=True, its default."
    )
