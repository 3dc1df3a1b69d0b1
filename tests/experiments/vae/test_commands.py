"""The command line: what it writes, and errors in a line with a hint."""

import json
import shutil
import statistics
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from sklearn.datasets import load_digits
from typer.testing import CliRunner

from geosoftmax_experiments.cli import app
from geosoftmax_experiments.data.drawings import load_drawings
from geosoftmax_experiments.vae.comparing import timed_steps
from geosoftmax_experiments.vae.settings import make_settings, usual_batch
from geosoftmax_experiments.vae.training import Machine

FEW = ["--limit", 200, "--batch", 32, "--epochs", 2, "--accelerator", "cpu"]


def call(*arguments):
    return CliRunner().invoke(app, ["vae", *map(str, arguments)])


def test_train_reconstruct_sample(tmp_path):
    run = tmp_path / "run"
    result = call("train", *FEW, "-o", run, "--loss", "potential")
    assert result.exit_code == 0, result.output
    assert "160 drawings to train, 20 to validate, 20 to test" in result.output
    assert "Hausdorff" in result.output
    stamp = (run / "metrics.jsonl").stat().st_mtime_ns
    assert call("train", *FEW, "-o", run, "--loss", "potential").exit_code == 0  # nothing to do
    assert (run / "metrics.jsonl").stat().st_mtime_ns == stamp
    for command in ("reconstruct", "sample"):
        picture = tmp_path / f"{command}.png"
        result = call(command, run, "-o", picture, "--count", 3)
        assert result.exit_code == 0, result.output
        with Image.open(picture) as image:
            assert np.asarray(image.convert("L")).std() > 10


OPTIONS = [*FEW, "--losses", "softmax,potential", "--weights", "0.1,1", "--jobs", 1]
OTHER = [*FEW, "--losses", "sigmoid", "--weights", "1", "--jobs", 1]
PICTURES = ("curves", "frontier", "ratio", "measures", "judged", "reconstructions", "samples",
            "fitted")  # fmt: skip


@pytest.fixture(scope="module")
def said_and_made(tmp_path_factory):
    """What a comparison said, and the folder that it made, which no test changes."""
    folder = tmp_path_factory.mktemp("compared")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GEOSOFTMAX_COMMIT", "abc123")  # as a copy without its history says
        result = call("compare", *OPTIONS, "-o", folder)
    assert result.exit_code == 0, result.output
    return result.output, folder


@pytest.fixture
def copied(said_and_made, tmp_path):
    return shutil.copytree(said_and_made[1], tmp_path / "copied")


def test_compare_writes_everything(said_and_made):
    said, compared = said_and_made
    assert "potential" in said
    assert "At equal latent KL" in said
    assert "equal seconds" in said
    assert "Pictures beside it: " in said
    assert "10/10" in said  # five rounds of timing for each loss
    assert "report.html" in said.replace("\n", "")
    for name in PICTURES:
        with Image.open(compared / f"{name}.png") as image:
            assert np.asarray(image.convert("L")).std() > 10
    results = json.loads((compared / "results.json").read_text())
    columns = results["rows"]
    assert {len(values) for values in columns.values()} == {2 * 2 * 2}
    assert results["drawings"] == {
        "pictures": 200, "blank": 0, "train": 160, "validation": 20, "test": 20
    }  # fmt: skip
    assert {"device", "versions"} <= results["on"].keys()
    assert results["on"]["commit"] == "abc123"
    assert results["seconds_per_step"].keys() == {"softmax", "potential"}
    for loss, rounds in results["rounds"].items():
        assert len(rounds) == 5
        assert results["seconds_per_step"][loss] == statistics.median(rounds)
    row = {name: values[-1] for name, values in columns.items()}
    step = results["seconds_per_step"][row["loss"]]
    assert row["seconds"] == pytest.approx(row["step"] * step, rel=1e-5)
    with np.load(compared / "pictures.npz") as kept:
        (name,) = (name for name in kept if name.startswith("samples/potential layer"))
        assert kept[name].shape == (10, 8, 8)
    for name in ("error", "prior_gap", "prior_frechet", "fitted_recall"):
        assert [value is None for value in columns[name]] == [True, False] * 4  # at the end alone
    assert 0 <= row["error"] <= 1
    assert row["prior_gap"] <= row["latent_kl"] * 1.5
    assert {"frechet", "kernel", "precision", "recall", "error"} == results["floors"].keys()
    assert (row["p"] if "p" in row else results["settings"]["common"]["p"]) == 1
    text = (compared / "report.md").read_text()
    for words in ("Who wins at equal rate", "÷ softmax", "200 drawings of 8×8", "Samples",
                  "nobody trains on", "real training drawings", "p = 1"):  # fmt: skip
        assert words in text
    assert (compared / "report.html").read_text().count("data:image/png;base64,") == 8
    assert text.index("(frontier.png)") < text.index("(ratio.png)") < text.index("## Training")


