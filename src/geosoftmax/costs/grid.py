"""Pixels and voxels: products of lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from geosoftmax.costs._support import gathered_solve
from geosoftmax.costs.base import Cost, ScaledCost, unit_scale
from geosoftmax.costs.line import DENSE_LIMIT, LineCost
from geosoftmax.validation import check_count, check_power, is_concrete


class GridCost(ScaledCost):
    """``C = Σ_axes |x - y|^p`` between the points of a regular grid in 1, 2 or 3 dimensions.

    ``K`` is a product of one small kernel per axis; no ``d × d`` array is ever made. The paper's
    cost for drawings is ``GridCost((28, 28), p=2) / 2``.

    Parameters
    ----------
    shape : tuple of int
        The shape of the grid, as of the last dimensions of the signals.
    p : {1, 2}
        The power, summed over axes: 2 is the squared Euclidean distance, 1 the Manhattan one.
    spacing : float or sequence of float
        The distance between neighbours, of all axes or of each.

    Examples
    --------
    >>> GridCost((2, 2), p=2, spacing=(1.0, 3.0)).matrix()
    tensor([[ 0.,  9.,  1., 10.],
            [ 9.,  0., 10.,  1.],
            [ 1., 10.,  0.,  9.],
            [10.,  1.,  9.,  0.]], dtype=torch.float64)
    """

    spacing: Tensor
    p: float

    def __init__(
        self,
        shape: Sequence[int] | int,
        p: float = 2.0,
        spacing: float | Sequence[float] | Tensor = 1.0,
    ) -> None:
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        if not 1 <= len(shape) <= 3:
            raise ValueError(f"a grid has 1, 2 or 3 dimensions; got shape {shape}.")
        for n in shape:
            check_count("each side of the grid", n)
        shape = tuple(int(n) for n in shape)
        p = check_power(p, (1, 2))
        self._store(
            spec=f"GridCost|{','.join(map(str, shape))}|{p!r}",
            shape=shape,
            scale=unit_scale(),
            spacing=_check_spacing(spacing, len(shape)),
            p=p,
        )

    @property
    def tensors(self) -> list[Tensor]:
        return [self.scale, self.spacing]

    @classmethod
    def _rebuild(cls, spec: str, tensors: list[Tensor]) -> GridCost:
        cost = cls.__new__(cls)
        scale, spacing = tensors
        _, sides, p = spec.split("|")
        shape = tuple(int(n) for n in sides.split(","))
        cost._store(spec=spec, shape=shape, scale=scale, spacing=spacing, p=float(p))
        return cost

    def __repr__(self) -> str:
        spacing = ""
        if is_concrete(self.spacing) and bool((self.spacing != 1).any()):
            spacing = f", spacing={tuple(self.spacing.tolist())}"
        return f"GridCost({self.shape}, p={self.p:g}{spacing}){self._scale_text()}"

    @property
    def axes(self) -> list[LineCost]:
        """The cost along each axis; ``K`` is the product of theirs."""
        return self._once("axes", self._axes)

    def _axes(self) -> list[LineCost]:
        p = self.spec.split("|")[-1]
        lines = []
        for n, spacing in zip(self.shape, self.spacing.unbind(), strict=True):
            steps = torch.arange(n, dtype=self.spacing.dtype, device=self.device)
            lines.append(LineCost._rebuild(f"LineCost|{p}|1", [self.scale, steps * spacing]))
        return lines

    def matvec(self, u: Tensor) -> Tensor:
        for axis, line in enumerate(self.axes, start=-len(self.shape)):
            if axis == -1:
                u = line.matvec(u)
            elif axis == -2 and line.size <= DENSE_LIMIT:
                u = line._kernel(u.dtype) @ u
            else:
                u = line.matvec(u.movedim(axis, -1)).movedim(-1, axis)
        return u

    def average(self, u: Tensor) -> Tensor:
        if len(self.shape) != 2 or max(self.shape) > DENSE_LIMIT:
            return super().average(u)
        down, across = self._once(f"averages_{u.dtype}", lambda: self._averages(u.dtype))
        planes = u if u.dim() == 3 else u.reshape(-1, *self.shape)
        n = planes.shape[0]  # in batches: `@` takes longer to fold them than to multiply
        means = torch.bmm(down.expand(n, -1, -1), planes).bmm(across.expand(n, -1, -1))
        return means if u.dim() == 3 else means.reshape(u.shape)

    def _averages(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return the matrices that take means along the two axes, from the left and the right."""
        down, across = (K / K.sum(1, keepdim=True) for K in (a._kernel() for a in self.axes))
        return down.to(dtype), across.T.contiguous().to(dtype)

    def log_matvec(self, g: Tensor) -> Tensor:
        for axis, line in enumerate(self.axes, start=-len(self.shape)):
            g = line.log_matvec(g.movedim(axis, -1)).movedim(-1, axis)
        return g

    def solve(self, rhs: Tensor, support: Tensor) -> Tensor:
        if len(self.shape) == 1:
            return self.axes[0].solve(rhs, support)
        kernels = [line._kernel() for line in self.axes]
        coordinates = torch.cartesian_prod(
            *(torch.arange(n, device=self.device) for n in self.shape)
        ).unbind(-1)

        def entries(_rows: Tensor, i: Tensor, j: Tensor) -> Tensor:
            product = kernels[0][coordinates[0][i], coordinates[0][j]]
            for kernel, x in zip(kernels[1:], coordinates[1:], strict=True):
                product = product * kernel[x[i], x[j]]
            return product

        def matvec(v: Tensor) -> Tensor:
            return self.matvec(v.reshape(-1, *self.shape)).reshape(v.shape)

        flat = gathered_solve(
            entries, matvec, rhs.reshape(-1, self.size), support.reshape(-1, self.size)
        )
        return flat.reshape(rhs.shape)

    def matrix(self) -> Tensor:
        total = torch.zeros((1, 1), dtype=self.spacing.dtype, device=self.device)
        for line in self.axes:
            C = line.matrix()
            n, m = total.shape[0], C.shape[0]
            total = (total[:, None, :, None] + C[None, :, None, :]).reshape(n * m, n * m)
        return total


def is_absolute_line(cost: Cost) -> bool:
    """Whether the outputs lie on a line with the absolute value as cost, whatever its class."""
    if isinstance(cost, GridCost):
        return len(cost.shape) == 1 and cost.p == 1
    return isinstance(cost, LineCost) and cost.p == 1


def _check_spacing(spacing: Any, dimensions: int) -> Tensor:
    values = torch.as_tensor(spacing, dtype=torch.float64).detach()
    if values.dim() > 1 or (values.dim() == 1 and values.numel() != dimensions):
        raise ValueError(
            f"spacing must be one number or one for each of the {dimensions} axes; "
            f"got {tuple(values.shape)}."
        )
    if not bool((torch.isfinite(values) & (values > 0)).all()):
        raise ValueError(f"spacing must be positive and finite; got {spacing!r}.")
    return values.expand(dimensions).clone()
