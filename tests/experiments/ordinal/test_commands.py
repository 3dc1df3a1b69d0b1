"""The command line: what it prints, and errors in a line with a hint."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from geosoftmax_experiments.cli import app
from geosoftmax_experiments.ordinal import own
from geosoftmax_experiments.ordinal.measures import MEASURES
from tests.conftest import data_file


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_compare_writes_everything(tmp_path):
    options = ["--source", "skordinal", "--sets", "balance-scale,LEV", "--folds", 2, "--quick"]
    models = ["--models", "lr,at,it,g,ridge", "--jobs", 1]
    result = call("ordinal", "compare", *options, *models, "-o", tmp_path)
    assert result.exit_code == 0, result.output
    assert "g-logistic, scores" in result.output
    assert "report.html" in result.output.replace("\n", "")
    assert "Pictures beside it: " in result.output
    assert "dots.png" in result.output
    assert "*: the best of a column." in result.output  # no bold in a log
    for column in ("Haus.", "MAE", "acc."):
        assert column in result.output
    assert len(re.findall(r"\*0\.\d{3}", result.output)) >= 6  # a star in each column
    assert "(sets: 2, folds: 2, coarse grids): to be first here" in result.output
    rows = pd.read_csv(tmp_path / "rows.csv")
    assert set(rows["model"]) == {"lr", "at", "it", "g", "ridge"}
    assert (rows["folds_by"] == "ours").all()
    pd.testing.assert_frame_equal(
        rows, pd.read_parquet(tmp_path / "rows.parquet"), check_dtype=False
    )
    assert {path.stem for path in (tmp_path / "sets").iterdir()} == set(MEASURES)
    text = (tmp_path / "report.md").read_text()
    for words in ("Table 1 beside the paper's", "Order in the Hausdorff row", "Friedman", "4 ours"):
        assert words in text
    page = (tmp_path / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 2
    assert "<table>" in page
    # A second call has nothing left to do; other settings are refused, unless asked to forget.
    stamp = (tmp_path / "units" / "LEV.1.g.json").stat().st_mtime_ns
    assert call("ordinal", "compare", *options, *models, "-o", tmp_path).exit_code == 0
    assert (tmp_path / "units" / "LEV.1.g.json").stat().st_mtime_ns == stamp
    other = [*options, "--models", "ridge", "--jobs", 1, "-o", tmp_path]
    refused = call("ordinal", "compare", *other)
    assert refused.exit_code == 1
    assert "made with other settings: models" in refused.output
    assert call("ordinal", "compare", *other, "--fresh").exit_code == 0
    assert json.loads((tmp_path / "settings.json").read_text())["models"] == ["ridge"]


@pytest.fixture
def tables(tmp_path):
    """Two tables with classes in words: one that depends on its features, one with a gap."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 2))
    frame = pd.DataFrame({"x": x[:, 0], "colour": np.where(x[:, 1] > 0, "red", "blue")})
    merit = x[:, 0] + 0.5 * (x[:, 1] > 0)
    frame["rating"] = np.array(["bad", "fair", "good"])[np.digitize(merit, [-0.3, 0.7])]
    frame.to_csv(tmp_path / "one.csv", index=False)
    frame["x"] = frame["x"].mask(frame.index == 5)
    frame.to_csv(tmp_path / "two=2.csv", index=False)
    return tmp_path / "one.csv", tmp_path / "two=2.csv"


def test_compare_on_own_tables(tables, tmp_path):
    options = ["--target", "rating", "--order", "bad,fair,good", "--missing", "impute", "--quick"]
    given = [word for path in tables for word in ("--data", path)]
    models = ["--models", "lr,g-scale", "--folds", 2, "--jobs", 1, "-o", tmp_path / "out"]
    result = call("ordinal", "compare", *given, *options, *models)
    assert result.exit_code == 0, result.output
    rows = pd.read_csv(tmp_path / "out" / "rows.csv")
    assert set(rows["set"]) == {"one", "two-2"}
    assert (rows["folds_by"] == "ours").all()
    assert (rows["accuracy"] > 0.6).mean() > 0.9
    text = (tmp_path / "out" / "report.md").read_text()
    assert "2 sets (own tables), 2 folds each: 0 published, 4 ours" in text
    assert "beside the paper" not in text
    # The order of the classes is part of the data.
    other = [word.replace("bad,fair", "fair,bad") for word in map(str, options)]
    refused = call("ordinal", "compare", *given, *other, *models)
    assert "other data for one, two-2" in refused.output


