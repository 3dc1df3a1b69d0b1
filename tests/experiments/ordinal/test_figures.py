"""Figures: names that do not touch each other, dots that can be told apart."""

import itertools

import numpy as np
import pandas as pd
import pytest

from geosoftmax_experiments.ordinal import figures
from geosoftmax_experiments.ordinal.summary import HEADLINE
from geosoftmax_experiments.statistics import ranks


@pytest.mark.parametrize("close", [0.0, 1.0])
def test_names_do_not_overlap(close, tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({m: k + 99 * close * rng.random(17) for k, m in enumerate(HEADLINE)})
    figure = figures.draw_critical_differences({"mae": ranks(table, True)})
    figure.canvas.draw()
    axis = figure.axes[0]
    assert any("critical difference = " in text.get_text() for text in axis.texts)
    assert "A thick bar joins methods" in figure.get_supxlabel()
    boxes = [text.get_window_extent() for text in axis.texts if text.get_text()]
    for one, other in itertools.combinations(boxes, 2):
        assert not one.overlaps(other)
    whole = figure.bbox
    assert all(whole.x0 <= box.x0 and box.x1 <= whole.x1 for box in boxes)
    figures.save(figure, tmp_path / "ranks.png")
    assert (tmp_path / "ranks.png").read_bytes().startswith(b"\x89PNG")


def test_dots_far_out_do_not_push_the_others_together():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({m: 0.2 + 0.01 * rng.random(5) for m in HEADLINE})
    table.iloc[1, :3] = 0.75  # three methods, fifty times as far from the median as the others
    figure = figures.draw_dots({"hausdorff": table}, HEADLINE)
    figure.canvas.draw()
    axis = figure.axes[0]
    drawn = {line.get_label(): line.get_xdata() for line in axis.lines if len(line.get_xdata()) > 2}
    centred = table.sub(table.median(axis=1), axis=0)
    assert len(drawn) == len(HEADLINE)
    for method in HEADLINE:
        np.testing.assert_allclose(drawn[method.label], centred[method])
    low, high = axis.get_xlim()
    assert (centred.to_numpy() > low).all()
    assert (centred.to_numpy() < high).all()
    close = centred.to_numpy()[[0, 2, 3, 4]]
    places = axis.transData.transform([(close.min(), 0), (close.max(), 0)])[:, 0]
    assert places[1] - places[0] > 0.4 * axis.get_window_extent().width
    figures.plt.close(figure)


def test_few_methods_are_drawn_unless_more_are_named():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({m: 0.2 + 0.01 * rng.random(5) for m in HEADLINE})
    others = table[[m for m in HEADLINE if m not in figures.SHOWN]]
    for shown, methods in ((table, set(figures.SHOWN)), (others, set(others.columns[:5]))):
        figure = figures.draw_dots({"hausdorff": shown})
        (legend,) = figure.legends
        assert {text.get_text() for text in legend.get_texts()} == {m.label for m in methods}
        figures.plt.close(figure)
