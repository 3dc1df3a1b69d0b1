"""The commands ``geosoftmax vae …``."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from geosoftmax_experiments.errors import UserError, end_stopped

if TYPE_CHECKING:  # the command line starts fast: commands import what they need
    from geosoftmax_experiments.data.drawings import Drawings

__all__ = ["app"]

app = typer.Typer(
    help="Drawings: variational auto-encoders with a geometric output layer.",
    no_args_is_help=True,
)

Data = Annotated[
    str,
    typer.Option(
        help="digits, cats, mnist, drawings, cat-strokes; or a folder of pictures (PNG, JPEG, "
        "TIFF, WebP), a .npy, an .ndjson."
    ),
]
Size = Annotated[int | None, typer.Option(help="Side of the drawings, for strokes and pictures.")]
Limit = Annotated[int | None, typer.Option(min=10, help="Only so many drawings, the first.")]
Invert = Annotated[bool, typer.Option("--invert", help="Dark is ink, as on paper.")]
Epochs = Annotated[int | None, typer.Option(help="Epochs [100; each named set has its own].")]
Batch = Annotated[
    int | None,
    typer.Option(help="Drawings of a step, on all devices together [128; cats, mnist 512]."),
]
Architecture = Annotated[str | None, typer.Option(help="mlp or dcgan [dcgan for 64×64].")]
Latent = Annotated[int | None, typer.Option(help="Size of the codes [100; dcgan 256].")]
Rate = Annotated[
    float | None, typer.Option(help="Of Adam [0.001; dcgan 0.0003; digits 0.003; mnist 0.002].")
]
Decay = Annotated[bool, typer.Option(help="Let the learning rate fall to zero along a cosine.")]
Gain = Annotated[
    float | None,
    typer.Option(help="Scores are this many times what the decoder says [3; dcgan, digits 1]."),
]
Precision = Annotated[str, typer.Option(help="Lightning's: 32-true, bf16-mixed, 16-mixed, …")]
Compile = Annotated[bool, typer.Option("--compile", help="Compile the network with torch.compile.")]
Replay = Annotated[
    bool,
    typer.Option(
        help="Record a step as a CUDA graph and replay it: on one GPU, in 32-true or bf16-mixed, "
        "without --compile and --anneal."
    ),
]
Start = Annotated[str, typer.Option(help="Scores begin at zero, or at those of the mean drawing.")]
Scale = Annotated[
    float | None, typer.Option(help="Cost: times squared distance of pixels [0.5; digits 2].")
]
Anneal = Annotated[
    float, typer.Option(help="Share of the epochs in which the cost rises from a tenth.")
]
Every = Annotated[int | None, typer.Option(help="Measure each so many epochs [some 40 times].")]
On = Annotated[str, typer.Option(help="Measure on the test or the validation drawings.")]
Accelerator = Annotated[str, typer.Option(help="Lightning's: auto, cpu, gpu, …")]


@app.command()
def train(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the run.")],
    data: Data = "digits",
    loss: Annotated[
        str,
        typer.Option(help="smoothed, geometric, potential, softmax, sigmoid, softmax-smoothed."),
    ] = "smoothed",
    weight: Annotated[float, typer.Option(help="Weight of the latent KL.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of weights, order and noise.")] = 0,
    size: Size = None,
    limit: Limit = None,
    invert: Invert = False,
    epochs: Epochs = None,
    batch: Batch = None,
    architecture: Architecture = None,
    latent: Latent = None,
    learning_rate: Rate = None,
    decay: Decay = True,
    gain: Gain = None,
    precision: Precision = "32-true",
    compile: Compile = False,
    replay: Replay = True,
    start: Start = "zero",
    scale: Scale = None,
    anneal: Anneal = 0.0,
    every: Every = None,
    on: On = "test",
    accelerator: Accelerator = "auto",
    devices: Annotated[str, typer.Option(help="Lightning's: how many, or which.")] = "1",
    nodes: Annotated[int, typer.Option(min=1, help="Machines.")] = 1,
    strategy: Annotated[str, typer.Option(help="Lightning's: auto, ddp, fsdp, …")] = "auto",
    save_seconds: Annotated[
        float, typer.Option(min=0.0, help="Save at the end of an epoch, this often at most.")
    ] = 30.0,
) -> None:
    """Train a variational auto-encoder on drawings.

    A run that was stopped, at any moment, is continued by the same command, and ends as if it had
    not been.
    """
    console = Console(quiet=_is_helper())
    from geosoftmax_experiments.vae.settings import draft_settings, make_settings
    from geosoftmax_experiments.vae.training import Machine, read_metrics
    from geosoftmax_experiments.vae.training import train as train_run

    options: dict[str, Any] = dict(
        epochs=epochs, batch=batch, architecture=architecture, latent=latent,
        every=every, loss=loss, weight=weight, seed=seed, learning_rate=learning_rate,
        precision=precision, compile=compile, start=start, scale=scale, on=on, size=size,
        anneal=anneal, gain=gain, decay=decay, limit=limit, invert=invert,
    )  # fmt: skip
    draft_settings(data, **options)
    drawings = _load(data, size, limit, invert, console)
    settings = make_settings(drawings, **options)
    _mention_speed(settings.architecture, accelerator, console)
    machine = Machine(accelerator, devices, nodes, strategy, save_seconds, replay=replay)
    try:
        path = train_run(settings, drawings, output, machine)
    except KeyboardInterrupt:
        end_stopped(f"the last checkpoint is kept in {output}")
    row = read_metrics(path)[-1]
    console.print(
        f"Epoch {row['epoch']}, {on}: Hausdorff {row['hausdorff']:.4f}, latent KL "
        f"{row['latent_kl']:.1f}, {row['support']:.0f} pixels used (drawings: "
        f"{row['true_support']:.0f}), {1e3 * row['seconds_per_step']:.2f} ms a step."
    )
    console.print(f"Saved in {output.resolve()}", soft_wrap=True)


@app.command()
def compare(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder [results/vae-DATA].")
    ] = None,
    data: Data = "digits",
    losses: Annotated[
        str, typer.Option(help="Output layers, separated by commas.")
    ] = "softmax,geometric,smoothed,potential,sigmoid",
    weights: Annotated[
        str | None,
        typer.Option(
            help="Weights of the latent KL, separated by commas [0.1 to 10; dcgan 1 to 80; "
            "mnist 0.003 to 10; digits 0.03 to 1]."
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Runs of each [3; digits 1].")] = None,
    size: Size = None,
    limit: Limit = None,
    invert: Invert = False,
    epochs: Epochs = None,
    batch: Batch = None,
    architecture: Architecture = None,
    latent: Latent = None,
    learning_rate: Rate = None,
    decay: Decay = True,
    gain: Gain = None,
    precision: Precision = "32-true",
    compile: Compile = False,
    replay: Replay = True,
    start: Start = "zero",
    scale: Scale = None,
    anneal: Anneal = 0.0,
    every: Every = None,
    on: On = "test",
    accelerator: Accelerator = "auto",
    jobs: Annotated[int | None, typer.Option(help="Runs at a time [cores; GPU: 4].")] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Forget the results that the folder holds.")
    ] = False,
) -> None:
    """Compare the output layers at equal rate: frontiers, training curves, pictures, a report.

    A comparison that was stopped is continued by the same command. With other losses, weights or
    seeds it grows: the runs that are new are done, and compared with those that the folder has.
    """
    console = Console()
    from geosoftmax_experiments.vae.comparing import Comparison, default_jobs, run
    from geosoftmax_experiments.vae.report import (
        console_table,
        console_verdicts,
        write_report,
    )
    from geosoftmax_experiments.vae.settings import (
        OTHER,
        PRESETS,
        draft_settings,
        make_settings,
        usual_weights,
    )
    from geosoftmax_experiments.vae.training import Machine

    preset = PRESETS.get(data, OTHER)
    chosen = _words(losses)
    swept = None if weights is None else _numbers(weights)
    options: dict[str, Any] = dict(
        epochs=epochs, batch=batch, architecture=architecture, latent=latent,
        every=every, loss=chosen[0], weight=1.0, seed=0, learning_rate=learning_rate,
        precision=precision, compile=compile, start=start, scale=scale, on=on, size=size,
        anneal=anneal, gain=gain, decay=decay, limit=limit, invert=invert,
    )  # fmt: skip
    folder = output or Path("results") / f"vae-{Path(data).stem}"
    count = preset.seeds if seeds is None else seeds
    machine = Machine(accelerator=accelerator, talk=False, replay=replay)
    several = default_jobs(machine, jobs)
    draft = draft_settings(data, **options)
    comparison = Comparison(folder, draft, chosen, swept or usual_weights(draft), count)
    drawings = _load(data, size, limit, invert, console)
    common = make_settings(drawings, **options)
    _mention_speed(common.architecture, accelerator, console)
    comparison = replace(comparison, common=common, weights=swept or usual_weights(common))
    if fresh:
        comparison.forget()
    try:
        run(comparison, drawings, machine, several, console)
    except KeyboardInterrupt:
        total = len(comparison.units())
        done = total - len(comparison.missing())
        end_stopped(f"{done} of {total} runs are kept in {folder}")
    with console.status("Drawing"):
        page = write_report(comparison, drawings)
    console.print(console_table(comparison))
    console.print(console_verdicts(comparison), soft_wrap=True)
    if comparison.seeds == 1:
        console.print(
            "One run of each is a quick look: docs/drawings.md says what longer ones gave on "
            "larger sets.",
            soft_wrap=True,
        )
    console.print(f"Report saved to {page.resolve()}", soft_wrap=True)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="Folder that `geosoftmax vae compare` wrote.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder of the report [the same].")
    ] = None,
) -> None:
    """Write the report of a comparison again, from its results.json and pictures.npz alone."""
    from geosoftmax_experiments.vae.report import rewrite_report

    console = Console()
    with console.status("Drawing"):
        page = rewrite_report(folder, output or folder)
    console.print(f"Report saved to {page.resolve()}", soft_wrap=True)


@app.command()
def reconstruct(
    run: Annotated[Path, typer.Argument(help="Folder that `geosoftmax vae train` wrote.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The picture: PNG, SVG or PDF.")],
    count: Annotated[int, typer.Option(min=1, help="How many drawings.")] = 10,
) -> None:
    """Draw test drawings above what a run makes of them."""
    from geosoftmax_experiments.vae import pictures

    pictures.check_picture(output)
    found = pictures.open_run(run)
    pictures.save(pictures.draw_rows(pictures.reconstructions(found, count)), output)
    Console().print(f"Picture saved to {output.resolve()}", soft_wrap=True)


@app.command()
def sample(
    run: Annotated[Path, typer.Argument(help="Folder that `geosoftmax vae train` wrote.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The picture: PNG, SVG or PDF.")],
    count: Annotated[int, typer.Option(min=1, help="How many drawings.")] = 10,
    seed: Annotated[int, typer.Option(help="Seed of the codes.")] = 0,
) -> None:
    """Draw samples from the prior of a run."""
    from geosoftmax_experiments.vae import pictures

    pictures.check_picture(output)
    found = pictures.open_run(run)
    pictures.save(pictures.draw_rows(pictures.samples(found, count, seed)), output)
    Console().print(f"Picture saved to {output.resolve()}", soft_wrap=True)


def _load(
    data: str, size: int | None, limit: int | None, invert: bool, console: Console
) -> Drawings:
    """Read the data, and say what there is."""
    from geosoftmax_experiments.data.drawings import load_drawings

    drawings = load_drawings(data, size=size, limit=limit, invert=invert)
    split = drawings.split()
    height, width = drawings.shape
    console.print(
        f"{data}: {height}×{width}, {len(split.train)} drawings to train, "
        f"{len(split.validation)} to validate, {len(split.test)} to test"
        + (f"; dropped as they are blank: {drawings.blank}." if drawings.blank else ".")
    )
    if (ink := drawings.ink()) > 0.5:
        remedy = "leave out --invert" if invert else "take --invert if they are dark on white"
        console.print(
            f"Warning: most of each picture is ink ({ink:.0%} on average): {remedy}.",
            soft_wrap=True,
        )
    return drawings


def _mention_speed(architecture: str, accelerator: str, console: Console) -> None:
    """Say what to do where training will take long."""
    import torch

    if architecture == "dcgan" and (accelerator == "cpu" or not torch.cuda.is_available()):
        console.print(
            "64×64 drawings have the DCGAN, which takes seconds a step without a GPU. "
            "--size 28, or --architecture mlp, is quick.",
            soft_wrap=True,
        )


def _words(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if not found:
        raise UserError("--losses is empty.", "Name some, separated by commas.")
    return found


def _numbers(text: str) -> tuple[float, ...]:
    try:
        found = tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        found = ()
    if not found:
        raise UserError(f"--weights {text!r} are no numbers.", "As in: --weights 0.1,1,10")
    return found


def _is_helper() -> bool:
    """Whether this process was started by another one of the same run."""
    rank = os.environ.get("LOCAL_RANK", "0")
    node = os.environ.get("NODE_RANK", os.environ.get("GROUP_RANK", "0"))
    return rank != "0" or node != "0"
