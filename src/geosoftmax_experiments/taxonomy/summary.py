"""Tables that rows are summed up in: means over draws, and paired tests against the control."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd

from geosoftmax_experiments.statistics import FEWEST, signed_ranks
from geosoftmax_experiments.taxonomy.conditions import Condition
from geosoftmax_experiments.taxonomy.measures import MEASURES
from geosoftmax_experiments.taxonomy.models import MODELS

__all__ = [
    "CONTROL",
    "FEWEST",
    "SHARED",
    "Column",
    "by_draw",
    "compare_draws",
    "means",
    "shown",
    "tested",
]

#: What a use of the tree has to beat: the same loss, as sparse, without the tree.
CONTROL = "zero-one"
#: The model that shares weights along the tree, and its own control: a tree that means nothing.
SHARED = ("zero-one-shared", "zero-one-shuffled")


class Column(NamedTuple):
    """A measure under a decision, whose setting was chosen for that decision."""

    measure: str
    decision: str

    @property
    def label(self) -> str:
        """What readers see."""
        decided = "likeliest" if self.decision == "mode" else "least cost"
        return f"{MEASURES[self.measure].label}, {decided}"


def shown(condition: Condition) -> tuple[Column, ...]:
    """Return the columns of tables; the first is what the likeliest class is chosen by."""
    least_cost = ("distance", "height", "f", "group", "accuracy")
    return (
        Column(condition.criteria["mode"], "mode"),
        *(Column(measure, "cost") for measure in least_cost),
    )


def tested(condition: Condition) -> tuple[Column, ...]:
    """Return the columns that are tested against the control, and drawn."""
    first, second, *_ = shown(condition)
    return first, second, Column("group", "cost")


def by_draw(rows: Any, size: int, column: Column) -> pd.DataFrame:
    """Return the values of a measure: a row for each draw, a column for each model."""
    part = rows[(rows["size"] == size) & (rows["decision"] == column.decision)]
    table = part.pivot(index="draw", columns="model", values=column.measure)
    return table[[name for name in MODELS if name in table.columns]].dropna()


def means(rows: Any, size: int, columns: Sequence[Column]) -> pd.DataFrame:
    """Return means over draws: a row for each model, a column for each of those given."""
    return pd.DataFrame({column: by_draw(rows, size, column).mean() for column in columns})


def compare_draws(
    rows: Any, size: int, column: Column, reference: str = CONTROL
) -> pd.DataFrame | None:
    """Compare all models with the reference, draw by draw (Wilcoxon, corrected by Holm).

    A positive gain is in favour of the *other* model, which has won the draws that the reference
    has lost. None where there is one draw, or no reference; p is NaN for fewer than `FEWEST` draws.
    """
    table: Any = by_draw(rows, size, column)
    if reference not in table.columns or len(table) < 2 or table.shape[1] < 2:
        return None
    found = signed_ranks(table, reference, MEASURES[column.measure].lower_is_better)
    found["mean gain"] *= -1
    found[["won", "lost"]] = found[["lost", "won"]]
    return found
