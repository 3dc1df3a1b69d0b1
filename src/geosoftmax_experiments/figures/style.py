"""How the figures look: one size of letters, colours that everyone can tell apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from geosoftmax_experiments import files

matplotlib.use("Agg")  # pictures go to files: no screen is needed

__all__ = ["BLUE", "GREEN", "ORANGE", "PURPLE", "SKY", "SMALL", "WIDTH", "bare", "plain", "save"]

#: Width of a page of text, in inches: letters have the size that they will have in print.
WIDTH = 6.9
#: Size of the smallest letters, in points.
SMALL = 8
# Okabe and Ito's colours.
BLUE, ORANGE, GREEN, PURPLE, SKY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9"


def plain(axis: Axes, title: str, x: str = "", y: str = "") -> None:
    """Name the axes, and leave out the frame that says nothing."""
    axis.set_title(title, fontsize=SMALL + 1)
    axis.set_xlabel(x, fontsize=SMALL)
    axis.set_ylabel(y, fontsize=SMALL)
    axis.tick_params(labelsize=SMALL)
    axis.spines[["top", "right"]].set_visible(False)


def bare(axis: Axes, title: str = "") -> None:
    """Leave out ticks: the axes of a picture have no values."""
    axis.set_title(title, fontsize=SMALL + 1)
    axis.set_xticks([])
    axis.set_yticks([])


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write ``stem.png`` and ``stem.svg``, each whole or not at all."""
    png, svg = stem.with_name(f"{stem.name}.png"), stem.with_name(f"{stem.name}.svg")
    undated: Any = {"metadata": {"Date": None}}
    try:
        files.write(png, lambda part: figure.savefig(part, dpi=220))
        with matplotlib.rc_context({"svg.hashsalt": "geosoftmax"}):  # the same file each time
            files.write(svg, lambda part: figure.savefig(part, dpi=220, **undated))
    finally:
        plt.close(figure)
    return [png, svg]
