"""The command line: ``geosoftmax``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from geosoftmax_experiments.ordinal.commands import app as ordinal_app
from geosoftmax_experiments.superres.commands import localize, localize_eval
from geosoftmax_experiments.vae.commands import app as vae_app

app = typer.Typer(
    help="The geometric softmax: experiments and figures.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
demos = typer.Typer(help="What it does, in a minute.", no_args_is_help=True)
app.add_typer(ordinal_app, name="ordinal")
app.add_typer(vae_app, name="vae")
app.add_typer(demos, name="demo")
app.command()(localize)
app.command()(localize_eval)


@app.callback(invoke_without_command=True)
def main(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False):
    """Run a softmax that knows the geometry of its outputs."""
    if version:
        import geosoftmax

        typer.echo(geosoftmax.__version__)
        raise typer.Exit


@demos.command()
def ordinal(
    output: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("results/demo"),
) -> None:
    """Compare g-logistic with its rivals on the ordinal sets that come with skordinal."""
    from geosoftmax_experiments.ordinal.commands import compare

    compare(output, source="skordinal", folds=3, quick=True, fresh=True)


@demos.command()
def digits(
    output: Annotated[
        Path, typer.Option(help="Where the picture is written (PNG, SVG or PDF).")
    ] = Path("results/digits.png"),
    digits: Annotated[
        str, typer.Option(help="Which digits to draw, separated by commas.")
    ] = "2,3,8",
    noise: Annotated[
        float, typer.Option(min=0.0, help="Standard deviation of the noise on the field.")
    ] = 0.1,
    seed: Annotated[int, typer.Option(help="Seed of the noise.")] = 0,
) -> None:
    """Recover drawings from their noisy distance fields: geometric softmax against its rivals."""
    from geosoftmax_experiments.demo import run

    chosen = _read_digits(digits)
    if output.suffix.lower() not in {".png", ".svg", ".pdf"}:
        raise typer.BadParameter("must end in .png, .svg or .pdf", param_hint="--output")
    try:
        run(output, chosen, noise, seed, Console())
    except OSError as error:
        typer.echo(f"Could not write {output}: {error.strerror or error}.", err=True)
        raise typer.Exit(1) from None


def _read_digits(text: str) -> list[int]:
    try:
        chosen = [int(part) for part in text.split(",")]
    except ValueError:
        chosen = []
    if not chosen or not all(0 <= digit <= 9 for digit in chosen):
        raise typer.BadParameter("must be digits from 0 to 9, as in 2,3,8", param_hint="--digits")
    return chosen
