"""All that the weights of a run depend on."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from geosoftmax import Cost, GridCost
from geosoftmax_experiments import files
from geosoftmax_experiments.data.drawings import NAMES, Drawings, load_drawings
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.vae.presets import (
    ARCHITECTURES,
    LOSSES,
    OTHER,
    PAPER_P,
    PARTS,
    PRESETS,
    STARTS,
    P,
)

__all__ = ["RunSettings", "derive_seed", "draft_settings", "make_settings", "read_settings",
           "usual_batch", "usual_weights"]  # fmt: skip

#: Raised when runs change their meaning: older folders are then refused.
FORMAT = 1
#: Sets of one's own have as many steps an epoch, but no smaller batches.
LEAST_STEPS, LEAST_BATCH = 15, 8
#: What is chosen by name: what it is called, and what there is.
CHOICES: dict[str, tuple[str, Iterable[str]]] = {
    "loss": ("loss", LOSSES),
    "architecture": ("architecture", ARCHITECTURES),
    "start": ("start", STARTS),
    "on": ("part", PARTS),
}


@dataclass(frozen=True)
class RunSettings:
    """A run. `every` is how many epochs lie between measurements on the part `on` of the data.

    The cost C of the output layer is `scale` times the distance between pixels to the power `p`,
    axis by axis; measurements have the paper's, whatever the run, so that runs can be compared.
    Scores that are smoothed are so by ``exp(-C / smoothing)``. With `anneal` the scale rises to its
    value from a tenth of it, in that share of the epochs. Scores are `gain` times what the decoder
    outputs. With `decay` the learning rate falls to zero along a cosine. `split` is the seed that
    divides the data.

    Values of `p`, `smoothing` and `split` that a file does not say are those of the time when
    nothing else existed.
    """

    data: str
    digest: str
    shape: tuple[int, int]
    loss: str
    weight: float
    seed: int
    epochs: int
    batch: int
    architecture: str
    latent: int
    learning_rate: float
    precision: str
    compile: bool
    start: str
    scale: float
    every: int
    on: str
    gain: float = 1.0
    decay: bool = True
    anneal: float = 0.0
    size: int | None = None
    limit: int | None = None
    invert: bool = False
    p: float = PAPER_P
    smoothing: float = 1.0
    split: int = 0
    format: int = FORMAT

    def __post_init__(self) -> None:
        for name, (noun, known) in CHOICES.items():
            if (value := getattr(self, name)) not in known:
                raise UserError(
                    f"There is no {noun} {value!r}.", f"Take one of {', '.join(known)}."
                )
        for name in ("weight", "learning_rate", "scale", "smoothing", "gain"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                flag = name.replace("_", "-")
                raise UserError(f"--{flag} is {value}.", "Give a positive number.")
        if not 0 < self.p <= 2:
            raise UserError(f"--p is {self.p}.", "Give an exponent above 0, 2 at most.")
        if not 0 <= self.anneal <= 1:
            raise UserError(f"--anneal is {self.anneal}.", "Give a share of the epochs, 0 to 1.")
        for name in ("epochs", "batch", "latent", "every"):
            if getattr(self, name) < 1:
                raise UserError(f"--{name} is {getattr(self, name)}.", "Give at least 1.")
        if self.epochs % self.every:
            raise UserError(
                f"--every {self.every} does not divide --epochs {self.epochs}: the last epoch "
                "would not be measured.",
                f"Take --every {_spacing(self.epochs)}.",
            )

    @property
    def cost(self) -> Cost:
        """The cost between pixels that the output layer has."""
        if self.loss == "paper":
            return self.paper_cost
        return GridCost(self.shape, p=self.p) * self.scale

    @property
    def paper_cost(self) -> Cost:
        """The cost of the paper, which reconstructions are measured with."""
        return GridCost(self.shape, p=PAPER_P) * PRESETS.get(self.data, OTHER).paper_scale

    def load(self) -> Drawings:
        """Read the data again; others than those of the settings are refused."""
        if self.data not in NAMES and not Path(self.data).exists():
            raise UserError(
                f"The run was trained on {self.data!r}, which is not found from here.",
                "Go to the folder where `geosoftmax vae train` was called.",
            )
        found = load_drawings(
            self.data, size=self.size, limit=self.limit, invert=self.invert, seed=self.split
        )
        if found.digest() != self.digest:
            raise UserError(
                f"The data {self.data!r} have changed since the run was made.",
                "Give back the files it was made with, or train again.",
            )
        return found


def make_settings(drawings: Drawings, **options: Any) -> RunSettings:
    """Return the settings of a run, with what is usual for the data where nothing was asked for.

    `options` are those of `draft_settings`.
    """
    train = len(drawings.split().train)
    options |= {"split": drawings.seed, "size": drawings.size, "invert": drawings.invert}
    if options.get("batch") is None and drawings.name not in PRESETS:
        options["batch"] = usual_batch(train)
    settings = draft_settings(drawings.name, drawings.shape, drawings.digest(), **options)
    if train < settings.batch:
        raise UserError(
            f"{drawings.name} has {train} drawings to train on, fewer than a batch of "
            f"{settings.batch}.",
            "Take a smaller --batch.",
        )
    return settings


def draft_settings(
    data: str,
    shape: tuple[int, int] = (0, 0),
    digest: str = "",
    *,
    epochs: int | None = None,
    batch: int | None = None,
    architecture: str | None = None,
    latent: int | None = None,
    every: int | None = None,
    p: float | None = None,
    scale: float | None = None,
    smoothing: float | None = None,
    gain: float | None = None,
    learning_rate: float | None = None,
    **others: Any,
) -> RunSettings:
    """Return settings before the data are read, to refuse at once what can be refused."""
    preset = PRESETS.get(data, OTHER)
    architecture = architecture or ("dcgan" if shape == (64, 64) else "mlp")
    usual = ARCHITECTURES.get(architecture, ARCHITECTURES["mlp"])  # another one is refused below
    count = preset.epochs if epochs is None else epochs
    p = P if p is None else p
    usual_scale = preset.paper_scale if p == PAPER_P else preset.scale
    return RunSettings(
        data=data,
        digest=digest,
        shape=shape,
        epochs=count,
        batch=preset.batch if batch is None else batch,
        architecture=architecture,
        p=p,
        scale=usual_scale if scale is None else scale,
        smoothing=preset.smoothing if smoothing is None else smoothing,
        gain=_first(gain, preset.gain, usual.gain),
        learning_rate=_first(learning_rate, preset.learning_rate, usual.learning_rate),
        latent=usual.latent if latent is None else latent,
        every=_spacing(count, preset.measurements) if every is None else every,
        **others,
    )


def usual_weights(settings: RunSettings) -> tuple[float, ...]:
    """Return the weights of the latent KL that a comparison sweeps."""
    preset = PRESETS.get(settings.data, OTHER)
    return preset.weights or ARCHITECTURES[settings.architecture].weights


def usual_batch(train: int) -> int:
    """Return a batch for one's own drawings: a power of two, at least `LEAST_STEPS` an epoch."""
    most = max(LEAST_BATCH, min(OTHER.batch, train // LEAST_STEPS))
    return min(train, 2 ** (most.bit_length() - 1)) or 1


def _first(*values: float | None) -> float:
    """Return the first value that is one."""
    return next(value for value in values if value is not None)


def read_settings(path: Path) -> RunSettings:
    """Read the settings of a run that `geosoftmax vae train` wrote."""
    try:
        words = files.read_json(path)
        if words["format"] != FORMAT:
            raise UserError(
                f"{path} has format {words['format']}; this geosoftmax reads format {FORMAT}.",
                "Use the geosoftmax that wrote it, or train again.",
            )
        known = {field.name: field.type for field in fields(RunSettings)}
        words = {key: value for key, value in words.items() if key in known}
        words["shape"] = tuple(words["shape"])
        if not all(_fits(value, str(known[key])) for key, value in words.items()):
            raise ValueError("a value is of another type")
        return RunSettings(**words)
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(
            f"{path.parent} is not a run: {path.name} is missing.",
            "Give the folder that `geosoftmax vae train -o FOLDER` wrote.",
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, OSError):
        raise UserError(f"{path} is damaged.", "Train again, into another folder.") from None


def _fits(value: Any, annotation: str) -> bool:
    """Whether a value that was read has the type of its field."""
    if annotation == "tuple[int, int]":
        return len(value) == 2 and all(type(side) is int and side > 0 for side in value)
    if annotation == "float":
        return type(value) in (int, float)
    return type(value).__name__ in annotation.replace("None", "NoneType").split(" | ")


def derive_seed(*parts: object) -> int:
    """Return a seed for one purpose: the same for the same words and numbers, always."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:7], "big")


def _spacing(epochs: int, measurements: int = OTHER.measurements) -> int:
    """Return how many epochs lie between measurements, the last of which is at the end."""
    least = max(1, epochs // measurements)
    return next((n for n in range(least, epochs + 1) if epochs % n == 0), 1)
