"""The commands ``geosoftmax vae …``."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from geosoftmax_experiments.errors import Stopped
from geosoftmax_experiments.options import check_picture, parsed, read_names, read_numbers
from geosoftmax_experiments.vae.options import (
    BlindOptions,
    ChooseOptions,
    CompareOptions,
    PictureOptions,
    ReconstructOptions,
    SampleOptions,
    TrainOptions,
)
from geosoftmax_experiments.vae.presets import GPU_JOBS, LOSSES, OTHER, PRESETS

if TYPE_CHECKING:  # the command line starts fast: commands import what they need
    from geosoftmax_experiments.data.drawings import Drawings
    from geosoftmax_experiments.vae.comparing import Shared

__all__ = ["app"]

app = typer.Typer(
    help="Drawings: variational auto-encoders with a geometric output layer.",
    no_args_is_help=True,
)


@app.command()
@parsed
def train(options: TrainOptions) -> None:
    """Train a variational auto-encoder on drawings.

    A run that was stopped, at any moment, is continued by the same command, and ends as if it had
    not been.
    """
    console = Console(quiet=_is_helper())
    from geosoftmax_experiments.vae.checkpoints import latest
    from geosoftmax_experiments.vae.training import read_metrics
    from geosoftmax_experiments.vae.training import train as train_run

    run = {name: getattr(options, name) for name in ("loss", "weight", "seed")}
    others = {name: getattr(options, name) for name in ("devices", "nodes", "strategy")}
    machine = options.machine(save_seconds=options.save_seconds, **others)
    options.settings(**run)
    try:
        drawings = options.load(console)
        settings = options.settings(drawings, **run)
        path = train_run(settings, drawings, options.output, machine)
    except KeyboardInterrupt as error:
        kept = "the last checkpoint is kept in {}"
        kept = kept if latest(options.output) else "no checkpoint is in {} yet"
        raise Stopped(kept.format(options.output), error) from None
    row = read_metrics(path)[-1]
    console.print(
        f"Epoch {row['epoch']}, {settings.on}: Hausdorff {row['hausdorff']:.4f}, latent KL "
        f"{row['latent_kl']:.1f}, {row['support']:.0f} pixels used (drawings: "
        f"{row['true_support']:.0f}), {1e3 * row['seconds_per_step']:.2f} ms a step."
    )
    console.print(f"Saved in {options.output.resolve()}", soft_wrap=True)


@app.command()
@parsed
def compare(options: CompareOptions) -> None:
    """Compare the output layers at equal rate: frontiers, training curves, pictures, a report.

    A comparison that was stopped is continued by the same command. With other losses, weights or
    seeds it grows: the runs that are new are done, and compared with those that the folder has.
    Workers of a dask cluster write to the same folder: start them with one thread each.
    """
    console = Console()
    from geosoftmax_experiments.vae.comparing import (
        JUDGE,
        Comparison,
        Shared,
        do_runs,
        time_losses,
    )
    from geosoftmax_experiments.vae.judge import open_judge
    from geosoftmax_experiments.vae.settings import usual_weights

    machine = options.machine(talk=False)
    backend = options.where(GPU_JOBS if machine.on_gpu else -1)
    losses = read_names("--losses", options.losses)
    swept = None if options.weights is None else read_numbers("--weights", options.weights)
    usual = PRESETS.get(options.data, OTHER).seeds
    seeds = usual if options.seeds is None else options.seeds
    folder = options.output or Path("results") / f"vae-{Path(options.data).stem}"

    def comparison(drawings: Drawings | None = None) -> Comparison:
        common = options.settings(drawings, loss=(*losses, LOSSES[0])[0], weight=1.0, seed=0)
        weights = usual_weights(common) if swept is None else swept
        return Comparison(folder, common, losses, weights, seeds)

    comparison()
    drawings = options.load(console)
    asked = comparison(drawings)
    with asked.store.opened(fresh=options.fresh):
        try:
            asked.measured()  # runs that are damaged are noticed before any work
            with console.status("Training what judges samples"):
                judge = open_judge(drawings, folder / JUDGE)
            shared = Shared(asked, drawings, machine, judge)
            time_losses(shared, console)
            do_runs(shared, backend, console)
            _report(shared, console)
        except KeyboardInterrupt as error:
            raise Stopped(f"the runs that were done are kept in {folder}", error) from None


@app.command()
@parsed
def choose(options: ChooseOptions) -> None:
    """Choose scale and smoothing of the cost for a set, on its validation drawings.

    Every candidate is compared with softmax at equal latent KL, by the divergence and by measures
    that nobody trains on. The one whose worst measure is lowest is chosen. What was stopped is
    continued by the same command.
    """
    console = Console()
    from geosoftmax_experiments.vae import choosing
    from geosoftmax_experiments.vae.settings import usual_weights

    machine = options.machine(talk=False)
    backend = options.where(GPU_JOBS if machine.on_gpu else -1)
    scales = read_numbers("--scales", options.scales)
    smoothings = read_numbers("--smoothings", options.smoothings)
    options.settings(loss=LOSSES[0], weight=1.0, seed=0)
    drawings = options.load(console)
    common = options.settings(drawings, loss=LOSSES[0], weight=1.0, seed=0)
    swept = options.weights and read_numbers("--weights", options.weights)
    sweep = (swept or usual_weights(common), options.seeds or 1)
    folder = options.output or Path("results") / f"choose-{Path(options.data).stem}"
    try:
        ranked = choosing.choose(
            folder, common, scales, smoothings, sweep, drawings, machine, backend, console
        )
    except KeyboardInterrupt as error:
        raise Stopped(f"the runs that were done are kept in {folder}", error) from None
    console.print(ranked.round(3).to_string())
    console.print(f"Chosen: {ranked.index[0]}. Report saved to {folder.resolve()}", soft_wrap=True)


def _report(shared: Shared, console: Console) -> None:
    import pandas as pd

    from geosoftmax_experiments.report import say_saved
    from geosoftmax_experiments.vae.report import write_report
    from geosoftmax_experiments.vae.tables import console_standings

    comparison = shared.comparison
    with console.status("Drawing"):
        page = write_report(shared)
    console.print(console_standings(pd.DataFrame(comparison.records())), soft_wrap=True)
    if comparison.seeds == 1:
        console.print(
            "One run of each is a quick look: docs/drawings.md says what longer ones gave on "
            "larger sets.",
            soft_wrap=True,
        )
    say_saved(console, page)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="Folder that `geosoftmax vae compare` wrote.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder of the report.", show_default="the same"),
    ] = None,
) -> None:
    """Write the report of a comparison again, from its results.json and pictures.npz alone."""
    from geosoftmax_experiments.report import say_saved
    from geosoftmax_experiments.vae.report import rewrite_report

    console = Console()
    with console.status("Drawing"):
        page = rewrite_report(folder, output or folder)
    say_saved(console, page)


@app.command()
@parsed
def reconstruct(options: ReconstructOptions) -> None:
    """Draw test drawings, or others, above what a run makes of them."""
    from geosoftmax_experiments.vae.pictures import reconstructions

    _draw(options, lambda run: reconstructions(run, options.count, options.data))


@app.command()
@parsed
def sample(options: SampleOptions) -> None:
    """Draw samples from the prior of a run, or from a density that was fitted to its codes."""
    from geosoftmax_experiments.vae.pictures import prior_codes
    from geosoftmax_experiments.vae.samples import fit_codes

    def lines(run: Any) -> dict[str, Any]:
        if options.fitted:
            code = fit_codes(run, run.settings.load(), options.count, options.seed)
        else:
            code = prior_codes(options.count, run.settings.latent, options.seed)
        return {run.label: run.decode(code)}

    _draw(options, lines)


@app.command()
@parsed
def blind(options: BlindOptions) -> None:
    """Judge reconstructions blind: draw sheets without names, then count the answers.

    Without --answers, sheets with the layers in a hidden order on every line are drawn. Somebody
    who does not know the order writes down, for each drawing, the letter of the picture that is
    nearest to it. With --answers, these are counted.
    """
    from geosoftmax_experiments.vae.blind import count_answers, write_sheets

    console = Console()
    if options.answers is None:
        with console.status("Drawing"):
            write_sheets(options.comparison, options.output, options.count, options.seed)
        console.print(f"Sheets saved in {options.output.resolve()}", soft_wrap=True)
        return
    table, chance = count_answers(options.output, options.answers)
    console.print(table.to_string(index=False))
    console.print(
        f"If all layers were alike, counts this uneven have a probability of {chance:.2g}."
    )


def _draw(options: PictureOptions, lines: Callable[[Any], dict[str, Any]]) -> None:
    from geosoftmax_experiments.report import save
    from geosoftmax_experiments.vae.pictures import draw_rows, open_run

    check_picture(options.output)
    save(draw_rows(lines(open_run(options.run))), options.output)
    Console().print(f"Picture saved to {options.output.resolve()}", soft_wrap=True)


def _is_helper() -> bool:
    """Whether this process was started by another one of the same run."""
    rank = os.environ.get("LOCAL_RANK", "0")
    node = os.environ.get("NODE_RANK", os.environ.get("GROUP_RANK", "0"))
    return rank != "0" or node != "0"
