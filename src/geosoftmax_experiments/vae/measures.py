"""How close drawings come back, at what rate, and how concentrated they are."""

from __future__ import annotations

import torch
from torch import Tensor

from geosoftmax import Cost, hausdorff_divergence

__all__ = ["MEASURES", "Means", "measure"]

#: A pixel counts as used from this share of the ink on: softmax leaves none at zero.
USED = 1e-4

#: The columns of the results.
MEASURES = {
    "hausdorff": "Hausdorff D(α‖β)",
    "hausdorff_reverse": "Hausdorff D(β‖α)",
    "kl": "KL(α‖β), where finite",
    "kl_finite": "share of finite KL",
    "latent_kl": "latent KL",
    "reconstruction": "own loss",
    "support": "pixels used",
    "entropy": "entropy",
    "true_support": "pixels used, drawings",
    "true_entropy": "entropy, drawings",
}


def measure(alpha: Tensor, beta: Tensor, cost: Cost) -> dict[str, Tensor]:
    """Compare drawings with their reconstructions: one value of each measure for each drawing.

    Parameters
    ----------
    alpha, beta : Tensor, shape (batch, h, w)
        Drawings and reconstructions.
    cost : Cost
    """
    # The divergence is Sinkhorn's: it needs mass that sums to 1, not digits beyond float32.
    beta = beta / beta.sum((-2, -1), keepdim=True)
    kl = torch.special.xlogy(alpha, alpha) - torch.special.xlogy(alpha, beta)
    kl = kl.double().sum((-2, -1))
    return {
        "hausdorff": hausdorff_divergence(alpha, beta, cost),
        "hausdorff_reverse": hausdorff_divergence(beta, alpha, cost),
        "kl": torch.where(torch.isfinite(kl), kl, 0.0),
        "kl_finite": torch.isfinite(kl),
        "support": (beta > USED).sum((-2, -1)),
        "entropy": torch.special.entr(beta).sum((-2, -1)),
        "true_support": (alpha > USED).sum((-2, -1)),
        "true_entropy": torch.special.entr(alpha).sum((-2, -1)),
    }


class Means:
    """Sums over batches, in float64, that become means over all processes."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._count = 0

    def add(self, values: dict[str, Tensor]) -> None:
        """Add the drawings of a batch."""
        for name, value in values.items():
            total = value.double().sum()
            self._sums[name] = self._sums[name] + total if name in self._sums else total
        self._count += len(next(iter(values.values())))

    def reduce(self, device: torch.device) -> dict[str, float | None]:
        """Return the means. KL is over the drawings where it is finite; None if there are none."""
        names = sorted(self._sums)
        count = torch.tensor(self._count, dtype=torch.float64, device=device)
        totals = torch.stack([*(self._sums[name] for name in names), count])
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(totals)
        *sums, drawings = totals.tolist()
        found = {name: total / drawings for name, total in zip(names, sums, strict=True)}
        share = found["kl_finite"]
        return {**found, "kl": found["kl"] / share if share else None}
