"""The cost of classes without geometry."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from geosoftmax.costs.base import ScaledCost, reads_values, unit_scale, wide
from geosoftmax.costs.traits import Equal
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

    tensor_names = ("scale",)
    has_linear_product = True

    @reads_values
    def __init__(self, d: int) -> None:
        d = check_count("d", d)
        self._set({"signature": f"ZeroOneCost|{d}", "shape": (d,), "scale": unit_scale()})

    @classmethod
    def read_signature(cls, signature: str, tensors: list[Tensor]) -> dict[str, Any]:
        return {"shape": (int(signature.split("|")[1]),)}

    def __repr__(self) -> str:
        return f"ZeroOneCost({self.shape[0]}){self._scale_text()}"

    @property
    def structure(self) -> Literal["equal"]:
        return "equal"

    def as_equal(self) -> Equal:
        half = wide(self.scale.detach()) / 2
        return Equal(torch.exp(-half), -torch.expm1(-half))

    def _affinities(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return ``k = exp(-c/2)`` and ``1 - k``, both to full relative precision."""
        half = wide(self.scale) / 2
        return torch.exp(-half).to(dtype), -torch.expm1(-half).to(dtype)

    def matvec(self, u: Tensor) -> Tensor:
        k, one_minus_k = self._affinities(u.dtype)
        return one_minus_k * u + k * u.sum(-1, keepdim=True)

    def log_matvec(self, g: Tensor) -> Tensor:
        scale = self.scale.to(g.dtype)
        own = torch.log(-torch.expm1(-scale / 2)) + g
        return torch.logaddexp(own, torch.logsumexp(g, -1, keepdim=True) - scale / 2)

    def solve(self, rhs: Tensor, support: Tensor) -> Tensor:
        k, one_minus_k = self._affinities(rhs.dtype)
        inside = support.to(rhs.dtype)
        rhs = rhs * inside
        count = inside.sum(-1, keepdim=True)
        shift = k * rhs.sum(-1, keepdim=True) / (one_minus_k + k * count)
        return inside * (rhs - shift) / one_minus_k

    def expected(self, alpha: Tensor) -> Tensor:
        return self.scale.to(alpha.dtype) * (alpha.sum(-1, keepdim=True) - alpha)

    def matrix(self) -> Tensor:
        d = self.shape[0]
        scale = wide(self.scale)
        return scale * (1 - torch.eye(d, dtype=scale.dtype, device=self.device))
