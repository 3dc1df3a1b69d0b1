"""The outputs of a comparison: raw rows, tables, figures, and a report in Markdown and HTML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from rich.table import Table

from geosoftmax_experiments import files
from geosoftmax_experiments.ordinal import figures
from geosoftmax_experiments.ordinal.decisions import RULES
from geosoftmax_experiments.ordinal.measures import MEASURES
from geosoftmax_experiments.ordinal.models import MODELS
from geosoftmax_experiments.ordinal.store import Settings
from geosoftmax_experiments.ordinal.summary import (
    HEADLINE,
    PAPER,
    REFERENCE,
    TABLE_1,
    Method,
    by_criterion,
    by_set,
    decision_labels,
    methods_in,
    paper_table,
    ranks,
    read_paper,
    signed_ranks,
    summary,
)
from geosoftmax_experiments.pages import as_markdown, escape, html_page, write_csv

__all__ = ["console_table", "write_report"]

GEOMETRIC = ("g", "g-scale")
#: Folds whose results were known while grids, decisions and criteria were settled.
LOOKED_AT = 4
_CHOSEN = (
    "Parameters are chosen on inner folds by the Hausdorff divergence for measures of "
    "distributions, by accuracy for accuracy, by MAE for the rest."
)


def write_report(folder: Path, rows: pd.DataFrame, settings: Settings) -> Path:
    """Write everything into a folder; return the path of the HTML page."""
    write_csv(folder / "rows.csv", rows)
    files.write(folder / "rows.parquet", lambda path: rows.to_parquet(path, index=False))
    shown = [method for method in methods_in(rows) if method in HEADLINE]
    every = methods_in(rows)
    for measure in MEASURES:
        table = by_set(rows, measure, every)
        table.columns = [method.label for method in every]
        write_csv(folder / "sets" / f"{measure}.csv", table, index=True)
    tables = {measure: by_set(rows, measure, _distinct(shown, measure)) for measure in TABLE_1}
    figures.save(figures.draw_dots(tables), folder / "dots.png")
    pictures = {"dots.png"}
    if len(shown) > 1 and len(settings.sets) > 1:
        found = {name: ranks(tables[name], MEASURES[name].lower_is_better) for name in TABLE_1}
        figures.save(figures.draw_critical_differences(found), folder / "ranks.png")
        pictures.add("ranks.png")
    text = markdown(rows, settings, tables)
    files.write_text(folder / "report.md", text)
    page = folder / "report.html"
    files.write_text(page, html_page("Ordinal regression: the comparison", text, folder, pictures))
    return page


def _distinct(methods: list[Method], measure: str) -> list[Method]:
    """Leave one method of each model where decisions make no difference, for fair ranks."""
    if MEASURES[measure].criterion != "hausdorff":
        return methods
    first = sorted(methods, key=lambda method: method != REFERENCE)
    kept = {method.model: method for method in reversed(first)}.values()
    return [method for method in methods if method in kept]


# ------------------------------------------------------------------ the text


def markdown(rows: pd.DataFrame, settings: Settings, tables: dict[str, pd.DataFrame]) -> str:
    """Return the whole report."""
    parts = [
        "# Ordinal regression: the comparison",
        _what(rows, settings),
        "## Table 1 beside the paper's",
        _beside_the_paper(rows),
        "## All methods",
        f"Means over sets and folds. {_CHOSEN} The best of each column is bold: to be first "
        "among so many methods proves little, see the tests below.",
        as_markdown(_all_methods(rows)),
        "The same decision for all, in the rows of Table 1: g-logistic and the best other model; "
        "p is that of a signed-rank test over sets between the better g-logistic and that other.",
        as_markdown(_same_decision(rows)),
        "The rows of Table 1 again, with the parameters chosen by each of its measures:",
        as_markdown(_criteria(rows)),
        *_folds_unseen(rows),
        "## Set by set",
        "![Differences of the methods, set by set](dots.png)",
        *(_set_table(measure, table) for measure, table in tables.items()),
        "The other measures are in `sets/`, all rows in `rows.csv` and `rows.parquet`.",
    ]
    if len(settings.sets) > 1 and len(next(iter(tables.values())).columns) > 1:
        parts += ["## Ranks and tests", *_tests(tables)]
    parts += ["## Models", _models(rows, settings)]
    return "\n\n".join(parts) + "\n"


def _what(rows: pd.DataFrame, settings: Settings) -> str:
    pairs: Any = rows.drop_duplicates(["set", "fold"])
    ours = int((pairs["folds_by"] == "ours").sum())
    versions = ", ".join(f"{name} {number}" for name, number in settings.versions.items())
    decisions = "; ".join(f"*{rule}*: {text}" for rule, text in decision_labels(rows).items())
    return (
        f"{len(settings.sets)} sets ({settings.source}), {settings.folds} folds each: "
        f"{len(pairs) - ours} published, {ours} ours (seeded, stratified 75/25). Linear models on "
        f"features that are standardised on the training fold; parameters chosen by "
        f"{settings.inner}-fold validation inside it, never on the test fold.\n\n"
        f"A method is a model with a decision: {decisions}. For a squared cost, the decision of "
        f"least expected cost is the mean.\n\n"
        "The Hausdorff divergence is D(δ_y | β) with C = (ŷ-y)²/2, β the predicted distribution; "
        "a model that predicts a class alone has β = δ_ŷ. Log-loss takes p(true) = 0 for the "
        f"machine epsilon.\n\nVersions: {versions}."
    )


def _beside_the_paper(rows: pd.DataFrame) -> str:
    table = paper_table(rows)
    if table.empty:
        return "The paper's methods are not among the models of this run."
    paper = read_paper()
    return "\n\n".join(
        [
            f"Source: {paper['source']}. {paper['note']} Our ± is the deviation over the folds of "
            "a set, averaged over sets. The paper's divergences are some 2.3 times ours for every "
            "method, by a normalisation that it does not state: compare the ratios to LR.",
            as_markdown(table),
            *_verdicts(rows),
        ]
    )


def _verdicts(rows: pd.DataFrame) -> list[str]:
    """Say in words what the tables show, whichever way it went."""
    said = []
    means: Any = summary(rows)
    if all(method in means.index for method in PAPER):
        for by in (None, "mae"):
            values: Any = summary(rows, by)["hausdorff", "mean"]
            order = sorted(PAPER, key=lambda method: values[method])
            same = [method.model for method in order] == ["g", "lr", "at", "it"]
            words = " < ".join(f"{MODELS[m.model].label} ({values[m]:.3f})" for m in order)
            said.append(
                f"Order in the Hausdorff row, penalty chosen by {'MAE' if by else 'it'}: {words}; "
                f"the paper's (g-logistic < LR < LR(AT) < LR(IT)) is "
                f"{'reproduced' if same else 'not reproduced'}."
            )
    for measure in TABLE_1:
        values = means[measure, "mean"].sort_values(ascending=MEASURES[measure].lower_is_better)
        best = values.index[0]
        line = f"First in {MEASURES[measure].label}: {best.label} ({values.iloc[0]:.4f})"
        ours = [m for m in values.index if m.model in GEOMETRIC]
        if ours and best != ours[0]:
            line += f"; the first g-logistic is {ours[0].label} ({values[ours[0]]:.4f})"
        said.append(line + ".")
    return ["- " + "\n- ".join(said)]


def _folds_unseen(rows: pd.DataFrame) -> list[str]:
    """Say the same of the folds that nobody had looked at when the comparison was designed."""
    unseen: Any = rows[rows["fold"] >= LOOKED_AT]
    if unseen.empty:
        return []
    return [
        f"## Folds {LOOKED_AT} and above alone",
        f"The grids, the decisions and the criteria of this comparison were settled while the "
        f"results of the first {LOOKED_AT} folds were known. These are the others.",
        *_verdicts(unseen),
        as_markdown(_same_decision(unseen)),
    ]


def _all_methods(rows: pd.DataFrame) -> pd.DataFrame:
    means: Any = summary(rows).xs("mean", axis=1, level=1)
    return _named(means)


def _same_decision(rows: pd.DataFrame) -> pd.DataFrame:
    """Compare models under one decision rule at a time: a gain must not come from the rule."""
    lines = []
    for measure in TABLE_1:
        lower = MEASURES[measure].lower_is_better
        best = min if lower else max
        for rule in (*RULES, "chosen"):
            methods = [method for method in methods_in(rows) if method.decision == rule]
            table: Any = by_set(rows, measure, methods)
            values = table.mean()
            ours = [method for method in methods if method.model in GEOMETRIC]
            others = [method for method in methods if method.model not in GEOMETRIC]
            if not ours or not others:
                continue
            mine, rival = (best(group, key=lambda m: values[m]) for group in (ours, others))
            test: Any = signed_ranks(table[[mine, rival]], mine, lower)
            lines.append(
                {"measure": MEASURES[measure].label, "decision": rule}
                | {MODELS[method.model].label: values[method] for method in ours}
                | {"best other": MODELS[rival.model].label, "its value": values[rival]}
                | {"p": float(test["p"].iloc[0])}
            )
    return pd.DataFrame(lines)


def _criteria(rows: pd.DataFrame) -> pd.DataFrame:
    """Tabulate the rows of Table 1 for every criterion; the best of each column is bold."""
    means: Any = by_criterion(rows)
    table = pd.DataFrame({"method": [method.label for method in means.index]})
    for measure, by in means.columns:
        table[f"{MEASURES[measure].label}, by {MEASURES[by].label}"] = _bold_best(
            means[measure, by], MEASURES[measure].lower_is_better
        )
    return table


def _named(means: Any) -> pd.DataFrame:
    """Format a table of methods and measures; the best of each column is bold."""
    table = pd.DataFrame({"method": [method.label for method in means.index]})
    for measure in means.columns:
        lower = MEASURES[measure].lower_is_better
        table[MEASURES[measure].label] = _bold_best(means[measure], lower)
    return table


def _set_table(measure: str, table: Any) -> str:
    shown = pd.DataFrame({"set": [escape(name) for name in table.index]})
    lower = MEASURES[measure].lower_is_better
    best = table.min(axis=1) if lower else table.max(axis=1)
    for method in table.columns:
        shown[method.label] = [
            _bold(value, abs(value - top) < 1e-12)
            for value, top in zip(table[method], best, strict=True)
        ]
    return f"### {MEASURES[measure].label}\n\n{as_markdown(shown)}"


def _tests(tables: dict[str, pd.DataFrame]) -> list[str]:
    parts = ["![Critical-difference diagrams](ranks.png)"]
    for measure, table in tables.items():
        lower = MEASURES[measure].lower_is_better
        found = ranks(table, lower)
        parts.append(
            f"**{MEASURES[measure].label}**: Friedman p = {found.p:.2g} over {found.sets} sets, "
            f"critical difference {found.critical:.2f} (Nemenyi, 5 %)."
        )
        ranked: list[Any] = list(found.mean.index)
        shown = pd.DataFrame(
            {"method": [method.label for method in ranked], "mean rank": found.mean.to_numpy()}
        )
        if REFERENCE in table.columns:
            tests = signed_ranks(table, REFERENCE, lower).reindex(found.mean.index)
            tests = tests.astype({name: "Int64" for name in ("won", "lost", "tied")})
            for column in tests.columns:
                shown[column] = tests[column].array
            parts.append(
                f"Signed-rank tests of {REFERENCE.label} against each other method, over sets; a "
                "positive gain is in its favour."
            )
        parts.append(as_markdown(shown))
    return parts


def _models(rows: pd.DataFrame, settings: Settings) -> str:
    lines = []
    for name in settings.models:
        part: Any = rows[rows["model"] == name]
        units: Any = part.drop_duplicates(["set", "fold"])
        alphas, scales = (
            ", ".join(f"{value:g}" for value in settings.grids[name][key])
            for key in ("alphas", "scales")
        )
        lines.append(
            {
                "model": MODELS[name].label,
                "what": MODELS[name].note,
                "penalties": alphas,
                "scales": scales or "–",
                "seconds a fold": f"{units['seconds'].mean():.2f}",
                "fits not converged": int(units["unconverged"].sum()),
            }
        )
    return as_markdown(pd.DataFrame(lines))


# ------------------------------------------------------------------ forms


def console_table(rows: pd.DataFrame) -> Table:
    """Return the means of the methods, for a terminal."""
    means: Any = summary(rows).xs("mean", axis=1, level=1)
    result = Table(
        title="Means over sets and folds",
        caption="Bold: the best of a column. How parameters were chosen: see the report.",
    )
    result.add_column("method")
    short = {"hausdorff": "Haus.", "mae": "MAE", "accuracy": "acc.", "kappa": "kappa"}
    short |= {"amae": "AMAE", "rps": "RPS"}
    for name in short.values():
        result.add_column(name, justify="right")
    for method in means.index:
        cells = []
        for measure in short:
            column = means[measure]
            best = column.min() if MEASURES[measure].lower_is_better else column.max()
            value = column[method]
            cells.append(f"[bold]{value:.3f}[/]" if value == best else f"{value:.3f}")
        result.add_row(method.label, *cells)
    return result


def _bold_best(values: Any, lower_is_better: bool) -> list[str]:
    best = values.min() if lower_is_better else values.max()
    return [_bold(value, value == best) for value in values]


def _bold(value: float, best: bool) -> str:
    return f"**{value:.3f}**" if best else "–" if value != value else f"{value:.3f}"
