"""From a stack to a table of positions, some frames at a time."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.runs import Backend, Unit, one_thread
from geosoftmax_experiments.superres.brightness import ENOUGH, learn
from geosoftmax_experiments.superres.emitters import (
    Settings,
    guess_background,
    guess_noise,
    guess_threshold,
    localise,
)
from geosoftmax_experiments.superres.measures import model
from geosoftmax_experiments.superres.psf import Psf
from geosoftmax_experiments.superres.rivals import METHODS
from geosoftmax_experiments.superres.windows import Windows

__all__ = [
    "Batch",
    "choose_settings",
    "find_emitters",
    "make_batches",
    "number_emitters",
    "usual_jobs",
]

#: Pixels of frames that move together: what fits the cache of a core, or fills a GPU.
PIXELS = {"cpu": 8 * 64**2, "cuda": 512 * 64**2}
#: Frames from which the threshold is guessed, spread over the stack.
GLANCE = 256
#: Frames from which the brightness of emitters is learnt, spread over the stack.
PILOT = 16


def choose_settings(
    frames: np.ndarray,
    psf: Psf,
    *,
    threshold: float | None = None,
    base: float = 0.0,
    background: float | None = None,
    alike: bool | None = None,
    device: str = "cpu",
) -> Settings:
    """Check that the point-spread function fits the frames, and set what was left open.

    `threshold` is guessed by default. Whether emitters are `alike` is by default what some frames
    show; their brightness is learnt from those.
    """
    side, sigma = min(frames.shape[1:]), psf.sigma
    if not 0.3 <= sigma <= side / 6:
        raise UserError(
            f"The point-spread function has a standard deviation of {sigma:.3g} pixels, on frames "
            f"of {frames.shape[1]} x {frames.shape[2]}.",
            "It must be at least 0.3 pixels and fit six times into a frame: check --psf and "
            "--pixel.",
        )
    some = torch.from_numpy(_spread_over(frames, GLANCE)).to(torch.float32)
    if threshold is None:
        threshold = guess_threshold(some, guess_background(some), psf)
    settings = Settings(psf=psf, threshold=threshold, base=base, noise=guess_noise(some, psf))
    if alike is False:
        return settings
    pilot = Windows(_on_device(_spread_over(frames, PILOT), device), sigma).pixels
    with one_thread() if device == "cpu" else contextlib.nullcontext():
        brightness = learn(localise(pilot, _level(pilot, background), settings)[0], psf)
    if alike and brightness is None:
        raise UserError(
            f"--alike needs {ENOUGH} emitters that stand alone, in {PILOT} frames.",
            "Leave it out: emitters are too few, or too crowded, to learn how bright they are.",
        )
    if alike is None and not (brightness and brightness.alike):
        return settings
    return dataclasses.replace(settings, brightness=brightness)


@dataclass(frozen=True)
class Batch(Unit):
    """Some frames of a stack, localised together.

    A photon makes `gain` counts. `background` in counts is where the fit of each frame's background
    starts; by default a low percentile of the frame.
    """

    start: int
    stop: int
    settings: Settings
    method: str
    pixel: float
    gain: float = 1.0
    background: float | None = None
    device: str = "cpu"

    @property
    def key(self) -> str:
        """The name of its result."""
        return f"frames-{self.start:07d}"

    def work(self, shared: np.ndarray) -> np.ndarray:
        """Return rows of ThunderSTORM's columns: lengths in nm, intensities in photons."""
        frames = _on_device(shared[self.start : self.stop], self.device)
        windows = Windows(frames, self.settings.psf.sigma)
        light = windows.pixels
        level = _level(light, self.background)
        found, uncovered = METHODS[self.method](light, level, self.settings)
        spread = (light - model(found, light, self.settings.psf)).flatten(1).std(-1)
        frame, window, emitter = windows.own(found)
        x, y = (found.points[window, emitter] + windows.corner(window, light)).T
        columns = [
            torch.zeros_like(x),  # the id
            (frame + 1 + self.start).to(x.dtype),
            x * self.pixel,
            y * self.pixel,
            torch.full_like(x, self.settings.psf.sigma * self.pixel),
            found.counts[window, emitter] / self.gain,
            (found.background[window] - self.settings.base) / self.gain,
            spread[window] / self.gain,
            uncovered[window] / self.gain,
        ]
        return torch.stack(columns, -1).cpu().numpy().astype(np.float64)


def make_batches(frames: np.ndarray, settings: Settings, **options: Any) -> list[Batch]:
    """Divide a stack. `options` are those of `Batch`, the same for all."""
    together = max(1, PIXELS[options.get("device", "cpu")] // frames[0].size)
    starts = range(0, len(frames), together)
    return [
        Batch(start, min(start + together, len(frames)), settings, **options) for start in starts
    ]


def number_emitters(parts: Iterable[np.ndarray]) -> np.ndarray:
    """Return the rows of all batches in one table, ordered by frame, y and x, with ids from 1."""
    table = np.concatenate(list(parts))
    table = table[np.lexsort((table[:, 2], table[:, 3], table[:, 1]))]
    table[:, 0] = np.arange(1, len(table) + 1)
    return table


def find_emitters(frames: np.ndarray, settings: Settings, **options: Any) -> np.ndarray:
    """Return the emitters of a stack, without a folder to continue from.

    `options` are those of `Batch`. Frames are counted from 1.
    """
    batches = make_batches(frames, settings, **options)
    backend = Backend(jobs=usual_jobs(batches[0].device), threads=True)
    found = dict(backend.results(batches, frames))
    return number_emitters(found[place] for place in range(len(batches)))


def usual_jobs(device: str) -> int:
    """Return how many batches to do at once: as torch has threads on a CPU, one on a GPU."""
    return torch.get_num_threads() if device == "cpu" else 1


def _spread_over(frames: np.ndarray, most: int) -> np.ndarray:
    """Return some frames, at equal distances."""
    return frames[np.unique(np.linspace(0, len(frames) - 1, most).round().astype(int))]


def _on_device(frames: np.ndarray, device: str) -> Tensor:
    return torch.from_numpy(frames).to(device, torch.float32)


def _level(frames: Tensor, background: float | None) -> Tensor:
    level = guess_background(frames)
    return level if background is None else torch.full_like(level, background)
