"""The figure of the comparison: how far each model is from the control, by the number of posts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from geosoftmax_experiments.figures.style import BLUE, GREEN, ORANGE, PURPLE, SMALL, WIDTH, plain
from geosoftmax_experiments.taxonomy.measures import MEASURES
from geosoftmax_experiments.taxonomy.models import MODELS
from geosoftmax_experiments.taxonomy.summary import CONTROL, FEWEST, Column, by_draw

__all__ = ["draw_gains"]

COLOURS = (BLUE, ORANGE, GREEN, PURPLE)


def draw_gains(
    rows: Any, sizes: tuple[int, ...], names: list[str], columns: Sequence[Column]
) -> Figure:
    """Draw mean differences to the control over draws, with twice their standard error.

    Few draws have no bar. To the right is better in every panel.
    """
    names = [name for name in names if name != CONTROL]
    figure, axes = plt.subplots(
        1, len(columns), figsize=(1.45 * WIDTH, 0.45 * len(names) + 1.3), sharey=True,
        layout="constrained",
    )  # fmt: skip
    places = np.arange(len(names))
    shifts = 0.18 * (np.arange(len(sizes)) - (len(sizes) - 1) / 2)
    for axis, column in zip(axes, columns, strict=True):
        sign = -1 if MEASURES[column.measure].lower_is_better else 1
        axis.axvline(0, color="0.6", linewidth=1)
        for size, shift, colour in zip(sizes, shifts, COLOURS * len(sizes), strict=False):
            table: Any = by_draw(rows, size, column)
            gains = sign * table[names].sub(table[CONTROL], axis=0)
            many = len(gains) >= FEWEST
            error = 2 * gains.std(ddof=1) / np.sqrt(len(gains)) if many else None
            axis.errorbar(
                gains.mean(), places + shift, xerr=error, fmt="o", color=colour, markersize=4,
                linewidth=1, label=f"{size:,} posts",
            )  # fmt: skip
        better = "less" if sign < 0 else "more"
        plain(axis, column.label, f"{better} than {MODELS[CONTROL].label}: right is better")
        axis.set_yticks(places, [MODELS[name].label for name in names])
        axis.xaxis.set_major_locator(MaxNLocator(5))
        axis.grid(axis="y", color="0.92")
        axis.set_axisbelow(True)
    axes[0].invert_yaxis()
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=len(sizes), fontsize=SMALL, frameon=False
    )
    return figure
