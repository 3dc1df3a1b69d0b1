"""Tables, ranks and tests, on rows whose answers are known."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from geosoftmax_experiments.ordinal.measures import MEASURES
from geosoftmax_experiments.ordinal.summary import (
    PAPER,
    TABLE_1,
    Method,
    by_set,
    means,
    methods_in,
    paper_order,
    paper_table,
    read_paper,
)
from geosoftmax_experiments.statistics import ranks, signed_ranks

SHIFT = {"lr": 0.0, "at": 0.1, "it": 0.3, "g": -0.1}


@pytest.fixture
def rows():
    """Six sets, two folds: each method is its shift above the level of the set."""
    return pd.DataFrame(
        {
            "set": f"set {k}",
            "fold": fold,
            "model": method.model,
            "decision": method.decision,
            "selected_by": by,
            **{name: 1 + k + SHIFT[method.model] + 0.01 * fold + bonus for name in MEASURES},
        }
        for k in range(6)
        for fold in range(2)
        for method in PAPER
        for by, bonus in (("mae", 0.0), ("hausdorff", -0.5), ("accuracy", 0.5), ("rps", 0.2))
    )


def test_means_are_over_sets_and_folds(rows):
    lr = Method("lr", "mode")
    found = means(rows)
    assert list(found.index) == methods_in(rows)
    assert found["accuracy"][lr] == pytest.approx(4.005)
    assert found["mae"][lr] == pytest.approx(3.505)
    deviations = by_set(rows, "mae", [lr], over_folds="std")[lr]
    assert deviations.to_list() == pytest.approx([0.01 / np.sqrt(2)] * 6)


def test_each_criterion_has_its_rows(rows):
    for by, expected in (("hausdorff", 3.005), ("mae", 3.505), ("accuracy", 4.005)):
        found = means(rows, by).loc[Method("lr", "mode")]
        assert [found[measure] for measure in TABLE_1] == pytest.approx([expected] * 3)


def test_the_paper_stands_beside(rows):
    table = paper_table(rows)
    assert len(table) == len(PAPER) * len(TABLE_1)
    g = table[(table["method"] == "g-logistic, scores") & (table["measure"] == "MAE")].iloc[0]
    assert g["paper"] == 0.45
    assert g["ours / LR"] == pytest.approx(3.405 / 3.505)
    haus = table[(table["method"] == "LR") & (table["measure"] == "Hausdorff divergence")].iloc[0]
    assert haus["ours"] == pytest.approx(3.005)
    assert haus["ours, chosen by MAE"] == pytest.approx(3.505)
    assert "ICML 2019" in read_paper()["source"]


def test_neighbours_in_the_papers_order_are_tested(rows):
    rows.loc[(rows["model"] == "at") & (rows["set"] != "set 0"), "hausdorff"] -= 0.15
    found = paper_order(rows)
    pairs = list(zip(found["first"], found["second"], strict=True))
    assert pairs == [("g-logistic, scores", "LR"), ("LR", "LR(AT)"), ("LR(AT)", "LR(IT)")]
    assert found["mean gain"].tolist() == ["+0.1000", "-0.0250", "+0.3250"]
    assert found[["won", "lost"]].to_numpy().tolist() == [[6, 0], [1, 5], [6, 0]]
    p = stats.wilcoxon([0.1, -0.05, -0.05, -0.05, -0.05, -0.05]).pvalue
    assert found["p"].iloc[1] == pytest.approx(p)
    assert paper_order(rows[rows["model"] != "it"]).empty


def test_ranks_and_critical_difference(rows):
    found = ranks(by_set(rows, "mae", methods_in(rows), "mae"), lower_is_better=True)
    assert [method.model for method in found.mean.index] == ["g", "lr", "at", "it"]
    assert found.mean.tolist() == [1, 2, 3, 4]
    # Demšar (2006), table 5: q is 2.569 for four methods at 5 %.
    assert found.critical == pytest.approx(2.569 * np.sqrt(4 * 5 / (6 * 6)), rel=1e-3)
    assert found.p < 0.001
    upside_down = ranks(by_set(rows, "accuracy", methods_in(rows), "mae"), lower_is_better=False)
    assert upside_down.mean.index[0].model == "it"


def test_signed_ranks_are_scipys_with_holms_correction():
    rng = np.random.default_rng(0)
    methods = list(PAPER)
    table = pd.DataFrame({method: rng.random(12) for method in methods})
    found = signed_ranks(table, methods[-1], lower_is_better=True)
    p = [stats.wilcoxon(table[m] - table[methods[-1]]).pvalue for m in methods[:-1]]
    assert sorted(found["p"]) == pytest.approx(sorted(p))
    assert found["p (Holm)"].iloc[0] == pytest.approx(min(1, 3 * min(p)))
    assert (found["p (Holm)"].diff().dropna() >= 0).all()
    assert (found[["won", "lost", "tied"]].sum(axis=1) == 12).all()
