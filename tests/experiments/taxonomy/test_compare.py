"""The command, on a small archive: choice inside the draw, tables, tests, and going on."""

import sys

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from geosoftmax_experiments.cli import app
from geosoftmax_experiments.data import newsgroups
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.taxonomy.comparison import Comparison
from geosoftmax_experiments.taxonomy.conditions import CLEAN
from geosoftmax_experiments.taxonomy.features import Corpus, featurize
from geosoftmax_experiments.taxonomy.measures import MEASURES
from geosoftmax_experiments.taxonomy.models import MODELS
from geosoftmax_experiments.taxonomy.report import console_table
from geosoftmax_experiments.taxonomy.selection import choose, measure_draw
from geosoftmax_experiments.taxonomy.summary import Column, compare_draws, shown
from tests.experiments.taxonomy import posts
from tests.processes import kill_at_random, new_random, run_to_the_end

CHOICE = ["--sizes", "24,120", "--draws", "3,1", "--models", "lr,zero-one", "--quick"]


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder of data with the small archive."""
    monkeypatch.setattr(newsgroups, "EXPECTED", posts.EXPECTED)
    monkeypatch.setattr(newsgroups, "GROUPS", len(posts.NAMES))
    (tmp_path / "newsgroups").mkdir()
    posts.archive(tmp_path / "newsgroups" / "20news-bydate.tar.xz")
    monkeypatch.setenv("GEOSOFTMAX_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def corpus(data):
    return featurize(*newsgroups.load_newsgroups(), directions=8)


def compare(folder, *options):
    return CliRunner().invoke(app, ["taxonomy", "compare", *options, "--jobs", "1", "-o", folder])


def test_the_command_writes_tables_a_figure_and_a_report(data):
    folder = data / "out"
    result = compare(str(folder), *CHOICE)
    assert result.exit_code == 0, result.output
    rows = pd.read_csv(folder / "rows.csv")
    assert len(rows) == 2 * (3 + 1) * 2  # models, draws, decisions
    assert rows["accuracy"].between(0.4, 1).all()  # four groups: chance is a quarter
    page = (folder / "report.md").read_text()
    for said in ("## 24 posts, draws: 3", "## 120 posts, draws: 1", "(gains.png)", "p (Holm)"):
        assert said in page
    assert (folder / "gains.png").stat().st_size > 5000
    # More draws and models go into the same folder; what is there is not done again.
    before = {path: path.stat().st_mtime_ns for path in folder.glob("units/*.json")}
    more = [*CHOICE[:3], "4,1", "--models", "lr,hs,zero-one", "--quick"]
    again = compare(str(folder), *more)
    assert again.exit_code == 0, again.output
    assert "Continuing: 8 of 15" in again.output
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in before.items())
    other = compare(str(folder), *CHOICE[:-1])
    assert other.exit_code == 1
    assert "made with other settings: penalties" in " ".join(other.output.split())


@pytest.mark.parametrize(
    ("condition", "title", "first"),
    [
        (["--noise", "0.25"], "25% of the labels wrong", "accuracy, likeliest"),
        (["--unseen"], "posts of unseen leaves", "group accuracy, likeliest"),
    ],
)
def test_conditions_have_folders_of_their_own(condition, title, first, data):
    folder = data / "out"
    choice = ["--sizes", "24", "--draws", "2", "--models", "lr,zero-one", "--quick"]
    result = compare(str(folder), *choice, *condition)
    assert result.exit_code == 0, result.output
    page = (folder / "report.md").read_text()
    assert title in page.splitlines()[0]
    assert f"| model | {first} |" in page
    assert len(pd.read_csv(folder / "rows.csv")) == 2 * 2 * 2  # models, draws, decisions
    clean = compare(str(folder), *choice)
    assert clean.exit_code == 1
    name = condition[0].removeprefix("--")
    assert f"made with other settings: {name}" in " ".join(clean.output.split())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--sizes", "5"], "--sizes 5 is not between 12 and 120"),
        (["--sizes", "many"], "--sizes 'many' are no counts"),
        (["--sizes", "24", "--draws", "1,2"], "--draws 1,2 does not fit --sizes 24"),
        (["--sizes", "24", "--draws", "1", "--models", "svm"], "There is no model 'svm'"),
        (["--noise", "1.5"], "--noise 1.5 is not between 0 and 1"),
        (["--noise", "0.3", "--unseen"], "--noise and --unseen do not go together"),
    ],
)
def test_bad_options_are_refused(options, said, data):
    result = compare(str(data / "out"), *options)
    assert result.exit_code == 1
    assert said in " ".join(result.output.split())


@pytest.mark.parametrize("name", MODELS)
def test_every_model_learns(name, corpus):
    rows = measure_draw(MODELS[name], corpus, 60, 0, penalties=(3.0,))
    assert [row["decision"] for row in rows] == ["mode", "cost"]
    assert all(row["accuracy"] > 0.5 and row["distance"] < 2 for row in rows)


def test_settings_are_chosen_without_the_test_posts(corpus):
    """Other test posts change the measures, and nothing that is chosen."""
    X = np.random.default_rng(0).normal(size=corpus.X_test.shape)
    other = Corpus(corpus.X_train, corpus.y_train, X, corpus.y_test, corpus.names)
    chosen = ("candidate", "shared", "penalty", "temperature")
    one, two = (measure_draw(MODELS["zero-one"], c, 60, 0, (3.0, 300.0)) for c in (corpus, other))
    assert [[row[k] for k in chosen] for row in one] == [[row[k] for k in chosen] for row in two]
    assert one[0]["accuracy"] > two[0]["accuracy"]


def test_draws_are_stratified_repeatable_and_different(corpus):
    one, same, other = corpus.draw(40, 0), corpus.draw(40, 0), corpus.draw(40, 1)
    assert np.array_equal(one.X, same.X)
    assert not np.array_equal(one.X, other.X)
    assert np.bincount(one.y).tolist() == [10] * 4
    assert len(corpus.draw(120, 0).y) == 120
    assert choose(MODELS["lr"], corpus.tree(), one, 0, (1.0,))["mode"].penalty == 1.0


def test_features_know_no_labels_and_no_test_posts(corpus, data):
    train, test = newsgroups.load_newsgroups()
    assert np.allclose(np.linalg.norm(corpus.X_train, axis=1), np.sqrt(8))
    fewer = newsgroups.Posts(test.texts[:5], test.labels[:5], test.names)
    assert np.allclose(featurize(train, fewer, directions=8).X_train, corpus.X_train)


def test_gains_are_those_of_the_model_in_the_row():
    rows = pd.DataFrame(
        {
            "model": name,
            "size": 9,
            "draw": draw,
            "decision": "cost",
            "distance": value + 0.01 * draw,
        }
        for name, value in (("zero-one", 1.0), ("lr", 1.5), ("tree", 0.9))
        for draw in range(8)
    )
    found = compare_draws(rows, 9, Column("distance", "cost"))
    assert found is not None
    assert found.loc["lr", "mean gain"] == pytest.approx(-0.5)
    assert (found.loc["lr", "won"], found.loc["lr", "lost"]) == (0, 8)
    assert (found.loc["tree", "won"], found.loc["tree", "lost"]) == (8, 0)
    assert compare_draws(rows[rows["model"] != "zero-one"], 9, Column("distance", "cost")) is None


def test_means_are_rounded_once():
    """0.35552 was rounded to 0.3555, and then to 0.355."""
    rows = pd.DataFrame(
        {"model": "lr", "size": 9, "draw": 0, "decision": decision, "support": 1.0}
        | dict.fromkeys(MEASURES, 0.35552)
        for decision in ("mode", "cost")
    )
    table = console_table(rows, 9, shown(CLEAN))
    cells = [cell for column in table.columns[1:-1] for cell in column.cells]
    assert cells == ["[bold]*0.356[/]"] * 6


def test_draws_and_sizes_belong_together(corpus):
    with pytest.raises(UserError, match="--draws 0 does not fit"):
        Comparison.of(corpus, (24,), (0,), ())


@pytest.mark.slow
def test_a_run_that_is_killed_continues(data):
    code = (
        "from geosoftmax_experiments.data import newsgroups as n; "
        f"n.EXPECTED, n.GROUPS = {posts.EXPECTED}, {len(posts.NAMES)}; "
        "from geosoftmax_experiments.__main__ import main; main()"
    )
    command = [sys.executable, "-c", code, "taxonomy", "compare", "--sizes", "24", "--draws", "9"]
    command += ["--models", "lr,zero-one,tree-shared", "--jobs", "2"]
    chance = new_random()
    for _ in range(2):
        kill_at_random([*command, "-o", data / "killed"], chance, longest=15.0)
    run_to_the_end([*command, "-o", data / "killed"])
    run_to_the_end([*command, "-o", data / "whole"])
    one, other = (
        pd.read_csv(data / name / "rows.csv").drop(columns="seconds")
        for name in ("killed", "whole")
    )
    pd.testing.assert_frame_equal(one, other, check_exact=True)
