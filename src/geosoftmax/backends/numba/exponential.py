"""The exponential function of many numbers at once, in a loop that vectorises."""

from __future__ import annotations

import math

from geosoftmax.backends.numba.runtime import jit

_LOG2_E = 1 / math.log(2)
_LN2_HIGH = 6.93147180369123816490e-01  # ln 2 in two parts, the first with trailing zeros
_LN2_LOW = 1.90821492927058770002e-10
_ROUNDER = 6755399441055744.0  # 1.5 · 2⁵²: adding it leaves the nearest integer in the low bits
_UNDERFLOW = -708.0
_TAYLOR = tuple(1 / math.factorial(k) for k in range(14))


@jit
def exponentials(x, bits, power):
    """Replace x by exp(x), to the last bit or so, for x ≤ 0; 0 below the range of normal numbers.

    exp(x) = 2ⁿ exp(y) with |y| ≤ ln2 / 2. `power` shows the floats that `bits` encodes.
    """
    for r in range(x.shape[0]):
        power[r] = max(x[r], _UNDERFLOW) * _LOG2_E + _ROUNDER
    for r in range(x.shape[0]):
        bits[r] = (bits[r] + 1023) << 52
    for r in range(x.shape[0]):
        inside = max(x[r], _UNDERFLOW)
        n = (inside * _LOG2_E + _ROUNDER) - _ROUNDER
        y = (inside - n * _LN2_HIGH) - n * _LN2_LOW
        series = _TAYLOR[13]
        series = series * y + _TAYLOR[12]
        series = series * y + _TAYLOR[11]
        series = series * y + _TAYLOR[10]
        series = series * y + _TAYLOR[9]
        series = series * y + _TAYLOR[8]
        series = series * y + _TAYLOR[7]
        series = series * y + _TAYLOR[6]
        series = series * y + _TAYLOR[5]
        series = series * y + _TAYLOR[4]
        series = series * y + _TAYLOR[3]
        series = series * y + _TAYLOR[2]
        series = (series * y) * y + y
        x[r] = power[r] + power[r] * series if x[r] >= _UNDERFLOW else 0.0
