"""Ordinal data sets with their folds.

Two sources. ``survey``: the 17 real sets of Gutiérrez et al., *Ordinal regression methods: survey
and experimental study* (2016), in their own files, ``<name>/matlab/{train,test}_<name>.<fold>``:
numbers separated by blanks, the label last, from 1 on. Folds that are published are read; the
others are made from fold 0 (train and test together are the whole set) as seeded, stratified splits
of 75 to 25, and say that they are ours. ``skordinal``: the sets that come with that package, with
folds of ours.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import train_test_split

from geosoftmax_experiments.data import data_folder
from geosoftmax_experiments.errors import UserError

__all__ = ["PUBLISHED_FOLDS", "SOURCES", "Fold", "Shape", "load_fold", "make_split", "set_names"]

#: How many folds the survey made for each set.
PUBLISHED_FOLDS = 30


class Shape(NamedTuple):
    """What a complete set holds: files that do not are refused."""

    samples: int
    features: int
    classes: int


#: The files of the survey.
SURVEY_URL = "http://www.uco.es/grupos/ayrna/ucobigfiles/datasets-orreview.zip"
SURVEY = {
    "automobile": Shape(205, 71, 6),
    "balance-scale": Shape(625, 4, 3),
    "bondrate": Shape(57, 37, 5),
    "car": Shape(1728, 21, 4),
    "contact-lenses": Shape(24, 6, 3),
    "ERA": Shape(1000, 4, 9),
    "ESL": Shape(488, 4, 9),
    "eucalyptus": Shape(736, 91, 5),
    "LEV": Shape(1000, 4, 5),
    "newthyroid": Shape(215, 5, 3),
    "pasture": Shape(36, 25, 3),
    "squash-stored": Shape(52, 51, 3),
    "squash-unstored": Shape(52, 52, 3),
    "SWD": Shape(1000, 10, 4),
    "tae": Shape(151, 54, 3),
    "toy": Shape(300, 2, 5),
    "winequality-red": Shape(1599, 11, 6),
}
SKORDINAL = {
    "balance-scale": "load_balance_scale",
    "ERA": "load_era",
    "ESL": "load_esl",
    "LEV": "load_lev",
    "SWD": "load_swd",
}


@dataclass(frozen=True)
class Fold:
    """One split of one set. Labels are 0, 1, …, `classes` - 1."""

    name: str
    number: int
    origin: str  # "published" or "ours"
    classes: int
    X_train: np.ndarray
    y_train: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray

    def digest(self) -> str:
        """Return a short fingerprint of the numbers, to know the same data again."""
        found = hashlib.sha256()
        for array in (self.X_train, self.y_train, self.X_test, self.y_test):
            found.update(np.ascontiguousarray(array, dtype=np.float64).tobytes())
        return found.hexdigest()[:12]


def set_names(source: str) -> list[str]:
    """Return the names of the sets of a source, ``"survey"`` or ``"skordinal"``."""
    if source not in SOURCES:
        raise UserError(f"There is no source {source!r}.", f"Take one of {', '.join(SOURCES)}.")
    return list(SURVEY if source == "survey" else SKORDINAL)


def load_fold(source: str, name: str, number: int) -> Fold:
    """Read fold `number` (from 0) of a set, or make it where it is not published."""
    names = set_names(source)
    if name not in names:
        raise UserError(
            f"The source {source!r} has no set {name!r}.", f"Take some of {', '.join(names)}."
        )
    return SOURCES[source](name, number)


def make_split(y: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of a seeded, stratified 75/25 split: train and test.

    A class with a single sample is stratified together with its neighbour.
    """
    strata, counts = y.copy(), np.bincount(y)
    for label in np.flatnonzero(counts == 1):
        present = np.flatnonzero(counts > 1)
        strata[y == label] = present[np.abs(present - label).argmin()]
    train, test = train_test_split(
        np.arange(len(y)), test_size=0.25, random_state=number, stratify=strata
    )
    return np.asarray(train), np.asarray(test)


# ------------------------------------------------------------------ the survey's files


def _survey_fold(name: str, number: int) -> Fold:
    hint = (
        f"Let it name the folder that holds ordinal-regression/, unpacked from {SURVEY_URL}; or "
        "take the sets that need no download: --source skordinal."
    )
    folder = data_folder(hint) / "ordinal-regression" / name / "matlab"
    if not folder.is_dir():
        raise UserError(
            f"The set {name!r} is missing: there is no folder {folder}.",
            f"Unpack {SURVEY_URL} there.",
        )
    published = any((folder / f"{part}_{name}.{number}").exists() for part in ("train", "test"))
    X, y, size = _read_pair(folder, name, number if published else 0)
    if published:
        train, test = np.arange(size), np.arange(size, len(y))
    else:
        train, test = make_split(y, number)
    origin = "published" if published else "ours"
    classes = SURVEY[name].classes
    return Fold(name, number, origin, classes, X[train], y[train], X[test], y[test])


def _read_pair(folder: Path, name: str, number: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Return features and labels of both files, and how many samples are for training."""
    paths = [folder / f"{part}_{name}.{number}" for part in ("train", "test")]
    (X_train, y_train), (X_test, y_test) = (_read_file(path, SURVEY[name]) for path in paths)
    found, expected = len(y_train) + len(y_test), SURVEY[name].samples
    if found != expected:
        raise UserError(
            f"{paths[0]} and {paths[1].name} hold {found} samples; the set {name!r} has "
            f"{expected}.",
            "A file is truncated, or of another set: unpack it again.",
        )
    return np.vstack([X_train, X_test]), np.concatenate([y_train, y_test]), len(y_train)


def _read_file(path: Path, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Return features and labels (from 0 on) of one file, checked."""
    again = "The file is damaged or truncated: unpack it again."
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        raise UserError(f"{path} is missing.", "A fold needs both files, train and test.") from None
    except (UnicodeDecodeError, OSError):
        raise UserError(f"{path} is not a text file.", again) from None
    rows = []
    for k, line in enumerate(lines, start=1):
        try:
            row = [float(word) for word in line.split()]
        except ValueError:
            raise UserError(f"{path}, line {k}: not numbers.", again) from None
        if len(row) != shape.features + 1:
            raise UserError(
                f"{path}, line {k}: {len(row)} numbers, expected {shape.features + 1} "
                f"({shape.features} features and the label).",
                again,
            )
        rows.append(row)
    if not rows:
        raise UserError(f"{path} is empty.", again)
    table = np.array(rows)
    if not np.isfinite(table).all():
        raise UserError(f"{path} holds numbers that are not finite.", again)
    labels = table[:, -1]
    if not np.isin(labels, np.arange(1, shape.classes + 1)).all():
        raise UserError(f"{path} holds labels outside 1 … {shape.classes}.", again)
    return table[:, :-1], labels.astype(int) - 1


# ------------------------------------------------------------------ sets that skordinal brings


def _skordinal_fold(name: str, number: int) -> Fold:
    datasets: Any = importlib.import_module("skordinal.datasets")
    X, y = getattr(datasets, SKORDINAL[name])(return_X_y=True)
    y = y.astype(int)
    train, test = make_split(y, number)
    X = np.asarray(X, dtype=np.float64)
    return Fold(name, number, "ours", int(y.max()) + 1, X[train], y[train], X[test], y[test])


SOURCES: dict[str, Callable[[str, int], Fold]] = {
    "survey": _survey_fold,
    "skordinal": _skordinal_fold,
}
