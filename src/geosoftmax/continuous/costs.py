"""Costs between points that lie anywhere, seen through ``K = exp(-C/2)`` and its derivatives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from geosoftmax.validation import check_cost_matrix, check_multiplier, check_power

__all__ = ["FunctionCost", "PointCost", "PowerCost"]


class KernelJet(NamedTuple):
    """``K(x, y)`` of shape ``(..., n, m)`` with its derivatives, which append 1 or 2 dimensions."""

    K: Tensor
    x: Tensor  # ∇ₓK
    xx: Tensor  # ∇ₓ∇ₓK
    xy: Tensor  # ∇ₓ∇ᵧK


class PointCost(ABC):
    """A symmetric cost ``C(x, y) ≥ 0`` of two points, 0 where they meet.

    ``exp(-C/2)`` must be positive definite.
    """

    @abstractmethod
    def matrix(self, x: Tensor, y: Tensor) -> Tensor:
        """``C(x_i, y_j)``: points ``(..., n, dim)`` and ``(..., m, dim)`` give ``(..., n, m)``."""

    @abstractmethod
    def jet(self, x: Tensor, y: Tensor) -> KernelJet:
        """``K = exp(-C/2)`` and its derivatives."""

    def check(self, points: Tensor) -> None:
        """Refuse a cost that is none at some points: certificates would be wrong."""
        try:
            check_cost_matrix(self.matrix(points, points).detach())
        except ValueError as error:
            why = str(error).partition(". ")[0]  # the rest says how to repair a matrix
            raise ValueError(f"{self!r} is no cost. At {len(points)} points: {why}.") from None

    @abstractmethod
    def __mul__(self, factor: float | Tensor) -> PointCost:
        """``factor · C``."""

    def __rmul__(self, factor: float | Tensor) -> PointCost:
        return self * factor

    def __truediv__(self, epsilon: float | Tensor) -> PointCost:
        return self * (1.0 / check_multiplier(epsilon))

    def kernel(self, x: Tensor, y: Tensor) -> Tensor:
        """``K = exp(-C/2)``."""
        return torch.exp(-self.matrix(x, y) / 2)


class PowerCost(PointCost):
    r""":math:`C(x, y) = s\,|x - y|^p`, with ``0 < p ≤ 2``.

    Parameters
    ----------
    p : float
        2 is the squared Euclidean distance. Below 2, ``K`` has a cusp: solutions spread out, and
        spikes only approximate them.
    scale : float or Tensor
        The positive number ``s``; gradients flow to it. For ``p = 2``, ``K`` is a Gaussian of
        standard deviation ``1 / sqrt(s)``.

    Examples
    --------
    >>> import torch
    >>> x = torch.tensor([[0.0], [2.0]])
    >>> PowerCost(p=2, scale=0.5).matrix(x, x)
    tensor([[0., 2.],
            [2., 0.]])
    """

    def __init__(self, p: float = 2.0, scale: float | Tensor = 1.0) -> None:
        self.p = check_power(p)
        self.scale = check_multiplier(scale)

    def check(self, points: Tensor) -> None:
        """Such costs are valid everywhere."""

    def __mul__(self, factor: float | Tensor) -> PowerCost:
        return PowerCost(self.p, self.scale * check_multiplier(factor).to(self.scale.device))

    def __repr__(self) -> str:
        return f"PowerCost(p={self.p:g}, scale={float(self.scale.detach()):g})"

    def matrix(self, x: Tensor, y: Tensor) -> Tensor:  # noqa: D102 (documented above)
        squared = (x[..., :, None, :] - y[..., None, :, :]).square().sum(-1)
        scale = self.scale.to(x)
        if self.p == 2:
            return scale * squared
        same = squared == 0  # keeps the gradient of the power finite where points meet
        return scale * torch.where(same, 0.0, torch.where(same, 1.0, squared) ** (self.p / 2))

    def jet(self, x: Tensor, y: Tensor) -> KernelJet:
        """``K = φ(q)`` with ``q = |x - y|²``: ``∇ₓK = 2φ'd``, ``∇ₓ∇ₓK = 4φ''ddᵀ + 2φ'I = -∇ₓ∇ᵧK``.

        Derivatives that do not exist, where points meet and ``p < 2``, are 0.
        """
        d = x[..., :, None, :] - y[..., None, :, :]
        q = d.square().sum(-1)
        half = self.p / 2
        s = self.scale.detach().to(x) / 2
        meets = (q == 0) & (half < 1)
        q = torch.where(meets, 1.0, q)
        K = torch.exp(-s * q**half)
        slope = -s * half * q ** (half - 1)  # φ'/φ
        bend = slope.square() if half == 1 else slope.square() + slope * (half - 1) / q  # φ''/φ
        inside = torch.where(meets, 0.0, K)
        first = (2 * inside * slope)[..., None] * d
        eye = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
        outer = d[..., :, None] * d[..., None, :]
        second = (4 * inside * bend)[..., None, None] * outer
        second = second + (2 * inside * slope)[..., None, None] * eye
        return KernelJet(torch.where(meets, 1.0, K), first, second, -second)


class FunctionCost(PointCost):
    """A cost given by a torch function of two point sets.

    Parameters
    ----------
    function : callable
        Takes points of shapes ``(..., n, dim)`` and ``(..., m, dim)``, returns ``(..., n, m)``:
        symmetric, 0 where points meet, with ``exp(-C/2)`` positive definite. Smooth also where
        points meet: derivatives come from autograd, and ``torch.cdist`` has none there.
    scale : float or Tensor
        What it is multiplied by.

    Examples
    --------
    >>> import math, torch
    >>> def around_a_circle(x, y):
    ...     return 2 - 2 * torch.cos(2 * math.pi * (x[..., :, None, 0] - y[..., None, :, 0]))
    >>> FunctionCost(around_a_circle).matrix(torch.zeros(1, 1), torch.tensor([[0.5], [1.0]]))
    tensor([[4., 0.]])
    """

    def __init__(
        self, function: Callable[[Tensor, Tensor], Tensor], scale: float | Tensor = 1.0
    ) -> None:
        if not callable(function):
            raise TypeError(
                f"a FunctionCost takes a function of two point sets; got {type(function).__name__}."
            )
        self.function = function
        self.scale = check_multiplier(scale)

    def __mul__(self, factor: float | Tensor) -> FunctionCost:
        return FunctionCost(
            self.function, self.scale * check_multiplier(factor).to(self.scale.device)
        )

    def __repr__(self) -> str:
        name = getattr(self.function, "__name__", type(self.function).__name__)
        return f"FunctionCost({name}, scale={float(self.scale.detach()):g})"

    def matrix(self, x: Tensor, y: Tensor) -> Tensor:  # noqa: D102 (documented above)
        C = self.function(x, y)
        batch = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2])
        expected = (*batch, x.shape[-2], y.shape[-2])
        if tuple(C.shape) != expected:
            raise ValueError(
                f"the function of {self!r} must return shape {expected} for points of shapes "
                f"{tuple(x.shape)} and {tuple(y.shape)}; got {tuple(C.shape)}."
            )
        return self.scale.to(C) * C

    def jet(self, x: Tensor, y: Tensor) -> KernelJet:
        """Every pair on its own: then the gradient of a sum holds the gradients of all."""
        n, m, dim = x.shape[-2], y.shape[-2], x.shape[-1]
        batch = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2])
        one = x.detach()[..., :, None, None, :].expand(*batch, n, m, 1, dim).clone()
        other = y.detach()[..., None, :, None, :].expand(*batch, n, m, 1, dim).clone()
        with torch.enable_grad():
            one.requires_grad_()
            other.requires_grad_()
            K = torch.exp(-self.matrix(one, other)[..., 0, 0] / 2)
            (first,) = torch.autograd.grad(K.sum(), one, create_graph=True)
            rows = [
                torch.autograd.grad(
                    first[..., 0, a].sum(), (one, other), retain_graph=True, materialize_grads=True
                )
                for a in range(dim)
            ]
        xx = torch.stack([row[0][..., 0, :] for row in rows], -2)
        xy = torch.stack([row[1][..., 0, :] for row in rows], -2)
        return KernelJet(K.detach(), first.detach()[..., 0, :], xx, xy)