@pytest.fixture
def _quick_pictures(monkeypatch):
    """Drawing takes most of the time of a report; where no test looks at pictures, it is left."""
    monkeypatch.setattr(Figure, "savefig", lambda self, path, **_: Path(path).write_bytes(b"png"))


def test_the_results_alone_give_the_same_report(said_and_made, tmp_path):
    compared, alone = said_and_made[1], tmp_path / "alone"
    alone.mkdir()
    for name in ("results.json", "pictures.npz"):
        (alone / name).write_bytes((compared / name).read_bytes())
    rewritten = call("report", alone, "-o", tmp_path / "again")
    assert rewritten.exit_code == 0, rewritten.output
    text = (compared / "report.md").read_text()
    assert (tmp_path / "again" / "report.md").read_text() == text
    made = {path.name for path in (tmp_path / "again").iterdir()}
    assert made == {"report.md", "report.html", *(f"{name}.png" for name in PICTURES)}


@pytest.mark.usefixtures("_quick_pictures")
def test_results_of_before_rounds_were_kept_are_read_and_damaged_ones_named(copied, tmp_path):
    results = json.loads((copied / "results.json").read_text())
    del results["rounds"]
    (copied / "results.json").write_text(json.dumps(results))
    assert call("report", copied, "-o", tmp_path / "again").exit_code == 0
    assert "| – |" in (tmp_path / "again" / "report.md").read_text()
    for damage in ("[]", "{", "{}"):
        (copied / "results.json").write_text(damage)
        assert "is damaged." in call("report", copied, "-o", tmp_path / "no").output


@pytest.mark.usefixtures("_quick_pictures")
def test_compare_continues_and_grows(copied, monkeypatch):
    """A unit that is lost is done anew, alone; other settings are refused."""
    units = {path: path.stat().st_mtime_ns for path in (copied / "units").iterdir()}
    assert len(units) == 4
    lost = copied / "units" / "potential.w1.s0.json"
    lost.unlink()
    assert "commit abc123." in (copied / "report.md").read_text()
    monkeypatch.setenv("GEOSOFTMAX_COMMIT", "def456")
    again = call("compare", *OPTIONS, "-o", copied)
    assert "3 of 4 are done already" in again.output
    made = "3 runs by commit abc123, 1 run by commit def456; steps timed by abc123."
    assert made in (copied / "report.md").read_text()
    assert [p for p, stamp in units.items() if p.stat().st_mtime_ns != stamp] == [lost]
    assert "timing steps" not in again.output
    # One more loss has all steps timed again. All that the folder has is compared.
    more = call("compare", *OPTIONS, "--losses", "sigmoid", "--weights", "0.3", "-o", copied)
    assert more.exit_code == 0, more.output
    assert "timing steps" in more.output
    results = json.loads((copied / "results.json").read_text())
    assert results["rounds"].keys() == {"softmax", "potential", "sigmoid"}
    assert results["settings"]["losses"] == ["softmax", "potential", "sigmoid"]
    assert len(set(zip(results["rows"]["loss"], results["rows"]["weight"], strict=True))) == 5
    assert results["settings"]["weights"] == [0.1, 0.3, 1.0]
    refused = call("compare", *OTHER, "-o", copied, "--latent", 7)
    assert refused.exit_code == 1
    assert "made with other settings: latent 100, now 7." in refused.output


