"""A factor that outputs enter and leave is the one that numpy computes anew."""

import numba
import numpy as np
import pytest

from geosoftmax.backends.numba import updates

SIZES = [1, 2, 7, 8, 9, 31, 64, 101]


@numba.njit
def factor(K, b, wider):
    """Let all outputs in, up to four at a time."""
    d = K.shape[0]
    width = updates.width_for(d)
    R = updates.room(width * width)
    inverse, y = updates.room(d + 64), updates.room(d + 64)
    block, solved = updates.room(4 * updates.STRIDE), updates.room(4 * updates.STRIDE)
    size = np.int64(0)
    while size < d:
        count = min(4, d - size)
        for q in range(4):
            for p in range(size):
                block[q * updates.STRIDE + p] = K[size + min(q, count - 1), p]
        updates.eliminate(R, width, inverse, size, block, solved)
        for q in range(count):
            r = solved[q * updates.STRIDE :]
            for t in range(q):
                other = solved[t * updates.STRIDE :]
                left = K[size + q, size + t] - updates.dot(r, other, size + t)
                r[size + t] = left * inverse[size + t]
            at = size + q
            r[at] = np.sqrt(K[at, at] - updates.dot(r, r, at))
            inverse[at] = 1 / r[at]
            y[at] = (b[at] - updates.dot(r, y, at)) * inverse[at]
            for p in range(at + 1):
                R[p * width + at] = r[p]
        size += count
    if wider > 0:
        R = updates.grown(R, width, size, wider)
        width = wider
    return R, width, inverse, y


@numba.njit
def remove(R, width, inverse, y, size, dropped):
    block = updates.room(4 * updates.STRIDE)
    updates.remove(R, width, inverse, y, size, dropped, len(dropped), block)


@numba.njit
def substitute(R, width, inverse, y, size):
    x = updates.room(size + 64)
    updates.substitute(R, width, inverse, size, y, x)
    return x[:size]


def problem(size):
    generator = np.random.default_rng(size)
    A = generator.normal(size=(size, size + 5))
    return A @ A.T / size + 0.1 * np.eye(size), generator.normal(size=size)


def check(R, width, inverse, y, K, b):
    size = len(b)
    expected = np.linalg.cholesky(K).T
    found = np.triu(R.reshape(-1, width)[:size, :size])
    np.testing.assert_allclose(found, expected, atol=1e-12)
    np.testing.assert_allclose(inverse[:size], 1 / np.diag(expected), rtol=1e-11)
    np.testing.assert_allclose(y[:size], np.linalg.solve(expected.T, b), atol=1e-11)
    x = substitute(R, width, inverse, y, size)
    np.testing.assert_allclose(x, np.linalg.solve(K, b), atol=1e-10)


@pytest.mark.parametrize("wider", [0, 200])
@pytest.mark.parametrize("size", SIZES)
def test_outputs_enter(size, wider):
    K, b = problem(size)
    check(*factor(K, b, wider), K, b)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("size", SIZES)
def test_outputs_leave_together(size, count):
    K, b = problem(size)
    generator = np.random.default_rng(count)
    for _ in range(5):
        dropped = -np.sort(-generator.permutation(size)[:count])  # from the last to the first
        kept = np.setdiff1d(np.arange(size), dropped)
        factors = factor(K, b, 0)
        remove(*factors, size, dropped.astype(np.uint32))
        if len(kept):
            check(*factors, K[np.ix_(kept, kept)], b[kept])


def test_memory_starts_with_a_cache_line():
    room = numba.njit(lambda count: updates.room(count))
    for count in (1, 5, 1000, 100_000):
        x = room(count)
        assert x.ctypes.data % 64 == 0
        assert x.shape == (count,)
        assert not x.any()
