"""Tensors by their addresses, so that one compiled kernel serves float32 and float64.

A kernel that takes arrays is compiled for each dtype and layout, and counts references to them in
each row. So signals and results are passed as addresses of contiguous memory. Rows are converted
when they are read and written: all arithmetic is in float64.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from geosoftmax.backends.numba.runtime import inner

#: How the entries at an address are stored.
DOUBLE, SINGLE = 0, 1
KINDS = {torch.float64: DOUBLE, torch.float32: SINGLE}

_DOUBLE, _SINGLE, _LONG = ir.DoubleType(), ir.FloatType(), ir.IntType(64)


def _loader(stored: ir.Type, result: types.Type) -> Any:
    """Return a function ``(address, at) -> entry``."""

    def load(typing_context, address, at):
        def generate(context, builder, signature, arguments):
            pointer = builder.inttoptr(arguments[0], stored.as_pointer())
            value = builder.load(builder.gep(pointer, [arguments[1]]))
            return builder.fpext(value, _DOUBLE) if stored is _SINGLE else value

        return result(types.int64, types.int64), generate

    return intrinsic(load)


def _storer(stored: ir.Type, given: types.Type) -> Any:
    """Return a function ``(address, at, entry)``."""

    def store(typing_context, address, at, value):
        def generate(context, builder, signature, arguments):
            pointer = builder.inttoptr(arguments[0], stored.as_pointer())
            value = arguments[2]
            if stored is _SINGLE:
                value = builder.fptrunc(value, _SINGLE)
            builder.store(value, builder.gep(pointer, [arguments[1]]))
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, given), generate

    return intrinsic(store)


load_double = _loader(_DOUBLE, types.float64)
load_single = _loader(_SINGLE, types.float64)
load_long = _loader(_LONG, types.int64)
store_double = _storer(_DOUBLE, types.float64)
store_single = _storer(_SINGLE, types.float64)
store_long = _storer(_LONG, types.int64)


@inner
def read(address, kind, start, x):
    """Fill x with the entries from `start` on."""
    if kind == SINGLE:
        for i in range(x.shape[0]):
            x[i] = load_single(address, start + i)
    else:
        for i in range(x.shape[0]):
            x[i] = load_double(address, start + i)


@functools.partial(inner, inline=True)
def write(address, kind, start, x, factor):
    """Store x, times a factor, at the entries from `start` on."""
    if kind == SINGLE:
        for i in range(x.shape[0]):
            store_single(address, start + i, x[i] * factor)
    else:
        for i in range(x.shape[0]):
            store_double(address, start + i, x[i] * factor)


@functools.partial(inner, inline=True)
def write_entry(address, kind, at, value):
    """Store one entry."""
    if kind == SINGLE:
        store_single(address, at, value)
    else:
        store_double(address, at, value)
