"""Frames with their points drawn, and with the distribution where a point is unsure."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from geosoftmax_experiments.data.keypoints import Frames
from geosoftmax_experiments.figures.style import BLUE, GREEN, ORANGE, PURPLE, SKY, SMALL, bare
from geosoftmax_experiments.keypoints.model import Model
from geosoftmax_experiments.keypoints.training import Prediction
from geosoftmax_experiments.report import plain_label

__all__ = ["draw_least_sure"]

COLOURS = (ORANGE, SKY, GREEN, PURPLE, BLUE, "#e69f00", "#f0e442", "#ffffff")
#: Points whose best window has less than this share of the mass are drawn with all of it.
UNSURE = 0.9
COLUMNS = 4


def draw_least_sure(
    model: Model,
    frames: Frames,
    points: np.ndarray,
    found: Prediction,
    count: int,
    device: torch.device,
) -> Figure:
    """Return a figure of the frames with the least sure points.

    Crosses are the points, those of the labels circles. Where a point is unsure, its distribution
    is laid over the frame in the same colour.
    """
    order = np.argsort(found.likelihood.min(-1))[:count]
    alpha = model.head.alpha(model(torch.from_numpy(frames.pictures[order]).to(device) / 255))
    maps = alpha.double().cpu().numpy()
    columns = min(COLUMNS, len(order))
    lines = -(-len(order) // columns)
    height, width = frames.sizes[order[0]]
    figure, axes = plt.subplots(
        lines, columns, squeeze=False, layout="constrained",
        figsize=(2.6 * columns, 2.6 * lines * height / width + 0.25 * lines + 0.5),
    )  # fmt: skip
    for axis in axes.flat[len(order) :]:
        axis.set_visible(False)
    for axis, k, of_frame in zip(axes.flat, order, maps, strict=False):
        tall, wide = frames.sizes[k]
        extent = (-0.5, wide - 0.5, tall - 0.5, -0.5)
        axis.imshow(frames.pictures[k], cmap="gray", extent=extent)
        for part in range(frames.parts):
            colour = COLOURS[part % len(COLOURS)]
            sure = found.likelihood[k, part]
            if sure < UNSURE:
                axis.imshow(
                    np.sqrt(of_frame[part] / of_frame[part].max()), cmap=_fading(colour),
                    extent=extent, vmin=0, vmax=1, interpolation="nearest",
                )  # fmt: skip
            row, column = points[k, part]
            axis.plot(column, row, "+", color=colour, ms=8, mew=1.6)
            true_row, true_column = frames.labels.points[k, part]
            axis.plot(true_column, true_row, "o", mfc="none", color=colour, ms=7, mew=0.8)
        bare(axis, plain_label(f"{_name(frames, int(k))}: {found.likelihood[k].min():.2f}"))
        axis.set_xlim(-0.5, wide - 0.5)
        axis.set_ylim(tall - 0.5, -0.5)
    _add_legend(figure, frames)
    return figure


def _add_legend(figure: Figure, frames: Frames) -> None:
    handles = [
        Line2D([], [], ls="", marker="+", ms=8, mew=1.6, color=_dark(k))
        for k in range(frames.parts)
    ]
    names = [plain_label(part) for part in frames.labels.parts]
    figure.legend(
        handles, names, loc="outside lower center", ncols=min(6, len(names)), fontsize=SMALL,
        frameon=False, title="above each frame: the least likelihood of its points",
        title_fontsize=SMALL,
    )  # fmt: skip


def _dark(part: int) -> str:
    colour = COLOURS[part % len(COLOURS)]
    return "#000000" if colour == "#ffffff" else colour


def _name(frames: Frames, k: int) -> str:
    return frames.labels.paths[k].rsplit("/", 1)[-1]


def _fading(colour: str) -> LinearSegmentedColormap:
    """Return a map from clear to a colour."""
    red, green, blue = to_rgb(colour)
    return LinearSegmentedColormap.from_list(
        "fading", [(red, green, blue, 0.0), (red, green, blue, 0.85)]
    )
