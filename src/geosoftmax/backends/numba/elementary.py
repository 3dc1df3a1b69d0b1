"""Exponential and logarithm without branches or calls, so that loops over them are vectorised.

They are accurate to about the last bit, for the numbers that occur here.
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from geosoftmax.backends.numba.runtime import inner

_LOG2_E = 1 / math.log(2)
_LN2_HIGH = 6.93147180369123816490e-01  # ln 2 in two parts, the first with trailing zeros
_LN2_LOW = 1.90821492927058770002e-10
_ROUNDER = 6755399441055744.0  # 1.5 · 2⁵²: adding it leaves the nearest integer in the low bits
_UNDERFLOW = -708.0
_BITS_OF_ROOT_HALF = 0x3FE6A09E667F3BCD


@intrinsic
def _bits_of(typing_context, x):
    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), generate


@intrinsic
def _float_of(typing_context, bits):
    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), generate


def _polynomial(*coefficients: float) -> Any:
    """Return a function ``x -> Σ c_k x^k``, which is one step for numba: it compiles sooner."""

    def evaluate(typing_context, x):
        def generate(context, builder, signature, arguments):
            *others, total = (ir.Constant(ir.DoubleType(), c) for c in coefficients)
            for coefficient in reversed(others):
                scaled = builder.fmul(total, arguments[0], flags=("contract",))
                total = builder.fadd(scaled, coefficient, flags=("contract",))
            return total

        return types.float64(types.float64), generate

    return intrinsic(evaluate)


_taylor = _polynomial(*(1 / math.factorial(k) for k in range(2, 14)))
_artanh = _polynomial(*(2 / (2 * k + 1) for k in range(1, 11)))


@inner
def exponential(x):
    """Return exp(x) for x ≤ 0; 0 below the range of normal numbers.

    exp(x) = 2ⁿ exp(y) with |y| ≤ ln2 / 2.
    """
    inside = max(x, _UNDERFLOW)
    shifted = inside * _LOG2_E + _ROUNDER
    power = _float_of((_bits_of(shifted) + 1023) << 52)
    n = shifted - _ROUNDER
    y = (inside - n * _LN2_HIGH) - n * _LN2_LOW
    series = _taylor(y)
    series = (series * y) * y + y
    return power + power * series if x >= _UNDERFLOW else 0.0


@inner
def logarithm(x):
    """Return log(x) for normal x > 0; NaN for NaN, infinity, and x ≤ 0.

    log(x) = n ln 2 + log(m) with √½ ≤ m < √2, and log(m) = 2 artanh((m - 1) / (m + 1)).
    """
    bits = _bits_of(x)
    n = (bits - _BITS_OF_ROOT_HALF) >> 52
    m = _float_of(bits - (n << 52))
    s = (m - 1.0) / (m + 1.0)
    t = s * s
    series = _artanh(t)
    value = n * _LN2_HIGH + (2.0 * s + ((s * t) * series + n * _LN2_LOW))
    return value if 0.0 < x < math.inf else math.nan