def test_runs_that_are_not_whole_are_noticed_before_anything_is_trained(copied):
    unit = copied / "units" / "potential.w1.s0.json"
    kept = unit.read_text()
    for text in ("[]", "{}", '{"loss": "softmax"}', kept[: len(kept) // 2], kept.replace("2", "1")):
        unit.write_text(text)
        damaged = call("compare", *OPTIONS, "--weights", "7", "-o", copied)
        assert damaged.exit_code == 1
        assert "potential.w1.s0.json is damaged." in damaged.output.replace("\n", "")
        assert not list((copied / "units").glob("*.w7.*"))
    unit.write_text(kept)
    for name in ("notes", "softmax.w1.2.3.s0", "other.w1.s0"):
        stray = copied / "units" / f"{name}.json"
        stray.write_text("[]")
        assert f"There is no run '{name}'" in call("compare", *OPTIONS, "-o", copied).output
        stray.unlink()


@pytest.mark.usefixtures("_quick_pictures")
def test_a_folder_begins_anew_when_asked_to(copied):
    alone = call("compare", *OTHER, "-o", copied, "--fresh")
    assert alone.exit_code == 0
    assert "nothing to compare, as softmax" in alone.output
    assert "One run of each is a quick look" in alone.output
    assert "nothing to compare, as softmax" in (copied / "report.md").read_text()
    assert [path.name for path in (copied / "units").iterdir()] == ["sigmoid.w1.s0.json"]
    assert not (copied / "ratio.png").exists()


def test_choose_compares_candidates_on_validation_drawings(tmp_path):
    few = ["--limit", 200, "--batch", 32, "--epochs", 1, "--accelerator", "cpu", "--jobs", 1]
    options = [*few, "--scales", "2,4", "--smoothings", 2, "--weights", "0.1,1", "-o", tmp_path]
    result = call("choose", *options)
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "choice.json").read_text())
    assert found["common"]["on"] == "validation"
    assert found["candidates"].keys() == {f"scale-{k}.smoothing-2" for k in (2, 4)}
    worst = {name: max(v for k, v in row.items() if k != "worst")
             for name, row in found["candidates"].items()}  # fmt: skip
    best = min(worst, key=worst.get)
    assert best == f"scale-{found['chosen']['scale']:g}.smoothing-2"
    assert f"Chosen: {best}" in result.output
    assert "Continuing: 2 of 2" in call("choose", *options).output
    run = tmp_path / "run"
    trained = call("train", *few[:-2], "--chosen", tmp_path, "-o", run)
    assert trained.exit_code == 0, trained.output
    used = json.loads((run / "run.json").read_text())
    assert (used["p"], used["scale"], used["smoothing"]) == (1, found["chosen"]["scale"], 2)
    assert "contradict" in call("train", "--chosen", tmp_path, "--scale", 1, "-o", run).stderr
    assert "contradict" in call("train", "--paper", "--p", 1, "-o", run).stderr
    assert "choice.json is missing" in call("train", "--chosen", run, "-o", run).stderr
    assert "chosen on validation" in call("choose", *options, "--on", "test").stderr


