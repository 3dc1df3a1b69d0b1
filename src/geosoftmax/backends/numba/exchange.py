"""Exact solves on large supports: block principal pivoting on grids and dense costs.

If K has an accurate inverse Q, one can also solve on the outputs F outside the support S. From
``h_S = b_S`` and ``(Q h)_F = 0`` follow ``Q_FF h_F = -Q_FS b_S`` and ``u = Q h``. With p = 1, Q is
a narrow band, and so is its factor. Wide distributions have all outputs in the support: F is empty.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import torch
from torch import Tensor

from geosoftmax.backends import settings
from geosoftmax.backends.numba.calls import Rows
from geosoftmax.backends.numba.certificate import bracket
from geosoftmax.backends.numba.factors import diagonal_of_product, grid_product
from geosoftmax.backends.numba.runtime import allocating, inner, jit, spread
from geosoftmax.backends.numba.tables import FactorTables

ADD_ABOVE = settings.ADD_ABOVE  # compiled in as constants
DROP_BELOW = settings.DROP_BELOW


def exchange(tables: FactorTables, b: Tensor, support: Tensor, tol: float, max_iter: int) -> Rows:
    """Block principal pivoting from a support, without the full matrix where K is a product.

    Parameters
    ----------
    tables : FactorTables
    b : Tensor, shape (rows, *shape), float64
    support : Tensor of bool, the shape of b
    tol : float
        Weights and violations that are a small fraction of this count as zero.
    max_iter : int
        Largest number of solves on a support.
    """
    rows = b.shape[0]
    flat = b.detach().to(torch.float64).contiguous().reshape(rows, -1).numpy()
    start = support.contiguous().reshape(rows, -1).numpy()
    u, lower, upper = np.empty(flat.shape), np.empty(rows), np.empty(rows)
    iterations = np.zeros(rows, dtype=np.int64)
    spread(
        _exchange, rows, 1000 * flat.size, flat, start, tables.sides, *tables.kernels,
        tables.bands, *tables.inverses, tables.inverse_bands, tol, max_iter, u, lower, upper,
        iterations,
    )  # fmt: skip
    found = (torch.from_numpy(x) for x in (lower, upper, iterations))
    return Rows(torch.from_numpy(u).reshape(b.shape), *found)


@inner
def _list(inside, which, index):
    """List the outputs inside a support, or those outside; return how many."""
    size = 0
    for i in range(inside.shape[0]):
        if inside[i] == which:
            index[size] = i
            size += 1
    return size


@inner
def _fill(K0, K1, K2, n1, n2, index, size, L):
    """L = K_SS, its lower triangle."""
    for p in range(size):
        i = index[p]
        i0 = i // (n1 * n2)
        i1 = i // n2 % n1
        i2 = i % n2
        for q in range(p + 1):
            j = index[q]
            L[p, q] = K0[i0, j // (n1 * n2)] * K1[i1, j // n2 % n1] * K2[i2, j % n2]


@functools.partial(inner, reassociate=True)
def _factor(L, size, panel):
    """Cholesky in place, reciprocals on the diagonal, by panels of columns.

    What is right of a panel is updated row by row with four columns of it at a time, from a
    transposed copy, so that the inner loop is contiguous.
    """
    block = panel.shape[0]
    for start in range(0, size, block):
        stop = min(size, start + block)
        for p in range(start, size):
            for q in range(start, min(p + 1, stop)):
                total = L[p, q]
                for k in range(start, q):
                    total -= L[p, k] * L[q, k]
                if p == q:
                    if total <= 1e-14:
                        return False
                    total = 1.0 / math.sqrt(total)
                else:
                    total *= L[q, q]
                L[p, q] = total
                panel[q - start, p] = total
        for p in range(stop, size):
            k = start
            while k + 3 < stop:
                w0 = L[p, k]
                w1 = L[p, k + 1]
                w2 = L[p, k + 2]
                w3 = L[p, k + 3]
                c0 = panel[k - start]
                c1 = panel[k - start + 1]
                c2 = panel[k - start + 2]
                c3 = panel[k - start + 3]
                for q in range(stop, p + 1):
                    L[p, q] -= w0 * c0[q] + w1 * c1[q] + w2 * c2[q] + w3 * c3[q]
                k += 4
            while k < stop:
                w0 = L[p, k]
                for q in range(stop, p + 1):
                    L[p, q] -= w0 * panel[k - start, q]
                k += 1
    return True


@functools.partial(inner, reassociate=True)
def _substitute(L, size, x):
    """Solve L Lᵀ x = x in place."""
    for p in range(size):
        total = x[p]
        for k in range(p):
            total -= L[p, k] * x[k]
        x[p] = total * L[p, p]
    for p in range(size - 1, -1, -1):
        value = x[p] * L[p, p]
        x[p] = value
        for k in range(p):
            x[k] -= L[p, k] * value


@allocating
def _solve_outside(Q0, Q1, Q2, bands, b, inside, index, x, field, middle, product):
    """Put u with K_SS u_S = b_S into the field by what is outside; False if the support is faster.

    Q has non-zero entries near its diagonal alone where its factors have, and so has its factor.
    """
    n1, n2 = Q1.shape[0], Q2.shape[0]
    d = b.shape[0]
    flat = field.reshape(d)
    h = product.reshape(d)
    size = _list(inside, False, index)
    reach = (bands[0] * n1 + bands[1]) * n2 + bands[2]
    width = 0
    nearest = 0
    for p in range(size):
        while index[nearest] < index[p] - reach:
            nearest += 1
        width = max(width, p - nearest)
    if size * (width + 8.0) ** 2 > (d - size) ** 3 / 3.0:
        return False
    for i in range(d):
        flat[i] = b[i] if inside[i] else 0.0
    grid_product(Q0, Q1, Q2, bands, field, middle, product)
    for p in range(size):
        x[p] = -h[index[p]]
    L = np.zeros((size, width + 1))  # row p: columns p - width to p
    for p in range(size):
        i = index[p]
        for q in range(max(0, p - width), p + 1):
            j = index[q]
            entry = Q0[i // (n1 * n2), j // (n1 * n2)] * Q1[i // n2 % n1, j // n2 % n1]
            L[p, width - p + q] = entry * Q2[i % n2, j % n2]
    if not _factor_band(L):
        return False
    _substitute_band(L, size, x)
    for p in range(size):
        flat[index[p]] = x[p]
    grid_product(Q0, Q1, Q2, bands, field, middle, product)
    for i in range(d):
        flat[i] = h[i] if inside[i] else 0.0
    return True


@functools.partial(inner, reassociate=True)
def _factor_band(L):
    """Cholesky of a band in place, reciprocals on the diagonal."""
    size, width = L.shape[0], L.shape[1] - 1
    for p in range(size):
        start = max(0, p - width)
        for q in range(start, p + 1):
            left = L[p, width - p + start : width - p + q]
            above = L[q, width - q + start : width]
            total = L[p, width - p + q]
            for k in range(left.shape[0]):
                total -= left[k] * above[k]
            if p == q:
                if total <= 1e-14:
                    return False
                total = 1.0 / math.sqrt(total)
            else:
                total *= L[q, width]
            L[p, width - p + q] = total
    return True


@functools.partial(inner, reassociate=True)
def _substitute_band(L, size, x):
    """Solve L Lᵀ x = x in place, for a band."""
    width = L.shape[1] - 1
    for p in range(size):
        total = x[p]
        for q in range(max(0, p - width), p):
            total -= L[p, width - p + q] * x[q]
        x[p] = total * L[p, width]
    for p in range(size - 1, -1, -1):
        x[p] *= L[p, width]
        for q in range(max(0, p - width), p):
            x[q] -= L[p, width - p + q] * x[p]


@jit
def _exchange(
    b, start, sides, K0, K1, K2, bands, Q0, Q1, Q2, inverse_bands, tol, max_iter, u, lower, upper,
    iterations, first, last,
):  # fmt: skip
    n0, n1, n2 = sides
    d = b.shape[1]
    inside = np.empty(d, dtype=np.bool_)
    wrong = np.empty(d, dtype=np.bool_)
    index = np.empty(d, dtype=np.int64)
    x = np.empty(d)
    field = np.empty((n0, n1, n2))
    middle = np.empty((n0, n1, n2))
    product = np.empty((n0, n1, n2))
    flat = field.reshape(d)
    h = product.reshape(d)
    diagonal = np.empty(d)
    highest = diagonal_of_product(K0[0], K1[0], K2[0], diagonal)
    L = np.empty((0, 0))
    panel = np.empty((32, 0))
    for row in range(first, last):
        brow = b[row]
        Ka = K0[0]
        Kb = K1[0]
        Kc = K2[row] if K2.shape[0] > 1 else K2[0]
        if K2.shape[0] > 1:
            highest = diagonal_of_product(Ka, Kb, Kc, diagonal)
        for i in range(d):
            inside[i] = start[row, i] and brow[i] > 0.0
            u[row, i] = 0.0
        lower[row] = -np.inf
        upper[row] = np.inf
        fewest = d + 1
        patience = 3
        for step in range(1, max_iter + 1):
            iterations[row] = step
            solved = False
            if Q2.shape[0] > 0:
                solved = _solve_outside(
                    Q0, Q1, Q2, inverse_bands, brow, inside, index, x, field, middle, product
                )
            if not solved:
                size = _list(inside, True, index)
                if size > L.shape[0]:
                    grown = min(d, size + size // 4 + 16)
                    L = np.empty((grown, grown))
                    panel = np.empty((32, grown))
                _fill(Ka, Kb, Kc, n1, n2, index, size, L)
                if not _factor(L, size, panel):
                    break
                for p in range(size):
                    x[p] = brow[index[p]]
                _substitute(L, size, x)
                for i in range(d):
                    flat[i] = 0.0
                for p in range(size):
                    flat[index[p]] = x[p]
            grid_product(Ka, Kb, Kc, bands, field, middle, product)
            count = 0
            last_wrong = -1
            mass = 0.0
            for i in range(d):
                mass += brow[i] * flat[i]
            for i in range(d):
                if inside[i]:
                    wrong[i] = flat[i] * brow[i] < -DROP_BELOW * tol * mass / d
                else:
                    wrong[i] = (
                        brow[i] > 0.0 and brow[i] - h[i] > (ADD_ABOVE * tol + 1e-14) * brow[i]
                    )
                if wrong[i]:
                    count += 1
                    last_wrong = i
            negative = False
            for i in range(d):
                if flat[i] < 0.0:
                    flat[i] = 0.0
                    negative = True
            if negative:
                grid_product(Ka, Kb, Kc, bands, field, middle, product)
            _, low, up = bracket(brow, flat, h, diagonal, highest)
            if up - low < upper[row] - lower[row]:
                lower[row] = low
                upper[row] = up
                for i in range(d):
                    u[row, i] = flat[i]
            if count == 0:
                break
            if count < fewest:
                fewest = count
                patience = 3
            else:
                patience -= 1
            if patience >= 0:
                for i in range(d):
                    if wrong[i]:
                        inside[i] = not inside[i]
            else:
                inside[last_wrong] = not inside[last_wrong]
