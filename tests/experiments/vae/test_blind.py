"""Blind judging: what sheets show, and how answers are counted."""

import itertools
import json
import shutil
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from scipy.stats import binomtest, multinomial
from typer.testing import CliRunner

from geosoftmax_experiments.cli import app
from geosoftmax_experiments.data.drawings import load_drawings
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.vae.blind import chance_of, count_answers, write_sheets
from geosoftmax_experiments.vae.pictures import black_from
from geosoftmax_experiments.vae.training import train
from tests.experiments.vae.runs import HERE, settings

ROOT = Path(__file__).parents[3]
LOSSES = ("softmax", "sigmoid", "smoothed")


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    folder = tmp_path_factory.mktemp("comparison")
    digits = load_drawings("digits", limit=300)
    for loss in LOSSES:
        wanted = settings(digits, loss=loss, weight=0.5, epochs=1, limit=300)
        train(wanted, digits, folder / "runs" / f"{loss}.w0.5.s0", HERE)
    weights = {"pictures_at_weight": dict.fromkeys(LOSSES, 0.5)}
    (folder / "results.json").write_text(json.dumps(weights))
    return folder


@pytest.fixture(scope="module")
def written(comparison, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sheets")
    write_sheets(comparison, folder, 12, seed=0)
    return folder


@pytest.fixture
def sheets(written, tmp_path):
    return shutil.copytree(written, tmp_path, dirs_exist_ok=True)


def write_answers(folder, letters):
    lines = (f"{number} {letter}\n" for number, letter in enumerate(letters, start=1))
    path = folder / "answers.txt"
    path.write_text("".join(lines))
    return path


def test_every_line_has_an_order_of_its_own(sheets):
    key = json.loads((sheets / "key.json").read_text())
    assert all(sorted(order) == sorted(LOSSES) for order in key["orders"])
    assert len({tuple(order) for order in key["orders"]}) > 1
    pages = sorted(sheets.glob("sheet-*.png"))
    assert [page.name for page in pages] == ["sheet-01.png", "sheet-02.png", "sheet-03.png"]
    assert matplotlib.image.imread(pages[0]).shape[1] >= 600


def test_a_hundredth_of_the_pixels_is_black_whatever_the_layer():
    dense = np.linspace(1, 2, 400).reshape(20, 20)
    sparse = np.where(dense > 1.8, dense, 0.0)
    assert black_from(dense) == black_from(sparse) == np.sort(dense.ravel())[-4]
    few = np.zeros((20, 20))
    few[3, 4] = 0.5
    assert black_from(few) == 0.5
    assert black_from(np.zeros((20, 20))) == 1.0


def test_a_seed_gives_the_same_orders_again(comparison, sheets, tmp_path):
    write_sheets(comparison, tmp_path / "again", 12, seed=0)
    write_sheets(comparison, tmp_path / "other", 12, seed=1)
    same, other = ((tmp_path / name / "key.json").read_text() for name in ("again", "other"))
    assert same == (sheets / "key.json").read_text() != other


def test_answers_are_counted_by_layer(comparison, sheets):
    orders = json.loads((sheets / "key.json").read_text())["orders"]
    wanted = ["smoothed"] * 8 + ["softmax"] * 4
    letters = ["ABC"[order.index(loss)] for order, loss in zip(orders, wanted, strict=True)]
    path = write_answers(sheets, letters)
    table, chance = count_answers(sheets, path)
    assert list(table["chosen"]) == [4, 8, 0]
    assert chance == pytest.approx(chance_of([4, 8, 0]))
    arguments = ["vae", "blind", str(comparison), "-o", str(sheets), "--answers", str(path)]
    found = CliRunner().invoke(app, arguments)
    assert found.exit_code == 0
    assert "67%" in found.output


@pytest.mark.parametrize(
    ("folder", "answers", "counts", "sentence"),
    [
        ("mnist-p1", "answers.txt", [8, 0, 32, 0],
         "chose the sigmoid's 32 times, those of softmax 8 times and ours never"),
        ("mnist-p1", "answers-2.txt", [9, 2, 29, 0],
         "chose the sigmoid's 29 times, those of softmax 9 times and ours 2 times"),
        ("drawings-p1", "answers.txt", [4, 34, 2, 0],
         "34 times ours was nearest, 4 times that of softmax, 2 times the sigmoid's"),
    ],
)  # fmt: skip
def test_stored_answers_are_counted_on_the_page(folder, answers, counts, sentence):
    path = ROOT / "docs" / "results" / "drawings" / folder / "blind"
    table, _ = count_answers(path, path / answers)
    assert list(table["chosen"]) == counts
    assert sentence in (ROOT / "docs" / "drawings.md").read_text(encoding="utf8")


def test_the_stored_answers_give_the_counts_that_the_page_states():
    folder = ROOT / "docs" / "results" / "drawings" / "cats-p1" / "blind"
    table, chance = count_answers(folder, folder / "answers.txt")
    page = (ROOT / "docs" / "drawings.md").read_text(encoding="utf8")
    for row in table.itertuples():
        assert f"| {row.layer} | {row.chosen} |" in page
    mantissa, exponent = f"{chance:.1e}".split("e")
    assert f"{mantissa}·10⁻²²" in page
    assert int(exponent) == -22


@pytest.mark.parametrize("counts", [[4, 8, 0], [4, 4, 4], [0, 3, 1, 2], [5, 2]])
def test_the_chance_of_uneven_counts_is_exact(counts):
    total, layers = sum(counts), len(counts)
    tables = [c for c in itertools.product(range(total + 1), repeat=layers) if sum(c) == total]
    uneven = [c for c in tables if np.square(c).sum() >= np.square(counts).sum()]
    expected = sum(multinomial.pmf(c, total, np.full(layers, 1 / layers)) for c in uneven)
    assert chance_of(counts) == pytest.approx(expected)


def test_the_chance_of_two_layers_is_that_of_a_binomial_test():
    assert chance_of([9, 1]) == pytest.approx(binomtest(9, 10).pvalue)


@pytest.mark.parametrize("letters", ["ABCABCABCAB", "ABCABCABCABD", "ABCABCABCABCA"])
def test_answers_that_do_not_fit_are_refused(sheets, letters):
    with pytest.raises(UserError, match=r"answers\.txt has"):
        count_answers(sheets, write_answers(sheets, letters))


def test_missing_and_damaged_files_are_named(comparison, sheets, tmp_path):
    with pytest.raises(UserError, match=r"results\.json is missing"):
        write_sheets(tmp_path, tmp_path, 4, seed=0)
    with pytest.raises(UserError, match="only 20 test drawings"):
        write_sheets(comparison, tmp_path, 40, seed=0)
    (sheets / "key.json").write_text('{"orders": [["softmax", "other"]]}')
    with pytest.raises(UserError, match=r"key\.json is damaged"):
        count_answers(sheets, write_answers(sheets, "A"))
    (sheets / "key.json").unlink()
    with pytest.raises(UserError, match=r"key\.json is missing"):
        count_answers(sheets, write_answers(sheets, "A"))
