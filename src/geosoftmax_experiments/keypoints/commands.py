"""The commands ``geosoftmax keypoints …``."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.options import BackendOptions, check_picture, parsed, read_names

if TYPE_CHECKING:  # the command line starts fast: commands import what they need
    from geosoftmax_experiments.data.keypoints import Frames
    from geosoftmax_experiments.keypoints.model import Recipe

__all__ = ["app"]

app = typer.Typer(
    help="Key points: heat maps with points as targets, on DeepLabCut's projects.",
    no_args_is_help=True,
)

_DATA = "openfield, or a project in DeepLabCut's layout: labeled-data/VIDEO/CollectedData_*.csv."
#: The recipe of ``--quick``: minutes on a CPU, and no more than a look.
QUICK = {"longest": 48, "width": 12, "steps": 400, "batch": 8}
#: Trainings at a time on a GPU, which one alone leaves idle most of the time.
GPU_JOBS = 4
#: What ``--quick`` compares where nothing else is asked for.
QUICK_LOSSES = "geometric,zero-one,cross-entropy,mse,softmax,dsnt"
FULL = {"kinds": "random,blocks", "sizes": "95%,80%,60,30", "splits": 5, "settings": 6}
SMALL = {"kinds": "random", "sizes": "80%", "splits": 1, "settings": 1}


def _option(help: str, *flags: str, **others: Any) -> Any:
    return typer.Option(*flags, help=help, **others)


@dataclass(frozen=True, kw_only=True)
class RecipeOptions:
    """How networks are trained, and on what."""

    data: Annotated[str, _option(_DATA)] = "openfield"
    label_size: Annotated[
        str | None,
        _option(
            "Width x height of the frames that were labelled.", show_default="that of the pictures"
        ),
    ] = None
    quick: Annotated[
        bool, _option("Small network, small maps, few steps: minutes on a CPU.", "--quick")
    ] = False
    longest: Annotated[int | None, _option("Longer side of the maps.", show_default="80")] = None
    width: Annotated[int | None, _option("Channels of the network.", show_default="24")] = None
    steps: Annotated[int | None, _option("Training steps.", show_default="2000")] = None
    batch: Annotated[int | None, _option("Frames of a step.", show_default="16")] = None
    learning_rate: Annotated[float | None, _option("Of AdamW.", show_default="0.002")] = None
    device: Annotated[str, _option("auto, cpu, cuda, cuda:1, …")] = "auto"

    def recipe(self) -> Recipe:
        """Return the recipe that was asked for."""
        from geosoftmax_experiments.keypoints.model import Recipe

        asked = {field.name: getattr(self, field.name) for field in fields(Recipe)}
        asked = {name: value for name, value in asked.items() if value is not None}
        return Recipe(**((QUICK if self.quick else {}) | asked))

    def load(self, recipe: Recipe, console: Console) -> tuple[Frames, tuple[int, int]]:
        """Read the frames, and say what there is; also return the shape of the maps."""
        from geosoftmax_experiments.data.keypoints import load_project
        from geosoftmax_experiments.keypoints.network import STRIDE, grid_of

        project = load_project(self.data, _read_size(self.label_size))
        shape = grid_of(project.size, recipe.longest)
        frames = project.frames((STRIDE * shape[0], STRIDE * shape[1]))
        missing = int((frames.labels.points != frames.labels.points).any(-1).sum())
        console.print(
            f"{self.data}: {len(frames)} frames, {frames.parts} points each, {missing} missing; "
            f"maps of {shape[0]}×{shape[1]}.",
            soft_wrap=True,
        )
        return frames, shape


def _read_size(text: str | None) -> tuple[int, int] | None:
    """Return height and width from ``640x480``."""
    if text is None:
        return None
    try:
        width, height = (int(part) for part in text.lower().replace("×", "x").split("x"))
    except ValueError:
        width = height = 0
    if not (0 < width <= 100_000 and 0 < height <= 100_000):
        raise UserError(f"--label-size {text!r} is no size.", "As in: --label-size 640x480")
    return height, width


@dataclass(frozen=True, kw_only=True)
class TrainOptions(RecipeOptions):
    """The options of `train`."""

    output: Annotated[Path, _option("Folder of the model.", "--output", "-o")]
    loss: Annotated[
        str,
        _option(
            "One of those that `compare` knows. The default is softmax with points as targets."
        ),
    ] = "cross-entropy"
    decoder: Annotated[
        str | None, _option("How points are read.", show_default="local mean 5; deeplabcut: offset")
    ] = None
    hold_out: Annotated[
        int, _option("Frames, spread over time, to measure the error on.", min=0)
    ] = 10
    seed: Annotated[int, _option("Seed of weights, order and augmentation.")] = 0


@app.command()
@parsed
def train(options: TrainOptions) -> None:
    """Train a network that finds points in frames, with the usual setting of a loss."""
    from geosoftmax_experiments.keypoints.single import train_model

    console = Console()
    recipe = options.recipe()
    frames, shape = options.load(recipe, console)
    train_model(
        frames, shape, recipe, options.output, console,
        loss=options.loss, decoder=options.decoder, hold_out=options.hold_out, seed=options.seed,
        device=options.device,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PredictOptions:
    """The options of `predict`."""

    model: Annotated[Path, typer.Argument(help="Folder that `keypoints train` wrote.")]
    frames: Annotated[Path, typer.Argument(help="Folder of frames: PNG, JPEG, TIFF or WebP.")]
    output: Annotated[Path, _option("Table in DeepLabCut's format.", "--output", "-o")] = Path(
        "predictions.csv"
    )
    pictures: Annotated[
        Path | None, _option("Draw the least sure frames, with their distributions, to this file.")
    ] = None
    count: Annotated[int, _option("How many to draw.", min=1, max=100)] = 12
    device: Annotated[str, _option("auto, cpu, cuda, cuda:1, …")] = "auto"


@app.command()
@parsed
def predict(options: PredictOptions) -> None:
    """Predict the points of frames: x, y and likelihood, as DeepLabCut writes them."""
    from geosoftmax_experiments.keypoints.single import predict_frames

    if options.pictures is not None:
        check_picture(options.pictures)
    predict_frames(
        options.model, options.frames, options.output, options.pictures, options.count,
        options.device, Console(),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class CompareOptions(BackendOptions, RecipeOptions):
    """The options of `compare`."""

    output: Annotated[
        Path | None, _option("Folder.", "--output", "-o", show_default="results/keypoints")
    ] = None
    losses: Annotated[
        str | None,
        _option("Separated by commas.", show_default=f"all; with --quick {QUICK_LOSSES}"),
    ] = None
    kinds: Annotated[
        str | None, _option("Splits: random, blocks (of time).", show_default=FULL["kinds"])
    ] = None
    sizes: Annotated[
        str | None, _option("Training frames, or shares.", show_default=FULL["sizes"])
    ] = None
    splits: Annotated[int | None, _option("Splits of each kind.", show_default="5")] = None
    seeds: Annotated[int, _option("Trainings on each split.")] = 1
    jobs: Annotated[
        int | None, _option("Trainings at a time.", show_default=f"cores; {GPU_JOBS} on a GPU")
    ] = None
    settings: Annotated[
        int | None, _option("Settings of a loss to choose among.", show_default="6", min=1, max=6)
    ] = None
    timing: Annotated[
        bool, _option("On a GPU, time training steps and predictions, once all else is done.")
    ] = True


@app.command()
@parsed
def compare(options: CompareOptions) -> None:
    """Compare losses for heat maps: one network, settings and decoders chosen by one rule.

    A comparison that was stopped is continued by the same command. With other losses, sizes,
    kinds, splits or seeds it grows: what is new is done, what the folder has is kept.
    """
    from geosoftmax_experiments.keypoints.comparison import Comparison
    from geosoftmax_experiments.keypoints.losses import LOSSES
    from geosoftmax_experiments.keypoints.report import console_table, write_report
    from geosoftmax_experiments.keypoints.splits import read_size
    from geosoftmax_experiments.keypoints.timing import time_losses
    from geosoftmax_experiments.keypoints.training import device_of
    from geosoftmax_experiments.report import say_saved

    console = Console()
    usual: dict[str, Any] = SMALL if options.quick else FULL
    on_gpu = device_of(options.device).type == "cuda"
    backend = options.where(GPU_JOBS if on_gpu else -1)
    recipe = options.recipe()
    every = QUICK_LOSSES if options.quick else ",".join(LOSSES)
    losses = read_names("--losses", every if options.losses is None else options.losses)

    def asked(name: str) -> Any:
        value = getattr(options, name)
        return usual[name] if value is None else value

    kinds, sizes = (read_names(f"--{name}", asked(name)) for name in ("kinds", "sizes"))
    frames, shape = options.load(recipe, console)
    comparison = Comparison(
        folder=options.output
        or Path("results/keypoints-quick" if options.quick else "results/keypoints"),
        frames=frames,
        shape=shape,
        recipe=recipe,
        losses=losses,
        kinds=kinds,
        sizes=tuple(dict.fromkeys(read_size(size, len(frames)) for size in sizes)),
        splits=asked("splits"),
        seeds=options.seeds,
        most_settings=asked("settings"),
        device=options.device,
    )
    with comparison.store.opened(fresh=options.fresh) as store:
        comparison.run(store, backend, console)
        results = comparison.results(store)
        if options.timing and on_gpu:
            time_losses(comparison, results.chosen, console)
        page = write_report(comparison, store, results)
    console.print(console_table(results))
    say_saved(console, page)
    if options.quick:
        console.print(
            "A quick look: a small network, few steps, one split. What a longer comparison gave, "
            "and how to run it: docs/keypoints.md",
            soft_wrap=True,
        )
