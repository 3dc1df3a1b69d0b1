"""A comparison of losses as a run: settings are chosen on inner splits, then measured on tests.

First come the *trials*: each setting of each loss, once for each training size and kind of split,
on the training frames of split 0 alone. The setting and the decoder of least mean error there are
fixed. Then come the *tests*: the chosen setting on every split and seed. Both keep all that was
predicted, so that measures need no further training.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console

from geosoftmax import __version__
from geosoftmax_experiments.data.keypoints import Frames
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.keypoints.losses import LOSSES, Setting, setting_name
from geosoftmax_experiments.keypoints.model import Recipe
from geosoftmax_experiments.keypoints.splits import KINDS, Split, inner_split, make_split
from geosoftmax_experiments.keypoints.training import device_of, predict, train
from geosoftmax_experiments.runs import Backend, Unit, run
from geosoftmax_experiments.store import Store, versions

__all__ = ["Choices", "Chosen", "Comparison", "Results", "Test", "Trial", "named_setting"]

#: Raised when results change their meaning: older folders are then refused.
FORMAT = 1


class Shared(NamedTuple):
    """What all units need."""

    frames: Frames
    shape: tuple[int, int]
    recipe: Recipe
    device: str


class Chosen(NamedTuple):
    """What the trials of a loss have settled: the name of its setting, and a decoder."""

    setting: str
    decoder: str
    error: float


Choices = dict[tuple[str, int, str], Chosen]


class Results(NamedTuple):
    """What was measured.

    Attributes
    ----------
    chosen : dict of Chosen
        By kind of split, size and loss.
    tests, inner : DataFrame
        A row for each point of each test, by the chosen decoder, and of the chosen trials.
    decoders : DataFrame
        The mean test error by every decoder, not only the chosen one.
    """

    chosen: Choices
    tests: pd.DataFrame
    inner: pd.DataFrame
    decoders: pd.DataFrame


@dataclass(frozen=True)
class Trial(Unit):
    """A setting of a loss on the inner split."""

    kind: str
    size: int
    loss: str
    setting: str

    @property
    def key(self) -> str:
        """The name of its result."""
        return f"trial.{self.kind}.{self.size}.{self.loss}.{self.setting}"

    def work(self, shared: Shared) -> dict[str, Any]:
        """Train and predict."""
        split = inner_split(len(shared.frames), self.size, self.kind)
        return _measure(shared, split, self.loss, named_setting(self.loss, self.setting), 0)


@dataclass(frozen=True)
class Test(Unit):
    """The chosen setting of a loss on a split."""

    __test__ = False  # pytest: this is none of its classes

    kind: str
    size: int
    split: int
    seed: int
    loss: str
    setting: str

    @property
    def key(self) -> str:
        """The name of its result."""
        parts = (self.kind, self.size, self.split, self.seed, self.loss, self.setting)
        return ".".join(["test", *map(str, parts)])

    def work(self, shared: Shared) -> dict[str, Any]:
        """Train and predict."""
        split = make_split(len(shared.frames), self.size, self.kind, self.split)
        seed = 1 + 1000 * self.split + self.seed
        return _measure(shared, split, self.loss, named_setting(self.loss, self.setting), seed)


def named_setting(loss: str, name: str) -> Setting:
    """Return a setting of a loss by its name, which files have: numbers change with the table."""
    return next(one for one in LOSSES[loss][1] if setting_name(one) == name)


def _measure(
    shared: Shared, split: Split, loss: str, setting: Setting, seed: int
) -> dict[str, Any]:
    frames, shape, recipe, name = shared
    device = device_of(name)
    places = frames.to_grid(shape)
    start = time.perf_counter()
    model = train(
        frames.pictures[split.train],
        places[split.train],
        shape,
        loss,
        setting,
        recipe,
        seed=seed,
        device=device,
    )
    seconds = time.perf_counter() - start
    found = predict(model, frames.pictures[split.test], device)
    sizes = frames.sizes[split.test][:, None]
    pixel = np.sqrt((sizes / np.asarray(shape)).prod(-1))  # of the maps, in those of the labels
    points = {
        decoder: (value + 0.5) * sizes / np.asarray(shape) - 0.5
        for decoder, value in found.points.items()
    }
    return {
        "frames": split.test.tolist(),
        "points": {decoder: _rounded(value) for decoder, value in points.items()},
        "spread": _rounded(found.spread * pixel),
        "entropy": _rounded(found.entropy),
        "likelihood": _rounded(found.likelihood),
        "seconds": seconds,
        "milliseconds": found.milliseconds,
    }


def _rounded(values: np.ndarray) -> list[Any]:
    return np.round(values, 4).tolist()


@dataclass(frozen=True)
class Comparison:
    """What is asked for."""

    folder: Path
    frames: Frames
    shape: tuple[int, int]
    recipe: Recipe
    losses: tuple[str, ...]
    kinds: tuple[str, ...]
    sizes: tuple[int, ...]
    splits: int
    seeds: int
    most_settings: int
    device: str

    def __post_init__(self) -> None:
        for what, known, asked in (
            ("loss", LOSSES, self.losses),
            ("kind of split", KINDS, self.kinds),
        ):
            for name in asked:
                if name not in known:
                    raise UserError(f"There is no {what} {name!r}.", f"Take {', '.join(known)}.")
        if not (self.losses and self.kinds and self.sizes and self.splits > 0 and self.seeds > 0):
            raise UserError("Nothing is to be compared.", "Name losses, kinds, sizes and splits.")

    @property
    def store(self) -> Store:
        """The results of the folder: they depend on data and recipe, not on what is asked for."""
        settings = {
            "format": FORMAT,
            "digest": self.frames.digest(),
            "shape": self.shape,
            "recipe": asdict(self.recipe),
            "versions": {"geosoftmax": __version__, **versions("torch", "numpy")},
        }
        return Store(self.folder, settings, beside=("timing.json",))

    def trials(self) -> list[Trial]:
        """Return the trials, setting by setting, so that a part of the work covers all losses."""
        return [
            Trial(kind, size, loss, setting_name(LOSSES[loss][1][k]))
            for k in range(self.most_settings)
            for kind in self.kinds
            for size in self.sizes
            for loss in self.losses
            if k < len(LOSSES[loss][1])
        ]

    def tests(self, chosen: Choices) -> list[Test]:
        """Return the tests, split by split, once the trials are done."""
        return [
            Test(kind, size, split, seed, loss, chosen[kind, size, loss].setting)
            for seed in range(self.seeds)
            for split in range(self.splits)
            for kind in self.kinds
            for size in self.sizes
            for loss in self.losses
        ]

    def run(self, store: Store, backend: Backend, console: Console) -> None:
        """Do what is missing."""
        shared = Shared(self.frames, self.shape, self.recipe, self.device)
        run(store, self.trials(), shared, backend, console, doing="choosing settings")
        tests = self.tests(self.chosen(store))
        run(store, tests, shared, backend, console, doing="testing")

    def chosen(self, store: Store) -> Choices:
        """Return the setting and decoder of least mean error on the inner split, for each loss."""
        best: Choices = {}
        for trial in self.trials():
            result = store.read(trial.key, _is_whole)
            for decoder in result["points"]:
                error = float(np.nanmean(self._errors(result, decoder)))
                key = (trial.kind, trial.size, trial.loss)
                if key not in best or error < best[key].error:
                    best[key] = Chosen(trial.setting, decoder, error)
        return best

    def results(self, store: Store) -> Results:
        """Read all that was measured."""
        chosen = self.chosen(store)
        tests, inner, decoders = [], [], []
        for unit in self.tests(chosen):
            result, of = store.read(unit.key, _is_whole), asdict(unit)
            tests.append(self._table(result, chosen[unit.kind, unit.size, unit.loss], of))
            for decoder in result["points"]:
                error = float(np.nanmean(self._errors(result, decoder)))
                decoders.append({**of, "decoder": decoder, "error": error})
        for (kind, size, loss), choice in chosen.items():
            unit = Trial(kind, size, loss, choice.setting)
            inner.append(self._table(store.read(unit.key, _is_whole), choice, asdict(unit)))
        return Results(chosen, _present(tests), _present(inner), pd.DataFrame(decoders))

    def _table(
        self, result: dict[str, Any], choice: Chosen, others: dict[str, Any]
    ) -> pd.DataFrame:
        errors = self._errors(result, choice.decoder)
        n, parts = errors.shape
        columns = {name: np.ravel(result[name]) for name in ("spread", "entropy", "likelihood")}
        others = others | {
            "setting": choice.setting,
            "decoder": choice.decoder,
            "seconds": result["seconds"],
            "network_ms": result["milliseconds"]["network"],
            "head_ms": result["milliseconds"]["head"],
        }
        return pd.DataFrame(
            {
                **others,
                "frame": np.repeat(result["frames"], parts),
                "point": list(self.frames.labels.parts) * n,
                "error": errors.ravel(),
                **columns,
            }
        )

    def _errors(self, result: dict[str, Any], decoder: str) -> np.ndarray:
        true = self.frames.labels.points[np.asarray(result["frames"])]
        return np.linalg.norm(np.asarray(result["points"][decoder]) - true, axis=-1)


def _present(tables: list[pd.DataFrame]) -> pd.DataFrame:
    """Return the rows of points that are labelled."""
    rows: Any = pd.concat(tables, ignore_index=True)
    return rows[rows["error"].notna()].reset_index(drop=True)


def _is_whole(result: Any) -> bool:
    shape = np.shape(result["spread"])
    return (
        len(result["frames"]) == shape[0]
        and all(np.shape(value) == (*shape, 2) for value in result["points"].values())
        and all(np.shape(result[name]) == shape for name in ("entropy", "likelihood"))
        and result["seconds"] > 0
        and {"network", "head"} <= result["milliseconds"].keys()
    )
