"""The outputs of a comparison: raw rows, tables, figures, and a report in Markdown and HTML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from rich.table import Table

from geosoftmax_experiments import files
from geosoftmax_experiments.ordinal import figures
from geosoftmax_experiments.ordinal.comparison import OWN_TABLES, Comparison, Settings
from geosoftmax_experiments.ordinal.decisions import LABELS, RULES
from geosoftmax_experiments.ordinal.measures import CRITERIA, MEASURES
from geosoftmax_experiments.ordinal.models import MODELS
from geosoftmax_experiments.ordinal.summary import (
    HEADLINE,
    PAPER,
    REFERENCE,
    TABLE_1,
    TESTED,
    Method,
    by_set,
    means,
    methods_in,
    paper_order,
    paper_table,
    read_paper,
)
from geosoftmax_experiments.report import Report, escape, made_with, write_csv
from geosoftmax_experiments.statistics import STARRED, add_tests, bold, ranks, signed_ranks
from geosoftmax_experiments.store import Store

__all__ = ["console_table", "write_report"]

GEOMETRIC = ("g", "g-scale")
#: Folds that were looked at while the procedure was settled: their training parts alone for the
#: rule of averaging, their test results for earlier grids and decisions.
LOOKED_AT = 4
_CHOSEN = (
    "Candidates are weighed on inner folds by the measure itself for the rows of Table 1 and the "
    "ranked probability score, by the Hausdorff divergence for other measures of distributions, by "
    "MAE for the rest."
)


def write_report(store: Store, rows: pd.DataFrame, comparison: Comparison) -> Path:
    """Write everything into the folder of a store; return the path of the HTML page."""
    folder, settings = store.folder, comparison.settings
    write_csv(folder / "rows.csv", rows)
    files.write(folder / "rows.parquet", lambda path: rows.to_parquet(path, index=False))
    every = methods_in(rows)
    for measure in MEASURES:
        table = by_set(rows, measure, every)
        table.columns = [method.label for method in every]
        write_csv(folder / "sets" / f"{measure}.csv", table, index=True)
    shown = [method for method in every if method in HEADLINE]
    tables = {measure: by_set(rows, measure, _distinct(shown, measure)) for measure in TESTED}

    report = Report(folder, "Ordinal regression: the comparison")
    report.add(*_what(rows, settings, store.commits(unit.key for unit in comparison.units())))
    known = settings.source != OWN_TABLES
    if known:
        _add_paper(report, rows)
    _add_means(report, rows)
    unseen: Any = rows[rows["fold"] >= LOOKED_AT]
    if known and len(unseen):
        report.add(
            f"## Folds {LOOKED_AT} and above alone",
            f"Grids and decisions were settled while earlier results of the first {LOOKED_AT} "
            "folds were known, and the rule of averaging on splits of their training parts. These "
            "are the others.",
            _verdicts(unseen),
        )
        report.add_table(_same_decision(unseen))
    _add_sets(report, tables)
    if len(shown) > 1 and len(settings.sets) > 1:
        _add_tests(report, tables)
    report.add("## Models")
    report.add_table(_models(rows, settings))
    return report.write()


def _distinct(methods: list[Method], measure: str) -> list[Method]:
    """Leave one method of each model where decisions make no difference, for fair ranks."""
    if MEASURES[measure].criterion not in ("hausdorff", "rps"):
        return methods
    first = sorted(methods, key=lambda method: method != REFERENCE)
    kept = {method.model: method for method in reversed(first)}.values()
    return [method for method in methods if method in kept]


# ------------------------------------------------------------------ the text


def _what(rows: pd.DataFrame, settings: Settings, commits: dict[str, int]) -> list[str]:
    pairs: Any = rows.drop_duplicates(["set", "fold"])
    ours = int((pairs["folds_by"] == "ours").sum())
    decisions = "; ".join(
        f"*{rule}*: {LABELS[rule]}" for rule in dict.fromkeys(map(str, rows["decision"]))
    )
    return [
        f"{len(settings.sets)} sets ({settings.source}), {settings.folds} folds each: "
        f"{len(pairs) - ours} published, {ours} ours (seeded, stratified 75/25). Linear models on "
        f"features that are standardised on the training fold. Every candidate (penalty; cost and "
        f"scale where a model has them; decision) is judged by {settings.inner}-fold validation "
        "inside it, never on the test fold. It gets the weight exp(-(its mean loss - the least) / "
        "standard error of the least); distributions are averaged, labels vote (the median of the "
        "votes; the mode, where accuracy is the criterion).",
        f"A method is a model with a decision: {decisions}. For a squared cost, the decision of "
        f"least expected cost is the mean.",
        "The Hausdorff divergence is D(δ_y | β) with C = (ŷ-y)²/2, β the predicted distribution; "
        "a model that predicts a class alone has β = δ_ŷ. Log-loss takes p(true) = 0 for the "
        "machine epsilon.",
        made_with(settings.versions, commits),
    ]


def _add_paper(report: Report, rows: pd.DataFrame) -> None:
    report.add("## Table 1 beside the paper's")
    table = paper_table(rows)
    if table.empty:
        report.add("The paper's methods are not among the models of this run.")
        return
    paper = read_paper()
    report.add(
        f"Source: {paper['source']}. {paper['note']} Our ± is the deviation over the folds of "
        "a set, averaged over sets. The paper's divergences are some 2.3 times ours for every "
        "method, by a normalisation that it does not state: compare the ratios to LR."
    )
    report.add_table(table)
    report.add(_verdicts(rows))
    order = paper_order(rows)
    if len(order):
        report.add(
            "Neighbours in the paper's order of the Hausdorff row, by signed-rank tests over sets; "
            "a positive gain is in favour of the first."
        )
        report.add_table(order)


def _add_means(report: Report, rows: pd.DataFrame) -> None:
    report.add(
        "## All methods",
        f"Means over sets and folds. {_CHOSEN} The best of each column is bold: to be first "
        "among so many methods proves little, see the tests below.",
    )
    found = means(rows)
    report.add_table(_bold_columns({MEASURES[m].label: (m, found[m]) for m in MEASURES}))
    report.add(
        "The same decision for all: g-logistic and the best other model; "
        "p is that of a signed-rank test over sets between the better g-logistic and that other."
    )
    report.add_table(_same_decision(rows))
    report.add("The rows of Table 1 again, with the candidates weighed by each criterion:")
    by = {criterion: means(rows, criterion) for criterion in CRITERIA}
    columns = {
        f"{MEASURES[m].label}, by {MEASURES[criterion].label}": (m, by[criterion][m])
        for m in TABLE_1
        for criterion in CRITERIA
    }
    report.add_table(_bold_columns(columns))


def _verdicts(rows: pd.DataFrame) -> str:
    """Say in words what the tables show, whichever way it went."""
    said = []
    found: Any = means(rows)
    if all(method in found.index for method in PAPER):
        for by in (None, "mae"):
            values: Any = means(rows, by)["hausdorff"]
            order = sorted(PAPER, key=lambda method: values[method])
            same = [method.model for method in order] == ["g", "lr", "at", "it"]
            words = " < ".join(f"{MODELS[m.model].label} ({values[m]:.3f})" for m in order)
            said.append(
                f"Order in the Hausdorff row, penalty chosen by {'MAE' if by else 'it'}: {words}; "
                f"the paper's (g-logistic < LR < LR(AT) < LR(IT)) is "
                f"{'reproduced' if same else 'not reproduced'}."
            )
    for measure in TESTED:
        values = found[measure].sort_values(ascending=MEASURES[measure].lower_is_better)
        best = values.index[0]
        line = f"First in {MEASURES[measure].label}: {best.label} ({values.iloc[0]:.4f})"
        ours = [m for m in values.index if m.model in GEOMETRIC]
        if ours and best != ours[0]:
            line += f"; the first g-logistic is {ours[0].label} ({values[ours[0]]:.4f})"
        said.append(line + ".")
    return "- " + "\n- ".join(said)


def _same_decision(rows: pd.DataFrame) -> pd.DataFrame:
    """Compare models under one decision rule at a time: a gain must not come from the rule."""
    lines = []
    for measure in TESTED:
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


def _add_sets(report: Report, tables: dict[str, pd.DataFrame]) -> None:
    report.add("## Set by set")
    report.add_figure("dots", figures.draw_dots(tables), "Differences of methods, set by set")
    report.add("Differences are to the median of all methods; some are drawn, the tables have all.")
    for measure, table in tables.items():
        best = table.min(axis=1) if MEASURES[measure].lower_is_better else table.max(axis=1)
        shown = pd.DataFrame({"set": [escape(name) for name in table.index]})
        methods: list[Any] = list(table.columns)
        for method in methods:
            pairs = zip(table[method], best, strict=True)
            shown[method.label] = [bold(value, abs(value - top) < 1e-12) for value, top in pairs]
        report.add(f"### {MEASURES[measure].label}")
        report.add_table(shown)
    report.add("The other measures are in `sets/`, all rows in `rows.csv` and `rows.parquet`.")


def _add_tests(report: Report, tables: dict[str, pd.DataFrame]) -> None:
    report.add("## Ranks and tests")
    ranked = {name: ranks(tables[name], MEASURES[name].lower_is_better) for name in tables}
    diagrams = figures.draw_critical_differences(ranked)
    report.add_figure("ranks", diagrams, "Critical-difference diagrams")
    for measure, found in ranked.items():
        add_tests(
            report, tables[measure], found, REFERENCE, MEASURES[measure].lower_is_better,
            measure=MEASURES[measure].label, noun="method", label=lambda method: method.label,
        )  # fmt: skip


def _models(rows: pd.DataFrame, settings: Settings) -> pd.DataFrame:
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
    return pd.DataFrame(lines)


# ------------------------------------------------------------------ forms


def console_table(rows: pd.DataFrame) -> Table:
    """Return the means of the methods, for a terminal."""
    found: Any = means(rows)
    result = Table(
        title="Means over sets and folds",
        caption="*: the best of a column. How parameters were chosen: see the report.",
    )
    result.add_column("method")
    short = {"hausdorff": "Haus.", "mae": "MAE", "accuracy": "acc.", "kappa": "kappa"}
    short |= {"amae": "AMAE", "rps": "RPS"}
    for name in short.values():
        result.add_column(name, justify="right")
    columns = _bold_columns({name: (m, found[m]) for m, name in short.items()}, STARRED)
    for row in columns.itertuples(index=False):
        result.add_row(*row)
    return result


def _bold_columns(columns: dict[str, tuple[str, Any]], form: str = "**{}**") -> pd.DataFrame:
    """Tabulate means by method, each column with its measure; the best of a column is bold."""
    methods: list[Any] = list(next(iter(columns.values()))[1].index)
    table = pd.DataFrame({"method": [method.label for method in methods]})
    for name, (measure, values) in columns.items():
        best = values.min() if MEASURES[measure].lower_is_better else values.max()
        table[name] = [bold(value, value == best, form) for value in values]
    return table
