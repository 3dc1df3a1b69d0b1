"""The super-resolved image: every emitter of every frame on a finer grid."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.files import write

__all__ = ["FINER", "check_name", "render", "save"]

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


def save(path: Path, image: np.ndarray, frames: np.ndarray) -> None:
    """Write the image as it is (TIFF), or beside the sum of the frames (PNG)."""
    if path.suffix.lower() != ".png":
        import tifffile

        write(path, lambda partial: tifffile.imwrite(partial, image, photometric="minisblack"))
        return
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5), layout="constrained")
    titles = ("sum of the frames", "emitters")
    for axes, data, title in zip(
        figure.subplots(1, 2), (frames.sum(0), image), titles, strict=True
    ):
        axes.imshow(data, cmap="inferno", vmax=max(float(np.quantile(data, 0.999)), 1e-12))
        axes.set_title(title)
        axes.set_axis_off()
    write(path, lambda partial: figure.savefig(partial, dpi=110))
