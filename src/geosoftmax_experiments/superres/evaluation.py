"""The command ``geosoftmax localize-eval``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.options import parsed

__all__ = ["localize_eval"]


@dataclass(frozen=True)
class EvalOptions:
    """What ``geosoftmax localize-eval`` is asked for."""

    positions: Annotated[
        Path, typer.Argument(help="CSV file of ThunderSTORM, or .hdf5 file of Picasso.")
    ]
    truth: Annotated[Path, typer.Argument(help="The true positions, in one of these formats.")]
    tolerance: Annotated[str, typer.Option(help="Largest distance of a match, as in 100nm.")] = (
        "100nm"
    )
    scale: Annotated[
        str, typer.Option(help="Length of the flat distance: half of it is what a miss costs.")
    ] = "250nm"
    frames: Annotated[str, typer.Option(help="First and last frame that count, as in 11-20.")] = ""


@parsed
def localize_eval(options: EvalOptions) -> None:
    """Compare positions with the truth: Jaccard index, recall, precision, lateral RMSE.

    The flat distance is the optimal transport between both, where a position without a partner
    costs half of --scale: nm for each emitter, and no pair is right or wrong by a hair.
    """
    from geosoftmax_experiments.superres.matching import compare, flat_distance, within
    from geosoftmax_experiments.superres.positions import read_positions
    from geosoftmax_experiments.superres.stacks import read_length

    farthest = read_length("--tolerance", options.tolerance)
    scale = read_length("--scale", options.scale)
    found, true = read_positions(options.positions), read_positions(options.truth)
    if options.frames:
        first, last = _range(options.frames)
        found, true = within(found, first, last), within(true, first, last)
    if not len(true):
        where = f" in frames {options.frames}" if options.frames else ""
        raise UserError(f"{options.truth} has no positions{where}.", "Frames are counted from 1.")
    result = compare(found, true, farthest)
    typer.echo(
        f"Jaccard {result.jaccard:.3f}  recall {result.recall:.3f}  "
        f"precision {result.precision:.3f}  RMSE {result.rmse:.1f} nm  "
        f"flat distance {flat_distance(found, true, scale):.1f} nm  "
        f"({result.matched} matched, {result.spurious} spurious, {result.missed} missed)"
    )


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    if not (first.isdigit() and last.isdigit() and int(first) <= int(last)):
        raise UserError(
            f"--frames must be the first and the last frame; got {text!r}.", "Write it as 11-20."
        )
    return int(first), int(last)
