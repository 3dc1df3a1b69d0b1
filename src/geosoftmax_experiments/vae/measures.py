"""How close drawings come back, at what rate, and how concentrated they are.

The divergence is what geometric layers minimise, or close to it. Nobody trains on total variation,
squared error, structural similarity and Chamfer distance: these are the independent measures.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torchmetrics.functional.image import structural_similarity_index_measure

from geosoftmax import Cost, hausdorff_divergence

__all__ = ["COMPARED", "INDEPENDENT", "MEASURES", "Means", "as_ink", "chamfer", "energy", "measure",
           "picture_errors"]  # fmt: skip

#: A pixel counts as used from this share of the ink on: softmax leaves none at zero.
USED = 1e-4
#: A pixel counts as inked from this share of the darkest ink on.
INKED = 0.5
#: Numbers of floats that the distances of a part of a batch may take.
AT_ONCE = 2**24

DIVERGENCES = {"hausdorff": "Hausdorff D(α‖β)", "hausdorff_reverse": "Hausdorff D(β‖α)"}
#: Measures that no layer is trained on; lower is better.
INDEPENDENT = {
    "total_variation": "total variation",
    "mse": "MSE",
    "dissimilarity": "1 − SSIM",
    "chamfer": "Chamfer distance (pixels)",
    "error": "errors of a classifier",
}
#: All by which layers are compared at equal rate. The energy distance is a relative of the
#: divergence, with a wide kernel: it does not count as independent.
COMPARED = {**DIVERGENCES, **INDEPENDENT, "energy": "energy distance"}
#: The columns that every measurement has. Errors are counted once, at the end of a run.
MEASURES = {
    **{name: label for name, label in COMPARED.items() if name != "error"},
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
        Of the divergence.
    """
    # The divergence is Sinkhorn's: it needs mass that sums to 1, not digits beyond float32.
    beta = beta / beta.sum((-2, -1), keepdim=True)
    kl = torch.special.xlogy(alpha, alpha) - torch.special.xlogy(alpha, beta)
    kl = kl.double().sum((-2, -1))
    ink, drawn = as_ink(alpha), as_ink(beta)
    return {
        "hausdorff": hausdorff_divergence(alpha, beta, cost),
        "hausdorff_reverse": hausdorff_divergence(beta, alpha, cost),
        "total_variation": (alpha - beta).abs().sum((-2, -1)) / 2,
        "mse": (ink - drawn).square().mean((-2, -1)),
        "dissimilarity": 1 - _similarity(ink, drawn),
        "chamfer": chamfer(ink >= INKED, drawn >= INKED),
        "energy": energy(alpha, beta),
        "kl": torch.where(torch.isfinite(kl), kl, 0.0),
        "kl_finite": torch.isfinite(kl),
        "support": (beta > USED).sum((-2, -1)),
        "entropy": torch.special.entr(beta).sum((-2, -1)),
        "true_support": (alpha > USED).sum((-2, -1)),
        "true_entropy": torch.special.entr(alpha).sum((-2, -1)),
    }


def _similarity(ink: Tensor, drawn: Tensor) -> Tensor:
    """SSIM of pictures from 0 to 1, one value for each.

    The window is the usual one, a Gaussian of 1.5 pixels, cut off at 5; on pictures that it does
    not fit into, one of half a pixel, cut off at 2.
    """
    sigma = 1.5 if min(ink.shape[-2:]) > 11 else 0.5
    values = structural_similarity_index_measure(
        drawn[:, None], ink[:, None], sigma=sigma, reduction="none", data_range=1.0
    )
    return torch.atleast_1d(values)  # type: ignore[arg-type]


def as_ink(alpha: Tensor, level: float | None = None) -> Tensor:
    """Return distributions as pictures: ink from 0 to 1.

    The darkest pixel of each is 1. With a level, pixels are 1 from so many times the mean mass of
    the ink on, and one dark pixel does not make the others pale.

    Examples
    --------
    >>> alpha = torch.tensor([[[0.1, 0.1, 0.1, 0.7]]])
    >>> as_ink(alpha)
    tensor([[[0.1429, 0.1429, 0.1429, 1.0000]]])
    >>> as_ink(alpha, 0.5)
    tensor([[[0.3846, 0.3846, 0.3846, 1.0000]]])
    """
    if level is None:
        return alpha / alpha.amax((-2, -1), keepdim=True)
    mean = alpha.square().sum((-2, -1), keepdim=True) / alpha.sum((-2, -1), keepdim=True)
    return (alpha / (level * mean)).clamp(0, 1)


def picture_errors(alpha: Tensor, beta: Tensor, level: float | None) -> tuple[float, float]:
    """Return MSE and 1 − SSIM of reconstructions as pictures, mean over drawings."""
    ink, drawn = as_ink(alpha), as_ink(beta, level)
    return float((ink - drawn).square().mean()), float((1 - _similarity(ink, drawn)).mean())


def chamfer(one: Tensor, other: Tensor) -> Tensor:
    """Mean distance, in pixels, from an inked pixel to the nearest inked one of the other drawing.

    The mean of both directions. Each drawing, of shape ``(batch, h, w)``, has an inked pixel.

    Examples
    --------
    >>> dot, line = torch.eye(3, dtype=torch.bool)[1:2], torch.ones(1, 3, dtype=torch.bool)
    >>> chamfer(dot[:, None], line[:, None])
    tensor([0.3333])
    """
    part = max(1, AT_ONCE // math.prod(one.shape[1:]) // max(one.shape[1:]))
    found = []
    for a, b in zip(one.split(part), other.split(part), strict=True):
        ways = ((a * _nearest(b), a), (b * _nearest(a), b))
        found.append(sum(far.sum((1, 2)) / ink.sum((1, 2)) for far, ink in ways) / 2)
    return torch.cat(found)


def _nearest(ink: Tensor) -> Tensor:
    """Return the distance of each pixel to the nearest inked one: along columns, then rows."""
    far = torch.where(ink, 0.0, math.inf)
    for axis in (1, 2):
        place = torch.arange(ink.shape[axis], device=ink.device)
        apart = (place[:, None] - place).square()
        far = far.transpose(axis, 2)
        far = (far[:, :, None] + apart).amin(-1).transpose(axis, 2)
    return far.sqrt()


def energy(alpha: Tensor, beta: Tensor) -> Tensor:
    """``sqrt(2 E|X - Y| - E|X - X'| - E|Y - Y'|)``, in pixels, of pixels drawn from both.

    Examples
    --------
    >>> dots = torch.eye(3)[:, None]
    >>> energy(dots[:1], dots[1:2])
    tensor([1.4142])
    """
    h, w = alpha.shape[1:]
    rows, columns = torch.meshgrid(
        *(torch.arange(side, device=alpha.device, dtype=alpha.dtype) for side in (h, w)),
        indexing="ij",
    )
    place = torch.stack([rows.flatten(), columns.flatten()], 1)
    difference = (alpha - beta).flatten(1)
    between = ((difference @ torch.cdist(place, place)) * difference).sum(1)
    return (-between).clamp_min(0).sqrt()


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
