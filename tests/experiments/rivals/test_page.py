"""The page of losses says what the table in the code says; prices are measured."""

import json
from pathlib import Path

import pytest

from geosoftmax_experiments.rivals import price
from geosoftmax_experiments.rivals.table import RIVALS
from geosoftmax_experiments.rivals.trees import TREE_RIVALS

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "which-loss.md"
PRICES = ROOT / "benchmarks" / "results" / "losses.json"


@pytest.mark.parametrize("name", RIVALS)
def test_the_page_says_what_the_table_says(name):
    cells = list(price.facts(RIVALS[name]).values())
    assert f"| {' | '.join(cells)} |" in PAGE.read_text(encoding="utf8")


@pytest.mark.parametrize("rival", TREE_RIVALS, ids=lambda rival: rival.label)
def test_the_page_says_what_is_known_of_losses_for_trees(rival):
    cells = list(price.facts(rival).values())
    page = PAGE.read_text(encoding="utf8").split("## The leaves of a tree")[1]
    assert f"| {' | '.join(cells)} |" in page


def stored_prices(title):
    sections = json.loads(PRICES.read_text(encoding="utf8"))["sections"]
    rows = next(section["rows"] for section in sections if section["title"] == title)
    return {row[""]: f"{float(row['÷ cross-entropy']):,.1f}" for row in rows}


def test_the_prices_of_the_page_are_those_of_the_stored_benchmark():
    flat, trees = PAGE.read_text(encoding="utf8").split("## The leaves of a tree")
    small, large = stored_prices("64 × 5"), stored_prices("512 × 100")
    for rival in RIVALS.values():
        cells = [*price.facts(rival).values(), small[rival.label], large[rival.label]]
        assert f"| {' | '.join(cells)} |" in flat
    stored = stored_prices("The leaves of a tree")
    for rival in TREE_RIVALS:
        cells = [*price.facts(rival).values(), stored[rival.label]]
        assert f"| {' | '.join(cells)} |" in trees


def test_every_loss_has_a_price(monkeypatch):
    monkeypatch.setattr(price, "TURNS", 3)
    monkeypatch.setattr(price, "TURN_SECONDS", 1e-3)
    found = price.prices(8, 3)
    assert found.pop("torch") == 1
    assert set(found) == set(RIVALS)
    assert all(0.2 < ratio < 1000 for ratio in found.values())
    trees = price.tree_prices(8, 2)
    assert trees.pop("torch") == 1
    assert set(trees) == {rival.label for rival in TREE_RIVALS}
    assert all(0.2 < ratio < 1000 for ratio in trees.values())
