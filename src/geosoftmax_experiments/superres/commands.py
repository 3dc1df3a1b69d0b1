"""The command ``geosoftmax localize``."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console

from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.options import BackendOptions, parsed
from geosoftmax_experiments.superres.evaluation import localize_eval

if TYPE_CHECKING:  # the command line starts fast: commands import what they need
    from geosoftmax_experiments.runs import Backend
    from geosoftmax_experiments.superres.brightness import Brightness
    from geosoftmax_experiments.superres.emitters import Settings

__all__ = ["localize", "localize_eval"]

#: Raised when finished frames change their meaning: older folders are then refused.
FORMAT = 4
#: The largest share of pixels below the base: noise alone leaves half of the dark ones there.
BELOW = 2 / 3


@dataclass(frozen=True, kw_only=True)
class LocalizeOptions(BackendOptions):
    """What ``geosoftmax localize`` is asked for."""

    stack: Annotated[Path, typer.Argument(help="Stack of grey frames, TIFF or .npy.")]
    psf: Annotated[
        str,
        typer.Option(
            help="Standard deviation of the point-spread function, as in 110nm; auto measures it "
            "on emitters that stand alone; a file has it: a stack of beads (TIFF or .npy), or a "
            "table (.csv) of r [nm], or x [nm] and y [nm], and value."
        ),
    ]
    pixel: Annotated[str, typer.Option(help="Side of a pixel, as in 100nm.")]
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o",
            help="Positions: a CSV file of ThunderSTORM, or an .hdf5 file of Picasso.",
        ),
    ]  # fmt: skip
    image: Annotated[
        Path | None,
        typer.Option(
            help="Picture to write: a PNG shows the sum of the frames beside the emitters, with a "
            "scale; a TIFF is the picture of the emitters alone."
        ),
    ] = None
    sampled: Annotated[
        bool | None,
        typer.Option(
            "--sampled/--integrated",
            help="Pixels sample the point-spread function, or integrate it as cameras do.",
            show_default="integrated",
        ),
    ] = None
    background: Annotated[
        str, typer.Option(help="Photons of a pixel without emitters, to start from, or auto.")
    ] = "auto"
    threshold: Annotated[
        str, typer.Option(help="Least photons of an emitter, or auto: set by --fdr.")
    ] = "auto"
    fdr: Annotated[
        float | None,
        typer.Option(
            help="Allowed share of false emitters; sets the threshold.",
            show_default="0.05",
        ),
    ] = None
    alike: Annotated[
        bool | None,
        typer.Option(
            "--alike/--any",
            help="Emitters are about equally bright, or may have any brightness.",
            show_default="what the frames show",
        ),
    ] = None
    gain: Annotated[float, typer.Option(help="Counts for each photon.")] = 1.0
    base: Annotated[
        float | None, typer.Option(help="Counts of a pixel without light.", show_default="0")
    ] = None
    method: Annotated[
        str, typer.Option(help="sliding; to compare: plain (Frank–Wolfe), maxima (Gaussian fits).")
    ] = "sliding"
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu"
    memory: Annotated[
        str, typer.Option(help="Refuse a stack whose frames need more memory, as in 4GB.")
    ] = "1GB"

    def __post_init__(self) -> None:
        from geosoftmax_experiments.superres import picture
        from geosoftmax_experiments.superres.positions import check_format
        from geosoftmax_experiments.superres.rivals import METHODS
        from geosoftmax_experiments.superres.spread import check_kind

        check_format(self.output)
        if self.image is not None:
            picture.check_name(self.image)
        if not (self.gain > 0 and math.isfinite(self.gain) and math.isfinite(self.dark)):
            raise UserError(
                f"--gain must be positive, and --base finite; got {self.gain:g} and {self.dark:g}.",
                "The data sheet of the camera has both.",
            )
        if self.device not in ("cpu", "cuda") or (self.device == "cuda" and not _has_gpu()):
            raise UserError(f"There is no device {self.device!r} here.", "Use --device cpu.")
        if self.method not in METHODS:
            raise UserError(
                f"There is no method {self.method!r}.", f"Take one of {', '.join(METHODS)}."
            )
        for name, written in (("--output", self.output), ("--image", self.image)):
            if written is not None and written.resolve() == self.stack.resolve():
                raise UserError(
                    f"{name} {written} would replace the stack.", "Write to another file."
                )
        if self.fdr is not None and self.threshold != "auto":
            raise UserError("--threshold and --fdr are given.", "Give one of them.")
        if self.fdr is not None and not 0 < self.fdr < 1:
            raise UserError(f"--fdr must be between 0 and 1; got {self.fdr:g}.", "As in 0.05.")
        check_kind(self.psf, self.sampled)
        if self.alike and self.method != "sliding":
            raise UserError(f"--method {self.method} does not use --alike.", "Leave it out.")

    @property
    def dark(self) -> float:
        """Counts of a pixel without light."""
        return self.base or 0.0


@parsed
def localize(options: LocalizeOptions) -> None:
    """Localise point emitters in the frames of a stack, off the grid.

    Brightness is in photons and lengths have units, in options, messages and tables; --base alone
    is in counts of the camera. Writes ThunderSTORM's columns, the origin at the corner of the first
    pixel, or Picasso's. A run that was stopped is continued by the same command; a table of other
    settings is replaced with --fresh alone.
    """
    from geosoftmax_experiments.superres import picture
    from geosoftmax_experiments.superres.localisation import FDR, choose_settings, usual_jobs
    from geosoftmax_experiments.superres.positions import (
        Movie,
        check_output,
        record_settings,
        write_positions,
    )
    from geosoftmax_experiments.superres.spread import Camera, choose_psf, is_file
    from geosoftmax_experiments.superres.stacks import read_length, read_memory, read_stack

    console = Console()
    side = read_length("--pixel", options.pixel)
    if not is_file(options.psf) and options.psf != "auto":
        read_length("--psf", options.psf)
    background = _number("--background", options.background)
    if background is not None:
        background = options.dark + options.gain * background
    threshold = _number("--threshold", options.threshold, positive=True)
    if threshold is not None:
        threshold *= options.gain
    backend = options.where(usual_jobs(options.device), threads=True)
    memory = read_memory("--memory", options.memory)
    frames, saturated = read_stack(options.stack, memory)
    _check_levels(frames, options.dark, saturated, console)
    _refuse_company(_folder(options.output))
    camera = Camera(side, options.base, options.sampled, options.device)
    psf = choose_psf(options.psf, frames, camera, memory, console)
    settings = choose_settings(
        frames,
        psf,
        threshold=threshold,
        fdr=FDR if options.fdr is None else options.fdr,
        base=options.dark,
        background=background,
        alike=options.alike if options.method == "sliding" else False,
        device=options.device,
    )
    if settings.brightness:
        console.print(_alike(settings.brightness, options.gain), soft_wrap=True)
    choices: dict[str, Any] = {"method": options.method, "pixel": side, "gain": options.gain}
    choices |= {"background": background, "device": options.device}
    made = words(settings, choices, hashlib.sha256(options.stack.read_bytes()).hexdigest())
    check_output(options.output, made, fresh=options.fresh)
    rows, speed = _run(options, frames, settings, choices, made, backend, console)
    movie = Movie(len(frames), frames.shape[1], frames.shape[2], side)
    write_positions(options.output, rows, movie)
    record_settings(options.output, made)
    if options.image is not None:
        picture.save(options.image, picture.render(rows, frames.shape[1:], side), frames, side)
    shutil.rmtree(_folder(options.output), ignore_errors=True)
    _say_what_was_found(rows, speed, settings, options, console)


def words(settings: Settings, choices: Mapping[str, Any], digest: str) -> dict[str, Any]:
    """Return all that positions depend on, for a JSON file: brightness in photons.

    `choices` are the options of a `Batch`; `digest` is that of the stack.
    """
    from geosoftmax_experiments.superres.psf import Gaussian

    gain = choices["gain"]
    # A function is described by its own words, not by its arrays.
    found = {**choices, **asdict(dataclasses.replace(settings, psf=Gaussian(1.0)))}
    found |= {"psf": settings.psf.words(), "digest": digest, "format": FORMAT}
    for name in ("threshold", "noise"):
        found[name] /= gain
    if settings.brightness is not None:
        for name in ("mean", "spread"):
            found["brightness"][name] /= gain
    if found["background"] is not None:
        found["background"] = (found["background"] - settings.base) / gain
    return found


def _run(
    options: LocalizeOptions,
    frames: np.ndarray,
    settings: Settings,
    choices: dict[str, Any],
    made: dict[str, Any],
    backend: Backend,
    console: Console,
) -> tuple[np.ndarray, str]:
    """Return the rows of all frames, and how fast those went that were not done already."""
    from geosoftmax_experiments.runs import run
    from geosoftmax_experiments.store import ARRAY, Store
    from geosoftmax_experiments.superres.localisation import make_batches, number_emitters
    from geosoftmax_experiments.superres.positions import COLUMNS

    batches = make_batches(frames, settings, **choices)
    begin = time.perf_counter()
    with Store(_folder(options.output), made, ARRAY).opened(fresh=options.fresh) as store:
        missing = sum(batch.stop - batch.start for batch in batches if batch.key not in store)
        run(
            store, batches, frames, backend, console, doing="frames",
            amount=lambda batch: batch.stop - batch.start,
        )  # fmt: skip
        found = [
            store.read(
                batch.key,
                lambda rows: rows.dtype == np.float64 and rows.shape == (len(rows), len(COLUMNS)),
            )
            for batch in batches
        ]
    seconds, already = time.perf_counter() - begin, len(frames) - missing
    every = _count(len(frames), "frame")
    if not missing:
        return number_emitters(found), f"{every}, all done already"
    before = f" ({already} done already)" if already else ""
    return number_emitters(found), f"{every}{before}, {missing / seconds:.2f} frames a second"


def _alike(known: Brightness, gain: float) -> str:
    """Say how bright emitters are, and how sure that is."""
    low, high = (value / gain for value in known.interval)
    return (
        f"Emitters are alike: {known.mean / gain:.0f} ± {known.spread / gain:.0f} photons. The "
        f"{known.number} that stand alone have a mean between {low:.0f} and {high:.0f} (95 %)."
    )


def _say_what_was_found(
    rows: np.ndarray, speed: str, settings: Settings, options: LocalizeOptions, console: Console
) -> None:
    late = np.unique(rows[rows[:, -1] * options.gain > settings.threshold / 2, 1])
    if len(late):
        console.print(
            f"{_count(len(late), 'frame')} may miss an emitter: more than half of the threshold is "
            "not covered. The last column tells how much.",
            soft_wrap=True,
        )
    console.print(
        f"{_count(len(rows), 'emitter')} in {speed}; threshold "
        f"{settings.threshold / options.gain:.0f} photons{_expected(settings, options)}. "
        f"Saved to {options.output}",
        soft_wrap=True,
    )


def _expected(settings: Settings, options: LocalizeOptions) -> str:
    """Say what share of emitters is false, where that is known: not of what rivals find."""
    if settings.false is None or options.method != "sliding":
        return ""
    from geosoftmax_experiments.superres.localisation import FDR, limit_of

    share = f", {100 * settings.false:.1f} % false ones expected"
    asked = FDR if options.fdr is None else options.fdr
    if settings.false > asked:
        return f"{share} (no threshold keeps to --fdr {asked:g})"
    limit = limit_of(settings)
    return f"{share} (whatever more --fdr allows: {limit})" if limit else share


def _folder(output: Path) -> Path:
    """Return where finished frames are kept until the output is written."""
    return output.with_name(output.name + ".parts")


def _refuse_company(folder: Path) -> None:
    """Say that another process works on the same output, before anything is measured."""
    from geosoftmax_experiments.store import locked

    if folder.is_dir():
        with locked(folder):
            pass


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _check_levels(frames: np.ndarray, base: float, saturated: int, console: Console) -> None:
    if base >= float(frames.max()):
        raise UserError(
            f"--base is {base:g}, but no pixel is above it: the brightest has "
            f"{float(frames.max()):g} counts.",
            "Give what a pixel counts without light.",
        )
    below = float((frames < base).mean())
    if below > BELOW:
        raise UserError(
            f"--base is {base:g}, but {100 * below:.0f} % of the pixels have fewer counts.",
            "Give what a pixel counts without light.",
        )
    if saturated:
        console.print(
            f"{_count(saturated, 'frame')} {'holds' if saturated == 1 else 'hold'} saturated "
            "pixels: emitters there seem weaker.",
            soft_wrap=True,
        )


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


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
