"""One's own table: fit, save, load, predict, and what goes wrong."""

import io
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from geosoftmax.estimators import GeometricClassifier
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.ordinal import own
from geosoftmax_experiments.ordinal.decisions import decide
from geosoftmax_experiments.ordinal.encoding import Column, Encoder
from geosoftmax_experiments.ordinal.measures import MEASURES
from geosoftmax_experiments.ordinal.options import FitOptions, PredictOptions, TableOptions
from geosoftmax_experiments.ordinal.own_report import EXPLAINED, coefficients
from geosoftmax_experiments.ordinal.saved import _checksum, load_model, save_model

ORDER = ["bad", "fair", "good"]
PICTURES = {"confusion.png", "probabilities.png", "coefficients.png"}


def table(n=120, seed=0):
    """A number, a category and a yes-or-no that tell a rating."""
    rng = np.random.default_rng(seed)
    size = rng.normal(size=n)
    colour = rng.choice(["red", "green", "blue"], n)
    new = rng.random(n) < 0.5
    level = size + (colour == "red") - 0.5 * new + 0.3 * rng.normal(size=n)
    rating = np.array(ORDER)[np.digitize(level, [-0.3, 0.6])]
    return pd.DataFrame({"size": size, "colour": colour, "new": new, "rating": rating})


def fit(data, output, **options):
    """Fit to a table, or to a file; return the model and what was printed."""
    path = data
    if isinstance(data, pd.DataFrame):
        path = output.parent / "data.csv"
        data.to_csv(path, index=False)
    said = io.StringIO()
    options = {"target": "rating", "order": ",".join(ORDER)} | options
    model = own.fit_table(
        FitOptions(table=path, output=output, **options), Console(file=said, width=200)
    )
    return model, said.getvalue()


def predict(model, path, output, **options):
    """Predict a file; return the table and what was printed."""
    said = io.StringIO()
    options = PredictOptions(model=model, table=path, output=output, **options)
    return own.predict_table(options, Console(file=said, width=200)), said.getvalue()


@pytest.fixture
def few_folds(monkeypatch):
    """How well a model does is not the question."""
    monkeypatch.setattr(own, "FOLDS", 2)
    monkeypatch.setattr(own, "INNER", 2)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    model, said = fit(table(), folder / "model")
    return folder / "model", model, said


# ------------------------------------------------------------------ fit


def test_fit_saves_a_model_and_a_report(fitted):
    folder, model, _ = fitted
    names = {path.name for path in folder.iterdir()}
    written = {"model.json", "model.safetensors", "report.md", "report.html", "coefficients.csv"}
    assert names == written | PICTURES
    assert (folder / "report.html").read_text().count("data:image/png;base64,") == 3
    assert model.coef.shape == (3, 5)  # size, three colours, new


def test_scores_have_a_spread_and_an_explanation(fitted):
    folder, _, said = fitted
    text = (folder / "report.md").read_text()
    for name, meaning in EXPLAINED.items():
        (row,) = [line for line in text.splitlines() if line.endswith(f"| {meaning} |")]
        assert row.startswith(f"| {MEASURES[name].label} ")
        assert row.count(" ± ") == 2
        (printed,) = [line for line in said.splitlines() if f"│ {MEASURES[name].label} " in line]
        ours, logistic = (cell.strip() for cell in printed.split("│")[2:4])
        assert f"| {ours} | {logistic} |" in row
        mean, spread = map(float, ours.split(" ± "))
        assert spread > 0 or name == "zero_share"
        assert name != "accuracy" or mean > 0.7


def test_the_report_shows_the_coefficients(fitted):
    folder, model, _ = fitted
    found = coefficients(model)
    assert found["feature"].iloc[0] == "size"
    assert set(found["feature"]) == {
        "size",
        "new",
        *(f"colour = {c}" for c in ("red", "green", "blue")),
    }
    upwards = found.set_index("feature")["upwards"]
    assert upwards["size"] > upwards["colour = red"] > 0 > upwards["new"]
    lines = (folder / "report.md").read_text().splitlines()
    (row,) = [line for line in lines if line.startswith("| size |")]
    assert row.split(" | ")[2:] == [
        *(f"{x:.3f}" for x in model.coef[:2, 0]),
        f"{model.coef[2, 0]:.3f} |",
    ]
    assert len(pd.read_csv(folder / "coefficients.csv")) == 5


