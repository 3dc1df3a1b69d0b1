"""What can be proven about a value in long double, by solvers that share no code with the library.

With ``K = exp(-C/2)`` and ``b = exp(f/2)`` the value is ``log max_{u ≥ 0} ⟨b,u⟩² / uᵀKu``. So any
``u ≥ 0`` proves a lower bound of it, whatever K is: a point refutes an *upper* end that lies below.
Where K is positive semidefinite, any ``w ≥ 0`` with ``Kw ≥ b`` proves the upper bound ``wᵀKw``: it
refutes a *lower* end that lies above. All sums here are of terms that are not negative, so that
nothing cancels: their relative error is some units of the 64 bits of a long double.

If K has a smallest eigenvalue ``-δ < 0``, the upper bound holds up to 2δ. For ``K + δI`` is
positive semidefinite, ``w`` is feasible for it too, and ``uᵀu ≤ uᵀKu`` for ``u ≥ 0``: either side
moves by at most ``log(1 + δ)``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.optimize

Wide = np.longdouble
EPS = float(np.finfo(Wide).eps)
#: Whether a long double holds more digits than a double here; some compilers make them the same.
EXTENDED = np.finfo(Wide).nmant >= 63
#: Rows whose bounds are further apart than this are polished.
CLOSE = 1e-15
SWEEPS = 40
#: Outputs up to which scipy's nnls is asked for a point.
NNLS_OUTPUTS = 200


class Bounds(NamedTuple):
    """Proven bounds of each row, and the logarithm of its scale: ``value = peak + bound``."""

    lower: np.ndarray
    upper: np.ndarray
    peak: np.ndarray


def obstacle(f: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ``b = exp((f - peak)/2)`` and the peaks of rows, in long double."""
    f = f.astype(Wide)
    peak = f.max(-1)
    return np.exp((f - peak[:, None]) / 2), peak


