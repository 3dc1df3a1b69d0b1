"""Tensors by their addresses: one compiled kernel serves float32 and float64.

A kernel that takes arrays is compiled once for each dtype and layout. Signals come in as addresses
of contiguous memory instead, and are converted row by row; all arithmetic is in float64.
"""

from __future__ import annotations

import numpy as np
import torch
from llvmlite import ir
from numba import carray, types
from numba.extending import intrinsic

from geosoftmax.backends.numba.runtime import jit

#: How the entries at an address are stored.
DOUBLE, SINGLE = 0, 1
KINDS = {torch.float64: DOUBLE, torch.float32: SINGLE}


@intrinsic
def _pointer(typing_context, address):
    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), generate


@jit
def longs(address, size):
    """Return the int64 array at an address."""
    return carray(_pointer(address), (size,), np.int64)


@jit
def read_one(address, kind, at):
    """Return one entry."""
    if kind == SINGLE:
        return np.float64(carray(_pointer(address), (at + 1,), np.float32)[at])
    return carray(_pointer(address), (at + 1,), np.float64)[at]


@jit
def read(address, kind, start, x):
    """Fill x with the entries from `start` on."""
    size = x.shape[0]
    if kind == SINGLE:
        single = carray(_pointer(address + 4 * start), (size,), np.float32)
        for i in range(size):
            x[i] = single[i]
    else:
        double = carray(_pointer(address + 8 * start), (size,), np.float64)
        for i in range(size):
            x[i] = double[i]


@jit
def write(address, kind, start, x):
    """Store x at the entries from `start` on."""
    size = x.shape[0]
    if kind == SINGLE:
        single = carray(_pointer(address + 4 * start), (size,), np.float32)
        for i in range(size):
            single[i] = x[i]
    else:
        double = carray(_pointer(address + 8 * start), (size,), np.float64)
        for i in range(size):
            double[i] = x[i]
