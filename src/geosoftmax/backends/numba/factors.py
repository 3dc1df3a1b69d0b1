"""Products with ``K = K0 ⊗ K1 ⊗ K2``."""

from __future__ import annotations

from geosoftmax.backends.numba.runtime import inner


@inner
def diagonal_of_product(K0, K1, K2, diagonal):
    """As `certificate.diagonal_of`, for a product of three kernels."""
    largest = 1.0
    at = 0
    for a in range(K0.shape[0]):
        for i in range(K1.shape[0]):
            for j in range(K2.shape[0]):
                entry = K0[a, a] * K1[i, i] * K2[j, j]
                diagonal[at] = min(entry, 1.0)
                largest = max(largest, entry)
                at += 1
    return largest


@inner
def grid_product(K0, K1, K2, bands, y, middle, out):
    """Compute out = (K0 ⊗ K1 ⊗ K2) y, axis by axis, in contiguous loops that vectorise."""
    n0, n1, n2 = y.shape
    w0, w1, w2 = bands
    for a in range(n0):
        for i in range(n1):
            for k in range(n2):
                middle[a, i, k] = 0
            for k in range(n2):
                weight = y[a, i, k]
                if weight != 0:
                    for j in range(max(0, k - w2), min(n2, k + w2 + 1)):
                        middle[a, i, j] += weight * K2[k, j]
    for a in range(n0):
        for i in range(n1):
            for j in range(n2):
                out[a, i, j] = 0
            k = max(0, i - w1)
            end = min(n1, i + w1 + 1)
            while k + 3 < end:  # four lines at once: fewer loads and stores
                q0, q1, q2, q3 = K1[i, k], K1[i, k + 1], K1[i, k + 2], K1[i, k + 3]
                for j in range(n2):
                    out[a, i, j] += (q0 * middle[a, k, j] + q1 * middle[a, k + 1, j]) + (
                        q2 * middle[a, k + 2, j] + q3 * middle[a, k + 3, j]
                    )
                k += 4
            while k < end:
                weight = K1[i, k]
                for j in range(n2):
                    out[a, i, j] += weight * middle[a, k, j]
                k += 1
    if n0 > 1:
        for a in range(n0):
            for i in range(n1):
                for j in range(n2):
                    middle[a, i, j] = 0
            for k in range(max(0, a - w0), min(n0, a + w0 + 1)):
                weight = K0[a, k]
                for i in range(n1):
                    for j in range(n2):
                        middle[a, i, j] += weight * out[k, i, j]
        for a in range(n0):
            for i in range(n1):
                for j in range(n2):
                    out[a, i, j] = middle[a, i, j]
