"""Whether the values of tensors can be read: not under tracing, nor while a GPU computes them."""

from __future__ import annotations

from typing import NoReturn

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor as _is_wrapped


def is_concrete(*tensors: Tensor) -> bool:
    """Return whether tensors have values to read: no tracing, no ``torch.func`` wrapper."""
    if torch.compiler.is_compiling():
        return False
    for tensor in tensors:  # noqa: SIM110  (faster than a generator, and every call runs this)
        if _is_wrapped(tensor) or tensor.is_meta:
            return False
    return True


def is_onnx_export() -> bool:
    """Return whether ``torch.onnx.export`` traces the call: ONNX has fewer operators."""
    return torch.compiler.is_compiling() and torch.onnx.is_in_onnx_export()


def is_readable(*tensors: Tensor) -> bool:
    """Return whether values can be read without waiting for a GPU.

    On a GPU, values are not checked: invalid input gives NaN in the results.
    """
    return is_concrete(*tensors) and not any(t.is_cuda for t in tensors)


def refuse_torchscript() -> NoReturn:
    """Raise an error that names the alternatives to TorchScript, which cannot hold a solver."""
    raise TypeError(
        "geosoftmax does not work with TorchScript (torch.jit.trace, torch.jit.script, and "
        "torch.onnx.export with dynamo=False): a trace would store one result instead of the "
        "solver. Use torch.export.export, torch.compile, or torch.onnx.export with dynamo=True, "
        "its default."
    )
