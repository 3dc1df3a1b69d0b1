"""Pictures of what runs make: reconstructions of test drawings, samples from the prior.

Those of a comparison are stored in ``pictures.npz``, to draw them again without the runs.
"""

from __future__ import annotations

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
from geosoftmax_experiments.data.drawings import Drawings, as_distributions
from geosoftmax_experiments.report import plain_label
from geosoftmax_experiments.vae.checkpoints import load_weights
from geosoftmax_experiments.vae.layers import LAYERS
from geosoftmax_experiments.vae.models import VAE
from geosoftmax_experiments.vae.module import build_net, drawing_cost
from geosoftmax_experiments.vae.settings import RunSettings, derive_seed, read_settings

matplotlib.use("Agg")  # pictures go to files: no screen is needed

__all__ = ["PICTURES", "Shown", "draw_rows", "open_run", "read_pictures", "reconstructions",
           "samples", "write_pictures"]  # fmt: skip

#: The drawings of each picture, by the label of their line.
Shown = dict[str, dict[str, Tensor]]
#: The pictures of a comparison.
PICTURES = ("reconstructions", "samples")
#: Far more than a comparison stores: some hundred kilobytes, ten drawings in a line.
MOST_BYTES = 2**25
MOST_DRAWINGS = 100


@dataclass(frozen=True)
class Run:
    """A trained network, its settings, and its data."""

    settings: RunSettings
    net: VAE
    drawings: Drawings | None

    @torch.no_grad()
    def decode(self, code: Tensor) -> Tensor:
        """Return the drawings of codes."""
        scores = self.net.decode(code).float()
        return LAYERS[self.settings.loss].link(scores, drawing_cost(self.settings))


def open_run(folder: Path, drawings: Drawings | None = None) -> Run:
    """Read a run, on the CPU; `drawings` are its data, where they have been read already."""
    settings = read_settings(folder / "run.json")
    net = load_weights(lambda: build_net(settings), folder)
    return Run(settings, net.eval(), drawings)


@torch.no_grad()
def reconstructions(run: Run, count: int) -> dict[str, Tensor]:
    """Return test drawings, and what becomes of them through the means of their codes."""
    drawings = run.drawings or run.settings.load()
    alpha = as_distributions(drawings.tensor(drawings.split().test[:count]))
    return {
        "drawing": alpha,
        LAYERS[run.settings.loss].label: run.decode(run.net.encode(alpha).mean),
    }


def samples(run: Run, count: int, seed: int = 0) -> dict[str, Tensor]:
    """Return drawings of codes that were drawn from the prior: the same codes for each run."""
    generator = torch.Generator().manual_seed(derive_seed(seed, "prior"))
    code = torch.randn(count, run.settings.latent, generator=generator)
    return {LAYERS[run.settings.loss].label: run.decode(code)}


def draw_rows(rows: dict[str, Tensor]) -> Figure:
    """Draw a line of drawings for each label; the darkest ink of a drawing is black."""
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
            ink = picture[picture > 0].float()
            dark = float(torch.quantile(ink, 0.99)) if len(ink) else 1.0
            axis.imshow(picture.numpy(), cmap="gray_r", vmin=0.0, vmax=dark)
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
