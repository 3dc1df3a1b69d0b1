"""Figures 4 to 6 show what was stored: every layer, with its own numbers."""

import json
import shutil

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.colors import to_hex
from rich.console import Console

from geosoftmax import LineCost, hausdorff_divergence
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.figures import FIGURES, stored
from geosoftmax_experiments.figures.spectra import come_apart, seen
from geosoftmax_experiments.figures.stored import STORED, read_stored
from geosoftmax_experiments.vae.frontier import verdicts
from geosoftmax_experiments.vae.layers import LAYERS

QUIET = Console(quiet=True)
#: The figures, and whose results each shows.
SETS = {"cats": "cats-p1", "mnist": "mnist-p1", "drawings": "drawings-p1"}


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def results(name):
    return json.loads((STORED / SETS[name] / "results.json").read_text(encoding="utf8"))


def last(name, loss, column, seeds):
    """Return the mean of a column at the last epoch of the runs that are shown, from the file."""
    found = results(name)
    rows = found["rows"]
    kept = [
        value
        for value, own, weight, seed, epoch in zip(
            rows[column], rows["loss"], rows["weight"], rows["seed"], rows["epoch"], strict=True
        )
        if own == loss
        and weight == found["pictures_at_weight"][loss]
        and epoch == max(rows["epoch"])
        and seed in seeds
    ]
    assert len(kept) == len(seeds)
    return sum(kept) / len(kept)


def names_of_lines(figure):
    return [axis.get_ylabel().replace("\n", " ") for axis in figure.axes if axis.images]


@pytest.mark.parametrize(("p", "scale"), [(2.0, 0.5), (1.0, 1.0), (1.0, 2.0)])
def test_what_is_seen_of_dots_is_what_the_spectrum_says(p, scale):
    """Proposition 4 of the maths page, by the divergence of the library."""
    line, dots = come_apart(0.05)
    kl = float((line[line > 0] * torch.log(line[line > 0] / dots[line > 0])).sum())
    found = float(hausdorff_divergence(line, dots, LineCost(len(line), p=p) * scale)) / kl
    # A narrow band around the finest wave, as the wave fades towards the ends of the line.
    assert found == pytest.approx(float(seen(p, scale, np.array([np.pi]))[0]), rel=0.6)


@pytest.mark.parametrize("name", SETS)
def test_every_layer_has_a_line_with_its_rate(name):
    figure = FIGURES[name](QUIET)
    losses = results(name)["settings"]["losses"]
    assert len(losses) >= 4
    expected = [f"{LAYERS[k].label} {last(name, k, 'latent_kl', [0]):.0f} nats" for k in losses]
    assert [text for text in names_of_lines(figure) if text] == ["drawing", *expected]
    pictures = [axis for axis in figure.axes if axis.images]
    assert len(pictures) == 1 + 2 * len(losses)


@pytest.mark.parametrize("name", SETS)
def test_titles_say_whose_rates_the_lines_have(name):
    """The legend of the curves has means over seeds, which differ."""
    titles = [axis.get_title() for axis in FIGURES[name](QUIET).axes if axis.get_title()]
    assert len(titles) == 2
    assert all(title.endswith("(seed 0)") for title in titles)


@pytest.mark.parametrize("name", SETS)
def test_pictures_and_results_are_of_the_same_runs(name):
    """What the keys of the pictures say of the rates is what the results say."""
    with np.load(STORED / SETS[name] / "pictures.npz") as arrays:
        keys = set(arrays.files)
    for loss in results(name)["settings"]["losses"]:
        label = f"{LAYERS[loss].label}\n{last(name, loss, 'latent_kl', [0]):.0f} nats"
        assert {f"reconstructions/{label}", f"samples/{label}"} <= keys
    for pictures in read_stored(name).reconstructions.values():
        np.testing.assert_allclose(pictures.sum((1, 2)), 1, atol=2e-2)  # kept in half precision


@pytest.mark.parametrize("name", SETS)
def test_the_picture_says_that_rates_are_compared_and_how_far_apart_they_are(name):
    losses = results(name)["settings"]["losses"]
    softmax, *others = (last(name, loss, "latent_kl", [0]) for loss in losses)
    shares = [softmax / rate for rate in others]
    written = " ".join(text.get_text() for text in FIGURES[name](QUIET).texts)
    assert "Not one weight for all" in written
    assert f"{min(shares):.2f} to {max(shares):.2f} times the nats" in written