def product(K: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Return ``K u`` for each row, with one kernel for all or one for each."""
    return u @ K if K.ndim == 2 else np.einsum("nij,nj->ni", K, u)


def attained(K: np.ndarray, b: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Return ``log(⟨b,u⟩² / uᵀKu)``, which no value is below; -inf where u says nothing."""
    u = u / np.maximum(u.max(-1, keepdims=True), np.finfo(Wide).tiny)
    linear, energy = (b * u).sum(-1), (u * product(K, u)).sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(linear > 0, 2 * np.log(linear) - np.log(energy), -np.inf)


def implied(K: np.ndarray, b: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Return ``log wᵀKw`` for the better of two feasible w made of u; inf where u says nothing."""
    u = u / np.maximum(u.max(-1, keepdims=True), np.finfo(Wide).tiny)
    h = product(K, u)
    linear, energy = (b * u).sum(-1), (u * h).sum(-1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        scale = (linear / energy)[:, None]
        h, u = h * scale, u * scale
        diagonal = np.minimum(np.diagonal(K, axis1=-2, axis2=-1), 1)
        added = u + np.maximum(b - h, 0) / diagonal
        by_adding = np.log((added * product(K, added)).sum(-1))
        ratio = np.where(b > 0, b / h, 0).max(-1)
        by_scaling = np.log((u * h).sum(-1)) + 2 * np.log(np.maximum(ratio, 1))
        best = np.fmin(by_adding, by_scaling)
    return np.where(np.isfinite(best), best, np.inf)


def bounds(K: np.ndarray, f: np.ndarray, points: list[np.ndarray]) -> Bounds:
    """Return the best bounds that these points, and those found here, prove."""
    b, peak = obstacle(f)
    found = [np.nan_to_num(p, nan=0, posinf=0, neginf=0).astype(Wide).clip(0) for p in points]
    found += [best_pair(K, b), nonnegative_least_squares(K, b)]
    lowers = np.stack([attained(K, b, u) for u in found])
    lower = lowers.max(0)
    upper = np.min([implied(K, b, u) for u in found], 0)
    wide = np.nonzero(~(upper - lower <= CLOSE))[0]
    if len(wide):
        best = np.stack(found)[lowers.argmax(0)[wide], wide]
        part = K if K.ndim == 2 else K[wide]
        u = polish(part, b[wide], best)
        lower[wide] = np.maximum(lower[wide], attained(part, b[wide], u))
        upper[wide] = np.minimum(upper[wide], implied(part, b[wide], u))
    return Bounds(lower, upper, peak)


def allowance(d: int) -> float:
    """Return how far the bounds may be wrong by the rounding of long doubles."""
    return EPS * (64 + 4 * d)


# ------------------------------------------------------------------ points


def best_pair(K: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the best point with at most two outputs: the one that local methods may overlook."""
    k, c = K.astype(np.float64), b.astype(np.float64)
    first, second = c[:, :, None], c[:, None, :]
    inner = (first > k * second) & (second > k * first) & (k < 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = (first**2 + second**2 - 2 * k * first * second) / (1 - k * k)
    value = np.where(inner, value, -1).reshape(len(c), -1)
    best = value.argmax(-1)
    i, j = np.divmod(best, c.shape[1])
    rows = np.arange(len(c))
    pair = value[rows, best] > c.max(-1) ** 2
    u = np.zeros(b.shape, Wide)
    i, j = np.where(pair, i, c.argmax(-1)), np.where(pair, j, c.argmax(-1))
    between = (K[i, j] if K.ndim == 2 else K[rows, i, j]) * pair
    u[rows, i] = b[rows, i] - between * b[rows, j]
    u[rows[pair], j[pair]] = (b[rows, j] - between * b[rows, i])[pair]
    return u


def nonnegative_least_squares(K: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Minimise ``½uᵀKu - bᵀu`` by scipy's nnls on a Cholesky factor of K; zeros where it fails."""
    u = np.zeros(b.shape, Wide)
    d = b.shape[1]
    if d > NNLS_OUTPUTS:
        return u
    kernel, target = K.astype(np.float64), b.astype(np.float64)
    shared = _factor(kernel) if K.ndim == 2 else None
    for row in range(len(b)):
        L = shared if K.ndim == 2 else _factor(kernel[row])
        if L is None:
            continue
        try:
            right = scipy.linalg.solve_triangular(L, target[row], lower=True, check_finite=False)
            u[row] = scipy.optimize.nnls(L.T, right, maxiter=30 * d)[0]
        except (RuntimeError, ValueError):  # it ran out of iterations, or numbers
            continue
    return u


def _factor(K: np.ndarray) -> np.ndarray | None:
    for jitter in (0.0, 1e-15, 1e-13, 1e-10):
        try:
            return scipy.linalg.cholesky(K + jitter * len(K) * np.eye(len(K)), lower=True)
        except scipy.linalg.LinAlgError:
            continue
    return None


def polish(K: np.ndarray, b: np.ndarray, u: np.ndarray, sweeps: int = SWEEPS) -> np.ndarray:
    """Improve u by exact steps in one output after the other, in long double."""
    h = product(K, u)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = ((b * u).sum(-1) / (u * h).sum(-1))[:, None]
    u = np.where(np.isfinite(scale), u * scale, b)
    left = b - product(K, u)
    for _ in range(sweeps):
        for i in range(b.shape[1]):
            column = K[:, i] if K.ndim == 2 else K[:, :, i]
            new = np.maximum(u[:, i] + left[:, i] / K[..., i, i], 0)
            left = left - (new - u[:, i])[:, None] * column
            u[:, i] = new
    return u


# ------------------------------------------------------------------ the Sinkhorn side


def negentropy(K: np.ndarray, alpha: np.ndarray, steps: int = 80) -> tuple[np.ndarray, np.ndarray]:
    """Return proven bounds of ``Ω(α)``.

    Any v gives the upper one, ``vᵀKv - 1 + 2 Σ α log(α/v)``, and any f the lower one,
    ``⟨α,f⟩ - Ω*(f)``: here ``f = 2 log Kv``, whose ``Ω*`` is ``log vᵀKv``.
    """
    alpha = alpha.astype(Wide)
    v = np.sqrt(alpha)
    for _ in range(steps):  # the error halves each time
        v = np.sqrt(v * alpha / np.maximum(product(K, v), np.finfo(Wide).tiny))
    h = product(K, v)
    energy = (v * h).sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        upper = energy - 1 + 2 * np.where(alpha > 0, alpha * np.log(alpha / v), 0).sum(-1)
        lower = 2 * np.where(alpha > 0, alpha * np.log(h), 0).sum(-1) - np.log(energy)
    return lower, upper
