"""What the divergence sees: spectra of kernels, and lines that come apart into dots."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure

from geosoftmax import LineCost, hausdorff_divergence
from geosoftmax_experiments.figures.style import BLUE, GREEN, ORANGE, SMALL, WIDTH, plain

__all__ = ["draw_spectra", "seen", "spectrum"]

#: The costs that are compared, and their colours: exponent and scale.
KERNELS = {(2.0, 0.5): ORANGE, (1.0, 1.0): BLUE, (1.0, 2.0): GREEN}
#: Pixels of the line that comes apart, and of the margins beside it.
LINE, MARGIN = 25, 6


def spectrum(p: float, scale: float, frequency: np.ndarray) -> np.ndarray:
    """``r(ω) = K̂(ω) / K̂(0)`` of ``K = exp(-scale |x|^p / 2)`` on the integers."""
    x = np.arange(1, 400)
    kernel = np.exp(-scale * x**p / 2)
    waves = 1 + 2 * np.cos(np.multiply.outer(frequency, x)) @ kernel
    return waves / (1 + 2 * kernel.sum())


def seen(p: float, scale: float, frequency: np.ndarray) -> np.ndarray:
    """``2r / (1 + r)``: the divergence of a small wave on an even line, over its KL divergence."""
    r = spectrum(p, scale, frequency)
    return 2 * r / (1 + r)


def come_apart(share: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return an even line, and one in which pixels give that share of ink to their neighbours.

    In turns one gives and one takes: all of the ink in the middle, none at the ends.
    """
    line = torch.zeros(LINE + 2 * MARGIN, dtype=torch.float64)
    line[MARGIN:-MARGIN] = 1 / LINE
    place = torch.arange(LINE, dtype=torch.float64)
    wave = (-1) ** place * torch.sin(torch.pi * place / (LINE - 1)) ** 2
    dots = line.clone()
    dots[MARGIN:-MARGIN] *= 1 + share * (wave - wave.mean())
    return line, dots / dots.sum()


def draw_spectra() -> Figure:
    """Draw what is seen of waves of each length, and of a line that comes apart."""
    figure, axes = plt.subplots(1, 2, figsize=(WIDTH, 2.9), layout="constrained")
    length = np.geomspace(2, 40, 200)
    shares = np.geomspace(0.03, 0.98, 40)
    for (p, scale), colour in KERNELS.items():
        label = f"p = {p:g}, scale {scale:g}"
        axes[0].plot(length, seen(p, scale, 2 * np.pi / length), color=colour, label=label)
        cost = LineCost(LINE + 2 * MARGIN, p=p) * scale
        apart = [float(hausdorff_divergence(*come_apart(t), cost)) for t in shares]
        axes[1].plot(shares, apart, color=colour, label=label)
    pairs = (come_apart(t) for t in shares)
    entropy = [float(torch.special.xlogy(a, a).sum() - torch.xlogy(a, b).sum()) for a, b in pairs]
    axes[1].plot(shares, entropy, color="black", ls=":", label="KL (softmax)")
    axes[0].axhline(1.0, color="black", ls=":")
    axes[0].set_xscale("log")
    axes[0].set_xticks([2, 3, 5, 10, 20, 40], ["2", "3", "5", "10", "20", "40"])
    axes[0].minorticks_off()
    plain(axes[0], "a small wave: divergence over KL", "length of the wave (pixels)")
    plain(axes[1], "a line from one that comes apart", "share of ink that goes to neighbours")
    for axis in axes:
        axis.set_yscale("log")
    axes[0].set_ylim(5e-5, 2)
    axes[1].set_xscale("log")
    axes[1].set_ylim(1e-8, 2)
    axes[1].set_xticks([0.03, 0.1, 0.3, 1], ["0.03", "0.1", "0.3", "1"])
    axes[1].minorticks_off()
    axes[0].legend(
        *axes[1].get_legend_handles_labels(), fontsize=SMALL, frameon=False, loc="lower right"
    )
    return figure