def test_what_was_validated_was_not_seen(tmp_path, few_folds):
    """Ratings that nothing tells are predicted no better than by chance, whatever is encoded."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"word": [f"w{k % 50}" for k in range(100)], "x": rng.normal(size=100)})
    data["rating"] = rng.choice(ORDER[:2], 100)
    _, said = fit(data, tmp_path / "m", decision="mode")
    (accuracy,) = [line for line in said.splitlines() if "│ accuracy " in line]
    assert float(accuracy.split("│")[2].split("±")[0]) < 0.65


def test_classes_called_nothing_and_classes_without_samples(tmp_path, few_folds):
    data = table().replace({"rating": {"bad": "None", "good": "NA"}, "colour": {"red": "null"}})
    model, said = fit(
        data, tmp_path / "m", order="None,fair,NA,great", missing="drop", decision="median"
    )
    assert model.classes == ["None", "fair", "NA", "great"]
    assert model.columns[1].categories == ("blue", "green", "null")
    assert "No samples: great." in said
    assert "left out" not in said
    assert "120 samples" in (tmp_path / "m" / "report.md").read_text()
    found, _ = predict(tmp_path / "m", tmp_path / "data.csv", tmp_path / "p.csv")
    assert set(found["prediction"]) == {"None", "fair", "NA"}
    again = pd.read_csv(tmp_path / "p.csv", keep_default_na=False)
    assert (again["prediction"] == found["prediction"]).all()


def test_a_german_table_of_a_spreadsheet(tmp_path, few_folds):
    """Semicolons, decimal commas, dates with points, an encoding of Windows, names of samples."""
    data = table()
    data.insert(0, "Nummer", [f"{k:04d}" for k in range(120)])
    data["Größe"] = data.pop("size").round(4)
    data["Tag"] = pd.date_range("2026-01-01", periods=120).strftime("%d.%m.%Y")
    data["colour"] = data["colour"].replace({"green": "grün"})
    data.loc[5, "Größe"] = np.nan
    path = tmp_path / "excel.csv"
    data.to_csv(path, index=False, sep=";", decimal=",", encoding="cp1252")
    model, said = fit(path, tmp_path / "m", id="Nummer", missing="impute")
    assert "read as cp1252" in said
    assert "columns are separated by ';'" in said
    assert "decimal mark is ','" in said
    assert "numbers of days: 'Tag' (day.month.year)" in said
    assert "filled in: 'Größe' (1)" in said
    kinds = {column.name: column.kind for column in model.columns}
    assert kinds == {"colour": "category", "new": "number", "Größe": "number", "Tag": "date"}
    size = {column.name: column for column in model.columns}["Größe"]
    assert size.fill == pytest.approx(data["Größe"].median())
    found, _ = predict(tmp_path / "m", path, tmp_path / "p.csv")
    lines = (tmp_path / "p.csv").read_text().splitlines()
    assert lines[0] == "Nummer;prediction;p(bad);p(fair);p(good)"
    assert lines[1].startswith("0000;")
    written = pd.read_csv(tmp_path / "p.csv", sep=";", decimal=",")
    assert np.allclose(written.iloc[:, 2:], found.iloc[:, 2:], atol=1e-6)
    assert "." not in lines[1]
    # The same rows as Parquet, with dates and numbers that are some, give the same.
    typed = data.assign(Tag=pd.date_range("2026-01-01", periods=120))
    typed.to_parquet(tmp_path / "typed.parquet")
    same, _ = predict(tmp_path / "m", tmp_path / "typed.parquet", tmp_path / "q.parquet")
    assert np.allclose(found.iloc[:, 2:], same.iloc[:, 2:])
    assert pd.read_parquet(tmp_path / "q.parquet")["Nummer"].tolist() == data["Nummer"].tolist()


def test_predictions_keep_all_digits_of_names_and_classes(tmp_path, few_folds):
    """Probabilities are rounded; ids and classes are not, also where they are numbers."""
    data = table().replace({"rating": {"bad": 1000000.5, "fair": 2000001.5, "good": 3000002.5}})
    data = data.astype({"rating": float})
    data.insert(0, "id", 20260131000.25 + np.arange(len(data)))
    data.to_parquet(tmp_path / "typed.parquet")
    fit(tmp_path / "typed.parquet", tmp_path / "m", id="id", order="")
    predict(tmp_path / "m", tmp_path / "typed.parquet", tmp_path / "p.csv")
    written = pd.read_csv(tmp_path / "p.csv")
    assert written["id"].tolist() == data["id"].tolist()
    assert set(written["prediction"]) <= {1000000.5, 2000001.5, 3000002.5}


def test_tables_that_are_too_small_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"holds 8 samples. At least 10"):
        fit(table(8), tmp_path / "m")
    rare = table(30).assign(rating=["bad", "good", *["fair"] * 28])
    with pytest.raises(UserError, match="Only one class of 'rating' has three samples"):
        fit(rare, tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_rare_classes_can_be_validated(tmp_path, monkeypatch):
    monkeypatch.setattr(own, "FOLDS", 4)  # more than there are samples of a class
    monkeypatch.setattr(own, "INNER", 2)
    data = table(25).assign(rating=[*["bad"] * 3, *["fair"] * 21, "good"])
    model, said = fit(data, tmp_path / "m", decision="median")
    assert model.classes == ORDER
    (kappa,) = [line for line in said.splitlines() if "│ quadratic kappa " in line]
    assert "folds)" in kappa  # there is none where all samples are of one class


def test_separators_have_one_sign():
    assert TableOptions(separator="tab").form.separator == "\t"
    assert TableOptions(separator=";", decimal=",").form.decimal == ","
    with pytest.raises(UserError, match="'::' is not one sign"):
        _ = TableOptions(separator="::").form


def test_names_with_commas_are_quoted(tmp_path):
    options = FitOptions(
        table=tmp_path, target="y", output=tmp_path, order='"1,5",2', ignore='"size, mm", x'
    )
    assert options.classes == ("1,5", "2")
    assert options.no_features == ("size, mm", "x")
    with pytest.raises(UserError, match="quotes in --order"):
        _ = replace(options, order='"1,5').classes


def test_no_file_is_replaced_by_what_is_made_of_it(fitted, tmp_path):
    """`predict new.csv -o new.csv` replaced the table."""
    folder, _, _ = fitted
    path = _csv(table(20), tmp_path)
    (tmp_path / "link.csv").symlink_to(path)
    before = path.read_text()
    for output in ("new.csv", "../" + tmp_path.name + "/new.csv", "link.csv"):
        with pytest.raises(UserError, match=r"is the table that is read.*--output"):
            predict(folder, path, tmp_path / output)
    with pytest.raises(UserError, match="belongs to the model"):
        predict(folder, path, folder / "coefficients.csv")
    path.rename(tmp_path / "coefficients.csv")
    with pytest.raises(UserError, match=r"is the table that is read.*--output"):
        fit(tmp_path / "coefficients.csv", tmp_path)
    assert (tmp_path / "coefficients.csv").read_text() == before
    assert predict(folder, tmp_path / "coefficients.csv", tmp_path / "p.csv")


# ------------------------------------------------------------------ predict


def test_predictions_are_the_estimators(fitted, tmp_path):
    folder, model, _ = fitted
    new = table(40, seed=1).drop(columns="rating")
    new.to_parquet(tmp_path / "new.parquet")
    out = tmp_path / "predictions.csv"
    predict(folder, tmp_path / "new.parquet", out)
    found = pd.read_csv(out)
    assert list(found.columns) == ["prediction", "p(bad)", "p(fair)", "p(good)"]
    data = table()
    encoder = Encoder.restore(model.columns)
    X = encoder.transform(data.astype({"new": float}))
    y = np.array([ORDER.index(label) for label in data["rating"]])
    again = GeometricClassifier("squared", scale=model.scale, alpha=model.alpha)
    again.fit((X - model.mean) / model.spread, y)
    X = encoder.transform(new.astype({"new": float}))
    assert np.allclose(
        found.iloc[:, 1:], again.predict_proba((X - model.mean) / model.spread), atol=1e-6
    )
    truth = table(40, seed=1)["rating"]
    assert (found["prediction"] == truth).mean() > 0.6


def test_missing_values_are_refused_dropped_or_filled_in(fitted, tmp_path):
    folder, _, _ = fitted
    data = table()
    data.loc[[3, 7], "colour"] = None
    path = tmp_path / "data.csv"
    data.to_csv(path, index=False)
    with pytest.raises(UserError, match=r"missing in 'colour' \(2\), the first in row 4"):
        fit(path, tmp_path / "m")
    assert not (tmp_path / "m").exists()
    with pytest.raises(UserError, match="missing in 'colour'"):
        predict(folder, path, tmp_path / "p.csv")
    found, said = predict(folder, path, tmp_path / "p.parquet", missing="drop")
    assert found["prediction"].isna().to_numpy().nonzero()[0].tolist() == [3, 7]
    assert "120 rows (2 left empty for missing values)" in said
    assert len(pd.read_parquet(tmp_path / "p.parquet")) == len(data)
    filled, said = predict(folder, path, tmp_path / "p.csv", missing="impute")
    assert "filled in: 'colour' (2)" in said
    most = table()["colour"].mode()[0]
    data.fillna({"colour": most}).to_csv(path, index=False)
    same, _ = predict(folder, path, tmp_path / "p.csv")
    assert filled.equals(same)


def test_predictions_stay_beside_their_rows(fitted, tmp_path):
    """A row without any value was left out, and all later predictions moved up."""
    path = tmp_path / "new.csv"
    path.write_text("size,colour,new\n1,red,True\n,,\n\n-1,blue,False\n")
    found, said = predict(fitted[0], path, tmp_path / "p.csv", missing="drop")
    assert found["prediction"].isna().tolist() == [False, True, False]
    assert "Blank lines are left out: 1." in said


def test_one_strange_row_does_not_end_predict(fitted, tmp_path):
    folder, _, _ = fitted
    data = table(100, seed=2)
    known, _ = predict(folder, _csv(data, tmp_path), tmp_path / "p.csv")
    data.loc[17, "colour"] = "violet"
    found, said = predict(folder, _csv(data, tmp_path), tmp_path / "p.csv")
    assert "'colour' holds violet, unknown to the model (rows: 1): taken for no category." in said
    assert found.drop(index=17).equals(known.drop(index=17))
    assert found.loc[17, "prediction"] in ORDER
    with pytest.raises(UserError, match="holds violet"):
        predict(folder, _csv(data, tmp_path), tmp_path / "p.csv", unknown="refuse")


def test_whole_numbers_stay_so_beside_empty_rows(fitted, tmp_path):
    save_model(replace(fitted[1], classes=[1, 2, 3]), tmp_path / "m")
    data = table(5)
    data.loc[2, "size"] = np.nan
    predict(tmp_path / "m", _csv(data, tmp_path), tmp_path / "p.csv", missing="drop")
    first = [line.split(",")[0] for line in (tmp_path / "p.csv").read_text().splitlines()[1:]]
    assert first[2] == ""
    assert set(first) <= {"", "1", "2", "3"}


def _csv(data, folder):
    data.to_csv(folder / "new.csv", index=False)
    return folder / "new.csv"


def test_names_of_samples_go_where_they_are_asked_for(fitted, tmp_path):
    folder, model, _ = fitted
    data = table(10).assign(prediction=[f"s{k}" for k in range(10)])
    found, _ = predict(folder, _csv(data, tmp_path), tmp_path / "p.parquet", id="prediction")
    assert found.columns[:2].tolist() == ["prediction (id)", "prediction"]
    with pytest.raises(UserError, match="no column 'name'"):
        predict(folder, _csv(data, tmp_path), tmp_path / "p.csv", id="name")
    save_model(replace(model, id="name"), tmp_path / "named")
    _, said = predict(tmp_path / "named", _csv(data, tmp_path), tmp_path / "p.csv")
    assert "There is no column 'name', which named the samples of the fit." in said


# ------------------------------------------------------------------ models on disk


def test_a_model_comes_back_as_it_was(fitted, tmp_path):
    _, model, _ = fitted
    day = Column("day", "date", "%d.%m.%Y", fill=20_000.5)
    wider = np.hstack([model.coef, np.ones((3, 1))])
    longer = {name: np.append(getattr(model, name), 1.0) for name in ("mean", "spread")}
    model = replace(
        model, columns=[*model.columns, day], coef=wider, id="name", missing="impute", **longer
    )
    save_model(model, tmp_path)
    again = load_model(tmp_path)
    for name in ("columns", "classes", "id", "missing", "decision"):
        assert getattr(again, name) == getattr(model, name)
    assert (again.coef == model.coef).all()
    X = np.random.default_rng(0).normal(size=(5, 6))
    rule = model.decision
    assert (decide(again.predict(X), rule) == decide(model.predict(X), rule)).all()


def sign(folder, words):
    """Write the words of a model with a checksum that is right."""
    words = {key: value for key, value in words.items() if key != "sha256"}
    text = json.dumps({**words, "sha256": _checksum(words)})
    (folder / "model.json").write_text(text)


def test_models_of_version_1_are_read(fitted, tmp_path):
    """They knew names and categories alone."""
    folder, model, _ = fitted
    save_model(model, tmp_path / "v1")
    words = json.loads((tmp_path / "v1" / "model.json").read_text())
    words["version"] = 1
    words["columns"] = [{key: c[key] for key in ("name", "categories")} for c in words["columns"]]
    del words["id"], words["missing"]
    sign(tmp_path / "v1", words)
    path = _csv(table(30, seed=3), tmp_path)
    found, _ = predict(tmp_path / "v1", path, tmp_path / "p.csv")
    assert found.equals(predict(folder, path, tmp_path / "q.csv")[0])
    with pytest.raises(UserError, match=r"older geosoftmax.*--missing drop"):
        predict(tmp_path / "v1", path, tmp_path / "p.csv", missing="impute")


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "code"},
        {"kind": "date"},
        {"kind": "date", "dates": "%Q"},
        {"dates": "ISO8601"},
        {"fill": "red"},
        {"fill": float("nan")},
        {"name": 3},
        {"kind": "category"},
        {"more": 1},
        {"categories": ["a", "a"], "kind": "category"},
    ],
)
def test_columns_that_make_no_sense_are_refused(fitted, tmp_path, change):
    save_model(fitted[1], tmp_path)
    words = json.loads((tmp_path / "model.json").read_text())
    words["columns"][0] |= change
    sign(tmp_path, words)
    with pytest.raises(UserError, match="do not make up a model"):
        load_model(tmp_path)


def damage_tensors(folder):
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)


def change(key, value):
    def apply(folder):
        path = folder / "model.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))

    return apply


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (damage_tensors, "model.safetensors is damaged"),
        (change("scale", 3.0), "model.json is damaged: its checksum"),
        (change("version", 99), "version 99; this geosoftmax reads versions up to 2"),
        (lambda folder: (folder / "model.json").write_text("{"), "not JSON"),
        (lambda folder: (folder / "model.json").write_text("[]"), "no version"),
        (lambda folder: (folder / "model.safetensors").unlink(), "safetensors is missing"),
        (lambda folder: (folder / "model.json").unlink(), "model.json is missing"),
    ],
)
def test_damaged_models_are_refused(fitted, tmp_path, damage, words):
    save_model(fitted[1], tmp_path)
    damage(tmp_path)
    with pytest.raises(UserError, match=words):
        load_model(tmp_path)
