"""Blind judging: a person says which reconstruction is nearest to each drawing.

`write_sheets` draws test drawings, each beside what the layers of a comparison make of it, at about
equal rate. The layers are in an order of their own on every line, and named A, B, C, …; the orders
are in ``key.json``, which the person who judges does not open. `count_answers` reads the letters
that were chosen and counts them by layer.
"""

from __future__ import annotations

import json
import math
import string
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from torch import Tensor

from geosoftmax_experiments import files
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.report import save
from geosoftmax_experiments.vae.comparing import Run
from geosoftmax_experiments.vae.layers import LAYERS
from geosoftmax_experiments.vae.pictures import LINE, black_from, open_run, reconstructions
from geosoftmax_experiments.vae.settings import derive_seed

__all__ = ["chance_of", "count_answers", "write_sheets"]

#: Lines of a sheet: few enough that every drawing is large.
LINES = 5
KEY = "key.json"


def write_sheets(comparison: Path, folder: Path, count: int, seed: int) -> list[Path]:
    """Draw `count` test drawings on sheets of a few lines each; return their paths.

    The layers are shown at the weights of the comparison's own pictures, the first seed. Drawings
    that those show, with the names of the layers, are left out. Each comparison has other orders.
    """
    weights = _weights(comparison)
    made = {}
    for loss, weight in weights.items():
        run = open_run(comparison / "runs" / Run(loss, weight, 0).key)
        drawings, made[loss] = (
            shown[LINE:] for shown in reconstructions(run, LINE + count).values()
        )
    if len(drawings) < count:
        raise UserError(
            f"There are only {len(drawings)} test drawings that no picture shows.", "Ask for fewer."
        )
    rng = np.random.default_rng(derive_seed(seed, "blind", run.settings.digest, weights))
    orders = [list(rng.permutation(list(weights))) for _ in range(count)]
    sheets = []
    for first in range(0, count, LINES):
        lines = range(first, min(first + LINES, count))
        sheets.append(folder / f"sheet-{first // LINES + 1:02d}.png")
        save(_draw(drawings, made, orders, lines), sheets[-1])
    key = {
        "weights": weights,
        "seed": seed,
        "first": LINE,
        "orders": [list(map(str, o)) for o in orders],
    }
    files.write_text(folder / KEY, json.dumps(key, indent=1))
    return sheets


def count_answers(folder: Path, answers: Path) -> tuple[pd.DataFrame, float]:
    """Return how often each layer was chosen, and the probability of counts as uneven by chance.

    `answers` is a text file with a line for each drawing: its number and a letter, as in ``3 B``.
    """
    orders = _key(folder)["orders"]
    chosen = _read_answers(answers, len(orders), len(orders[0]))
    losses = [order[letter] for order, letter in zip(orders, chosen, strict=True)]
    counts = {loss: losses.count(loss) for loss in LAYERS if loss in orders[0]}
    table = pd.DataFrame(
        {
            "layer": [LAYERS[loss].label for loss in counts],
            "chosen": list(counts.values()),
            "share": [f"{n / len(losses):.0%}" for n in counts.values()],
        }
    )
    return table, chance_of(list(counts.values()))


def chance_of(counts: list[int]) -> float:
    """Return the probability of counts that are at least as uneven, if all layers were alike.

    Uneven as the chi-squared statistic measures it, by the sum of squares. The probability is
    exact: a chi-squared distribution is no guide to tails as far out as those of clear answers.
    """
    total, layers = sum(counts), len(counts)
    uneven = sum(count**2 for count in counts)
    ways = 0
    for parts in _partitions(total, layers, total):
        if sum(part**2 for part in parts) >= uneven:
            orders = math.factorial(layers)
            for times in Counter(parts).values():
                orders //= math.factorial(times)
            ways += orders * math.factorial(total) // math.prod(map(math.factorial, parts))
    return ways / layers**total


def _partitions(total: int, parts: int, largest: int) -> Iterator[tuple[int, ...]]:
    """Yield all ways to write a number as a sum of so many parts, none above the one before."""
    if parts == 0:
        if total == 0:
            yield ()
        return
    for first in range(min(total, largest), -1, -1):
        for rest in _partitions(total - first, parts - 1, first):
            yield (first, *rest)


def _weights(comparison: Path) -> dict[str, float]:
    path = comparison / "results.json"
    try:
        found = files.read_json(path)["pictures_at_weight"]
        return {loss: float(found[loss]) for loss in LAYERS if loss in found}
    except FileNotFoundError:
        hint = "Give the folder that `geosoftmax vae compare` wrote, once it is done."
        raise UserError(f"{path} is missing.", hint) from None
    except (AttributeError, KeyError, TypeError, ValueError, OSError):
        raise UserError(f"{path} is damaged.", "Compare again: runs are kept.") from None


def _key(folder: Path) -> Any:
    path = folder / KEY
    try:
        key = files.read_json(path)
        if all(set(order) == set(key["orders"][0]) <= LAYERS.keys() for order in key["orders"]):
            return key
    except FileNotFoundError:
        raise UserError(
            f"{path} is missing.", "Draw the sheets first, without --answers."
        ) from None
    except (IndexError, KeyError, TypeError, ValueError, OSError):
        pass
    raise UserError(f"{path} is damaged.", "Draw the sheets again.")


def _read_answers(path: Path, count: int, layers: int) -> list[int]:
    """Return which letter was chosen for each drawing."""
    letters = string.ascii_uppercase[:layers]
    example = "Write a line for each drawing: its number and a letter, as in `3 B`."
    try:
        lines = [line.split() for line in path.read_text(encoding="utf8").splitlines()]
        pairs = [(int(number), letters.index(letter)) for number, letter in filter(None, lines)]
    except FileNotFoundError:
        raise UserError(f"{path} is missing.", example) from None
    except (OSError, ValueError):
        raise UserError(f"{path} has a line that is no number and letter.", example) from None
    if sorted(number for number, _ in pairs) != list(range(1, count + 1)):
        raise UserError(f"{path} has not one line for each of the {count} drawings.", example)
    return [letter for _, letter in sorted(pairs)]


def _draw(
    drawings: Tensor, made: dict[str, Tensor], orders: list[list[str]], lines: range
) -> Figure:
    columns = 1 + len(made)
    figure, axes = plt.subplots(
        len(lines), columns, figsize=(1.9 * columns, 1.95 * len(lines) + 0.2),
        squeeze=False, layout="constrained",
    )  # fmt: skip
    for row, line in zip(axes, lines, strict=True):
        shown = [drawings[line], *(made[loss][line] for loss in orders[line])]
        names = [f"drawing {line + 1}", *string.ascii_uppercase[: len(made)]]
        for axis, picture, name in zip(row, shown, names, strict=True):
            axis.imshow(picture.numpy(), cmap="gray_r", vmin=0.0, vmax=black_from(picture))
            axis.set_title(name, fontsize=9)
            axis.set_xticks([])
            axis.set_yticks([])
    return figure
