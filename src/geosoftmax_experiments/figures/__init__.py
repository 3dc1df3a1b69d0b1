"""The figures of the paper, each drawn by one function from the library.

=============  =========================================================================
name           what it shows
=============  =========================================================================
``fields``     Figure 1: distance fields, and the link that inverts them
``levels``     Figure 2: entropy, g-softmax and conjugate; level sets, extrapolation
``training``   Figure 3: loss and Hausdorff divergence during training, on ``car``
=============  =========================================================================

A function of `FIGURES` takes a console, on which it shows its progress, and returns a figure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.figure import Figure
from rich.console import Console

from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.figures.fields import draw_fields
from geosoftmax_experiments.figures.levels import draw_levels
from geosoftmax_experiments.figures.style import save
from geosoftmax_experiments.figures.training import draw_training

__all__ = ["FIGURES", "draw_fields", "draw_levels", "draw_training", "run", "save"]

FIGURES: dict[str, Callable[[Console], Figure]] = {
    "fields": draw_fields,
    "levels": draw_levels,
    "training": draw_training,
}


def run(names: Sequence[str], folder: Path, console: Console) -> list[Path]:
    """Draw the figures of these names, all where there are none; return the files."""
    unknown = [name for name in names if name not in FIGURES]
    if unknown:
        raise UserError(
            f"There is no figure {unknown[0]!r}.", f"Take some of {', '.join(FIGURES)}."
        )
    written: list[Path] = []
    for name in names or FIGURES:
        written += save(FIGURES[name](console), folder / name)
    console.print(f"{len(written)} pictures saved to {folder.resolve()}", soft_wrap=True)
    return written
