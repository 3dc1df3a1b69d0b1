"""The figures of the paper, each drawn by one function from the library.

=============  =========================================================================
name           what it shows
=============  =========================================================================
``fields``     Figure 1: distance fields, and the link that inverts them
``levels``     Figure 2: entropy, g-softmax and conjugate; level sets, extrapolation
``training``   Figure 3: loss and Hausdorff divergence during training, on ``car``
``cats``       Figure 4: auto-encoders of cats, by output layer; divergence during training
``mnist``      Figure 5: auto-encoders of the digits of MNIST
``drawings``   Figure 6: auto-encoders of drawings of 64×64 pixels
=============  =========================================================================

Figures 4 to 6 are drawn from results that are installed with the application; ``geosoftmax vae
compare`` wrote them. Until there are some with p = 1, these are with the paper's cost. A function
of `FIGURES` takes a console, on which it shows its progress, and returns a figure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.figure import Figure
from rich.console import Console

from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.figures.drawings import draw_cats, draw_drawings, draw_mnist
from geosoftmax_experiments.figures.fields import draw_fields
from geosoftmax_experiments.figures.levels import draw_levels
from geosoftmax_experiments.figures.stored import has_ours
from geosoftmax_experiments.figures.style import save
from geosoftmax_experiments.figures.training import draw_training

__all__ = ["FIGURES", "draw_cats", "draw_drawings", "draw_fields", "draw_levels", "draw_mnist",
           "draw_training", "run", "save"]  # fmt: skip

FIGURES: dict[str, Callable[..., Figure]] = {
    "fields": draw_fields,
    "levels": draw_levels,
    "training": draw_training,
    "cats": draw_cats,
    "mnist": draw_mnist,
    "drawings": draw_drawings,
}
#: Those that are drawn from stored results.
SETS = ("cats", "mnist", "drawings")


def run(names: Sequence[str], folder: Path, console: Console, paper: bool = False) -> list[Path]:
    """Draw the figures of these names, all where there are none; return the files.

    `paper` asks for results with the paper's cost in Figures 4 to 6, where there are others. One
    that cannot be drawn does not keep back the others: a `UserError` names it at the end.
    """
    unknown = [name for name in names if name not in FIGURES]
    if unknown:
        raise UserError(
            f"There is no figure {unknown[0]!r}.", f"Take some of {', '.join(FIGURES)}."
        )
    drawn: dict[str, list[Path]] = {}
    failed: dict[str, UserError] = {}
    if not paper and (lacking := [n for n in names or FIGURES if n in SETS and not has_ours(n)]):
        console.print(
            f"{', '.join(lacking)}: with the paper's cost, p = 2. No results with p = 1 are stored "
            "yet: geosoftmax vae compare makes them.",
            soft_wrap=True,
        )
    for name in names or FIGURES:
        try:
            figure = FIGURES[name](console, *([paper] if name in SETS else []))
        except UserError as error:
            failed[name] = error
        else:
            drawn[name] = save(figure, folder / name)
    if drawn:
        console.print(
            f"{', '.join(drawn)}: saved as PNG and SVG to {folder.resolve()}", soft_wrap=True
        )
    if failed:
        raise _together(failed)
    return [path for paths in drawn.values() for path in paths]


def _together(failed: dict[str, UserError]) -> UserError:
    """Return one error that says what could not be drawn, and why."""
    reasons = dict.fromkeys(error.message for error in failed.values())
    hints = dict.fromkeys(error.hint for error in failed.values())
    return UserError(f"Not drawn: {', '.join(failed)}. {' '.join(reasons)}", " ".join(hints))
