"""What a small network, trained on training drawings alone, says of reconstructions and samples.

It learns the classes of the drawings where they have some, else by how many quarter turns a drawing
was rotated. Its last hidden layer gives features, in which samples are compared with real drawings:
by Fréchet's distance, the kernel distance (both as in FID and KID, with these features), precision
and recall. Real training drawings, compared with the same real ones, show what can be reached.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from geosoftmax_experiments import files
from geosoftmax_experiments.data.drawings import Drawings, as_distributions
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.runs import one_thread
from geosoftmax_experiments.vae.settings import derive_seed

__all__ = ["COUNT", "SAMPLED", "Judge", "compare_features", "open_judge", "real_floor"]

#: What is said of samples: of the first two less is better, of the others more.
SAMPLED = {
    "frechet": "Fréchet distance",
    "kernel": "kernel distance",
    "precision": "precision",
    "recall": "recall",
}
#: Features; pictures to learn from; how many are shown in all, and how often each: at most.
FEATURES, MOST, SHOWN, OFTEN = 32, 20_000, 60_000, 60
BATCH = 128
#: Drawings that are compared, at most.
COUNT = 1000
#: A sample is in the manifold of others within the distance of so many neighbours.
NEIGHBOURS = 3


class Judge(nn.Module):
    """Three convolutions; ink from 0 to 1 in, features and scores of classes out."""

    def __init__(self, classes: int, labelled: bool) -> None:
        super().__init__()
        widths = ((1, 16), (16, 32), (32, FEATURES))
        layers = ((nn.Conv2d(a, b, 3, 2, 1), nn.BatchNorm2d(b), nn.ReLU()) for a, b in widths)
        self.body = nn.Sequential(*(part for three in layers for part in three))
        self.head = nn.Linear(FEATURES, classes)
        self.labelled = labelled

    def features(self, alpha: Tensor) -> Tensor:
        """Return the features of drawings, of shape ``(batch, h, w)``."""
        ink = alpha / alpha.amax((1, 2), keepdim=True)
        return self.body(ink[:, None]).mean((2, 3))

    def forward(self, alpha: Tensor) -> Tensor:
        """Return scores of classes."""
        return self.head(self.features(alpha))

    @torch.no_grad()
    def judge(self, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """Return features and classes of drawings, on the CPU."""
        parts = [self.features(part) for part in alpha.split(500)]
        features = torch.cat(parts)
        return features.double().cpu(), self.head(features).argmax(1).cpu()


def open_judge(drawings: Drawings, path: Path) -> Judge:
    """Return the judge of a set: that which a file holds, or a new one, which is written to it."""
    labels = drawings.labels()
    height, width = drawings.shape
    turns = 4 if height == width else 2
    judge = Judge(turns if labels is None else int(labels.max()) + 1, labels is not None)
    if path.exists():
        try:
            judge.load_state_dict(load_file(path))
        except (OSError, RuntimeError, SafetensorError):
            raise UserError(
                f"{path} is damaged.", "Remove it, and the runs beside it: they were judged by it."
            ) from None
    else:
        _train(judge, drawings, labels)
        files.write(path, lambda partial: save_file(judge.state_dict(), partial))
    return judge.eval().requires_grad_(False)


def _train(judge: Judge, drawings: Drawings, labels: np.ndarray | None) -> None:
    """Train on training drawings alone: the same weights each time, on one machine."""
    rows = drawings.split().train[:MOST]
    images = drawings.tensor(rows)
    with torch.random.fork_rng(devices=[]), one_thread():  # sums do not depend on the cores
        torch.manual_seed(derive_seed(drawings.seed, "judge"))
        for module in judge.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                module.reset_parameters()
        optimizer = torch.optim.Adam(judge.parameters(), 3e-3)
        steps = max(1, min(SHOWN, OFTEN * len(rows)) // BATCH)
        for step in range(steps):
            chosen = torch.randint(len(rows), (BATCH,))
            alpha = as_distributions(images[chosen])
            if labels is None:
                turns = judge.head.out_features
                wanted = torch.randint(turns, (BATCH,))
                quarters = (wanted * (4 // turns)).tolist()
                pairs = zip(alpha, quarters, strict=True)
                alpha = torch.stack([torch.rot90(drawing, k) for drawing, k in pairs])
            else:
                wanted = torch.from_numpy(labels[rows[chosen]].astype(np.int64))
            optimizer.param_groups[0]["lr"] = 3e-3 * (1 - step / steps)
            optimizer.zero_grad()
            F.cross_entropy(judge(alpha), wanted).backward()
            optimizer.step()


# ------------------------------------------------------------------ distances of features


def compare_features(real: Tensor, other: Tensor) -> dict[str, float]:
    """Compare features of drawings, of shape ``(count, features)``, with those of real ones."""
    return {
        "frechet": frechet(real, other),
        "kernel": kernel_distance(real, other),
        "precision": covered(real, other),
        "recall": covered(other, real),
    }


def frechet(one: Tensor, other: Tensor) -> float:
    """``|μ₁ - μ₂|² + tr(Σ₁ + Σ₂ - 2 (Σ₁ Σ₂)^½)`` of the normal distributions of the moments."""
    (m, s), (n, t) = ((x.mean(0), torch.cov(x.T).reshape(x.shape[1], -1)) for x in (one, other))
    # Products of positive matrices have eigenvalues that are real, and not negative.
    roots = torch.linalg.eigvals(s @ t).real.clamp_min(0).sqrt().sum()
    return float((m - n).square().sum() + s.trace() + t.trace() - 2 * roots)


def kernel_distance(one: Tensor, other: Tensor) -> float:
    """Return the squared MMD with the kernel ``(⟨x, y⟩ / d + 1)³``: unbiased, so maybe negative."""

    def kernel(x: Tensor, y: Tensor) -> Tensor:
        return (x @ y.T / x.shape[1] + 1) ** 3

    def within(x: Tensor) -> Tensor:
        k = kernel(x, x)
        return (k.sum() - k.trace()) / (len(x) * (len(x) - 1))

    return float(within(one) + within(other) - 2 * kernel(one, other).mean())


def covered(one: Tensor, other: Tensor) -> float:
    """Return the share of `other` that lies within reach of `one`.

    Each point of `one` reaches as far as its nearest neighbours of `NEIGHBOURS`, itself aside.
    """
    reach = torch.cdist(one, one).kthvalue(min(NEIGHBOURS + 1, len(one)), dim=1).values
    return float((torch.cdist(other, one) <= reach).any(1).double().mean())


def real_floor(judge: Judge, drawings: Drawings, part: str) -> dict[str, Any]:
    """Compare real training drawings with the real ones that samples are compared with."""
    split = drawings.split()
    rows = getattr(split, part)[:COUNT]
    real, said = judge.judge(as_distributions(drawings.tensor(rows)))
    seen, _ = judge.judge(as_distributions(drawings.tensor(split.train[: len(rows)])))
    labels = drawings.labels()
    errors = None if labels is None else float((said.numpy() != labels[rows]).mean())
    return {**compare_features(real, seen), "error": errors}
