"""The figures of the paper show what its text says they show."""

import matplotlib.pyplot as plt
import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from geosoftmax import (
    LineCost,
    ZeroOneCost,
    extrapolate,
    geometric_logsumexp,
    geometric_softmax,
    sinkhorn_potential,
)
from geosoftmax_experiments.cli import app
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.figures import FIGURES, run
from geosoftmax_experiments.figures.fields import COST, MEASURES
from geosoftmax_experiments.three_classes import DIRECTIONS, plane, potentials_of_the_border
from tests.conftest import data_file

QUIET = Console(quiet=True)


def test_figures_are_written_as_png_and_svg(tmp_path):
    names = ["fields", "levels", "cats", "mnist", "drawings"]
    written = run(names, tmp_path / "new", QUIET)
    assert {path.name for path in written} == {f"{n}.{e}" for n in names for e in ("png", "svg")}
    assert set((tmp_path / "new").iterdir()) == set(written)  # nothing half-written stays
    for path in written:
        head = path.read_bytes()[:200]
        assert head.startswith(b"\x89PNG") or b"<svg" in path.read_bytes()[:2000], path
        assert path.stat().st_size > 20_000


@pytest.mark.parametrize("name", ["fields", "mnist"])
def test_svg_is_the_same_each_time(name, tmp_path):
    first, second = (run([name], tmp_path / folder, QUIET)[1].read_bytes() for folder in "ab")
    assert first == second


def test_unknown_figure_is_named(tmp_path):
    with pytest.raises(UserError, match="no figure 'fig7'"):
        run(["fields", "fig7"], tmp_path, QUIET)
    assert not list(tmp_path.iterdir())


@pytest.mark.data
@pytest.mark.slow
def test_training_is_drawn(tmp_path):
    data_file("ordinal-regression", "car")
    assert len(run(["training"], tmp_path, QUIET)) == 2


def test_training_says_which_data_it_needs(tmp_path, monkeypatch):
    monkeypatch.delenv("GEOSOFTMAX_DATA", raising=False)
    with pytest.raises(UserError, match="GEOSOFTMAX_DATA"):
        FIGURES["training"](QUIET)


def test_what_can_be_drawn_is_drawn_and_the_rest_is_named(tmp_path, monkeypatch):
    monkeypatch.delenv("GEOSOFTMAX_DATA", raising=False)
    folder = tmp_path / "new"
    result = CliRunner().invoke(app, ["figures", "training", "mnist", "-o", str(folder)])
    assert result.exit_code == 1
    assert {path.name for path in folder.iterdir()} == {"mnist.png", "mnist.svg"}
    assert "mnist: saved as PNG and SVG to" in result.output
    message, hint = result.output.splitlines()[-2:]
    assert message.startswith("Error: Not drawn: training. Figure 3 needs the set car.")
    assert hint.startswith("Hint: ")
    assert "skordinal" in hint
    assert CliRunner().invoke(app, ["figures", "mnist", "-o", str(folder)]).exit_code == 0


@pytest.mark.parametrize("name", MEASURES)
def test_figure_1_link_inverts_the_field(name):
    alpha = MEASURES[name]()
    field = sinkhorn_potential(alpha, COST)
    assert (geometric_softmax(field, COST) - alpha).abs().sum() < 1e-6
    assert field[alpha > 0].min() > field[0, -1]  # far away the field is low: a distance


def test_figure_1_names_the_cost():
    away = COST.matrix()[0].reshape(COST.shape)
    assert float(away[3, 4]) == pytest.approx(25 / 8)  # pixels that are 5 apart
    figure = FIGURES["fields"](QUIET)
    below = [axis.get_xlabel() for axis in figure.axes]
    plt.close(figure)
    assert sum("cost ‖x − y‖² / 8" in text for text in below) == len(MEASURES)
    assert sum("total variation to α" in text for text in below) == len(MEASURES)


def test_figure_2_explains_its_signs_outside_the_panels():
    figure = FIGURES["levels"](QUIET)
    figure.canvas.draw()
    (legend,) = figure.legends
    words = " ".join(text.get_text() for text in legend.get_texts())
    for sign in ("g-LSE = 0", "LSE = 0", "F: the potentials", "extrapolation f → fᴱ"):
        assert sign in words
    box = legend.get_window_extent()
    assert not any(box.overlaps(axis.get_tightbbox()) for axis in figure.axes)
    plt.close(figure)


@pytest.mark.parametrize("cost", [LineCost(3) * 2, ZeroOneCost(3) * 2])
def test_figure_2_scores_are_put_on_the_cylinder_of_potentials(cost):
    border = potentials_of_the_border(cost)
    zero = torch.zeros(len(border), dtype=torch.float64)
    torch.testing.assert_close(geometric_logsumexp(border, cost), zero, atol=1e-12, rtol=0)
    torch.testing.assert_close(extrapolate(border, cost), border)  # potentials stay where they are
    # Scores from outside arrive at the border: at potentials of distributions with a zero.
    angle = torch.linspace(0, 6, 40, dtype=torch.float64)
    outside = 4 * torch.stack([angle.cos(), angle.sin()], -1) @ DIRECTIONS.T * (2 / 3)
    torch.testing.assert_close(plane(outside).norm(dim=-1), torch.full_like(angle, 4.0))
    arrived = extrapolate(outside, cost)
    alpha = geometric_softmax(arrived, cost)
    assert (alpha.amin(-1) < 1e-12).all()
    level = geometric_logsumexp(outside, cost)[:, None]
    torch.testing.assert_close(sinkhorn_potential(alpha, cost), arrived - level)
