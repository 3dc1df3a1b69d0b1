"""The commands ``geosoftmax localize`` and ``geosoftmax localize-eval``."""

from __future__ import annotations

import dataclasses
import math
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from geosoftmax_experiments.errors import UserError, end_stopped
from geosoftmax_experiments.progress import progress_bar

__all__ = ["localize", "localize_eval"]


def localize(
    stack: Annotated[Path, typer.Argument(help="Stack of grey frames, TIFF or .npy.")],
    psf: Annotated[
        str, typer.Option(help="Standard deviation of the point-spread function, as in 110nm.")
    ],
    pixel: Annotated[str, typer.Option(help="Side of a pixel, as in 100nm.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="CSV file of the positions.")],
    image: Annotated[
        Path | None,
        typer.Option(
            help="Picture to write: a PNG shows the sum of the frames beside the emitters, with a "
            "scale; a TIFF is the picture of the emitters alone."
        ),
    ] = None,
    sampled: Annotated[
        bool,
        typer.Option(
            "--sampled/--integrated",
            help="Pixels sample the point-spread function, or integrate it as cameras do.",
        ),
    ] = False,
    background: Annotated[
        str, typer.Option(help="Counts of a pixel without emitters, to start from, or auto.")
    ] = "auto",
    threshold: Annotated[
        str, typer.Option(help="Least counts of an emitter, or auto: a fifth of a typical peak.")
    ] = "auto",
    alike: Annotated[
        bool | None,
        typer.Option(
            "--alike/--any",
            help="Emitters are about equally bright, or may have any counts. By default what the "
            "frames show.",
            show_default=False,
        ),
    ] = None,
    gain: Annotated[float, typer.Option(help="Counts for each photon.")] = 1.0,
    base: Annotated[float, typer.Option(help="Counts of a pixel without light.")] = 0.0,
    method: Annotated[
        str, typer.Option(help="sliding; to compare: plain (Frank–Wolfe), maxima (Gaussian fits).")
    ] = "sliding",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    memory: Annotated[
        str, typer.Option(help="Refuse a stack whose frames need more memory, as in 4GB.")
    ] = "1GB",
) -> None:
    """Localise point emitters in the frames of a stack, off the grid.

    Writes ThunderSTORM's columns. The origin is the corner of the first pixel. A run that was
    stopped is continued by the same command.
    """
    import numpy as np
    import torch

    from geosoftmax_experiments.superres import picture
    from geosoftmax_experiments.superres.localisation import (
        choose_settings,
        count_finished,
        find_emitters,
    )
    from geosoftmax_experiments.superres.parts import Parts
    from geosoftmax_experiments.superres.psf import Psf
    from geosoftmax_experiments.superres.rivals import METHODS
    from geosoftmax_experiments.superres.stacks import (
        read_length,
        read_memory,
        read_stack,
        write_positions,
    )

    console = Console()
    if image is not None:
        picture.check_name(image)
    side = read_length("--pixel", pixel)
    spread = Psf(read_length("--psf", psf) / side, sampled)
    most = read_memory("--memory", memory)
    level = _number("--background", background)
    least = _number("--threshold", threshold, positive=True)
    if not (gain > 0 and math.isfinite(gain) and math.isfinite(base)):
        raise UserError(
            f"--gain must be positive, and --base finite; got {gain:g} and {base:g}.",
            "The data sheet of the camera has both.",
        )
    if device not in ("cpu", "cuda") or (device == "cuda" and not torch.cuda.is_available()):
        raise UserError(f"There is no device {device!r} here.", "Use --device cpu.")
    if method not in METHODS:
        raise UserError(f"There is no method {method!r}.", f"Take one of {', '.join(METHODS)}.")
    for name, written in (("--output", output), ("--image", image)):
        if written is not None and written.resolve() == stack.resolve():
            raise UserError(f"{name} {written} would replace the stack.", "Write to another file.")
    frames, saturated = read_stack(stack, most)
    if base >= float(frames.max()):
        raise UserError(
            f"--base is {base:g}, but no pixel is above it: the brightest has "
            f"{float(frames.max()):g} counts.",
            "Give what a pixel counts without light.",
        )
    if saturated:
        console.print(
            f"{_count(saturated, 'frame')} {'holds' if saturated == 1 else 'hold'} saturated "
            "pixels: emitters there seem weaker.",
            soft_wrap=True,
        )
    if alike and method != "sliding":
        raise UserError(f"--method {method} does not use --alike.", "Leave it out.")
    settings = choose_settings(
        frames,
        spread,
        threshold=least,
        base=base,
        background=level,
        alike=alike if method == "sliding" else False,
        device=device,
    )
    if settings.brightness:
        known = settings.brightness
        console.print(f"Emitters are alike: {known.mean:.0f} ± {known.spread:.0f} counts.")
    choices = {"method": method, "pixel": side, "background": level, "device": device}
    choices["gain"] = gain
    parts = Parts(output, stack, {**choices, **dataclasses.asdict(settings)})
    if parts.forgot:
        console.print("Frames that were finished with other settings are done again.")
    already = count_finished(frames, device, parts)
    begin = time.perf_counter()
    try:
        with progress_bar(console) as progress:
            task = progress.add_task("frames", total=len(frames))
            rows = find_emitters(
                frames,
                settings,
                **choices,
                parts=parts,
                advance=lambda done: progress.advance(task, done),
            )
    except KeyboardInterrupt:
        end_stopped(f"finished frames are kept in {parts.folder}")
    seconds = time.perf_counter() - begin
    write_positions(output, rows)
    if image is not None:
        picture.save(image, picture.render(rows, frames.shape[1:], side), frames, side)
    parts.remove()
    late = np.unique(rows[rows[:, -1] * gain > settings.threshold / 2, 1])
    if len(late):
        console.print(
            f"{_count(len(late), 'frame')} may miss an emitter: more than half of the threshold is "
            "not covered. The last column tells how much.",
            soft_wrap=True,
        )
    console.print(
        f"{_count(len(rows), 'emitter')} in {_speed(len(frames), already, seconds)}; "
        f"threshold {settings.threshold:.0f} counts. Saved to {output}",
        soft_wrap=True,
    )


def localize_eval(
    positions: Annotated[Path, typer.Argument(help="CSV file that `localize` wrote.")],
    truth: Annotated[Path, typer.Argument(help="CSV file of the true positions.")],
    tolerance: Annotated[str, typer.Option(help="Farthest match, as in 100nm.")] = "100nm",
    frames: Annotated[str, typer.Option(help="First and last frame that count, as in 11-20.")] = "",
) -> None:
    """Compare positions with the truth: Jaccard index, recall, precision, lateral RMSE."""
    from geosoftmax_experiments.superres.matching import compare, within
    from geosoftmax_experiments.superres.stacks import read_length, read_positions

    farthest = read_length("--tolerance", tolerance)
    found, true = read_positions(positions), read_positions(truth)
    if frames:
        first, last = _range(frames)
        found, true = within(found, first, last), within(true, first, last)
    if not len(true):
        where = f" in frames {frames}" if frames else ""
        raise UserError(f"{truth} has no positions{where}.", "Frames are counted from 1.")
    result = compare(found, true, farthest)
    typer.echo(
        f"Jaccard {result.jaccard:.3f}  recall {result.recall:.3f}  "
        f"precision {result.precision:.3f}  RMSE {result.rmse:.1f} nm  "
        f"({result.matched} matched, {result.spurious} spurious, {result.missed} missed)"
    )


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _speed(frames: int, already: int, seconds: float) -> str:
    """Tell how many frames there are, and how fast those went that were not done already."""
    if already == frames:
        return f"{_count(frames, 'frame')}, all done already"
    before = f" ({already} done already)" if already else ""
    return f"{_count(frames, 'frame')}{before}, {(frames - already) / seconds:.2f} frames a second"


def _number(name: str, text: str, *, positive: bool = False) -> float | None:
    """Read a number, or None for auto."""
    if text == "auto":
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or (positive and number <= 0):
        what = "a positive number" if positive else "a number"
        raise UserError(f"{name} must be {what} or auto; got {text!r}.", "Leave it out for auto.")
    return number


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    if not (first.isdigit() and last.isdigit() and int(first) <= int(last)):
        raise UserError(
            f"--frames must be the first and the last frame; got {text!r}.", "Write it as 11-20."
        )
    return int(first), int(last)
