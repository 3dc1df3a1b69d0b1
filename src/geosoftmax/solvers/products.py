"""Products with ``K``, with cached matrices that are made at first use.

`Cost.matvec` and its siblings define the products, and are differentiable in the parameter of the
cost. Here, the kernels of all axes are cached as matrices if they are small.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from geosoftmax.costs.base import Cost

#: The longest axis whose kernel is cached as a matrix.
LONGEST_AXIS = 1024


class Products:
    """``K`` of a cost, for `backends.reference`; differentiable in the signals only."""

    def __init__(self, cost: Cost) -> None:
        self.cost = cost.detach()
        self.shape, self.size = cost.shape, cost.size
        self.terms = cost.as_tree().parents.numel() if cost.structure == "tree" else cost.size
        self.per_row = bool(cost.batch_shape)
        self.diagonal = self.cost.diagonal
        self.has_matrices = max(self.shape) <= LONGEST_AXIS and not cost.has_linear_product
        self._matrices: dict[torch.dtype, list[Tensor]] = {}

    @functools.cached_property
    def kernels(self) -> list[Tensor]:
        """The kernels of all axes, in full precision."""
        with torch.inference_mode(False), torch.no_grad():
            return [factor.kernel() for factor in self.cost.factors]

    def matrices(self, dtype: torch.dtype) -> list[Tensor]:
        """Return the kernels of all axes in a dtype."""
        found = self._matrices.get(dtype)
        if found is None:
            with torch.inference_mode(False), torch.no_grad():
                found = self._matrices[dtype] = [K.to(dtype) for K in self.kernels]
        return found

    def matvec(self, u: Tensor) -> Tensor:
        """Return ``K u``."""
        if not self.has_matrices:
            return self.cost.matvec(u)
        matrices = self.matrices(u.dtype)
        if self.per_row:
            return (matrices[0] @ u[..., None])[..., 0]
        if len(matrices) == 1:
            return u @ matrices[0]
        for axis, K in enumerate(matrices[:-2], start=-len(matrices)):
            u = (u.movedim(axis, -1) @ K).movedim(-1, axis)
        return (matrices[-2] @ u) @ matrices[-1]

    def log_matvec(self, g: Tensor) -> Tensor:
        """Return ``log(K exp(g))``."""
        return self.cost.log_matvec(g)

    def solve(self, rhs: Tensor, support: Tensor) -> Tensor:
        """Return ``x`` with ``K_SS x_S = rhs_S`` on the support (a mask) and 0 elsewhere."""
        return self.cost.solve(rhs, support)

    def select(self, rows: Tensor) -> Products:
        """Return the products for some rows, if there is one kernel per row; else itself."""
        if not self.per_row:
            return self
        return Products(self.cost.with_parameter(self.cost.parameter[rows]))


class Averages:
    """Means weighted by the rows of ``K``, like `Cost.average`."""

    def __init__(self, cost: Cost) -> None:
        self.products = Products(cost)
        self.planar = self.products.has_matrices and len(cost.shape) == 2
        self._tables: dict[torch.dtype, Any] = {}

    def __call__(self, u: Tensor) -> Tensor:
        """Return the means of a signal."""
        table: Any = self._tables.get(u.dtype)
        if table is None:
            with torch.inference_mode(False), torch.no_grad():
                table = self._tables[u.dtype] = self._planar(u) if self.planar else self._shares(u)
        if not self.planar:
            return self.products.matvec(u) * table
        down, across = table
        planes = u if u.dim() == 3 else u.reshape(-1, *self.products.shape)
        n = planes.shape[0]  # bmm, because `@` would spend more time on reshaping than multiplying
        means = torch.bmm(down.expand(n, -1, -1), planes).bmm(across.expand(n, -1, -1))
        return means if u.dim() == 3 else means.reshape(u.shape)

    def _shares(self, like: Tensor) -> Tensor:
        cost = self.products.cost
        ones = torch.ones(cost.batch_shape + cost.shape, dtype=like.dtype, device=like.device)
        return 1 / self.products.matvec(ones)

    def _planar(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return the matrices that take means along the two axes, from the left and the right."""
        down, across = (K / K.sum(1, keepdim=True) for K in self.products.kernels)
        return down.to(like.dtype), across.T.contiguous().to(like.dtype)
