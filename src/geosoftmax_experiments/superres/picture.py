"""The super-resolved image: every emitter of every frame on a finer grid."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.files import write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["FINER", "check_name", "draw", "render", "round_length", "save"]

#: Pixels of the image along the side of a pixel of the camera.
FINER = 8
#: Standard deviation of an emitter in the image, in its pixels.
BLUR = 1.0


def check_name(path: Path) -> None:
    """Refuse names whose format cannot be told."""
    if path.suffix.lower() not in {".png", ".tif", ".tiff"}:
        raise UserError(f"{path} is no picture.", "Let it end in .png, .tif or .tiff.")


def render(rows: np.ndarray, shape: tuple[int, int], pixel: float) -> np.ndarray:
    """Return the emitters of all frames, each counting once, `FINER` times as fine.

    `rows` have ThunderSTORM's columns.
    """
    from scipy.ndimage import gaussian_filter

    height, width = shape
    edges = [np.arange(side * FINER + 1) * pixel / FINER for side in (height, width)]
    image, _, _ = np.histogram2d(rows[:, 3], rows[:, 2], bins=edges)
    return gaussian_filter(image, BLUR).astype(np.float32)


def save(path: Path, image: np.ndarray, frames: np.ndarray, pixel: float) -> None:
    """Write the image as it is (TIFF), or beside the sum of the frames (PNG).

    `pixel` is the side of a pixel of the frames, in nm.
    """
    if path.suffix.lower() != ".png":
        import tifffile

        write(path, lambda partial: tifffile.imwrite(partial, image, photometric="minisblack"))
        return
    figure = draw(image, frames.sum(0), pixel)
    write(path, lambda partial: figure.savefig(partial, dpi=110))


def draw(image: np.ndarray, total: np.ndarray, pixel: float) -> Figure:
    """Draw the sum of the frames beside the image of the emitters, each with a scale."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5), layout="constrained")
    height, width = (side * pixel for side in total.shape)
    titles = ("sum of the frames", "emitters")
    for axes, data, title in zip(figure.subplots(1, 2), (total, image), titles, strict=True):
        axes.imshow(
            data,
            cmap="inferno",
            vmax=max(float(np.quantile(data, 0.999)), 1e-12),
            extent=(0, width, height, 0),  # in nm
        )
        axes.set_title(title)
        axes.set_axis_off()
        _draw_scale(axes, width, height)
    return figure


def _draw_scale(axes: Axes, width: float, height: float) -> None:
    """Draw a bar of a round length in the lower right corner, and its length above."""
    from matplotlib.patheffects import withStroke

    length = round_length(width / 4)
    edge = 0.04 * min(width, height)
    right, y = width - edge, height - edge
    dark = [withStroke(linewidth=4, foreground="black")]  # to be seen on bright ground too
    axes.plot([right - length, right], [y, y], color="white", lw=2, path_effects=dark)
    label = f"{length:g} nm" if length < 1000 else f"{length / 1000:g} µm"
    axes.annotate(
        label,
        (right - length / 2, y),
        (0, 4),
        textcoords="offset points",
        color="white",
        ha="center",
        va="bottom",
        path_effects=dark,
    )


def round_length(most: float) -> float:
    """Return the largest of ..., 1, 2, 5, 10, 20, 50, ... that is not above `most`."""
    power = 10.0 ** math.floor(math.log10(most))
    return power * max(digit for digit in (1, 2, 5) if digit * power <= most)