def save_pictures(folder, count, side, paper=255):
    """Digits, dark on paper or bright on black, each of its own size."""
    folder.mkdir()
    for k, digit in enumerate(load_digits().images[:count]):
        ink = np.kron((15 * digit).astype(np.uint8), np.ones((side // 8, side // 8), np.uint8))
        picture = paper - ink if paper else ink
        Image.fromarray(picture).save(folder / f"{k:03}.png")


def test_drawings_of_ones_own_are_read_sensibly(tmp_path):
    save_pictures(tmp_path / "scans", 60, 96)
    save_pictures(tmp_path / "screens", 20, 8, paper=0)
    run = tmp_path / "run"
    options = ["--epochs", 1, "--loss", "softmax", "--accelerator", "cpu"]
    result = call("train", "--data", tmp_path / "scans", *options, "-o", run)
    assert result.exit_code == 0, result.output
    words = " ".join(result.output.split())
    assert "Dark on bright, so dark is ink" in words
    assert "read as 28×28" in words
    assert "Warning" not in words
    used = json.loads((run / "run.json").read_text())
    assert (used["invert"], used["size"], used["batch"]) == (True, 28, 8)
    for data in ([], ["--data", tmp_path / "screens"], ["--data", "mnist-of-mine"]):
        drawn = call("reconstruct", run, "-o", tmp_path / "x.png", "--count", 3, *data)
        assert drawn.exit_code == (1 if "mnist-of-mine" in data else 0), drawn.output
    wrong = call("reconstruct", run, "-o", tmp_path / "x.png", "--data", "digits")
    assert "trained on 28 × 28" in wrong.stderr
    plain = call("train", "--data", tmp_path / "screens", *options, "-o", tmp_path / "other")
    assert plain.exit_code == 0, plain.output
    assert "ink" not in plain.output
    forced = ["--no-invert", "--size", 72, "--epochs", 1, "--loss", "softmax", "--limit", 20]
    result = call("train", "--data", tmp_path / "scans", *forced, "-o", tmp_path / "third")
    words = " ".join(result.output.split())
    assert "5,184 pixels a picture" in words
    assert "most of each picture is ink" in words
    assert "try --invert" in words


@pytest.mark.parametrize(("train_count", "batch"), [(240, 16), (24, 8), (5, 5), (5000, 128)])
def test_batches_come_from_the_size_of_the_set(train_count, batch):
    assert usual_batch(train_count) == batch


def test_data_that_moved_are_missed(tmp_path):
    save_pictures(tmp_path / "mine", 20, 8)
    options = ["--data", tmp_path / "mine", "--epochs", 1, "--loss", "softmax"]
    assert call("train", *options, "-o", tmp_path / "run").exit_code == 0
    (tmp_path / "mine").rename(tmp_path / "moved")
    lost = call("reconstruct", tmp_path / "run", "-o", "x.png")
    assert "which is not found from here" in lost.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "--loss", "l2"], "no loss 'l2'"),
        (["train", "--weight", "-1"], "--weight is -1.0"),
        (["train", "--epochs", "0"], "--epochs is 0"),
        (["train", "--epochs", "10", "--every", "3"], "--every 3 does not divide"),
        (["train", "--architecture", "unet"], "no architecture 'unet'"),
        (["compare", "--losses", "softmax,l2"], "no loss 'l2'"),
        (["compare", "--weights", "1,x"], "'1,x' are no numbers"),
        (["compare", "--weights", "1,1"], "comes twice in --weights"),
        (["compare", "--seeds", "0"], "--seeds is 0"),
        (["compare", "--jobs", "0"], "--jobs 0"),
    ],
)
def test_options_are_checked_before_the_data_are_read(arguments, words, tmp_path):
    damaged = tmp_path / "damaged.npy"
    damaged.write_bytes(b"no array")
    result = call(*arguments, "--data", damaged, "-o", tmp_path / "x")
    assert result.exit_code == 1
    assert words in result.stderr
    read = call(arguments[0], "--data", damaged, "-o", tmp_path / "x")
    assert "damaged.npy cannot be read" in read.stderr


def test_no_more_steps_are_timed_than_a_run_has():
    digits = load_drawings("digits", limit=200)  # 160 to train: 5 steps an epoch
    common = {"batch": 32, "loss": "softmax", "weight": 1.0, "seed": 0, "precision": "32-true",
              "compile": False, "start": "zero", "on": "test"}  # fmt: skip
    cpu = Machine(accelerator="cpu")
    timed = {
        epochs: timed_steps(make_settings(digits, epochs=epochs, **common), digits, cpu)
        for epochs in (1, 10, 1000)
    }
    assert timed == {1: (5, 5), 10: (5, 10), 1000: (5, 10)}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "-o", "x", "--data", "dogs"], "no data 'dogs'"),
        (["train", "-o", "x", "--loss", "l2"], "no loss 'l2'"),
        (["train", "-o", "x", "--architecture", "unet"], "no architecture 'unet'"),
        (["train", "-o", "x", "--size", "28"], "have a size of their own"),
        (["compare", "-o", "x", "--losses", "softmax,l2"], "no loss 'l2'"),
        (["compare", "-o", "x", "--losses", ","], "--losses is empty"),
        (["compare", "-o", "x", "--losses", "softmax,softmax"], "comes twice"),
        (["compare", "-o", "x", "--weights", "a,1"], "'a,1' are no numbers"),
        (["compare", "-o", "x", "--weights", "1,-1"], "--weight is -1.0"),
        (["compare", "-o", "x", "--seeds", "0"], "--seeds is 0"),
        (["compare", "-o", "x", "--jobs", "0"], "--jobs 0"),
        (["report", "none"], "results.json is missing"),
        (["reconstruct", "none", "-o", "x.png"], "none is not a run"),
        (["sample", "none", "-o", "x.txt"], "no picture"),
    ],
)
def test_errors_are_a_line_and_a_hint(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = call(*arguments)
    assert result.exit_code == 1
    assert words in result.stderr
    assert result.stderr.count("\n") == 2
    assert "Hint: " in result.stderr
    assert not (tmp_path / "x").exists()
