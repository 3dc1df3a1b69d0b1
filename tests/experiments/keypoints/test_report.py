"""The figures of a comparison can be read without its text."""

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
