"""Ranks and tests of a comparison: methods as columns of a table, sets or draws as its rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from geosoftmax_experiments.report import Report

__all__ = ["FEWEST", "STARRED", "Ranks", "add_tests", "bold", "ranks", "signed_ranks"]

#: The best cell of a table in a terminal: logs have no bold, so it has a star, too.
STARRED = "[bold]*{}[/]"


class Ranks(NamedTuple):
    """Mean ranks over sets (1 is best), Friedman's p, and Nemenyi's critical difference."""

    mean: pd.Series
    p: float
    critical: float
    sets: int


def ranks(table: pd.DataFrame, lower_is_better: bool) -> Ranks:
    """Rank the columns of a table within each row.

    Two mean ranks differ significantly (Nemenyi) where they are further apart than ``critical``,
    ``q sqrt(k (k+1) / (6 n))`` for k methods, n sets, and q the studentised range over √2 at 5 %.
    """
    values = table.to_numpy() if lower_is_better else -table.to_numpy()
    placed = stats.rankdata(np.round(values, 12), axis=1)
    n, k = placed.shape
    q = stats.studentized_range.ppf(0.95, k, np.inf) / math.sqrt(2)
    critical = float(q * math.sqrt(k * (k + 1) / (6 * n)))
    # scipy wants three methods and two sets at least; fewer have no test.
    p = float(stats.friedmanchisquare(*values.T).pvalue) if k > 2 and n > 1 else math.nan
    mean = pd.Series(placed.mean(0), index=table.columns).sort_values(kind="stable")
    return Ranks(mean, p, critical, n)


#: The test over sets cannot tell methods apart on fewer: its least p is 2 / 2^n.
FEWEST = 6


def signed_ranks(table: pd.DataFrame, reference: Any, lower_is_better: bool) -> pd.DataFrame:
    """Compare a method with each other one by Wilcoxon's signed-rank test over sets.

    ``p`` is two-sided, ``p (Holm)`` corrected for the number of comparisons. Sets that are won,
    lost and tied are those of the reference. Fewer than `FEWEST` sets have no test.
    """
    found = []
    for other in table.columns.drop([reference]):
        gain: Any = np.round(table[other] - table[reference], 12) * (1 if lower_is_better else -1)
        test: Any = stats.wilcoxon(gain) if gain.any() else None
        p = 1.0 if test is None else float(test.pvalue)
        found.append(
            {
                "method": other,
                "mean gain": gain.mean(),
                "won": int((gain > 0).sum()),
                "lost": int((gain < 0).sum()),
                "tied": int((gain == 0).sum()),
                "p": p if len(gain) >= FEWEST else math.nan,
            }
        )
    result = pd.DataFrame(found).set_index("method").sort_values("p", kind="stable")
    weight = np.arange(len(result), 0, -1)
    result["p (Holm)"] = np.minimum(1.0, np.maximum.accumulate(result["p"] * weight))
    return result


def add_tests(
    report: Report,
    table: pd.DataFrame,
    found: Ranks,
    reference: Any,
    lower_is_better: bool,
    *,
    measure: str,
    noun: str,
    label: Callable[[Any], str],
) -> None:
    """Add mean ranks to a report, and the tests of the reference against each other method.

    `measure` and `noun` are what the values and the columns are called, `label` names a column.
    """
    report.add(
        f"**{measure}**: Friedman p = {found.p:.2g} over {found.sets} sets, "
        f"critical difference {found.critical:.2f} (Nemenyi, 5 %)."
    )
    names: list[Any] = list(found.mean.index)
    shown = pd.DataFrame({noun: [label(name) for name in names]})
    shown["mean rank"] = found.mean.to_numpy()
    if reference in names:
        report.add(
            f"Signed-rank tests of {label(reference)} against each other {noun}, over sets; a "
            "positive gain is in its favour."
        )
        tests = signed_ranks(table, reference, lower_is_better).reindex(names)
        tests = tests.astype(dict.fromkeys(("won", "lost", "tied"), "Int64"))
        for column in tests.columns:
            shown[column] = tests[column].array
    report.add_table(shown)


def bold(value: float, best: bool, form: str = "**{}**") -> str:
    """Return a cell with three decimals, a dash for NaN; the best one is marked."""
    text = "–" if value != value else f"{value:.3f}"
    return form.format(text) if best else text
