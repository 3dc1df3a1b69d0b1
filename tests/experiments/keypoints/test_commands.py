"""`geosoftmax keypoints`: train, predict and compare, continued and refused."""

import csv
import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from geosoftmax_experiments.cli import app
from geosoftmax_experiments.data.keypoints import load_project
from geosoftmax_experiments.keypoints.splits import make_split
from tests.experiments.keypoints.projects import PARTS, SIZE, write_project
from tests.processes import PROGRAM, kill_at_random, new_random, run_to_the_end

TINY = ["--longest", "16", "--width", "4", "--steps", "6", "--batch", "4", "--device", "cpu"]
FEW = ["--losses", "geometric,softmax", "--settings", "2", "--kinds", "random,blocks"]
FEW += ["--sizes", "8", "--splits", "1", "--jobs", "1"]


def call(*arguments):
    return CliRunner().invoke(app, ["keypoints", *map(str, arguments)])


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    write_project(folder, count=14)
    return folder


@pytest.fixture(scope="module")
def compared(project, tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared") / "out"
    result = call("compare", "--data", project, *TINY, *FEW, "-o", folder)
    assert result.exit_code == 0, result.output
    return folder


def test_compare_writes_tables_pictures_and_a_report(compared):
    report = (compared / "report.md").read_text()
    assert "reduced comparison" in report
    assert "## 8 training frames, splits in blocks of time" in report
    for words in ("## In short", "| mean error |", "| share within 2 px |", "ours − it, median"):
        assert words in report
    assert (compared / "report.html").exists()
    for name in ("errors", "confidence"):
        assert (compared / f"{name}.png").stat().st_size > 5000
    rows = pd.read_csv(compared / "rows.csv")
    assert set(rows["part"]) == {"test", "inner"}
    test = rows[rows["part"] == "test"]
    assert len(test.groupby(["kind", "loss"])) == 4
    # Frame 1 has a missing nose: it is in no row.
    assert not ((rows["frame"] == 1) & (rows["point"] == PARTS[0])).any()
    assert len(list((compared / "units").glob("trial.*"))) == 8
    assert len(list((compared / "units").glob("test.*"))) == 4


def test_the_choice_is_the_least_mean_error_of_the_inner_split(compared, project):
    true = load_project(str(project)).labels.points
    rows = pd.read_csv(compared / "rows.csv")
    for (kind, loss), part in rows[rows["part"] == "inner"].groupby(["kind", "loss"]):
        means = {}
        for path in (compared / "units").glob(f"trial.{kind}.8.{loss}.*.json"):
            result = json.loads(path.read_text())["rows"]
            assert set(result["frames"]) <= set(make_split(14, 8, kind, 0).train)
            for decoder, points in result["points"].items():
                error = np.linalg.norm(np.array(points) - true[result["frames"]], axis=-1)
                means[path.stem.split(".", 4)[-1], decoder] = np.nanmean(error)
        assert len(means) == 16
        ((setting, decoder),) = set(zip(part["setting"], part["decoder"], strict=True))
        assert means[setting, decoder] == min(means.values())
        tests = rows[(rows["part"] == "test") & (rows["kind"] == kind) & (rows["loss"] == loss)]
        assert set(zip(tests["setting"], tests["decoder"], strict=True)) == {(setting, decoder)}


def test_losses_without_distributions_have_a_report_too(project, tmp_path):
    few = ["--losses", "mse", "--settings", "1", "--kinds", "random", "--sizes", "8"]
    result = call("compare", "--data", project, *TINY, *few, "--splits", "1", "--jobs", "1",
                  "-o", tmp_path / "out")  # fmt: skip
    assert result.exit_code == 0, result.output
    report = (tmp_path / "out" / "report.md").read_text()
    assert "MSE heat maps" in report
    assert "In short" not in report


def test_compare_continues_and_grows(compared, project):
    before = {path: path.stat().st_mtime_ns for path in (compared / "units").iterdir()}
    more = [*FEW]
    more[more.index("--splits") + 1] = "2"
    result = call("compare", "--data", project, *TINY, *more, "-o", compared)
    assert result.exit_code == 0, result.output
    after = {path: path.stat().st_mtime_ns for path in (compared / "units").iterdir()}
    assert before.items() < after.items()
    assert len(after) == 16
    other = ["7" if word == "6" else word for word in TINY]
    result = call("compare", "--data", project, *other, *FEW, "-o", compared)
    assert result.exit_code == 1
    assert "made with other settings: recipe (steps 6, now 7)" in result.output


@pytest.mark.slow
def test_compare_killed_at_random_ends_with_the_same_predictions(compared, project, tmp_path):
    out = tmp_path / "out"
    command = [*PROGRAM, "keypoints", "compare", "--data", project, *TINY, *FEW, "-o", out]
    chance = new_random()
    for _ in range(3):
        kill_at_random(list(map(str, command)), chance, longest=20.0)
    run_to_the_end(list(map(str, command)))
    for path in (out / "units").iterdir():
        mine = json.loads(path.read_text())["rows"]
        theirs = json.loads((compared / "units" / path.name).read_text())["rows"]
        assert mine["points"] == theirs["points"]


@pytest.mark.parametrize("loss", ["geometric", "deeplabcut"])
def test_train_then_predict(project, tmp_path, loss):
    result = call(
        "train", "--data", project, *TINY, "--loss", loss, "--hold-out", 3, "-o", tmp_path / "m"
    )
    assert result.exit_code == 0, result.output
    assert "On 3 frames that were held out: mean error" in result.output
    frames, table = project / "labeled-data" / "v1", tmp_path / "predictions.csv"
    drawn = tmp_path / "least.png"
    result = call("predict", tmp_path / "m", frames, "-o", table, "--pictures", drawn, "--count", 5)
    assert result.exit_code == 0, result.output
    assert drawn.stat().st_size > 5000
    found = pd.read_csv(table, header=[0, 1, 2], index_col=0)  # as DeepLabCut reads them
    assert found.shape == (14, 3 * len(PARTS))
    assert list(found.columns[:3]) == [
        ("geosoftmax", PARTS[0], c) for c in ("x", "y", "likelihood")
    ]
    x = found.xs("x", axis=1, level=2).to_numpy()
    y = found.xs("y", axis=1, level=2).to_numpy()
    assert ((x >= -0.5) & (x <= SIZE[1])).all()
    assert ((y >= -0.5) & (y <= SIZE[0])).all()
    sure = found.xs("likelihood", axis=1, level=2).to_numpy()
    assert ((sure >= 0) & (sure <= 1)).all()
    with table.open() as file:
        assert [row[0] for row in csv.reader(file)][:4] == [
            "scorer",
            "bodyparts",
            "coords",
            "img000.png",
        ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--losses", "hinge"], "There is no loss 'hinge'"),
        (["--kinds", "stripes"], "There is no kind of split 'stripes'"),
        (["--sizes", "14"], "no number of training frames"),
        (["--label-size", "640"], "no size"),
        (["--longest", "8"], "--longest is 8"),
        (["--data", "nowhere"], "holds no labels"),
        (["--data", "openfield"], "GEOSOFTMAX_DATA is not set"),
        (["--device", "tpu7"], "no device 'tpu7'"),
    ],
)
def test_compare_refuses(project, tmp_path, words, message, monkeypatch):
    monkeypatch.delenv("GEOSOFTMAX_DATA", raising=False)
    result = call("compare", "--data", project, *TINY[:6], *FEW, "-o", tmp_path / "out", *words)
    assert result.exit_code == 1
    assert message in result.output
    assert not np.any(list((tmp_path / "out").glob("units/*")))


def test_train_and_predict_refuse(project, tmp_path):
    for words, message in (
        (["--loss", "hinge"], "There is no loss 'hinge'"),
        (["--decoder", "offset"], "There is no decoder 'offset' for cross-entropy"),
        (["--hold-out", 13], "leaves nothing"),
    ):
        result = call("train", "--data", project, *TINY, "-o", tmp_path / "m", *words)
        assert result.exit_code == 1
        assert message in result.output
    result = call("predict", tmp_path, project)
    assert "is not a model" in result.output
