"""Figures: names that do not touch each other."""

import itertools

import numpy as np
import pandas as pd
import pytest

from geosoftmax_experiments.ordinal import figures
from geosoftmax_experiments.ordinal.summary import HEADLINE, ranks


@pytest.mark.parametrize("close", [0.0, 1.0])
def test_names_do_not_overlap(close, tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({m: k + 99 * close * rng.random(17) for k, m in enumerate(HEADLINE)})
    figure = figures.draw_critical_differences({"mae": ranks(table, True)})
    figure.canvas.draw()
    axis = figure.axes[0]
    boxes = [text.get_window_extent() for text in axis.texts if text.get_text()]
    for one, other in itertools.combinations(boxes, 2):
        assert not one.overlaps(other)
    whole = figure.bbox
    assert all(whole.x0 <= box.x0 and box.x1 <= whole.x1 for box in boxes)
    figures.save(figure, tmp_path / "ranks.png")
    assert (tmp_path / "ranks.png").read_bytes().startswith(b"\x89PNG")
