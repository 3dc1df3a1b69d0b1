"""The outputs of the comparison: raw rows, tables, a figure, and a report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.table import Table

from geosoftmax_experiments.report import Report, made_with, write_csv
from geosoftmax_experiments.statistics import STARRED, bold
from geosoftmax_experiments.store import Store
from geosoftmax_experiments.taxonomy.comparison import Comparison
from geosoftmax_experiments.taxonomy.conditions import Condition
from geosoftmax_experiments.taxonomy.figures import draw_gains
from geosoftmax_experiments.taxonomy.measures import MEASURES
from geosoftmax_experiments.taxonomy.models import MODELS
from geosoftmax_experiments.taxonomy.summary import (
    CONTROL,
    SHARED,
    Column,
    compare_draws,
    means,
    shown,
    tested,
)

__all__ = ["console_table", "write_report"]

#: Means that are as near as that are equally good.
TIED = 5e-5


def write_report(store: Store, rows: pd.DataFrame, comparison: Comparison) -> Path:
    """Write everything into the folder of a store; return the path of the HTML page."""
    folder, condition = store.folder, comparison.condition
    write_csv(folder / "rows.csv", rows)
    report = Report(folder, f"Taxonomies: the comparison on 20 newsgroups{condition.title}")
    commits = store.commits(unit.key for unit in comparison.units())
    report.add(*_what(comparison, commits))
    if CONTROL in comparison.models and len(comparison.models) > 1:
        figure = draw_gains(rows, comparison.sizes, list(comparison.models), tested(condition))
        report.add_figure("gains", figure, "Differences to the control, by the number of posts")
    for size, draws in zip(comparison.sizes, comparison.draws, strict=True):
        report.add(f"## {size:,} posts, draws: {draws}")
        report.add_table(_bold_table(rows, size, shown(condition)))
        _add_tests(report, rows, size, condition)
    report.add("## Models")
    report.add_table(_models(rows, comparison))
    return report.write()


def _what(comparison: Comparison, commits: dict[str, int]) -> list[str]:
    corpus, settings, condition = comparison.corpus, comparison.settings, comparison.condition
    first = MEASURES[condition.criteria["mode"]].label
    return [
        f"{len(corpus.names)} newsgroups, {len(corpus.y_train):,} posts to train on and "
        f"{len(corpus.y_test):,} to test on, by date; headers, quotes and footers removed. Linear "
        f"models on {corpus.X_train.shape[1]} directions of TF-IDF (those of all posts to train "
        "on, without their labels). Draws are stratified by newsgroup; all models get the same.",
        "Candidates of the loss, penalty "
        f"({', '.join(f'{one:g}' for one in settings.penalties)}) and temperature of the decision "
        f"({', '.join(f'{one:g}' for one in settings.temperatures)}) are chosen on folds of the "
        f"drawn posts: by {first} for the likeliest class, by the mean distance in the tree for "
        "the class of least expected distance. Test posts choose nothing.",
        "Distances and heights count edges. *Group* is the child of the root: alt, comp, misc, …. "
        "Support is the mean number of leaves whose probability is not 0.",
        *condition.notes,
        made_with(settings.versions, commits),
    ]


def _bold_table(
    rows: Any, size: int, columns: Sequence[Column], form: str = "**{}**"
) -> pd.DataFrame:
    """Tabulate means over draws; the best of a column is bold."""
    found: Any = means(rows, size, columns)
    table = pd.DataFrame({"model": [MODELS[name].label for name in found.index]})
    for column in columns:
        values = found[column]
        best = values.min() if MEASURES[column.measure].lower_is_better else values.max()
        table[column.label] = [bold(one, abs(one - best) < TIED, form) for one in values]
    part = rows[(rows["size"] == size) & (rows["decision"] == "cost")]
    support = part.groupby("model")["support"].mean()
    table["support"] = [f"{support[name]:.1f}" for name in found.index]
    return table


def _add_tests(report: Report, rows: pd.DataFrame, size: int, condition: Condition) -> None:
    for column in tested(condition):
        found = compare_draws(rows, size, column)
        if found is None:
            continue
        report.add(
            f"{column.label.capitalize()}: each model beside {MODELS[CONTROL].label}, over draws; "
            "a positive gain is in favour of the model of the row."
        )
        names: list[Any] = list(found.index)
        found["mean gain"] = found["mean gain"].map(_gain)
        found.insert(0, "model", [MODELS[name].label for name in names])
        for name in ("p", "p (Holm)"):
            found[name] = [_p(p) for p in found[name]]
        report.add_table(found)
    _add_second_control(report, rows, size, shown(condition))


def _add_second_control(
    report: Report, rows: pd.DataFrame, size: int, columns: Sequence[Column]
) -> None:
    """Test what is shared along the tree against what is shared along a tree without meaning."""
    shared, shuffled = SHARED
    pair = rows[rows["model"].isin(SHARED)]
    lines = []
    for column in columns:
        found: Any = compare_draws(pair, size, column, shuffled)
        if found is not None:
            line = found.loc[shared]
            won, lost, p = int(line["won"]), int(line["lost"]), _p(line["p"])
            gain = _gain(line["mean gain"])
            lines.append({"": column.label, "mean gain": gain, "won": won, "lost": lost, "p": p})
    if lines:
        report.add(
            f"{MODELS[shared].label} beside {MODELS[shuffled].label}: whether the tree has to be "
            "the right one."
        )
        report.add_table(pd.DataFrame(lines))


def _gain(value: float) -> str:
    return f"{value:+.4f}"


def _p(value: float) -> str:
    return "–" if value != value else f"{value:.2g}"


def _models(rows: Any, comparison: Comparison) -> pd.DataFrame:
    lines = []
    for name in comparison.models:
        model, part = MODELS[name], rows[rows["model"] == name]
        candidates = ", ".join(f"{one:g}" for one in model.candidates)
        lines.append(
            {
                "model": model.label,
                "what": model.note,
                "candidates": candidates if len(model.candidates) > 1 else "–",
                "decays of what is shared": ", ".join(f"{one:g}" for one in model.shared) or "–",
                "seconds a draw": f"{part['seconds'].mean():.1f}",
            }
        )
    return pd.DataFrame(lines)


def console_table(rows: pd.DataFrame, size: int, columns: Sequence[Column]) -> Table:
    """Return the means of a size, for a terminal."""
    table = _bold_table(rows, size, columns, STARRED)
    result = Table(
        title=f"{size:,} posts: means over draws",
        caption="*: the best. First column: the likeliest class. All others: least cost.",
    )
    short = [MEASURES[column.measure].short for column in columns]
    for k, name in enumerate(["model", *short, "support"]):
        result.add_column(name, justify="right" if k else "left")
    for row in table.itertuples(index=False):
        result.add_row(*row)
    return result
