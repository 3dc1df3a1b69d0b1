"""The options of ``geosoftmax vae …``, as frozen dataclasses."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.options import BackendOptions
from geosoftmax_experiments.vae.presets import (
    ARCHITECTURES,
    COMPARED,
    GPU_JOBS,
    LOSSES,
    PAPER_P,
    PARTS,
    PRESETS,
    STARTS,
    P,
    describe,
)

if TYPE_CHECKING:  # the command line starts fast: commands import what they need
    from geosoftmax_experiments.data.drawings import Drawings
    from geosoftmax_experiments.vae.settings import RunSettings
    from geosoftmax_experiments.vae.training import Machine

__all__ = [
    "BlindOptions",
    "ChooseOptions",
    "CompareOptions",
    "PictureOptions",
    "ReconstructOptions",
    "RunOptions",
    "SampleOptions",
    "TrainOptions",
]


def _option(help: str, *flags: str, usual: str = "", **others: Any) -> Any:
    """Return an option; `usual` names the row of presets that is taken where it is left out."""
    if usual:
        others["show_default"] = describe(usual)
    return typer.Option(*flags, help=help, **others)


_DATA = (
    f"{', '.join(PRESETS)}; or a folder of pictures (PNG, JPEG, TIFF, WebP), a .npy, an .ndjson."
)
#: Pictures with more pixels are warned of.
LARGE_PIXELS = 64 * 64
_REPLAY = (
    "Record a step as a CUDA graph and replay it: on one GPU, in 32-true or bf16-mixed, without "
    "--compile and --anneal."
)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What the weights of a run depend on, and where it is trained."""

    data: Annotated[str, _option(_DATA)] = "digits"
    size: Annotated[
        int | None,
        _option(
            "Side of the drawings, for strokes and pictures.",
            show_default="strokes 64; pictures: their own up to 64, else 28",
        ),
    ] = None
    limit: Annotated[int | None, _option("Only so many drawings, the first.", min=10)] = None
    invert: Annotated[
        bool | None,
        _option("Dark is ink, as on paper.", "--invert/--no-invert", show_default="guessed"),
    ] = None
    epochs: Annotated[int | None, _option("Epochs.", usual="epochs")] = None
    batch: Annotated[
        int | None, _option("Drawings of a step, on all devices together.", usual="batch")
    ] = None
    architecture: Annotated[
        str | None,
        _option(f"{' or '.join(ARCHITECTURES)}.", show_default="dcgan for 64×64, else mlp"),
    ] = None
    latent: Annotated[int | None, _option("Size of the codes.", usual="latent")] = None
    learning_rate: Annotated[float | None, _option("Of Adam.", usual="learning_rate")] = None
    decay: Annotated[bool, _option("Let the learning rate fall to zero along a cosine.")] = True
    gain: Annotated[
        float | None, _option("Scores are this many times the decoder's output.", usual="gain")
    ] = None
    precision: Annotated[str, _option("Lightning's: 32-true, bf16-mixed, 16-mixed, …")] = "32-true"
    compile: Annotated[bool, _option("Compile the network, by torch.compile.", "--compile")] = False
    start: Annotated[
        str, _option(f"Scores begin at {' or '.join(STARTS)}: those of the mean drawing.")
    ] = STARTS[0]
    p: Annotated[
        float | None,
        _option("Cost: exponent of the distance of pixels, axis by axis.", show_default=f"{P:g}"),
    ] = None
    scale: Annotated[
        float | None,
        _option(
            "Cost: times that.",
            show_default=f"{describe('scale')}; p = 2: {describe('paper_scale')}",
        ),
    ] = None
    smoothing: Annotated[
        float | None,
        _option("Scores are smoothed by exp(-C / this), if the loss says so.", usual="smoothing"),
    ] = None
    paper: Annotated[bool, _option("The paper's cost: p = 2, scale 1/2 (digits 2).", "--paper")] = (
        False
    )
    chosen: Annotated[
        Path | None, _option("Folder that `choose` wrote: its scale and smoothing.")
    ] = None
    split: Annotated[int, _option("Seed that divides the data for training and test.")] = 1
    anneal: Annotated[
        float, _option("Share of the epochs in which the cost rises from a tenth.")
    ] = 0.0
    every: Annotated[
        int | None,
        _option(
            "Epochs from one measurement to the next.",
            show_default=f"for about so many in all: {describe('measurements')}",
        ),
    ] = None
    on: Annotated[str, _option(f"Measure on the drawings for {' or '.join(PARTS)}.")] = PARTS[0]
    replay: Annotated[bool, _option(_REPLAY)] = True
    accelerator: Annotated[str, _option("Lightning's: auto, cpu, gpu, …")] = "auto"

    def load(self, console: Console) -> Drawings:
        """Read the data, and say what there is."""
        from geosoftmax_experiments.data.drawings import load_drawings

        read = {name: getattr(self, name) for name in ("size", "limit", "invert")}
        drawings = load_drawings(self.data, **read, seed=self.split)
        (height, width), counts = drawings.shape, drawings.counts()
        say = partial(console.print, soft_wrap=True)
        say(
            f"{self.data}: {height}×{width}, {counts['train']} drawings to train, "
            f"{counts['validation']} to validate, {counts['test']} to test"
            + (f"; dropped as they are blank: {drawings.blank}." if drawings.blank else ".")
        )
        own = self.data not in PRESETS
        if own and self.invert is None and drawings.invert:
            say("Dark on bright, so dark is ink; if that is wrong, say --no-invert.")
        if own and self.size is None and drawings.size is not None:
            say(
                f"The pictures are large, or of several sizes: read as {height}×{width}. --size 64 "
                "shows more, and wants a GPU."
            )
        if (ink := drawings.ink()) > 0.5:
            remedy = "--no-invert" if drawings.invert else "--invert"
            say(f"Warning: most of each picture is ink ({ink:.0%} on average): try {remedy}.")
        on_gpu = self.machine().on_gpu
        if drawings.shape == (64, 64) and self.architecture != "mlp" and not on_gpu:
            say(
                "64×64 drawings have the DCGAN, which takes seconds a step without a GPU. "
                "--size 28, or --architecture mlp, is quick."
            )
        if (pixels := height * width) > LARGE_PIXELS:
            times = pixels * max(height, width) / 28**3
            say(
                f"Warning: {pixels:,} pixels a picture. A step takes some {times:,.0f} times as "
                "long as at 28×28; --size 64 or less is what the networks were made for."
            )
        return drawings

    def settings(self, drawings: Drawings | None = None, **run: Any) -> RunSettings:
        """Return the settings of a run; before the data are read, to see whether they are valid."""
        from geosoftmax_experiments.vae.settings import draft_settings, make_settings

        apart = ("data", "replay", "accelerator", "paper", "chosen", "split")
        names = [field.name for field in fields(RunOptions) if field.name not in apart]
        asked = {name: getattr(self, name) for name in names} | run
        for name, given in self._cost().items():
            if asked[name] is not None:
                source = "--paper" if self.paper else "--chosen"
                raise UserError(f"{source} and --{name} contradict each other.", "Leave one out.")
            asked[name] = given
        if drawings is None:
            return draft_settings(self.data, **asked)
        return make_settings(drawings, **asked)

    def _cost(self) -> dict[str, float | None]:
        """Return what --paper or --chosen says of the cost."""
        if self.paper and self.chosen:
            raise UserError("--paper and --chosen contradict each other.", "Leave one out.")
        if self.paper:
            return {"p": PAPER_P, "scale": None, "smoothing": None}
        if self.chosen is None:
            return {}
        from geosoftmax_experiments.vae.choosing import read_choice

        return read_choice(self.chosen)

    def machine(self, **others: Any) -> Machine:
        """Return where the run is trained."""
        from geosoftmax_experiments.vae.training import Machine

        return Machine(self.accelerator, replay=self.replay, **others)


