"""Pixels and voxels: products of lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from geosoftmax.costs.base import ScaledCost, reads_values, unit_scale, wide
from geosoftmax.costs.linalg import gathered_solve
from geosoftmax.costs.line import DENSE_LIMIT, LineCost
from geosoftmax.costs.traits import Line
from geosoftmax.validation import check_count, check_has_values, check_power, is_concrete


class GridCost(ScaledCost):
    """``C = Σ_axes |x - y|^p`` between the points of a regular grid in 1, 2 or 3 dimensions.

    ``K`` is a product of one small kernel per axis, and no ``d × d`` array is made. The paper's
    cost for drawings is ``GridCost((28, 28), p=2) / 2``.

    Parameters
    ----------
    shape : tuple of int
        The sides of the grid: the last dimensions of the signals.
    p : {1, 2}
        The power. 2 is the squared Euclidean distance, 1 the Manhattan distance.
    spacing : float or sequence of float
        The distance between neighbours: one number for all axes, or one for each.

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
    tensor_names = ("scale", "spacing")
    static_names = ("shape", "signature", "p")

    @reads_values
    def __init__(
        self,
        shape: Sequence[int] | int,
        p: float = 2.0,
        spacing: float | Sequence[float] | Tensor = 1.0,
    ) -> None:
        single = isinstance(shape, (int, np.integer))
        if single and isinstance(p, (int, np.integer)) and p > 2:
            raise ValueError(f"pass the sides of a grid as one tuple: GridCost(({shape}, {p})).")
        shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
        if not 1 <= len(shape) <= 3:
            raise ValueError(f"a grid has 1, 2 or 3 dimensions; got shape {shape}.")
        for n in shape:
            check_count("each side of the grid", n)
        shape = tuple(int(n) for n in shape)
        p = check_power(p, (1, 2))
        signature = f"GridCost|{','.join(map(str, shape))}|{p!r}"
        spacing = _check_spacing(spacing, len(shape))
        fields = {"shape": shape, "p": p, "scale": unit_scale(), "spacing": spacing}
        self._set({"signature": signature, **fields})

    @classmethod
    def read_signature(cls, signature: str, tensors: list[Tensor]) -> dict[str, Any]:
        _, sides, p = signature.split("|")
        return {"shape": tuple([int(n) for n in sides.split(",")]), "p": float(p)}

    def __repr__(self) -> str:
        spacing = ""
        if is_concrete(self.spacing) and bool((self.spacing != 1).any()):
            spacing = f", spacing={tuple(self.spacing.tolist())}"
        return f"GridCost({self.shape}, p={self.p:g}{spacing}){self._scale_text()}"

    def check(self) -> None:
        super().check()
        _check_spacing(self.spacing, len(self.shape))

    @property
    def axes(self) -> list[LineCost]:
        """The cost along each axis; ``K`` is the product of their kernels."""
        p = float(self.signature.split("|")[-1])  # torch.compile would make a symbol of self.p
        lines = []
        for n, spacing in zip(self.shape, wide(self.spacing).unbind(), strict=True):
            steps = torch.arange(n, dtype=spacing.dtype, device=self.device)
            lines.append(LineCost.along_axis(steps * spacing, self.scale, p))
        return lines

    @property
    def factors(self) -> tuple[LineCost, ...]:
        return tuple(self.axes)

    @property
    def is_separable(self) -> bool:
        return len(self.shape) > 1

    @property
    def structure(self) -> Literal["line"] | None:
        return "line" if self.p == 1 and len(self.shape) == 1 else None

    def as_line(self) -> Line:
        return self.axes[0].as_line() if len(self.shape) == 1 else super().as_line()

    def matvec(self, u: Tensor) -> Tensor:
        for axis, line in enumerate(self.axes, start=-len(self.shape)):
            if axis == -2 and line.size <= DENSE_LIMIT:
                u = line.kernel().to(u.dtype) @ u
            else:
                u = line.matvec(u.movedim(axis, -1)).movedim(-1, axis)
        return u

    def log_matvec(self, g: Tensor) -> Tensor:
        for axis, line in enumerate(self.axes, start=-len(self.shape)):
            g = line.log_matvec(g.movedim(axis, -1)).movedim(-1, axis)
        return g

    def solve(self, rhs: Tensor, support: Tensor) -> Tensor:
        if len(self.shape) == 1:
            return self.axes[0].solve(rhs, support)
        kernels = [line.kernel() for line in self.axes]
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

    def expected(self, alpha: Tensor) -> Tensor:
        dims, total = range(-len(self.shape), 0), torch.zeros_like(alpha)
        for axis, line in zip(dims, self.axes, strict=True):
            others = [k for k in dims if k != axis]
            marginal = alpha.sum(others, keepdim=True) if others else alpha
            total = total + line.expected(marginal.movedim(axis, -1)).movedim(-1, axis)
        return total

    def matrix(self) -> Tensor:
        total = wide(torch.zeros((1, 1), device=self.device))
        for line in self.axes:
            C = line.matrix()
            n, m = total.shape[0], C.shape[0]
            total = (total[:, None, :, None] + C[None, :, None, :]).reshape(n * m, n * m)
        return total


def _check_spacing(spacing: Any, dimensions: int) -> Tensor:
    check_has_values("spacing", spacing)
    try:
        values = torch.as_tensor(spacing, dtype=torch.float64).detach()
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(
            f"spacing must be one number or one for each axis; got {spacing!r}."
        ) from None
    if values.dim() > 1 or (values.dim() == 1 and values.numel() != dimensions):
        raise ValueError(
            f"spacing must be one number or one for each of the {dimensions} axes; "
            f"got {tuple(values.shape)}."
        )
    if not bool((torch.isfinite(values) & (values > 0)).all()):
        raise ValueError(f"spacing must be positive and finite; got {spacing!r}.")
    return values.expand(dimensions).clone()
