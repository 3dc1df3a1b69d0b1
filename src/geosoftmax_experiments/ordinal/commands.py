"""The commands ``geosoftmax ordinal …``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from geosoftmax_experiments.options import BackendOptions, check_picture, parsed, read_names
from geosoftmax_experiments.ordinal.options import FitOptions, PredictOptions

__all__ = ["CompareOptions", "app", "run_compare"]

app = typer.Typer(
    help="Ordinal regression: the comparison of the paper, and models for your own tables.",
    no_args_is_help=True,
)
Picture = Annotated[
    Path, typer.Option("--output", "-o", help="The picture (PNG, SVG or PDF); a CSV beside it.")
]


@dataclass(frozen=True, kw_only=True)
class CompareOptions(BackendOptions):
    """What to compare, and where."""

    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Folder of the results.", show_default="results/ordinal"
        ),
    ] = None
    source: Annotated[
        str, typer.Option(help="survey: the 17 sets in $GEOSOFTMAX_DATA; skordinal: the 5 it has.")
    ] = "survey"
    sets: Annotated[str, typer.Option(help="Some sets only, separated by commas.")] = ""
    models: Annotated[str, typer.Option(help="Some models only, separated by commas.")] = ""
    folds: Annotated[
        int | None, typer.Option(min=1, help="Folds of each set.", show_default="30")
    ] = None
    inner: Annotated[int, typer.Option(min=2, help="Folds to choose parameters by.")] = 3
    quick: Annotated[bool, typer.Option("--quick", help="One fold, coarse grids.")] = False


@app.command()
@parsed
def compare(options: CompareOptions) -> None:
    """Compare g-logistic with its rivals on ordinal sets: Table 1 of the paper, and more.

    A run that was stopped is continued by the same command.
    """
    run_compare(options, Console())


def run_compare(options: CompareOptions, console: Console) -> None:
    """Run what is missing, write the report, and print the table of means."""
    from geosoftmax_experiments.data.ordinal import PUBLISHED_FOLDS
    from geosoftmax_experiments.ordinal.comparison import Comparison, load_folds, refuse_older
    from geosoftmax_experiments.ordinal.report import console_table, write_report
    from geosoftmax_experiments.runs import Backend

    jobs = -1 if options.jobs is None else options.jobs
    backend = Backend(options.backend, jobs, options.scheduler)
    models, sets = read_names("--models", options.models), read_names("--sets", options.sets)
    count = options.folds or (1 if options.quick else PUBLISHED_FOLDS)
    folds = load_folds(options.source, sets, count)
    comparison = Comparison.of(options.source, folds, models, options.inner, options.quick)
    usual = "results/ordinal-quick" if options.quick else "results/ordinal"
    folder = options.output or Path(usual)
    if not options.fresh:
        refuse_older(folder)
    with comparison.store(folder).opened(fresh=options.fresh) as store:
        rows = comparison.run(store, backend, console)
        page = write_report(store, rows, comparison)
    console.print(console_table(rows))
    console.print(f"Report saved to {page.resolve()}", soft_wrap=True)
    if options.quick:
        settings = comparison.settings
        console.print(
            f"A quick look (sets: {len(settings.sets)}, folds: {settings.folds}, coarse grids): to "
            "be first here, by a few thousandths, proves little. The comparison on 17 sets and 30 "
            "folds, with tests, and where g-logistic leads and where it loses: docs/ordinal.md",
            soft_wrap=True,
        )


@app.command()
@parsed
def fit(options: FitOptions) -> None:
    """Fit a model to your own table; print and report how well it does on samples not seen."""
    from geosoftmax_experiments.ordinal.own import fit_table

    fit_table(options, Console())


@app.command()
@parsed
def predict(options: PredictOptions) -> None:
    """Predict the rows of a table with a fitted model: class and probabilities."""
    from geosoftmax_experiments.ordinal.own import predict_table

    predict_table(options, Console())


@dataclass(frozen=True)
class CalibrationOptions:
    """What to train, and how long."""

    output: Picture = Path("results/calibration.png")
    source: Annotated[str, typer.Option(help="survey or skordinal.")] = "survey"
    name: Annotated[str, typer.Option("--set", help="The set to train on.")] = "car"
    steps: Annotated[int, typer.Option(min=1, help="Steps of training.")] = 300
    seed: Annotated[int, typer.Option(help="Seed of the first weights.")] = 0


@app.command()
@parsed
def calibration(options: CalibrationOptions) -> None:
    """Draw loss and Hausdorff divergence during training: the paper's Figure 3."""
    from geosoftmax_experiments.data.ordinal import load_fold
    from geosoftmax_experiments.ordinal.calibration import run

    check_picture(options.output)
    fold = load_fold(options.source, options.name, 0)
    run(fold, options.steps, options.seed, options.output, Console())
