"""The command line: ``geosoftmax``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from geosoftmax_experiments.errors import DEBUG, UserError, plain_errors, raise_on_sigterm
from geosoftmax_experiments.keypoints.commands import app as keypoints_app
from geosoftmax_experiments.options import check_picture
from geosoftmax_experiments.ordinal.commands import app as ordinal_app
from geosoftmax_experiments.superres.commands import localize, localize_eval
from geosoftmax_experiments.taxonomy.commands import app as taxonomy_app
from geosoftmax_experiments.vae.commands import app as vae_app


class _PlainGroup(TyperGroup):
    """Commands whose errors are a line and a hint, foreseen or not."""

    def invoke(self, ctx: Any) -> Any:
        with plain_errors(), raise_on_sigterm():
            return super().invoke(ctx)


app = typer.Typer(
    cls=_PlainGroup,
    help="A softmax that knows the geometry of its outputs: figures, experiments, a page to play.",
    epilog="Begin with: geosoftmax doctor, geosoftmax demo digits.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",  # not "rich", which takes words in brackets for styles
    pretty_exceptions_enable=False,
)
demos = typer.Typer(help="A demonstration of one minute.", no_args_is_help=True)
app.add_typer(demos, name="demo")
app.add_typer(ordinal_app, name="ordinal")
app.add_typer(taxonomy_app, name="taxonomy")
app.add_typer(vae_app, name="vae")
app.add_typer(keypoints_app, name="keypoints")
app.command()(localize)
app.command()(localize_eval)


@app.callback(invoke_without_command=True)
def main(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show errors with their traceback.")
    ] = False,
):
    """Run a softmax that knows the geometry of its outputs."""
    DEBUG.set(debug)
    if version:
        import geosoftmax

        typer.echo(geosoftmax.__version__)
        raise typer.Exit


@app.command()
def doctor(
    full: Annotated[bool, typer.Option("--full", help="Also try torch.compile.")] = False,
) -> None:
    """Show what is installed and which backends work, and solve problems with certificates."""
    from geosoftmax_experiments.doctor import run

    if not run(Console(), full):
        raise typer.Exit(1)


@app.command()
def figures(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="fields (Fig. 1), levels (Fig. 2), training (Fig. 3), cats (Fig. 4), "
            "mnist (Fig. 5), drawings (Fig. 6) [default: all]."
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the pictures, PNG and SVG.")
    ] = Path("results/figures"),
    paper: Annotated[
        bool, typer.Option("--paper", help="Figures 4 to 6 with the paper's cost, p = 2.")
    ] = False,
) -> None:
    """Draw the figures of the paper in a minute: 1 to 3 from the library, 4 to 6 from its results.

    Figure 3 (training) needs the data set car in the folder GEOSOFTMAX_DATA. Without it, the other
    figures are drawn.
    """
    from geosoftmax_experiments.figures import run

    run(names or [], output, Console(), paper)


@app.command()
def play(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on 127.0.0.1.")] = 7860,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")
    ] = True,
) -> None:
    """Open a page, on this machine alone, on which to play with the link function."""
    from geosoftmax_experiments.play.serve import run

    run(port, browser, Console())


@demos.command()
def ordinal(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the results.")] = Path(
        "results/demo"
    ),
) -> None:
    """Compare g-logistic with its rivals on the ordinal sets that come with skordinal."""
    from geosoftmax_experiments.ordinal.commands import run_compare
    from geosoftmax_experiments.ordinal.options import CompareOptions

    options = CompareOptions(output=output, source="skordinal", folds=3, quick=True, fresh=True)
    run_compare(options, Console())


@demos.command()
def digits(
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Where the picture is written (PNG, SVG or PDF)."),
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
    check_picture(output)
    run(output, chosen, noise, seed, Console())


def _read_digits(text: str) -> list[int]:
    try:
        chosen = [int(part) for part in text.split(",")]
    except ValueError:
        chosen = []
    if not chosen or not all(0 <= digit <= 9 for digit in chosen):
        raise UserError(f"--digits {text} are no digits.", "Give some from 0 to 9, as in 2,3,8.")
    return chosen
