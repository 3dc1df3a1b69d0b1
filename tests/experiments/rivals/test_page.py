"""The page of losses says what the table in the code says; prices are measured."""

from pathlib import Path

import pytest

from geosoftmax_experiments.rivals import price
from geosoftmax_experiments.rivals.table import RIVALS

PAGE = Path(__file__).parents[3] / "docs" / "which-loss.md"


@pytest.mark.parametrize("name", RIVALS)
def test_the_page_says_what_the_table_says(name):
    cells = list(price.facts(RIVALS[name]).values())
    assert f"| {' | '.join(cells)} |" in PAGE.read_text(encoding="utf8")


def test_every_loss_has_a_price(monkeypatch):
    monkeypatch.setattr(price, "TURNS", 3)
    monkeypatch.setattr(price, "TURN_SECONDS", 1e-3)
    found = price.prices(8, 3)
    assert found.pop("torch") == 1
    assert set(found) == set(RIVALS)
    assert all(0.2 < ratio < 1000 for ratio in found.values())
