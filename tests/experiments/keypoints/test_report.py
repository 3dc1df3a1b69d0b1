"""The figures of a comparison can be read without its text."""

import re
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from geosoftmax_experiments.keypoints.losses import LABELS
from geosoftmax_experiments.keypoints.report import LEAST, draw_confidence


@pytest.mark.parametrize("count", [1, 3, 5])
def test_the_lowest_panels_have_numbers_and_the_edge_is_explained(count):
    losses = list(LABELS)[:count]
    rows = pd.DataFrame(
        [
            {"loss": loss, "spread": spread, "error": error}
            for loss in losses
            for spread, error in ((0.0, 3.0), (2.0, 0.5), (30.0, 4.0))
        ]
    )
    figure = draw_confidence(rows, losses)
    figure.canvas.draw()
    shown = [axis for axis in figure.axes if axis.get_visible()]
    assert [axis.get_title() for axis in shown] == [LABELS[loss] for loss in losses]
    lowest = {axis.get_position().x0: axis for axis in shown}  # the last one of each column
    for axis in lowest.values():
        assert any(label.get_visible() and label.get_text() for label in axis.get_xticklabels())
    least = min(axis.lines[0].get_xdata().min() for axis in shown)
    assert least == LEAST
    assert f"below {LEAST:g}" in figure.get_supxlabel()
    plt.close(figure)


def test_the_table_of_the_page_is_that_of_the_stored_report():
    docs = Path(__file__).parents[3] / "docs"
    report = (docs / "results/keypoints/sizes/report.md").read_text(encoding="utf8")
    page = (docs / "keypoints.md").read_text(encoding="utf8").replace("*", "")
    cells = re.findall(r"^## (\d+) training frames(.*?)(?=^## )", report, re.DOTALL | re.MULTILINE)
    assert len(cells) == 8
    for frames, text in cells:
        rows = [line.replace("*", "").split("|") for line in text.splitlines() if " | " in line]
        found = {row[1].strip(): [value.strip() for value in row[4:7]] for row in rows[2:]}
        ours, control = (found.pop(LABELS[name]) for name in ("geometric", "cross-entropy"))
        means, medians, shares = zip(*found.values(), strict=True)
        best = [min(means, key=float), min(medians, key=float), max(shares, key=float)]
        line = " | ".join([frames, *(" / ".join(of) for of in (ours, control, best))])
        assert f"| {line} |" in page
