"""The options of ``geosoftmax ordinal …``: what to compare, and tables as people have them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.options import BackendOptions, read_names

if TYPE_CHECKING:  # the command line starts fast: pandas is imported where tables are read
    from geosoftmax_experiments.tables import TextFormat

__all__ = [
    "CalibrationOptions",
    "CompareOptions",
    "Decision",
    "DeepOptions",
    "FitOptions",
    "Missing",
    "PredictOptions",
    "TableOptions",
    "Unknown",
]

Decision = Literal["mode", "median", "mean", "scores", "chosen"]
Missing = Literal["refuse", "drop", "impute"]
Unknown = Literal["ignore", "refuse"]
_PANEL = "How the table is read"
_GUESSED: Any = {"show_default": "guessed", "rich_help_panel": _PANEL}


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """How a table is read; what is not given of its format is guessed."""

    separator: Annotated[
        str | None, typer.Option(help="The separator of columns, or tab.", **_GUESSED)
    ] = None
    decimal: Annotated[
        Literal[".", ","] | None, typer.Option(help="The decimal mark.", **_GUESSED)
    ] = None
    encoding: Annotated[str | None, typer.Option(help="Such as utf-8 or cp1252.", **_GUESSED)] = (
        None
    )
    missing: Annotated[
        Missing | None,
        typer.Option(
            help="Missing values: refuse them, drop their rows (empty predictions), or impute "
            "medians and most frequent categories.",
            show_default="refuse; in predict, as in fit",
            rich_help_panel=_PANEL,
        ),
    ] = None

    @property
    def form(self) -> TextFormat:
        """The format, checked."""
        from geosoftmax_experiments.tables import TextFormat

        separator = {"tab": "\t", r"\t": "\t"}.get(self.separator or "", self.separator or "")
        if len(separator) > 1 or separator in ('"', "\n", "\r"):
            raise UserError(f"--separator {separator!r} is not one sign.", "As in: --separator ';'")
        return TextFormat(separator, self.decimal or "", self.encoding or "")


@dataclass(frozen=True, kw_only=True)
class FitOptions(TableOptions):
    """A table to learn from."""

    table: Annotated[Path, typer.Argument(help="CSV or Parquet file, a sample in each row.")]
    target: Annotated[str, typer.Option(help="The column to predict.")]
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of model and report.")]
    order: Annotated[
        str,
        typer.Option(
            help="The classes from low to high, separated by commas; in double quotes, "
            "if a class holds a comma."
        ),
    ] = ""
    ignore: Annotated[str, typer.Option(help="Columns to leave out, separated by commas.")] = ""
    id: Annotated[
        str,
        typer.Option(help="The column that names samples: not a feature, copied to predictions."),
    ] = ""
    decision: Annotated[
        Decision, typer.Option(help="How probabilities choose a class; chosen by validation.")
    ] = "chosen"

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The classes in their order; None where it is not given."""
        return read_names("--order", self.order) or None

    @property
    def no_features(self) -> tuple[str, ...]:
        """The columns that are left out."""
        return _no_features(self.ignore, self.id)


def _no_features(ignore: str, id: str) -> tuple[str, ...]:
    names = read_names("--ignore", ignore)
    return names if id in ("", *names) else (*names, id)


@dataclass(frozen=True, kw_only=True)
class PredictOptions(TableOptions):
    """A table to predict."""

    model: Annotated[Path, typer.Argument(help="Folder that `geosoftmax ordinal fit` wrote.")]
    table: Annotated[Path, typer.Argument(help="CSV or Parquet file with the same columns.")]
    output: Annotated[Path, typer.Option("--output", "-o", help="CSV or Parquet file to write.")]
    id: Annotated[
        str, typer.Option(help="The column that names samples.", show_default="that of the fit")
    ] = ""
    unknown: Annotated[
        Unknown, typer.Option(help="Categories that the fit did not see: count as none, or refuse.")
    ] = "ignore"


_OWN: Any = {"rich_help_panel": "Your own tables"}


