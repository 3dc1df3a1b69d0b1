"""Ordered classes: points on a line."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from geosoftmax.costs.base import ScaledCost, reads_values, unit_scale, wide
from geosoftmax.costs.linalg import LARGE_BLOCK, gathered_solve
from geosoftmax.costs.traits import Line
from geosoftmax.validation import (
    as_float_tensor,
    check_count,
    check_positions,
    check_power,
    is_concrete,
    is_readable,
)

#: Up to this many classes, a product with K is one small matrix product.
DENSE_LIMIT = 1024
#: The most entries of a temporary in a blocked product.
ENTRIES_AT_ONCE = 1 << 21
#: Of more positions, the text of a cost has the first ones and the last.
POSITIONS_SHOWN = 8
#: exp(-x) is zero in every dtype beyond this.
UNDERFLOW = 746.0


class LineCost(ScaledCost):
    """``C_ij = |x_i - x_j|^p`` for classes at positions ``x`` on a line.

    For ``p = 1``, solutions are exact, in linear time and memory. For other powers, products with
    ``K`` are computed in blocks. The paper's ordinal cost is ``LineCost(d, p=2) / 2``.

    Parameters
    ----------
    positions : int or array_like
        The number of classes, for positions 0, 1, …; or the positions themselves, increasing.
    p : float
        The power, ``0 < p ≤ 2``.

    Examples
    --------
    >>> LineCost(3, p=2).matrix()
    tensor([[0., 1., 4.],
            [1., 0., 1.],
            [4., 1., 0.]], dtype=torch.float64)
    >>> LineCost([0.0, 1.0, 10.0]).matrix()[0]
    tensor([ 0.,  1., 10.], dtype=torch.float64)
    """

    positions: Tensor
    p: float
    even: bool  # whether neighbours are equally spaced
    tensor_names = ("scale", "positions")
    static_names = ("shape", "signature", "p", "even")

    @reads_values
    def __init__(self, positions: Any, p: float = 1.0) -> None:
        p = check_power(p)
        if isinstance(positions, (int, np.integer)):
            d = check_count("the number of classes", positions)
            positions = torch.arange(d, dtype=torch.float64)
        positions = as_float_tensor("positions", positions).detach().clone()
        check_positions(positions)
        scale, even = unit_scale(positions.device), _evenly_spaced(positions)
        self._set(_fields(positions, scale, p, even))

    @classmethod
    def along_axis(cls, positions: Tensor, scale: Tensor, p: float) -> LineCost:
        """Return the cost of evenly spaced positions (unchecked), for an axis of a grid."""
        return cls._make(_fields(positions, scale, p, True))

    @classmethod
    def read_signature(cls, signature: str, tensors: list[Tensor]) -> dict[str, Any]:
        _, p, even = signature.split("|")
        return {"shape": (tensors[1].shape[0],), "p": float(p), "even": even == "1"}

    def __repr__(self) -> str:
        return f"LineCost({self._positions_text()}, p={self.p:g}){self._scale_text()}"

    def check(self) -> None:
        super().check()
        # A cast to fewer digits may put neighbours at one place: they are one output then.
        check_positions(self.positions, may_meet=self.positions.dtype != torch.float64)

    # ------------------------------------------------------------------

    def matvec(self, u: Tensor) -> Tensor:
        if self.shape[0] <= DENSE_LIMIT:
            return u @ self.kernel().to(u.dtype)
        if self.p == 1:
            return _exponential_sums(u, *self._places())
        taps = self._taps()
        if taps is not None:
            return _convolve(u, taps.to(u.dtype))
        blocks = [u[..., c] @ self._block(c, r).to(u.dtype) for r, c in self._blocks()]
        return torch.cat(blocks, -1)

    def log_matvec(self, g: Tensor) -> Tensor:
        if self.p == 1:
            return _log_exponential_sums(g, *self._places())
        d = self.shape[0]
        rows = max(1, LARGE_BLOCK // max(1, g.numel() * g.element_size()))
        parts = []
        for i in range(0, d, rows):
            half = self._half_cost(slice(i, i + rows), slice(0, d)).to(g.dtype)
            parts.append(torch.logsumexp(g[..., None, :] - half, -1))
        return torch.cat(parts, -1)

    def solve(self, rhs: Tensor, support: Tensor) -> Tensor:
        if self.p == 1:
            return _tridiagonal_solve(rhs, support, *self._places())
        d, places = self.shape[0], wide(self.positions)

        def entries(_rows: Tensor, i: Tensor, j: Tensor) -> Tensor:
            gap = (places[i] - places[j]).abs()
            return torch.exp(-self.scale / 2 * gap**self.p)

        flat = gathered_solve(entries, self.matvec, rhs.reshape(-1, d), support.reshape(-1, d))
        return flat.reshape(rhs.shape)

    def expected(self, alpha: Tensor) -> Tensor:
        scale, x = self.scale.to(alpha.dtype), wide(self.positions)
        x = (x - x[0]).to(alpha.dtype)
        if self.p == 1:
            return scale * (_passed(alpha, x) + _passed(alpha.flip(-1), -x.flip(-1)).flip(-1))
        if self.p == 2:
            return scale * _squared_distances(alpha, x)
        every, rows = slice(0, self.shape[0]), max(1, ENTRIES_AT_ONCE // self.shape[0])
        parts = []
        for i in range(0, self.shape[0], rows):
            C = 2 * self._half_cost(every, slice(i, i + rows))
            parts.append(alpha @ C.to(alpha.dtype))
        return torch.cat(parts, -1)

    def matrix(self) -> Tensor:
        x = wide(self.positions)
        return self.scale * (x[:, None] - x[None, :]).abs() ** self.p

    @property
    def structure(self) -> Literal["line"] | None:
        return "line" if self.p == 1 else None

    def as_line(self) -> Line:
        if self.p != 1:
            return super().as_line()
        x, c = (part.detach() for part in self._places())
        return Line(c * x, c * x.diff(prepend=x[:1]), self._is_even())

    # ------------------------------------------------------------------

    def _positions_text(self) -> str:
        """The number of classes; their positions where these are not 0, 1, 2, …."""
        d = self.shape[0]
        if not is_concrete(self.positions):
            return str(d)
        x = self.positions.detach().tolist()
        if x == list(range(d)):
            return str(d)
        shown = [f"{value:g}" for value in x]
        if d > POSITIONS_SHOWN:
            shown = [*shown[: POSITIONS_SHOWN - 2], "…", shown[-1]]
        return f"{d} at [{', '.join(shown)}]"

    def _places(self) -> tuple[Tensor, Tensor]:
        """Return ``x`` and ``c / 2`` for the decays ``exp(-c/2 (x_j - x_i))`` of p = 1.

        Take differences of ``x`` first: differences of ``c x / 2`` lose digits far from the origin.
        """
        x = wide(self.positions)
        return x - x[0], wide(self.scale) / 2

    def _half_cost(self, rows: slice, columns: slice) -> Tensor:
        x = wide(self.positions)
        return self.scale / 2 * (x[rows, None] - x[None, columns]).abs() ** self.p

    def _block(self, rows: slice, columns: slice) -> Tensor:
        return torch.exp(-self._half_cost(rows, columns))

    def _is_even(self) -> bool:
        """Return whether positions are still evenly spaced: a cast or a write may move them."""
        if not is_readable(self.positions):
            return self.even
        return self.even and _evenly_spaced(wide(self.positions))

    def _reach(self) -> float:
        """Return the distance beyond which ``K`` underflows to zero."""
        return (2 * UNDERFLOW / float(self.scale.detach())) ** (1 / self.p)

    def _taps(self) -> Tensor | None:
        """Return the convolution kernel if classes are evenly spaced and ``K`` is short."""
        if not self._is_even() or not is_concrete(self.scale, self.positions):
            return None
        x = wide(self.positions[:2])
        spacing = x[1] - x[0]
        width = math.ceil(self._reach() / float(spacing))
        if width > 2048 or 8 * width > self.shape[0]:
            return None
        offsets = torch.arange(-width, width + 1, device=self.device, dtype=x.dtype)
        return torch.exp(-self.scale / 2 * (offsets * spacing).abs() ** self.p)

    def _blocks(self) -> list[tuple[slice, slice]]:
        """Yield blocks of rows with the columns within their reach (all columns under tracing)."""
        d, x = self.shape[0], self.positions
        reach = self._reach() if is_concrete(self.scale, x) else None
        blocks, start = [], 0
        while start < d:
            stop, lo, hi = min(d, start + 256), 0, d
            if reach is not None:
                lo = int(torch.searchsorted(x, x[start] - reach))
                hi = int(torch.searchsorted(x, x[stop - 1] + reach, right=True))
            if (stop - start) * (hi - lo) > ENTRIES_AT_ONCE:
                stop = min(d, start + max(1, ENTRIES_AT_ONCE // (hi - lo)))
            blocks.append((slice(start, stop), slice(lo, hi)))
            start = stop
        return blocks


def _fields(positions: Tensor, scale: Tensor, p: float, even: bool) -> dict[str, Any]:
    signature = f"LineCost|{p!r}|{even:d}"
    shape = (positions.shape[0],)
    return {
        "signature": signature, "shape": shape, "p": p, "even": even,
        "scale": scale, "positions": positions,
    }  # fmt: skip


def _evenly_spaced(positions: Tensor) -> bool:
    gaps = positions.diff()
    return gaps.numel() == 0 or bool((gaps == gaps[0]).all())


def _convolve(u: Tensor, taps: Tensor) -> Tensor:
    flat = u.reshape(-1, 1, u.shape[-1])
    width = taps.shape[0] // 2
    return torch.nn.functional.conv1d(flat, taps[None, None], padding=width).reshape(u.shape)


def _squared_distances(alpha: Tensor, x: Tensor) -> Tensor:
    """``Σ_j (x_i - x_j)² α_j`` by moments, around the mean of ``|α|``: any centre would be right.

    Where ``α`` is a distribution, this is its mean, and the first moment is 0.
    """
    weight = alpha.detach().abs()
    total = weight.sum(-1, keepdim=True).clamp(min=torch.finfo(alpha.dtype).tiny)
    apart = x - (weight * x).sum(-1, keepdim=True) / total
    mass, first, second = ((alpha * apart**k).sum(-1, keepdim=True) for k in range(3))
    return mass * apart.square() - 2 * first * apart + second


def _passed(alpha: Tensor, x: Tensor) -> Tensor:
    """Return ``Σ_{j<i} (x_i - x_j) α_j`` as a sum over gaps. All terms are positive."""
    passed = (alpha.cumsum(-1)[..., :-1] * x.diff()).cumsum(-1)
    return torch.cat([torch.zeros_like(alpha[..., :1]), passed], -1)


def _exponential_sums(u: Tensor, x: Tensor, c: Tensor) -> Tensor:
    """Return ``Σ_j exp(-c |x_i - x_j|) u_j`` by doubling: log2(d) passes, without overflow."""
    return _one_sided(u, x, c) + _one_sided(u.flip(-1), -x.flip(-1), c).flip(-1) - u


def _one_sided(u: Tensor, x: Tensor, c: Tensor) -> Tensor:
    total, step = u, 1
    while step < x.shape[0]:
        decay = torch.exp(c * (x[:-step] - x[step:])).to(u.dtype)
        carried = total[..., step:] + decay * total[..., :-step]
        total = torch.cat([total[..., :step], carried], -1)
        step *= 2
    return total


def _log_exponential_sums(g: Tensor, x: Tensor, c: Tensor) -> Tensor:
    left = _log_one_sided(g, x, c)
    right = _log_one_sided(g.flip(-1), -x.flip(-1), c).flip(-1)
    # Σ_j≤i and Σ_j>i share no term: the sum over j > i is the next right sum times one decay.
    beyond = right[..., 1:] - (c * x.diff()).to(g.dtype)
    end = torch.full_like(g[..., :1], -math.inf)
    return torch.logaddexp(left, torch.cat([beyond, end], -1))


def _log_one_sided(g: Tensor, x: Tensor, c: Tensor) -> Tensor:
    total, step = g, 1
    while step < x.shape[0]:
        decay = (c * (x[:-step] - x[step:])).to(g.dtype)
        carried = torch.logaddexp(total[..., step:], total[..., :-step] + decay)
        total = torch.cat([total[..., :step], carried], -1)
        step *= 2
    return total


def _tridiagonal_solve(rhs: Tensor, support: Tensor, x: Tensor, c: Tensor) -> Tensor:
    """Solve with ``exp(-c |x_i - x_j|)`` on the support: its inverse is tridiagonal.

    Let a and z be the neighbours of m in the support, with ``E = exp(-gap)`` and ``D = 1 - E²``.
    Then ``u_m = (r_m (D_a + E_a² D_z) - r_a E_a D_z - r_z E_z D_a) / (D_a D_z)``. A missing
    neighbour has ``E = 0, D = 1``.
    """
    d = x.shape[0]
    here = torch.arange(d, device=x.device)
    none_before = torch.full_like(support[..., :1], -1, dtype=torch.long)
    before = torch.cummax(torch.where(support, here, -1), -1).values
    before = torch.cat([none_before, before[..., :-1]], -1)
    after = torch.cummin(torch.where(support, here, d).flip(-1), -1).values.flip(-1)
    after = torch.cat([after[..., 1:], torch.full_like(none_before, d)], -1)
    (Ea, Da, ra), (Ez, Dz, rz) = (
        _towards(neighbour, inside, rhs, x, c)
        for neighbour, inside in ((before, before >= 0), (after, after < d))
    )
    top = rhs * (Da + Ea.square() * Dz) - ra * Ea * Dz - rz * Ez * Da
    return torch.where(support, top / (Da * Dz), torch.zeros((), dtype=rhs.dtype, device=x.device))


def _towards(
    neighbour: Tensor, inside: Tensor, rhs: Tensor, x: Tensor, c: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    index = neighbour.clamp(0, x.shape[0] - 1)
    gap = (c * (x - x[index]).abs()).to(rhs.dtype)
    gap = torch.where(inside & (gap > 0), gap, torch.full_like(gap, math.inf))
    value = torch.gather(rhs.expand(index.shape), -1, index)
    return torch.exp(-gap), -torch.expm1(-2 * gap), value
