"""How long a training step and a prediction take, measured when nothing else is done.

The trainings of a comparison share a GPU: their own times say little. ``timing.json`` has those of
each loss, with the setting that was chosen most often.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from geosoftmax_experiments import files
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.keypoints.comparison import Choices, Comparison, named_setting
from geosoftmax_experiments.keypoints.model import Model
from geosoftmax_experiments.keypoints.steps import Training
from geosoftmax_experiments.keypoints.training import device_of, now
from geosoftmax_experiments.runs import one_thread, progress_bar
from geosoftmax_experiments.store import provenance

__all__ = ["BATCHES", "read_timing", "time_losses"]

#: Rounds, and the training steps of each: losses take turns, since hosts of GPUs are slow for a
#: second or two at times.
ROUNDS, TIMED = 5, 60
#: Frames of a prediction, and the predictions of a round.
BATCHES, REPEATED = (16, 1), 5
#: Steps before the first round.
FIRST = 3


def time_losses(
    comparison: Comparison,
    chosen: Choices,
    console: Console,
    *,
    rounds: int = ROUNDS,
    steps: int = TIMED,
) -> None:
    """Time all losses that are compared, in turns, unless the folder has their times already."""
    settings = {loss: _usual(chosen, loss) for loss in comparison.losses}
    known = {loss: row["setting"] for loss, row in read_timing(comparison.folder).items()}
    if settings.items() <= known.items():
        return
    found: dict[str, dict[str, list[float]]] = {}
    with one_thread(), progress_bar(console) as bar:
        task = bar.add_task("timing", total=(2 * rounds + 1) * len(settings))
        trainings = {}
        for loss, setting in settings.items():
            trainings[loss] = _start(comparison, loss, setting, FIRST + rounds * steps)
            found[loss] = {}
            bar.advance(task)
        for _ in range(rounds):
            for loss, training in trainings.items():
                seconds = _seconds(lambda one=training: one.advance(steps), comparison)[1]
                found[loss].setdefault("step", []).append(1000 * seconds / steps)
                bar.advance(task)
        models = {loss: training.finish() for loss, training in trainings.items()}
        for _ in range(rounds):
            for loss, model in models.items():
                for name, value in _predictions(comparison, model).items():
                    found[loss].setdefault(name, []).append(value)
                bar.advance(task)
    losses = {
        loss: {"setting": settings[loss]}
        | {name: statistics.median(values) for name, values in several.items()}
        for loss, several in found.items()
    }
    words = {"losses": losses, "steps": FIRST + rounds * steps, "on": provenance(), "rounds": found}
    files.write_text(comparison.folder / "timing.json", json.dumps(words, indent=1))


def read_timing(folder: Path) -> dict[str, dict[str, Any]]:
    """Return for each loss its setting, and milliseconds; nothing where nothing was timed.

    ``step`` is a training step; ``network 16`` and ``head 16`` are for a frame of a prediction of
    16, and likewise ``network 1`` and ``head 1``.
    """
    path = folder / "timing.json"
    if not path.exists():
        return {}
    names = ("step", *(f"{part} {batch}" for part in ("network", "head") for batch in BATCHES))
    try:
        found = files.read_json(path)["losses"]
        whole = all(row["setting"] is not None for row in found.values())
        whole &= all(row[name] > 0 for row in found.values() for name in names)
    except (AttributeError, KeyError, TypeError, ValueError, OSError):
        found, whole = {}, False
    if not whole:
        raise UserError(f"{path} is damaged.", "Remove it and run again: it alone is done anew.")
    return found


def _usual(chosen: Choices, loss: str) -> str:
    """Return the setting that was chosen for most sizes and kinds of split."""
    settings = Counter(one.setting for (_, _, name), one in chosen.items() if name == loss)
    return settings.most_common(1)[0][0]


def _start(comparison: Comparison, loss: str, setting: str, steps: int) -> Training:
    """Return a training on all frames, after its first steps."""
    device, frames = device_of(comparison.device), comparison.frames
    head = named_setting(loss, setting)
    model = Model(loss, head, comparison.shape, frames.parts, comparison.recipe.width).to(device)
    pictures = torch.from_numpy(frames.pictures).to(device)
    places = torch.from_numpy(frames.to_grid(comparison.shape)).to(device, torch.float32)
    recipe = replace(comparison.recipe, steps=steps)
    training = Training(model, pictures, places, recipe, seed=0)
    training.advance(FIRST)
    return training


@torch.no_grad()
def _predictions(comparison: Comparison, model: Model) -> dict[str, float]:
    """Return milliseconds a frame of network and head."""
    device, found = device_of(comparison.device), {}
    for batch in BATCHES:
        frames = torch.from_numpy(comparison.frames.pictures[:batch]).to(device) / 255
        maps = model(frames)
        model.head.alpha(maps)  # kernels compile
        seconds: dict[str, list[float]] = {"network": [], "head": []}
        for _ in range(REPEATED):
            maps, network = _seconds(lambda frames=frames: model(frames), comparison)
            _, head = _seconds(lambda maps=maps: model.head.alpha(maps), comparison)
            seconds["network"].append(network)
            seconds["head"].append(head)
        for name, values in seconds.items():
            found[f"{name} {batch}"] = 1000 * statistics.median(values) / len(frames)
    return found


def _seconds(do: Callable[[], Tensor], comparison: Comparison) -> tuple[Tensor, float]:
    """Return what a function returns, and the seconds until the device has it."""
    device = device_of(comparison.device)
    start = now(device)
    value = do()
    return value, now(device) - start
