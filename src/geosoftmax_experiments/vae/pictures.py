"""Pictures of what runs make: reconstructions of test drawings, samples from the prior."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import torch
from matplotlib.figure import Figure
from torch import Tensor

from geosoftmax_experiments.data.drawings import Drawings, as_distributions
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.pages import plain_label, save
from geosoftmax_experiments.vae.checkpoints import load_weights
from geosoftmax_experiments.vae.layers import LAYERS
from geosoftmax_experiments.vae.models import VAE
from geosoftmax_experiments.vae.module import build_net, drawing_cost
from geosoftmax_experiments.vae.settings import RunSettings, derive_seed, read_settings

matplotlib.use("Agg")  # pictures go to files: no screen is needed

__all__ = ["check_picture", "draw_rows", "open_run", "reconstructions", "samples", "save"]


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


def draw_rows(rows: dict[str, Tensor], title: str = "") -> Figure:
    """Draw a line of drawings for each label; the darkest ink of a drawing is black."""
    count = max(len(pictures) for pictures in rows.values())
    figure, axes = plt.subplots(
        len(rows),
        count,
        figsize=(0.8 * count + 1.6, 0.85 * len(rows) + (0.5 if title else 0.1)),
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
    if title:
        figure.suptitle(title, fontsize=10)
    return figure


def check_picture(path: Path) -> None:
    """Refuse what is no picture before any work is done."""
    if path.suffix.lower() not in {".png", ".svg", ".pdf"}:
        raise UserError(f"{path} is no picture.", "Let it end in .png, .svg or .pdf.")