@dataclass(frozen=True, kw_only=True)
class TrainOptions(RunOptions):
    """The options of `train`."""

    output: Annotated[Path, _option("Folder of the run.", "--output", "-o")]
    loss: Annotated[str, _option(f"{', '.join(LOSSES)}.")] = "smoothed"
    weight: Annotated[float, _option("Weight of the latent KL.")] = 1.0
    seed: Annotated[int, _option("Seed of weights, order and noise.")] = 0
    devices: Annotated[str, _option("Lightning's: how many, or which.")] = "1"
    nodes: Annotated[int, _option("Machines.", min=1)] = 1
    strategy: Annotated[str, _option("Lightning's: auto, ddp, fsdp, …")] = "auto"
    save_seconds: Annotated[
        float, _option("Save at the end of an epoch, this often at most.", min=0.0)
    ] = 30.0


@dataclass(frozen=True, kw_only=True)
class CompareOptions(BackendOptions, RunOptions):
    """The options of `compare`."""

    output: Annotated[
        Path | None, _option("Folder.", "--output", "-o", show_default="results/vae-DATA")
    ] = None
    losses: Annotated[str, _option("Output layers, separated by commas.")] = ",".join(COMPARED)
    weights: Annotated[
        str | None, _option("Weights of the latent KL, separated by commas.", usual="weights")
    ] = None
    seeds: Annotated[int | None, _option("Runs of each.", usual="seeds")] = None
    jobs: Annotated[
        int | None, _option("Runs at a time.", show_default=f"cores; {GPU_JOBS} on a GPU")
    ] = None


