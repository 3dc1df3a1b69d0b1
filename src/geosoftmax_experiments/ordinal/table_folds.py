"""Folds of one's own tables, to compare models on."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from rich.console import Console

from geosoftmax_experiments.data.ordinal import Fold, make_split
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.ordinal.encoding import Encoder
from geosoftmax_experiments.ordinal.options import CompareOptions
from geosoftmax_experiments.ordinal.samples import Samples, read_samples

__all__ = ["read_folds"]


def read_folds(
    tables: list[tuple[Path, str, tuple[str, ...] | None]],
    options: CompareOptions,
    count: int,
    console: Console,
) -> list[Fold]:
    """Read tables, say what was guessed, and split each into `count` folds."""
    folds: dict[str, list[Fold]] = {}
    for path, target, order in tables:
        samples = read_samples(
            path, target, order=order, ignore=options.no_features, form=options.form,
            missing=options.missing or "refuse",
        )  # fmt: skip
        for note in samples.notes:
            console.print(f"{path.name}: {note}", markup=False, highlight=False, soft_wrap=True)
        name = re.sub(r"[^\w-]+", "-", path.stem).strip("-") or "table"  # for names of files
        if name in folds:
            raise UserError(f"Two tables are called {name}.", "Rename one of them.")
        _check_sizes(path, samples, options.inner)
        folds[name] = [_fold(name, samples, k) for k in range(count)]
    return [fold for several in folds.values() for fold in several]


def _check_sizes(path: Path, samples: Samples, inner: int) -> None:
    """Refuse tables that cannot be split into test, inner folds, and the rest."""
    classes = len(np.unique(samples.y))
    if np.sort(np.bincount(samples.y))[-2] < 2 * inner or len(samples.y) < 4 * classes:
        raise UserError(
            f"{path} has too few samples to be split: {len(samples.y)} of {classes} classes.",
            f"Two classes need {2 * inner} samples or more, and all together {4 * classes}.",
        )


def _fold(name: str, samples: Samples, number: int) -> Fold:
    """Return a seeded split; categories and medians are learnt from its training part."""
    train, test = make_split(samples.y, number)
    encoder = Encoder(samples.columns).fit(samples.X.iloc[train])
    seen, held = (encoder.transform(samples.X.iloc[rows]) for rows in (train, test))
    y = samples.y
    return Fold(name, number, "ours", len(samples.classes), seen, y[train], held, y[test])
