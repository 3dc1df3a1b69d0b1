"""What all kernels share: the sizes of tiles, empty outputs, and the device to launch on."""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor

from geosoftmax.kernels.reference import SPLIT_CHECK_EVERY

#: Steps between two looks at the gap.
CHECK_EVERY = SPLIT_CHECK_EVERY
#: Rows to a program: the fewest that tensor cores multiply.
ROWS = 16


def padded(side: int) -> int:
    """Return the side of a tile: a power of two that tensor cores can multiply."""
    return max(16, 1 << (side - 1).bit_length())


def outputs(f: Tensor, dimensions: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return empty ``alpha``, ``u``, ``lower``, ``upper``, iterations for these scores."""
    batch = f.shape[: f.dim() - dimensions]
    bounds = f.new_empty((2, *batch), dtype=torch.float64)
    iterations = f.new_empty(batch, dtype=torch.int64)
    return torch.empty_like(f), torch.empty_like(f), bounds[0], bounds[1], iterations


def on_device(tensor: Tensor) -> contextlib.AbstractContextManager[object]:
    """Launch on the device of a tensor, whatever the current one is."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else contextlib.nullcontext()
