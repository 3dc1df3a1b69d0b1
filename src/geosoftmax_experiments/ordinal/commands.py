"""The commands ``geosoftmax ordinal …``."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.console import Console

from geosoftmax_experiments.options import check_picture, parsed, read_names
from geosoftmax_experiments.ordinal.options import (
    CalibrationOptions,
    CompareOptions,
    DeepOptions,
    FitOptions,
    PredictOptions,
)

__all__ = ["app", "run_compare"]

app = typer.Typer(
    help="Ordinal regression: the comparison of the paper, and models for your own tables.",
    no_args_is_help=True,
)


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
    from geosoftmax_experiments.ordinal.comparison import (
        OWN_TABLES,
        Comparison,
        load_folds,
        refuse_older,
    )
    from geosoftmax_experiments.ordinal.models import MODELS
    from geosoftmax_experiments.ordinal.report import console_table, write_report
    from geosoftmax_experiments.ordinal.table_folds import read_folds
    from geosoftmax_experiments.report import say_saved

    backend = options.where()
    labels = {model.label: name for name, model in MODELS.items()}  # as tables call them
    models = tuple(labels.get(name, name) for name in read_names("--models", options.models))
    count = options.folds or (1 if options.quick else PUBLISHED_FOLDS)
    tables = options.tables
    if tables:
        source, folds = OWN_TABLES, read_folds(tables, options, count, console)
    else:
        source = options.source
        folds = load_folds(source, read_names("--sets", options.sets), count)
    comparison = Comparison.of(source, folds, models, options.inner, options.quick)
    usual = "ordinal-tables" if tables else "ordinal-quick" if options.quick else "ordinal"
    folder = options.output or Path("results") / usual
    if not options.fresh:
        refuse_older(folder)
    with comparison.store(folder).opened(fresh=options.fresh) as store:
        rows = comparison.run(store, backend, console)
        page = write_report(store, rows, comparison)
    console.print(console_table(rows))
    say_saved(console, page)
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
def deep(options: DeepOptions) -> None:
    """Compare losses on small networks: g-logistic, CORAL, CORN, soft labels, EMD and others.

    A run that was stopped is continued by the same command.
    """
    from geosoftmax_experiments.data.ordinal import set_names
    from geosoftmax_experiments.ordinal.comparison import load_folds
    from geosoftmax_experiments.ordinal.deep import SETS, DeepComparison
    from geosoftmax_experiments.ordinal.deep_report import console_table, write_report
    from geosoftmax_experiments.ordinal.networks import Training
    from geosoftmax_experiments.report import say_saved

    console, backend = Console(), options.where()
    usual = tuple(name for name in SETS if name in set_names(options.source))
    folds = load_folds(options.source, read_names("--sets", options.sets) or usual, options.folds)
    steps = tuple(step for step in Training.steps if step < options.steps)
    comparison = DeepComparison.of(
        options.source, folds, read_names("--losses", options.losses), options.inner,
        Training(steps=(*steps, options.steps)),
    )  # fmt: skip
    with comparison.store(options.output).opened(fresh=options.fresh) as store:
        rows = comparison.run(store, backend, console)
        page = write_report(store, rows, comparison)
    console.print(console_table(rows))
    say_saved(console, page)


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
@parsed
def calibration(options: CalibrationOptions) -> None:
    """Draw loss and Hausdorff divergence during training: the paper's Figure 3."""
    from geosoftmax_experiments.data.ordinal import load_fold
    from geosoftmax_experiments.ordinal.calibration import run

    check_picture(options.output)
    fold = load_fold(options.source, options.name, 0)
    run(fold, options.steps, options.seed, options.output, Console())
