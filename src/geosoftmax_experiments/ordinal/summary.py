"""Tables that rows are summed up in.

A method is a model with a decision. Means are over sets and folds, each set with the same weight.
Ranks and tests are over sets: the folds of one set share their data, and do not count as
independent.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files as resources
from typing import Any

import pandas as pd

from geosoftmax_experiments.ordinal.measures import MEASURES
from geosoftmax_experiments.ordinal.models import MODELS
from geosoftmax_experiments.statistics import signed_ranks

__all__ = [
    "HEADLINE",
    "PAPER",
    "REFERENCE",
    "TABLE_1",
    "TESTED",
    "Method",
    "by_set",
    "means",
    "methods_in",
    "paper_order",
    "paper_table",
    "read_paper",
]


@dataclass(frozen=True)
class Method:
    """A model with a decision. Not a tuple: pandas would make two levels of it."""

    model: str
    decision: str

    @property
    def label(self) -> str:
        """What readers call it."""
        model = MODELS[self.model]
        if self.decision == model.decisions[0] and self.model not in ("g", "g-scale"):
            return model.label
        return f"{model.label}, {self.decision}"


#: The rows of the paper's Table 1.
TABLE_1 = ("hausdorff", "mae", "accuracy")
#: What ranks and tests are about: those, and a proper score that no model minimises.
TESTED = (*TABLE_1, "rps")
#: Its columns, as the paper decides.
PAPER = (
    Method("lr", "mode"),
    Method("at", "median"),
    Method("it", "median"),
    Method("g", "scores"),
)
#: What the tests compare with all others: penalty, cost, scale and rule are all candidates.
REFERENCE = Method("g-scale", "chosen")
#: What figures and ranks show: the paper's methods, and every model with the same decision rule.
HEADLINE = (
    *PAPER,
    Method("g", "median"),
    Method("g-scale", "median"),
    REFERENCE,
    Method("lr", "median"),
    Method("lr", "chosen"),
    Method("sparsemax", "median"),
    Method("pom", "median"),
    Method("redsvm", "own"),
    Method("ridge", "own"),
)


def methods_in(rows: pd.DataFrame) -> list[Method]:
    """Return the methods that rows hold, in the order of the table of models."""
    found = set(zip(rows["model"], rows["decision"], strict=True))
    every = (
        Method(name, rule)
        for name, model in MODELS.items()
        for rule in (*model.decisions, "chosen")
    )
    return [method for method in every if (method.model, method.decision) in found]


def by_set(
    rows: Any,
    measure: str,
    methods: Sequence[Method],
    selected_by: str | None = None,
    over_folds: str = "mean",
) -> pd.DataFrame:
    """Return the mean (or another function) over folds: a row for each set, a column per method.

    Parameters are those chosen by `selected_by`, which is the measure's own criterion by default.
    """
    rows = rows[rows["selected_by"] == (selected_by or MEASURES[measure].criterion)]
    found = rows.groupby(["model", "decision", "set"])[measure].agg(over_folds)
    columns = {method: found.loc[method.model, method.decision] for method in methods}
    return pd.DataFrame(columns).reindex(list(dict.fromkeys(rows["set"])))


def means(rows: pd.DataFrame, selected_by: str | None = None) -> pd.DataFrame:
    """Return the mean of each measure (columns) for each method (rows)."""
    methods = methods_in(rows)
    return pd.DataFrame({m: by_set(rows, m, methods, selected_by).mean() for m in MEASURES})


# ------------------------------------------------------------------ the paper's numbers


def read_paper() -> dict[str, Any]:
    """Return Table 1 as printed, with its source."""
    text = resources("geosoftmax_experiments.ordinal").joinpath("paper.json").read_text("utf8")
    return json.loads(text)


def paper_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Return our means beside the paper's, and relative to LR.

    Ours come twice: with the penalty chosen by the measure of the row, and by MAE for all rows.
    """
    paper = read_paper()["table"]
    methods = [method for method in PAPER if method in methods_in(rows)]
    table = []
    for measure in TABLE_1 if PAPER[0] in methods else ():
        own, by_mae = (by_set(rows, measure, methods, by).mean() for by in (None, "mae"))
        spread = by_set(rows, measure, methods, over_folds="std").mean()
        for method in methods:
            value, deviation = paper[measure][method.model]
            table.append(
                {
                    "measure": MEASURES[measure].label,
                    "method": method.label,
                    "ours": own[method],
                    "±": spread[method],
                    "ours, chosen by MAE": by_mae[method],
                    "paper": value,
                    "paper ±": deviation,
                    "ours / LR": own[method] / own[PAPER[0]],
                    "chosen by MAE / LR": by_mae[method] / by_mae[PAPER[0]],
                    "paper / LR": value / paper[measure]["lr"][0],
                }
            )
    return pd.DataFrame(table)


def paper_order(rows: pd.DataFrame) -> pd.DataFrame:
    """Test neighbours in the paper's order of the divergence against each other, over sets.

    A positive gain is in favour of the one that comes first in the paper. Empty unless rows hold
    all of the paper's methods.
    """
    printed = read_paper()["table"]["hausdorff"]
    methods = sorted(PAPER, key=lambda method: printed[method.model][0])
    if not set(methods) <= set(methods_in(rows)):
        return pd.DataFrame()
    lower = MEASURES["hausdorff"].lower_is_better
    lines = []
    for first, second in itertools.pairwise(methods):
        table = by_set(rows, "hausdorff", [first, second])
        found: Any = signed_ranks(table, first, lower).iloc[0]
        lines.append(
            {
                "first": first.label,
                "second": second.label,
                "mean gain": f"{found['mean gain']:+.4f}",
            }
            | {name: int(found[name]) for name in ("won", "lost", "tied")}
            | {"p": float(found["p"])}
        )
    return pd.DataFrame(lines)