@dataclass(frozen=True, kw_only=True)
class CompareOptions(TableOptions, BackendOptions):
    """What to compare, and where."""

    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder of the results.",
            show_default="results/ordinal; with --data, results/ordinal-tables",
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
    inner: Annotated[int, typer.Option(min=2, help="Inner folds for choosing parameters.")] = 3
    quick: Annotated[bool, typer.Option("--quick", help="One fold, coarse grids.")] = False
    data: Annotated[
        list[Path] | None,
        typer.Option(help="A CSV or Parquet file, instead of a source; repeatable.", **_OWN),
    ] = None
    target: Annotated[
        list[str] | None,
        typer.Option(help="The column to predict, once or for each --data.", **_OWN),
    ] = None
    order: Annotated[
        list[str] | None,
        typer.Option(
            help="Its classes from low to high, separated by commas; once or for each --data.",
            **_OWN,
        ),
    ] = None
    ignore: Annotated[
        str, typer.Option(help="Columns to leave out, separated by commas.", **_OWN)
    ] = ""
    id: Annotated[
        str, typer.Option(help="The column that names samples: not a feature.", **_OWN)
    ] = ""

    @property
    def no_features(self) -> tuple[str, ...]:
        """The columns that are left out."""
        return _no_features(self.ignore, self.id)

    @property
    def tables(self) -> list[tuple[Path, str, tuple[str, ...] | None]]:
        """One's own tables: path, target and, where it is given, order."""
        paths = self.data or []
        given = {"--target": self.target or [], "--order": self.order or []}
        if not paths:
            for name in ("ignore", "id", "missing", "separator", "decimal", "encoding"):
                given[f"--{name}"] = [getattr(self, name)] if getattr(self, name) else []
            others = [name for name, values in given.items() if values]
            if others:
                raise UserError(f"{others[0]} is about your own tables.", "Give --data FILE too.")
            return []
        if self.sets or self.source != "survey":
            raise UserError(
                "--data takes the place of --source and --sets.", "Give the one or the others."
            )
        for name, values in given.items():
            if len(values) not in (1, len(paths)) and (values or name == "--target"):
                raise UserError(
                    f"{name} comes {len(values)} times, for {len(paths)} tables.",
                    f"Give {name} once, or once for each --data.",
                )
        targets = given["--target"] * (len(paths) if len(given["--target"]) == 1 else 1)
        orders = (given["--order"] or [""]) * (len(paths) if len(given["--order"]) < 2 else 1)
        return [
            (path, target, read_names("--order", order) or None)
            for path, target, order in zip(paths, targets, orders, strict=True)
        ]


@dataclass(frozen=True, kw_only=True)
class DeepOptions(BackendOptions):
    """Which losses to train small networks with, on what, and where."""

    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the results.")] = Path(
        "results/ordinal-deep"
    )
    source: Annotated[
        str, typer.Option(help="survey: the sets in $GEOSOFTMAX_DATA; skordinal: the 5 it has.")
    ] = "survey"
    sets: Annotated[
        str,
        typer.Option(
            help="Sets, separated by commas.", show_default="those of the source with some 500 rows"
        ),
    ] = ""
    losses: Annotated[
        str, typer.Option(help="Losses, separated by commas.", show_default="all")
    ] = ""
    folds: Annotated[int, typer.Option(min=1, help="Folds of each set.")] = 5
    inner: Annotated[int, typer.Option(min=2, help="Inner folds for judging candidates.")] = 3
    steps: Annotated[int, typer.Option(min=25, help="Steps of training, at most.")] = 400


@dataclass(frozen=True)
class CalibrationOptions:
    """What to train, and how long."""

    output: Annotated[
        Path, typer.Option("--output", "-o", help="The picture (PNG, SVG or PDF); a CSV beside it.")
    ] = Path("results/calibration.png")
    source: Annotated[str, typer.Option(help="survey or skordinal.")] = "survey"
    name: Annotated[str, typer.Option("--set", help="The set to train on.")] = "car"
    steps: Annotated[int, typer.Option(min=1, help="Steps of training.")] = 300
    seed: Annotated[int, typer.Option(help="Seed of the first weights.")] = 0
