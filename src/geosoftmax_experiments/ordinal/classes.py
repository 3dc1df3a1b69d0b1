"""The classes of a target: their names, their order, and the position of each sample's."""

from __future__ import annotations

import csv
import difflib
import io
import shlex
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

from geosoftmax_experiments import cells
from geosoftmax_experiments.cells import listed
from geosoftmax_experiments.errors import UserError

__all__ = ["MOST_CLASSES", "notes_on_classes", "read_classes"]

#: A target with more values than this is not a set of classes.
MOST_CLASSES = 50


def read_classes(
    target: pd.Series, order: Sequence[str] | None, decimal: str = "."
) -> tuple[list[Any], np.ndarray]:
    """Return the classes in their order, and the position of each sample's; -1 where it is missing.

    The order is the one given; else that of an ordered categorical column; else that of numbers.
    Empty cells are missing. NA, None and null are classes, unless all others are numbers and the
    order does not name them. Classes are called as in the order, else as in the table: 01 is not 1.
    """
    text = cells.words(target)
    found = list(dict.fromkeys(text.dropna()))
    named = [*(order or ())]
    rest = [word for word in found if word.lower() not in cells.NO_VALUE or word in named]
    if rest and not any(isinstance(key, str) for key in _keys(rest, decimal).values()):
        found = rest
    keys = _keys([*found, *named], decimal)
    if len(found) > MOST_CLASSES:
        raise UserError(
            f"The target {target.name!r} has {len(found)} values, which are not classes.",
            "Round or bin it to a few ordered classes first.",
        )
    if order is not None:
        classes = _given_order(target, found, named, keys)
    elif isinstance(target.dtype, pd.CategoricalDtype) and target.dtype.ordered:
        keys = {word: word for word in map(str, target.dtype.categories)}
        classes = list(keys)
    elif not any(isinstance(keys[word], str) for word in found):
        classes = sorted({keys[word] for word in found})
    else:
        raise UserError(
            f"The order of the target's values is not known: {listed(found, MOST_CLASSES)}.",
            f"{_differ_in_case(found)}Give it from low to high, separated by commas, as in "
            f"--order {_as_option(found) if _need_quotes(found) else 'bad,fair,good'}",
        )
    place = {word: classes.index(keys[word]) for word in found}
    y = text.map(place).fillna(-1).to_numpy(dtype=int)
    if types.is_numeric_dtype(target.dtype):
        return classes, y
    return _called(classes, [*named, *found], keys), y


def _keys(found: Any, decimal: str) -> dict[str, Any]:
    """Return what words stand for: all truth values, all numbers, or themselves."""
    text = pd.Series(sorted(set(found)), dtype=object)
    values, wrong = cells.numbers(text, decimal)
    if wrong.any() or values.isna().any() or np.isinf(values).any():
        return {word: word for word in text}
    if text.str.lower().isin(("true", "false")).all():
        return {word: word.lower() == "true" for word in text}
    return {w: int(v) if v == int(v) else v for w, v in zip(text, values.tolist(), strict=True)}


def _called(classes: list[Any], words: list[str], keys: dict[str, Any]) -> list[Any]:
    """Return the first word of each class; as numbers or truths where these are written so."""
    names: dict[Any, str] = {}
    for word in words:
        names.setdefault(keys[word], word)
    called = [names.get(key, key) for key in classes]
    one_kind = len({type(key) for key in classes}) == 1  # 1 among 1.5 would be written as 1.0
    return classes if one_kind and called == list(map(str, classes)) else called


def _given_order(
    target: pd.Series, found: list[str], order: list[str], keys: dict[str, Any]
) -> list[Any]:
    classes = [keys[word] for word in order]
    if len(set(classes)) < len(classes):
        raise UserError(f"--order names a class twice: {listed(order, 50)}.", "Name each once.")
    unknown = [word for word in found if keys[word] not in classes]
    if unknown:
        unused = [word for word in order if keys[word] not in {keys[other] for other in found}]
        raise UserError(
            f"The target {target.name!r} holds {listed(unknown)}, which --order does not name.",
            f"{_misspelt(unknown, unused)}{_differ_in_case([*order, *unknown])}"
            "Name all classes, from low to high; empty the cells that are missing values.",
        )
    return classes


# ------------------------------------------------------------------ notes and hints


def notes_on_classes(
    target: pd.Series, classes: list[Any], y: np.ndarray, order: Sequence[str] | None, decimal: str
) -> list[str]:
    """Say which cells count as missing or as another class, and where distances do not count."""
    notes = []
    text = cells.words(target)
    first = (text.notna() & ~text.duplicated()).to_numpy()
    missing = [word for word, k in zip(text[first], y[first], strict=True) if k < 0]
    if missing:
        notes.append(
            f"In {target.name!r}, {listed(missing)} counts as a missing value: "
            f"--order {_as_option([*map(str, classes), *missing])} makes it a class."
        )
    called = {
        word: str(classes[k]) for word, k in zip(text[first], y[first], strict=True) if k >= 0
    }
    other = [f"{word} as {name}" for word, name in called.items() if word != name]
    if other and not types.is_numeric_dtype(target.dtype):
        notes.append(f"In {target.name!r}, cells of one number are one class: {listed(other)}.")
    values, wrong = cells.numbers(pd.Series(list(map(str, classes)), dtype=object), decimal)
    uneven = len(np.unique(np.round(np.diff(values), 9))) > 1
    if order is None and uneven and not wrong.any():
        notes.append(
            f"The classes {listed(classes)} are at uneven distances. Their order counts, not their "
            "values: errors are counted in ranks."
        )
    return notes


def _need_quotes(words: Sequence[str]) -> bool:
    return any("," in word for word in words)


def _as_option(words: Sequence[str]) -> str:
    """Return words as the shell and `read_names` take them: with quotes where they have commas."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(words)
    return shlex.quote(listed([line.getvalue()]))


def _misspelt(unknown: list[str], unused: list[str]) -> str:
    """Ask about words that resemble classes without samples."""
    near = {word: difflib.get_close_matches(word, unused, 1, 0.7) for word in unknown}
    return "".join(
        f"Did you mean {listed([word])} by {listed(found)} in --order? "
        for word, found in near.items()
        if found
    )


def _differ_in_case(words: list[str]) -> str:
    """Ask about words that are written in large and in small letters."""
    small: dict[str, list[str]] = {}
    for word in dict.fromkeys(words):
        small.setdefault(word.casefold(), []).append(word)
    alike = [" and ".join(several) for several in small.values() if len(several) > 1]
    return f"Did you mean the same by {listed(alike)}? Write it in one way. " if alike else ""
