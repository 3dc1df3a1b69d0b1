"""The loader of the ordinal sets: folds, and files that are not what they should be."""

import shutil

import numpy as np
import pytest

from geosoftmax_experiments.data.ordinal import SURVEY, load_fold, make_split, set_names
from geosoftmax_experiments.errors import UserError
from tests.conftest import data_file


def balance_scale(folder, n=625):
    """Write a set with the shape of balance-scale, and return its two files."""
    rng = np.random.default_rng(0)
    rows = [
        " ".join(map(str, [*rng.integers(1, 6, 4), 1 + k % SURVEY["balance-scale"].classes]))
        for k in range(n)
    ]
    target = folder / "ordinal-regression" / "balance-scale" / "matlab"
    target.mkdir(parents=True)
    files = [target / f"{part}_balance-scale.0" for part in ("train", "test")]
    files[0].write_text("\n".join(rows[:468]) + "\n")
    files[1].write_text("\n".join(rows[468:]) + "\n")
    return files


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setenv("GEOSOFTMAX_DATA", str(tmp_path))
    return balance_scale(tmp_path)


def test_published_folds_are_read_and_others_made(files):
    first, other = (load_fold("survey", "balance-scale", k) for k in (0, 1))
    assert (first.origin, other.origin) == ("published", "ours")
    assert len(first.y_train) == len(other.y_train) == 468
    assert set(first.y_train) == set(other.y_test) == {0, 1, 2}
    assert other.digest() == load_fold("survey", "balance-scale", 1).digest()
    assert other.digest() != load_fold("survey", "balance-scale", 2).digest()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda text: text[: len(text) // 2 + 3], ["line", "numbers, expected 5"]),
        (lambda text: "\n".join(text.splitlines()[:-5]), ["hold 620 samples", "has 625"]),
        (lambda text: text.replace("\n", " x\n", 1), ["line 1", "not numbers"]),
        (lambda text: text.replace(" 1\n", " 7\n", 1), ["labels outside 1 … 3"]),
        (lambda text: text.replace("1 ", "nan ", 1), ["not finite"]),
        (lambda text: "", ["is empty"]),
        (lambda text: "é", ["not a text file"]),
    ],
)
def test_damaged_files_are_named(files, damage, words):
    files[0].write_text(damage(files[0].read_text()), encoding="utf8")
    with pytest.raises(UserError) as caught:
        load_fold("survey", "balance-scale", 0)
    assert str(files[0]) in caught.value.message
    assert caught.value.hint
    for word in words:
        assert word in caught.value.message


def test_half_a_fold_is_refused(files):
    shutil.copy(files[0], files[0].with_name("train_balance-scale.1"))
    with pytest.raises(UserError, match=r"test_balance-scale.1 is missing"):
        load_fold("survey", "balance-scale", 1)


def test_missing_data_say_what_to_do(tmp_path, monkeypatch):
    monkeypatch.delenv("GEOSOFTMAX_DATA", raising=False)
    with pytest.raises(UserError, match=r"GEOSOFTMAX_DATA is not set.*--source skordinal"):
        load_fold("survey", "car", 0)
    monkeypatch.setenv("GEOSOFTMAX_DATA", str(tmp_path / "none"))
    with pytest.raises(UserError, match="is not a folder"):
        load_fold("survey", "car", 0)
    monkeypatch.setenv("GEOSOFTMAX_DATA", str(tmp_path))
    with pytest.raises(UserError, match="'car' is missing"):
        load_fold("survey", "car", 0)


def test_unknown_names_are_refused():
    with pytest.raises(UserError, match=r"no set .cars..*balance-scale"):
        load_fold("skordinal", "cars", 0)
    with pytest.raises(UserError, match="no source 'uci'"):
        set_names("uci")


def test_splits_are_stratified_also_with_a_class_of_one():
    y = np.repeat([0, 1, 2, 3], [40, 20, 8, 1])
    train, test = make_split(y, 3)
    assert sorted([*train, *test]) == list(range(len(y)))
    shares = np.bincount(y[train], minlength=4) / np.bincount(y)
    assert np.abs(shares[:3] - 0.75).max() < 0.13  # a sample of the class of eight


@pytest.mark.data
@pytest.mark.parametrize("name", SURVEY)
def test_every_set_is_whole(name):
    data_file("ordinal-regression")
    counts = {}
    for k in range(30):
        fold = load_fold("survey", name, k)
        X = np.vstack([fold.X_train, fold.X_test])
        assert X.shape == (SURVEY[name].samples, SURVEY[name].features)
        both = np.concatenate([fold.y_train, fold.y_test])
        assert np.isin(both, range(fold.classes)).all()
        counts.setdefault(tuple(np.bincount(both)), []).append(k)
    assert len(counts) == 1  # every fold splits the same samples