@dataclass(frozen=True, kw_only=True)
class ChooseOptions(CompareOptions):
    """The options of `choose`."""

    output: Annotated[
        Path | None, _option("Folder.", "--output", "-o", show_default="results/choose-DATA")
    ] = None
    scales: Annotated[str, _option("Scales to try, separated by commas.")] = "0.5,1,2"
    smoothings: Annotated[str, _option("Smoothings to try; 0 is none.")] = "0,1,2"
    on: Annotated[str, _option("Always validation.", hidden=True)] = "validation"
    seeds: Annotated[int | None, _option("Runs of each.", show_default="1")] = None


@dataclass(frozen=True, kw_only=True)
class PictureOptions:
    """The options of `reconstruct`."""

    run: Annotated[Path, typer.Argument(help="Folder that `geosoftmax vae train` wrote.")]
    output: Annotated[Path, _option("The picture: PNG, SVG or PDF.", "--output", "-o")]
    count: Annotated[int, _option("How many drawings.", min=1)] = 10


@dataclass(frozen=True, kw_only=True)
class SampleOptions(PictureOptions):
    """The options of `sample`."""

    fitted: Annotated[
        bool, _option("Codes of a mixture that fits the codes of training drawings.", "--fitted")
    ] = False

    seed: Annotated[int, _option("Seed of the codes.")] = 0


@dataclass(frozen=True, kw_only=True)
class ReconstructOptions(PictureOptions):
    """The options of `reconstruct`."""

    data: Annotated[
        str | None,
        _option("Other drawings, named as in `train`.", show_default="the run's, for test"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class BlindOptions:
    """The options of `blind`."""

    comparison: Annotated[Path, typer.Argument(help="Folder that `geosoftmax vae compare` wrote.")]
    output: Annotated[Path, _option("Folder of the sheets.", "--output", "-o")]
    answers: Annotated[
        Path | None,
        _option("Count these answers: a text file with lines such as `3 B`.", show_default=False),
    ] = None
    count: Annotated[int, _option("How many test drawings.", min=1)] = 40
    seed: Annotated[int, _option("Seed of the orders.")] = 0
