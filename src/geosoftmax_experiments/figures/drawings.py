"""Figures 4, 5 and 6: drawings that auto-encoders make with each output layer.

They are drawn from stored results. One weight of the latent KL lands the layers at very different
rates, so each layer is shown at the weight whose rate is nearest to that of softmax.
"""

from __future__ import annotations

import textwrap
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track

from geosoftmax_experiments.figures.stored import Stored, read_stored
from geosoftmax_experiments.figures.style import SMALL, WIDTH, bare, plain
from geosoftmax_experiments.vae.figures import MARKERS, draw_curve, plain_numbers
from geosoftmax_experiments.vae.frontier import REFERENCE
from geosoftmax_experiments.vae.layers import LAYERS
from geosoftmax_experiments.vae.pictures import black_from

__all__ = ["draw_cats", "draw_drawings", "draw_mnist"]

# In inches: what stands left of the drawings, between the two blocks of them, above and below; and
# the height of all that belongs to the curves.
LABEL, GAP, HEAD, FOOT, CURVES = 1.1, 0.25, 0.32, 0.45, 3.1
#: An equals sign between spaces at which no line breaks.
JOINED = "\u00a0=\u00a0"


def draw_cats(console: Console, paper: bool = False) -> Figure:
    """Draw Figure 4: cats of 28×28 pixels, and the divergence during training."""
    stored = read_stored("cats", paper)
    figure = _draw_lines(stored, 5, CURVES, "Figure 4: cats", console)
    _draw_curves(figure, stored)
    return figure


def draw_mnist(console: Console, paper: bool = False) -> Figure:
    """Draw Figure 5: digits of MNIST."""
    return _draw_lines(read_stored("mnist", paper), 5, 0.0, "Figure 5: mnist", console)


def draw_drawings(console: Console, paper: bool = False) -> Figure:
    """Draw Figure 6: drawings of 64×64 pixels, by convolutions."""
    return _draw_lines(read_stored("drawings", paper), 4, 0.0, "Figure 6: drawings", console)


# ------------------------------------------------------------------ drawings


def _draw_lines(stored: Stored, count: int, below: float, title: str, console: Console) -> Figure:
    """Draw a line for each layer: left reconstructions of test drawings, right samples.

    `below` inches are left free at the foot.
    """
    block = (WIDTH - LABEL - GAP) / 2 - 0.03
    line = block / count
    height = HEAD + line * (1 + len(stored.weights)) + FOOT + below
    figure = plt.figure(figsize=(WIDTH, height))
    left, right = LABEL, LABEL + block + GAP

    def show(pictures: np.ndarray, x: float, k: int) -> Axes:
        y = height - HEAD - (k + 1) * line
        axis = _add_axes(figure, (x, y, block, line), frameon=False)
        axis.imshow(_side_by_side(pictures[:count]), cmap="gray_r", vmin=0, vmax=1)
        bare(axis)
        return axis

    first = show(stored.drawings, left, 0)
    first.set_title("test drawings, and reconstructions (seed 0)", fontsize=SMALL + 1)
    _name(first, "drawing")
    for k, loss in enumerate(track(stored.weights, title, console=console), start=1):
        name = textwrap.fill(LAYERS[loss].label.replace(" = ", JOINED), 16).replace(JOINED, " = ")
        _name(show(stored.reconstructions[loss], left, k), f"{name}\n{stored.rate(loss):.0f} nats")
        axis = show(stored.samples[loss], right, k)
        if k == 1:
            axis.set_title("samples from the prior (seed 0)", fontsize=SMALL + 1)
    middle = (below + FOOT / 2) / height
    figure.text(0.5, middle, _rates(stored), fontsize=SMALL, ha="center", va="center")
    return figure


def _rates(stored: Stored) -> str:
    """Say what can be compared."""
    rates = {loss: stored.rate(loss) for loss in stored.weights}
    reference = rates.pop(REFERENCE)
    shares = [reference / rate for rate in rates.values()]
    return (
        "Not one weight for all: each layer at the weight, of those tried, whose latent KL is "
        "nearest to that of softmax.\n"
        f"Softmax spends {min(shares):.2f} to {max(shares):.2f} times the nats of the others. "
        f"Cost: {stored.cost}."
    )


def _name(axis: Axes, text: str) -> None:
    axis.set_ylabel(text, fontsize=SMALL, rotation=0, ha="right", va="center", labelpad=4)


def _add_axes(figure: Figure, inches: tuple[float, float, float, float], **others: Any) -> Axes:
    """Add axes: from the left, from below, width and height."""
    sides = 2 * [figure.get_figwidth(), figure.get_figheight()]
    left, bottom, width, height = (part / side for part, side in zip(inches, sides, strict=True))
    return figure.add_axes((left, bottom, width, height), **others)


def _side_by_side(pictures: np.ndarray) -> np.ndarray:
    """Return drawings in a line, white between them."""
    ink = [np.clip(p / black_from(p), 0, 1) for p in pictures]
    edge = max(1, pictures.shape[-1] // 28)
    return np.concatenate([np.pad(picture, edge) for picture in ink], axis=1)


# ------------------------------------------------------------------ curves


def _draw_curves(figure: Figure, stored: Stored) -> None:
    """Draw the test divergence against epochs and against seconds, at the foot of the figure."""
    left, gap, foot = 0.6, 0.3, 1.0
    width = (WIDTH - left - gap - 0.05) / 2
    for k, (x, label) in enumerate((("epoch", "epochs"), ("seconds", "seconds of training"))):
        place = left + k * (width + gap), foot, width, CURVES - foot - 0.5
        axis = _add_axes(figure, place)
        for loss, weight in stored.weights.items():
            style: Any = {
                "marker": MARKERS[loss],
                "markevery": (3, 8),
                "markersize": 3.5,
                "lw": 1.2,
            }
            draw_curve(axis, stored.rows, loss, weight, x, "{}: weight {:g}, {:.0f} nats", **style)
        plain(axis, "", label, "" if k else "Hausdorff divergence D(α‖β)")
        axis.set_yscale("log")
        plain_numbers(axis.yaxis, (1.0, 2.0, 4.0))
    lines = figure.axes[-1].get_legend_handles_labels()
    seeds = stored.rows.groupby("loss")["seed"].nunique()
    figure.legend(*lines, loc="lower center", ncols=2, fontsize=SMALL, frameon=False)
    figure.text(
        0.5,
        (CURVES - 0.2) / figure.get_figheight(),
        "test divergence in training, at those weights: mean and range of "
        f"{'up to ' if seeds.min() < seeds.max() else ''}{seeds.max()} seeds",
        fontsize=SMALL + 1,
        ha="center",
        va="top",
    )