def test_names_of_samples_are_no_features_of_a_comparison(tables, tmp_path):
    data = pd.read_csv(tables[0])
    data.insert(0, "who", [f"patient {k}" for k in range(len(data))])
    data.to_csv(tmp_path / "named.csv", index=False)
    asked = ["--data", tmp_path / "named.csv", "--target", "rating", "--order", "bad,fair,good"]
    options = ["--models", "LR", "--quick", "--jobs", 1, "-o", tmp_path / "out"]
    advised = call("ordinal", "compare", *asked, *options)
    assert "'who' has another word in each row: --id who leaves it out" in advised.output
    options += ["--fresh"]
    result = call("ordinal", "compare", *asked, *options, "--id", "who")
    assert result.exit_code == 0, result.output
    assert "who" not in result.output


def test_own_tables_that_do_not_fit_are_refused(tables, tmp_path):
    one, two = (["--data", path] for path in tables)
    target = ["--target", "rating", "--quick", "-o", tmp_path / "out"]
    order = ["--order", "bad,fair,good"]
    (tmp_path / "few").mkdir()
    pd.read_csv(tables[0]).head(8).to_csv(tmp_path / "few" / "few.csv", index=False)
    for arguments, message in (
        ([*one, "-o", "out"], "--target comes 0 times, for 1 tables"),
        ([*one, *two, *target, *order, *order, *order], "--order comes 3 times, for 2 tables"),
        ([*one, *target, "--sets", "LEV"], "takes the place of --source and --sets"),
        (target, "--target is about your own tables"),
        ([*one, *one, *target, *order], "Two tables are called one"),
        ([*two, *target, *order], "missing"),
        (["--data", tmp_path / "few" / "few.csv", *target, *order], "too few samples"),
        (["--data", tmp_path / "none.csv", *target], "no file"),
    ):
        result = call("ordinal", "compare", *arguments)
        assert result.exit_code == 1
        assert message in result.output, result.output
        assert result.output.count("\n") == 2


def test_fit_and_predict(tmp_path, monkeypatch):
    monkeypatch.setattr(own, "FOLDS", 2)  # parameters matter little where classes are so clear
    path = tmp_path / "data.csv"
    pd.DataFrame({"x": range(60), "y": [k // 20 for k in range(60)]}).to_csv(path, index=False)
    model, out = tmp_path / "model", tmp_path / "out.csv"
    fitted = call("ordinal", "fit", path, "--target", "y", "-o", model, "--decision", "median")
    assert fitted.exit_code == 0, fitted.output
    predicted = call("ordinal", "predict", model, path, "-o", out)
    assert predicted.exit_code == 0, predicted.output
    assert (pd.read_csv(out)["prediction"] == pd.read_csv(path)["y"]).mean() > 0.9


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["compare", "--source", "uci"], "no source 'uci'"),
        (["compare", "--source", "skordinal", "--sets", "cars"], "no set 'cars'"),
        (["compare", "--backend", "dask"], "belong together"),
        (["compare", "--models", "lr,pom,lr"], "twice in --models lr,pom,lr"),
        (["fit", "none.csv", "--target", "y", "-o", "m"], "no file none.csv"),
        (["fit", "none.csv", "--target", "y", "-o", "m", "--separator", "ab"], "not one sign"),
        (["predict", "none", "none.csv", "-o", "p.csv"], "not a model"),
        (["predict", "none", "none.csv", "-o", "p.txt"], "neither CSV nor Parquet"),
        (["calibration", "-o", "curve.txt"], "no picture"),
    ],
)
def test_errors_are_a_line_and_a_hint(arguments, word):
    result = call("ordinal", *arguments)
    assert result.exit_code == 1
    assert word in result.output
    assert result.output.count("\n") == 2
    assert "Hint: " in result.output


def test_an_unwritable_folder_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    options = ["--source", "skordinal", "--sets", "LEV", "--models", "ridge", "--quick"]
    result = call("ordinal", "compare", *options, "-o", tmp_path / "file" / "results")
    assert result.exit_code == 1
    assert "Could not make the folder" in result.output
    assert "Traceback" not in result.output


@pytest.mark.slow
def test_the_demo_needs_no_data(tmp_path, monkeypatch):
    monkeypatch.delenv("GEOSOFTMAX_DATA", raising=False)
    for _ in range(2):  # a second time starts afresh
        result = call("demo", "ordinal", "--output", tmp_path)
        assert result.exit_code == 0, result.output
        assert "135/135" in result.output
    assert (tmp_path / "ranks.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.data
def test_quick_covers_all_sets_with_sane_numbers(tmp_path):
    data_file("ordinal-regression")
    result = call("ordinal", "compare", "--quick", "-o", tmp_path)
    assert result.exit_code == 0, result.output
    rows = pd.read_parquet(tmp_path / "rows.parquet")
    assert rows["set"].nunique() == 17
    chosen = rows[(rows["selected_by"] == "mae") & (rows["decision"] == "median")]
    means = chosen.groupby("model")[["mae", "accuracy"]].mean()
    assert means["mae"].between(0.35, 0.55).all()
    assert means["accuracy"].between(0.55, 0.75).all()