def test_figure_4_has_the_curves_of_every_layer():
    figure = FIGURES["cats"](QUIET)
    epochs, seconds = [axis for axis in figure.axes if axis.lines]
    found = results("cats")
    for axis, column in ((epochs, "epoch"), (seconds, "seconds")):
        assert len(axis.lines) == len(found["settings"]["losses"])
        for loss, line in zip(found["settings"]["losses"], axis.lines, strict=True):
            assert to_hex(line.get_color()) == LAYERS[loss].colour.lower()
            weight = found["pictures_at_weight"][loss]
            seeds = range(1 if loss == "paper" else 3)  # the paper's layer was trained once
            rate = last("cats", loss, "latent_kl", seeds)
            assert line.get_label() == f"{LAYERS[loss].label}: weight {weight:g}, {rate:.0f} nats"
            x, y = line.get_xydata()[-1]
            assert x == pytest.approx(last("cats", loss, column, seeds))
            assert y == pytest.approx(last("cats", loss, "hausdorff", seeds))


@pytest.mark.parametrize("name", SETS)
def test_nothing_is_cut_off_and_no_texts_overlap(name):
    figure = FIGURES[name](QUIET)
    figure.canvas.draw()
    axes = [axis for axis in figure.axes if axis.images]
    texts = [*figure.texts, *(axis.yaxis.label for axis in axes), *(axis.title for axis in axes)]
    boxes = [text.get_window_extent() for text in texts if text.get_text()]
    boxes += [legend.get_window_extent() for legend in figure.legends]
    boxes += [axis.get_tightbbox() for axis in figure.axes if axis.lines]
    for k, box in enumerate(boxes):
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1
        assert not any(box.overlaps(other) for other in boxes[:k])


@pytest.mark.parametrize("name", sorted({*SETS, *SETS.values()}))
def test_stored_verdicts_are_those_of_the_stored_runs(name):
    results = json.loads((STORED / name / "results.json").read_text(encoding="utf8"))
    found = verdicts(pd.DataFrame(results["rows"]))
    assert len(found) == len(results["verdicts"])
    for verdict, kept in zip(found, results["verdicts"], strict=True):
        for key, value in verdict._asdict().items():
            assert kept[key] == (value if isinstance(value, str) else pytest.approx(value)), key


def test_the_paper_is_drawn_until_there_are_results_of_ours(copy):
    assert "p = 2, scale 0.5, as in the paper" in _written("mnist")
    shutil.copytree(STORED / "mnist-p1", copy.with_name("mnist-p1"))
    assert "Cost: p = 1, scale 2." in _written("mnist")
    assert "as in the paper" in _written("mnist", True)


def test_figure_4_has_our_cost_or_that_of_the_paper():
    assert "Cost: p = 1, scale 1." in _written("cats")
    assert "p = 2, scale 0.5, as in the paper" in _written("cats", True)
    labels = [text for text in names_of_lines(FIGURES["cats"](QUIET, True)) if text]
    assert len(labels) == 1 + 6  # the drawings and the six layers of the older comparison


def test_figure_4_breaks_no_line_within_an_equation_and_counts_its_seeds():
    figure = FIGURES["cats"](QUIET)
    names = [axis.get_ylabel() for axis in figure.axes if axis.images]
    assert "the paper's:\np = 2, plain\n121 nats" in names
    assert "mean and range of up to 3 seeds" in _written("cats")  # the paper's layer has one
    assert "mean and range of 3 seeds" in _written("cats", True)


def _written(name, *paper):
    return " ".join(text.get_text() for text in FIGURES[name](QUIET, *paper).texts)


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A copy of the stored results that tests may damage."""
    shutil.copytree(STORED / "mnist", tmp_path / "mnist")
    monkeypatch.setattr(stored, "STORED", tmp_path)
    FIGURES["mnist"](QUIET)  # it is whole
    return tmp_path / "mnist"


@pytest.mark.parametrize("file", ["results.json", "pictures.npz"])
@pytest.mark.parametrize("damage", ["missing", "empty", "half", "other"])
def test_a_damaged_file_is_named(copy, file, damage):
    path = copy / file
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        made = {"empty": b"", "half": content[: len(content) // 2], "other": b"[1]"}
        path.write_bytes(made[damage])
    with pytest.raises(UserError, match="missing" if damage == "missing" else "damaged") as caught:
        FIGURES["mnist"](QUIET)
    assert str(path) in caught.value.message
    assert "\n" not in str(caught.value)
    assert "install" in caught.value.hint


def test_a_layer_without_pictures_is_damage(copy):
    with np.load(copy / "pictures.npz") as arrays:
        kept = {key: arrays[key] for key in arrays.files if "samples/potential" not in key}
    np.savez(copy / "pictures.npz", **kept)
    with pytest.raises(UserError, match=r"pictures\.npz is damaged"):
        FIGURES["mnist"](QUIET)
