"""Pictures of what runs make: reconstructions of test drawings, samples from the prior.

Those of a comparison are stored in ``pictures.npz``, to draw them again without the runs.
"""

from __future__ import annotations

import math
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from geosoftmax_experiments import files
from geosoftmax_experiments.data.drawings import (
    NAMES,
    Drawings,
    as_distributions,
    load_drawings,
)
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.report import plain_label
from geosoftmax_experiments.vae.checkpoints import load_weights
from geosoftmax_experiments.vae.layers import LAYERS, layer_of
from geosoftmax_experiments.vae.models import VAE
from geosoftmax_experiments.vae.module import build_net
from geosoftmax_experiments.vae.settings import RunSettings, derive_seed, read_settings

matplotlib.use("Agg")  # pictures go to files: no screen is needed

__all__ = ["LINE", "PICTURES", "Run", "Shown", "black_from", "draw_rows", "open_run", "prior_codes",
           "read_pictures", "reconstructions", "write_pictures"]  # fmt: skip

#: The drawings of each picture, by the label of their line.
Shown = dict[str, dict[str, Tensor]]
#: The pictures of a comparison; those of older results lack the last.
PICTURES = ("reconstructions", "samples", "fitted")
#: Far more than a comparison stores: some hundred kilobytes, ten drawings in a line.
MOST_BYTES = 2**25
MOST_DRAWINGS = 100
#: Drawings in a line of the pictures of a comparison.
LINE = 10
#: The share of the pixels of a picture that are drawn black.
BLACK = 0.01


@dataclass(frozen=True)
class Run:
    """A trained network, its settings, and its data."""

    settings: RunSettings
    net: VAE
    drawings: Drawings | None

    @property
    def label(self) -> str:
        """What its output layer is called."""
        return LAYERS[self.settings.loss].label

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return self.net.offset.device

    @torch.no_grad()
    def decode(self, code: Tensor) -> Tensor:
        """Return the drawings of codes, a part at a time."""
        layer = layer_of(self.settings.loss, self.settings.smoothing)
        cost = self.settings.cost.to(self.device)
        return torch.cat([layer.link(self.net.decode(c).float(), cost) for c in code.split(500)])


def open_run(folder: Path, drawings: Drawings | None = None, device: str = "cpu") -> Run:
    """Read a run; `drawings` are its data, where they have been read already."""
    settings = read_settings(folder / "run.json")
    net = load_weights(lambda: build_net(settings), folder)
    return Run(settings, net.eval().to(device), drawings)


@torch.no_grad()
def reconstructions(run: Run, count: int, data: str | None = None) -> dict[str, Tensor]:
    """Return drawings, and what becomes of them through the means of their codes.

    They are those that the run keeps for the test, or the first of other `data`.
    """
    if data is None:
        drawings = run.drawings or run.settings.load()
        rows = drawings.split().test
    else:
        drawings = _read_as(run.settings, data)
        rows = drawings.rows
    alpha = as_distributions(drawings.tensor(rows[:count]))
    return {"drawing": alpha, run.label: run.decode(run.net.encode(alpha).mean)}


def _read_as(settings: RunSettings, data: str) -> Drawings:
    """Read drawings at the size of those of a run; others are refused."""
    height, width = settings.shape
    resized = height == width and data not in NAMES and not data.endswith(".npy")
    drawings = load_drawings(data, size=height if resized else None)
    if drawings.shape != settings.shape:
        found = " × ".join(map(str, drawings.shape))
        raise UserError(
            f"The drawings of {data!r} have {found} pixels; the run was trained on {height} × "
            f"{width}.",
            "Give drawings of that size, or a folder of pictures, which are resized.",
        )
    return drawings


def prior_codes(count: int, latent: int, seed: int = 0) -> Tensor:
    """Return codes from the prior: the same for each run."""
    generator = torch.Generator().manual_seed(derive_seed(seed, "prior"))
    return torch.randn(count, latent, generator=generator)


def black_from(picture: Any) -> float:
    """Return the ink from which pixels are drawn black: a hundredth of them, whatever the layer.

    A share of the inked pixels would favour layers with exact zeros.
    """
    ink = np.sort(np.ravel(np.asarray(picture, dtype=np.float64)))
    return float(ink[-math.ceil(BLACK * len(ink))]) or float(ink[-1]) or 1.0


def draw_rows(rows: dict[str, Tensor]) -> Figure:
    """Draw a line of drawings for each label; the darkest hundredth of the pixels is black."""
    count = max(len(pictures) for pictures in rows.values())
    figure, axes = plt.subplots(
        len(rows),
        count,
        figsize=(0.8 * count + 1.6, 0.85 * len(rows) + 0.1),
        squeeze=False,
        layout="constrained",
    )
    for line, (label, pictures) in zip(axes, rows.items(), strict=True):
        for axis in line:
            axis.set_xticks([])
            axis.set_yticks([])
        for axis, picture in zip(line, pictures, strict=False):
            axis.imshow(picture.numpy(), cmap="gray_r", vmin=0.0, vmax=black_from(picture))
        line[0].set_ylabel(plain_label(label), rotation=0, ha="right", va="center", fontsize=9)
    return figure


# ------------------------------------------------------------------ pictures.npz


def write_pictures(shown: Shown, path: Path) -> None:
    """Write the drawings of pictures: an array for ``picture/label``."""
    arrays: dict[str, Any] = {
        f"{name}/{label}": drawings.numpy().astype(np.float16)
        for name, lines in shown.items()
        for label, drawings in lines.items()
    }

    def write(partial: Path) -> None:
        with partial.open("wb") as file:
            np.savez_compressed(file, **arrays)

    files.write(path, write)


def read_pictures(path: Path) -> Shown:
    """Read what `write_pictures` wrote. All else is a ValueError, before it takes memory."""
    shown: Shown = {name: {} for name in PICTURES}
    with path.open("rb") as file, zipfile.ZipFile(file) as packed:
        if sum(entry.file_size for entry in packed.infolist()) > MOST_BYTES:
            raise ValueError(f"unpacked, it has more than {MOST_BYTES:,} bytes")
        file.seek(0)
        with np.load(file, allow_pickle=False) as stored:
            for key in stored:
                name, _, label = key.partition("/")
                shown[name][label] = _drawings(stored[key])
    return shown


def _drawings(found: np.ndarray) -> Tensor:
    if found.dtype != np.float16 or found.ndim != 3 or not 0 < len(found) <= MOST_DRAWINGS:
        raise ValueError(f"{found.dtype} of shape {found.shape} are not drawings")
    if not np.isfinite(found).all():
        raise ValueError("drawings are not finite")
    return torch.from_numpy(found.astype(np.float32))
