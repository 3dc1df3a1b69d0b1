"""One's own table: fit, save, load, predict, and what goes wrong."""

import json

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from geosoftmax.estimators import GeometricClassifier
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.ordinal import own
from geosoftmax_experiments.ordinal.decisions import decide
from geosoftmax_experiments.ordinal.encoding import encode, learn_columns, read_classes, read_table
from geosoftmax_experiments.ordinal.saved import load_model, save_model

ORDER = ["bad", "fair", "good"]


def table(n=120, seed=0):
    """A number, a category and a yes-or-no that tell a rating."""
    rng = np.random.default_rng(seed)
    size = rng.normal(size=n)
    colour = rng.choice(["red", "green", "blue"], n)
    new = rng.random(n) < 0.5
    level = size + (colour == "red") - 0.5 * new + 0.3 * rng.normal(size=n)
    rating = np.array(ORDER)[np.digitize(level, [-0.3, 0.6])]
    return pd.DataFrame({"size": size, "colour": colour, "new": new, "rating": rating})


def console():
    return Console(quiet=True)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    table().to_csv(folder / "data.csv", index=False)
    model = own.fit_table(folder / "data.csv", "rating", folder / "model", console(), order=ORDER)
    return folder, model


def test_fit_saves_a_model_and_a_report(fitted):
    folder, model = fitted
    names = {path.name for path in (folder / "model").iterdir()}
    pictures = {"confusion.png", "probabilities.png"}
    assert names == {"model.json", "model.safetensors", "report.md", "report.html", *pictures}
    text = (folder / "model" / "report.md").read_text()
    assert "Confusion matrix" in text
    assert "quadratic kappa" in text
    page = (folder / "model" / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 2
    assert model.coef.shape == (3, 5)  # size, three colours, new


def test_predictions_are_the_estimators(fitted, tmp_path):
    folder, model = fitted
    new = table(40, seed=1).drop(columns="rating")
    new.to_parquet(tmp_path / "new.parquet")
    out = tmp_path / "predictions.csv"
    own.predict_table(folder / "model", tmp_path / "new.parquet", out, console())
    found = pd.read_csv(out)
    assert list(found.columns) == ["prediction", "p(bad)", "p(fair)", "p(good)"]
    data = table()
    X = encode(data, model.columns, folder)
    y = np.array([ORDER.index(label) for label in data["rating"]])
    again = GeometricClassifier("squared", scale=model.scale, alpha=model.alpha)
    again.fit((X - model.mean) / model.spread, y)
    p = again.predict_proba((encode(new, model.columns, folder) - model.mean) / model.spread)
    assert np.allclose(found.iloc[:, 1:], p, atol=1e-6)
    truth = table(40, seed=1)["rating"]
    assert (found["prediction"] == truth).mean() > 0.6


def test_a_model_comes_back_as_it_was(fitted, tmp_path):
    _, model = fitted
    save_model(model, tmp_path)
    again = load_model(tmp_path)
    assert again.columns == model.columns
    assert again.classes == model.classes
    assert (again.coef == model.coef).all()
    X = np.random.default_rng(0).normal(size=(5, 5))
    rule = model.decision
    assert (decide(again.predict(X), rule) == decide(model.predict(X), rule)).all()


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
        (change("version", 99), "version 99; this geosoftmax reads version 1"),
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


def test_missing_values_are_reported_or_skipped(fitted, tmp_path, monkeypatch):
    monkeypatch.setattr(own, "FOLDS", 2)  # how well it does is not the question here
    folder, _ = fitted
    data = table()
    data.loc[[3, 7], "colour"] = None
    path = tmp_path / "data.csv"
    data.to_csv(path, index=False)
    with pytest.raises(UserError, match=r"misses values in colour \(2\); the first in row 4"):
        own.fit_table(path, "rating", tmp_path / "m", console(), order=ORDER)
    assert not (tmp_path / "m").exists()
    with pytest.raises(UserError, match="misses values in colour"):
        own.predict_table(folder / "model", path, tmp_path / "p.csv", console())
    found = own.predict_table(
        folder / "model", path, tmp_path / "p.parquet", console(), skip_missing=True
    )
    assert found["prediction"].isna().to_numpy().nonzero()[0].tolist() == [3, 7]
    assert len(pd.read_parquet(tmp_path / "p.parquet")) == len(data)
    model = own.fit_table(path, "rating", tmp_path / "m", console(), order=ORDER, skip_missing=True)
    assert "2 left out" in (tmp_path / "m" / "report.md").read_text()
    assert model.classes == ORDER


def test_classes_know_their_order():
    words = pd.Series(["good", "bad", "fair"], name="rating")
    with pytest.raises(UserError, match=r"order .* not known: good, bad, fair.*--order"):
        read_classes(words, None)
    with pytest.raises(UserError, match="holds fair, which --order does not name"):
        read_classes(words, ["bad", "good"])
    with pytest.raises(UserError, match="a class twice"):
        read_classes(words, ["bad", "good", "fair", "bad"])
    classes, index = read_classes(words, ["bad", "fair", "good", "great"])
    assert classes == ["bad", "fair", "good", "great"]
    assert index.tolist() == [2, 0, 1]
    ordered = words.astype(pd.CategoricalDtype(ORDER, ordered=True))
    assert read_classes(ordered, None)[0] == ORDER
    assert read_classes(pd.Series([3, 1, 2, 1]), None)[1].tolist() == [2, 0, 1, 0]
    assert read_classes(pd.Series([3, 1]), ["3", "1"])[0] == [3, 1]
    with pytest.raises(UserError, match="one class only"):
        read_classes(pd.Series([1, 1]), None)
    with pytest.raises(UserError, match="60 values, which are not classes"):
        read_classes(pd.Series(range(60), name="price"), None)


def test_columns_that_do_not_fit_are_named(fitted):
    columns = fitted[1].columns
    data = table(5)
    with pytest.raises(UserError, match="lacks the columns size"):
        encode(data.drop(columns="size"), columns, "new.csv")
    with pytest.raises(UserError, match="'colour' holds violet"):
        encode(data.assign(colour="violet"), columns, "new.csv")
    with pytest.raises(UserError, match="'size' must hold numbers"):
        encode(data.assign(size="big"), columns, "new.csv")
    with pytest.raises(UserError, match="'size' holds infinite"):
        encode(data.assign(size=np.inf), columns, "new.csv")
    names = pd.DataFrame({"name": [f"sample {k}" for k in range(200)]})
    with pytest.raises(UserError, match=r"200 different words.*--ignore name"):
        learn_columns(names)
    dates = pd.DataFrame({"day": pd.date_range("2020-01-01", periods=3)})
    with pytest.raises(UserError, match="'day' holds datetime"):
        learn_columns(dates)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.xlsx", b"", "neither CSV nor Parquet"),
        ("a.csv", b"", "Could not read"),
        ("a.csv", b"x,y\n", "holds no rows"),
        ("a.csv", b"x,y\n1,2\n3,4,5\n", "Could not read"),
        ("a.parquet", b"PAR1 and no more", "Could not read"),
        ("none.csv", None, "There is no file"),
    ],
)
def test_tables_that_cannot_be_read_are_named(tmp_path, name, content, words):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=words) as caught:
        read_table(path)
    assert str(path) in caught.value.message
