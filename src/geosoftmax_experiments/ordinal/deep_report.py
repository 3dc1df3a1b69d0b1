"""The page of a comparison of losses on small networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from rich.table import Table

from geosoftmax_experiments import files
from geosoftmax_experiments.ordinal.deep import DeepComparison
from geosoftmax_experiments.ordinal.measures import MEASURES
from geosoftmax_experiments.report import Report, escape, made_with, write_csv
from geosoftmax_experiments.rivals.table import RIVALS
from geosoftmax_experiments.statistics import STARRED, add_tests, bold, ranks
from geosoftmax_experiments.store import Store

__all__ = ["by_set", "console_table", "write_report"]

#: The columns of the tables, and what the tests are about.
SHOWN = ("hausdorff", "rps", "mae", "accuracy")
#: What the tests compare with all others.
REFERENCE = "geometric"


def by_set(rows: Any, measure: str, own: bool = False) -> pd.DataFrame:
    """Return means over folds: a row for each set, a column for each loss.

    Candidates are weighed by the measure's own criterion, over all decisions of the loss, or over
    those with its `own` decision alone.
    """
    rows = rows[rows["selected_by"] == MEASURES[measure].criterion]
    first = rows.groupby("model", sort=False)["decision"].transform("first")
    last = rows.groupby("model", sort=False)["decision"].transform("last")  # "chosen", or the only
    rows = rows[rows["decision"] == (first if own else last)]
    table = rows.pivot_table(index="set", columns="model", values=measure, sort=False)
    return table[list(dict.fromkeys(rows["model"]))]


def write_report(store: Store, rows: pd.DataFrame, comparison: DeepComparison) -> Path:
    """Write rows, tables and pages into the folder of a store; return the HTML page."""
    folder, settings = store.folder, comparison.settings
    write_csv(folder / "rows.csv", rows)
    files.write(folder / "rows.parquet", lambda path: rows.to_parquet(path, index=False))
    commits = store.commits(unit.key for unit in comparison.units())
    training = settings.training
    report = Report(folder, "Ordinal regression: losses on small networks")
    report.add(
        f"{len(settings.sets)} sets ({settings.source}: {', '.join(map(escape, settings.sets))}), "
        f"{settings.folds} folds each. A hidden layer of {training.width} units, full batches, "
        f"AdamW (rate {training.rate:g}, decay {training.decay:g}), the same first weights for "
        f"all losses. Candidates are the loss's parameter, the steps "
        f"({', '.join(map(str, training.steps))}) and the decision; each is judged on "
        f"{settings.inner} inner folds, and weighs exp(-(mean loss - least) / standard error of "
        "the least) in the average of distributions and in the vote of labels. Nothing is chosen "
        "on test folds.",
        made_with(settings.versions, commits),
        "## Means over sets and folds",
        "Each measure is its own criterion. The best of a column is bold. Losses without a "
        "distribution give all probability to the class they choose.",
    )
    report.add_table(_means(rows, own=False))
    report.add("The same with the decision that belongs to each loss, and no other:")
    report.add_table(_means(rows, own=True))
    if len(settings.sets) > 1 and len(settings.losses) > 1:
        _add_tests(report, rows)
    report.add("## Losses")
    report.add_table(_losses(rows, settings.losses))
    return report.write()


def _means(rows: pd.DataFrame, own: bool, form: str = "**{}**") -> pd.DataFrame:
    means = {measure: by_set(rows, measure, own).mean() for measure in SHOWN}
    names = list(means[SHOWN[0]].index)
    table = pd.DataFrame({"loss": [RIVALS[name].label for name in names]})
    for measure, values in means.items():
        best = values.min() if MEASURES[measure].lower_is_better else values.max()
        table[MEASURES[measure].label] = [bold(value, value == best, form) for value in values]
    return table


def _add_tests(report: Report, rows: pd.DataFrame) -> None:
    report.add("## Ranks and tests")
    for measure in SHOWN:
        table, lower = by_set(rows, measure), MEASURES[measure].lower_is_better
        add_tests(
            report, table, ranks(table, lower), REFERENCE, lower,
            measure=MEASURES[measure].label, noun="loss", label=lambda name: RIVALS[name].label,
        )  # fmt: skip


def _losses(rows: Any, losses: tuple[str, ...]) -> pd.DataFrame:
    lines = []
    for name in losses:
        rival, part = RIVALS[name], rows[rows["model"] == name]
        values = ", ".join(f"{value:g}" for value in rival.values) if rival.parameter else ""
        lines.append(
            {
                "loss": rival.label,
                "parameter": f"{rival.parameter}: {values}" if values else "–",
                "its own decision": part["decision"].iloc[0],
                "seconds a fold": f"{part['seconds'].mean():.1f}",
            }
        )
    return pd.DataFrame(lines)


def console_table(rows: pd.DataFrame) -> Table:
    """Return the means of the losses, for a terminal."""
    found = _means(rows, own=False, form=STARRED)
    result = Table(title="Means over sets and folds", caption="*: the best of a column.")
    for column in found.columns:
        result.add_column(str(column), justify="left" if column == "loss" else "right")
    for row in found.itertuples(index=False):
        result.add_row(*row)
    return result
