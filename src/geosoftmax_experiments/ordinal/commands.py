"""The commands ``geosoftmax ordinal …``."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from geosoftmax_experiments.errors import UserError, end_stopped
from geosoftmax_experiments.options import parsed
from geosoftmax_experiments.ordinal.options import FitOptions, PredictOptions

if TYPE_CHECKING:  # the command line starts fast: commands import what they need
    from geosoftmax_experiments.data.ordinal import Fold
    from geosoftmax_experiments.ordinal.runner import Backend
    from geosoftmax_experiments.ordinal.store import Settings

__all__ = ["app", "compare_and_report"]

app = typer.Typer(
    help="Ordinal regression: the comparison of the paper, and models for your own tables.",
    no_args_is_help=True,
)


@app.command()
def compare(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder of the results.")
    ] = None,
    source: Annotated[
        str, typer.Option(help="survey: the 17 sets in $GEOSOFTMAX_DATA; skordinal: the 5 it has.")
    ] = "survey",
    sets: Annotated[str, typer.Option(help="Some sets only, separated by commas.")] = "",
    models: Annotated[str, typer.Option(help="Some models only, separated by commas.")] = "",
    folds: Annotated[int | None, typer.Option(min=1, help="Folds of each set [30].")] = None,
    inner: Annotated[int, typer.Option(min=2, help="Folds to choose parameters by.")] = 3,
    quick: Annotated[bool, typer.Option("--quick", help="One fold, coarse grids.")] = False,
    jobs: Annotated[int, typer.Option(help="Processes; -1 for all cores.")] = -1,
    backend: Annotated[str, typer.Option(help="local or dask.")] = "local",
    scheduler: Annotated[str | None, typer.Option(help="Address of a dask scheduler.")] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Forget the results that the folder holds.")
    ] = False,
) -> None:
    """Compare g-logistic with its rivals on ordinal sets: Table 1 of the paper, and more.

    A run that was stopped is continued by the same command.
    """
    from geosoftmax_experiments.ordinal.runner import Backend, make_settings

    where = Backend(backend, jobs, scheduler)
    settings, loaded = make_settings(
        source, _names(sets), folds, _names(models), inner=inner, quick=quick
    )
    folder = output or Path("results/ordinal-quick" if quick else "results/ordinal")
    console = Console()
    compare_and_report(folder, settings, loaded, where, fresh, console)
    if quick:
        console.print(
            f"A quick look (sets: {len(settings.sets)}, folds: {settings.folds}, coarse grids): to "
            "be first here, by a few thousandths, proves little. The comparison on 17 sets and 30 "
            "folds, with tests, and where g-logistic leads and where it loses: docs/ordinal.md",
            soft_wrap=True,
        )


def compare_and_report(
    folder: Path,
    settings: Settings,
    loaded: dict[tuple[str, int], Fold],
    backend: Backend,
    fresh: bool,
    console: Console,
) -> None:
    """Run what is missing, write the report, and print the table of means."""
    from geosoftmax_experiments.ordinal.report import console_table, write_report
    from geosoftmax_experiments.ordinal.runner import run
    from geosoftmax_experiments.ordinal.store import Store

    if fresh and (folder / "settings.json").exists():
        shutil.rmtree(folder / "units", ignore_errors=True)
        (folder / "settings.json").unlink()
    store = Store(folder, settings)
    try:
        run(store, loaded, backend, console)
    except KeyboardInterrupt:
        total = len(settings.units())
        done = total - len(store.missing())
        end_stopped(f"{done} of {total} units are kept in {folder}")
    rows = store.rows()
    page = write_report(folder, rows, settings)
    console.print(console_table(rows))
    console.print(f"Report saved to {page.resolve()}", soft_wrap=True)


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


@app.command()
def calibration(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The picture (PNG, SVG or PDF); a CSV beside it.")
    ] = Path("results/calibration.png"),
    source: Annotated[str, typer.Option(help="survey or skordinal.")] = "survey",
    name: Annotated[str, typer.Option("--set", help="The set to train on.")] = "car",
    steps: Annotated[int, typer.Option(min=1, help="Steps of training.")] = 300,
    seed: Annotated[int, typer.Option(help="Seed of the first weights.")] = 0,
) -> None:
    """Draw loss and Hausdorff divergence during training: the paper's Figure 3."""
    from geosoftmax_experiments.data.ordinal import load_fold
    from geosoftmax_experiments.ordinal.calibration import run

    if output.suffix.lower() not in {".png", ".svg", ".pdf"}:
        raise UserError(f"{output} is no picture.", "Let it end in .png, .svg or .pdf.")
    run(load_fold(source, name, 0), steps, seed, output, Console())


def _names(text: str) -> tuple[str, ...] | None:
    """Read names that are separated by commas; None where there are none."""
    return tuple(part.strip() for part in text.split(",") if part.strip()) or None
