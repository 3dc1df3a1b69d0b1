"""The commands ``geosoftmax taxonomy …``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.options import BackendOptions, parsed, read_names

__all__ = ["app"]

app = typer.Typer(
    help="Classes that are the leaves of a tree: what the tree is good for.", no_args_is_help=True
)


@dataclass(frozen=True, kw_only=True)
class CompareOptions(BackendOptions):
    """What to compare, and where."""

    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the results.")] = Path(
        "results/taxonomy"
    )
    sizes: Annotated[str, typer.Option(help="Posts to train on, separated by commas.")] = (
        "100,500,2000,11314"
    )
    draws: Annotated[
        str, typer.Option(help="Draws of each size; one number for all, or as many as sizes.")
    ] = "20,20,10,1"
    models: Annotated[str, typer.Option(help="Some models only, separated by commas.")] = ""
    noise: Annotated[
        float | None,
        typer.Option(
            help="Share of labels to train on that are replaced by another leaf of their group.",
            show_default="none",
        ),
    ] = None
    unseen: Annotated[
        bool,
        typer.Option(
            "--unseen", help="Leaves without a post to train on; their test posts are measured."
        ),
    ] = False
    quick: Annotated[bool, typer.Option("--quick", help="A coarse grid of penalties.")] = False


@app.command()
@parsed
def compare(options: CompareOptions) -> None:
    """Compare losses on 20 newsgroups, whose dotted names are a tree.

    A run that was stopped is continued by the same command; more draws, sizes and models may be
    added to a folder.
    """
    from geosoftmax_experiments.data.newsgroups import load_newsgroups
    from geosoftmax_experiments.report import say_saved
    from geosoftmax_experiments.taxonomy.comparison import Comparison
    from geosoftmax_experiments.taxonomy.conditions import condition_of
    from geosoftmax_experiments.taxonomy.features import featurize
    from geosoftmax_experiments.taxonomy.report import console_table, write_report
    from geosoftmax_experiments.taxonomy.summary import shown

    console, backend = Console(), options.where()
    sizes = read_counts("--sizes", options.sizes)
    draws = read_counts("--draws", options.draws)
    draws = draws * len(sizes) if len(draws) == 1 else draws
    models = read_names("--models", options.models)
    condition = condition_of(options.noise, options.unseen)
    corpus = featurize(*load_newsgroups())
    comparison = Comparison.of(corpus, sizes, draws, models, options.quick, condition)
    with comparison.store(options.output).opened(fresh=options.fresh) as store:
        rows = comparison.run(store, backend, console)
        page = write_report(store, rows, comparison)
    for size in sizes:
        console.print(console_table(rows, size, shown(condition)))
    say_saved(console, page)


def read_counts(option: str, text: str) -> tuple[int, ...]:
    """Read whole numbers of at least 1 that are separated by commas."""
    try:
        counts = tuple(int(part) for part in text.split(","))
    except ValueError:
        counts = ()
    if not counts or min(counts) < 1:
        raise UserError(f"{option} {text!r} are no counts.", f"As in: {option} 100,500")
    return counts
