"""The cost of classes without geometry."""

from __future__ import annotations

import torch
from torch import Tensor

from geosoftmax.costs.base import ScaledCost, unit_scale
from geosoftmax.validation import check_count


class ZeroOneCost(ScaledCost):
    """``C = 1 - I``: every mistake costs the same.

    ``ZeroOneCost(d) / epsilon`` goes from the softmax (``epsilon → 0``) to the sparsemax
    (``epsilon → ∞``, with scores divided by ``epsilon`` too).

    Parameters
    ----------
    d : int
        The number of classes.

    Examples
    --------
    >>> ZeroOneCost(3).matrix()
    tensor([[0., 1., 1.],
            [1., 0., 1.],
            [1., 1., 0.]], dtype=torch.float64)
    """

    def __init__(self, d: int) -> None:
        d = check_count("d", d)
        self._store(spec=f"ZeroOneCost|{d}", shape=(d,), scale=unit_scale())

    @property
    def tensors(self) -> list[Tensor]:
        return [self.scale]

    @classmethod
    def _rebuild(cls, spec: str, tensors: list[Tensor]) -> ZeroOneCost:
        cost = cls.__new__(cls)
        _, d = spec.split("|")
        cost._store(spec=spec, shape=(int(d),), scale=tensors[0])
        return cost

    def __repr__(self) -> str:
        return f"ZeroOneCost({self.shape[0]}){self._scale_text()}"

    def affinities(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """``k = exp(-c/2)`` and ``1 - k``, both to full relative precision."""
        return torch.exp(-self.scale / 2).to(dtype), -torch.expm1(-self.scale / 2).to(dtype)

    def matvec(self, u: Tensor) -> Tensor:
        k, one_minus_k = self.affinities(u.dtype)
        return one_minus_k * u + k * u.sum(-1, keepdim=True)

    def log_matvec(self, g: Tensor) -> Tensor:
        scale = self.scale.to(g.dtype)
        own = torch.log(-torch.expm1(-scale / 2)) + g
        return torch.logaddexp(own, torch.logsumexp(g, -1, keepdim=True) - scale / 2)

    def solve(self, rhs: Tensor, support: Tensor) -> Tensor:
        k, one_minus_k = self.affinities(rhs.dtype)
        inside = support.to(rhs.dtype)
        rhs = rhs * inside
        count = inside.sum(-1, keepdim=True)
        shift = k * rhs.sum(-1, keepdim=True) / (one_minus_k + k * count)
        return inside * (rhs - shift) / one_minus_k

    def matrix(self) -> Tensor:
        d = self.shape[0]
        eye = torch.eye(d, dtype=self.scale.dtype, device=self.device)
        return self.scale * (1 - eye)
