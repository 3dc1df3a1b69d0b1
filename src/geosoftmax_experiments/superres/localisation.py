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
from geosoftmax_experiments.superres.brightness import ENOUGH, WEAKEST, learn
from geosoftmax_experiments.superres.companions import with_companions
from geosoftmax_experiments.superres.discovery import LEAST, threshold_at
from geosoftmax_experiments.superres.emitters import Settings, localise
from geosoftmax_experiments.superres.guesses import guess_background, guess_noise
from geosoftmax_experiments.superres.measures import Emitters, model, prune
from geosoftmax_experiments.superres.precision import deviations, measure_grain, variances
from geosoftmax_experiments.superres.psf import Gaussian, Psf
from geosoftmax_experiments.superres.rivals import METHODS
from geosoftmax_experiments.superres.width import USUAL, Width, explains_better, measure_width
from geosoftmax_experiments.superres.windows import Windows

__all__ = [
    "Batch",
    "check_width",
    "choose_settings",
    "find_emitters",
    "find_width",
    "limit_of",
    "make_batches",
    "number_emitters",
    "shows_another",
    "usual_jobs",
]

#: Pixels of frames that move together: what fits the cache of a core, or fills a GPU.
PIXELS = {"cpu": 8 * 64**2, "cuda": 512 * 64**2}
#: Frames from which the noise is measured, spread over the stack.
GLANCE = 256
#: Frames from which threshold and brightness are learnt, spread over the stack, and most windows.
PILOT, PILOT_WINDOWS = 16, 64
#: The share of false emitters that is allowed, unless another is asked for.
FDR = 0.05


def choose_settings(
    frames: np.ndarray,
    psf: Psf,
    *,
    threshold: float | None = None,
    fdr: float = FDR,
    base: float = 0.0,
    background: float | None = None,
    alike: bool | None = None,
    device: str = "cpu",
) -> Settings:
    """Check that the point-spread function fits the frames, and set what was left open.

    `threshold` is by default what keeps the share of false emitters below `fdr`. Whether emitters
    are `alike` is by default what some frames show; their brightness is learnt from those.
    """
    check_width(frames, psf)
    some = torch.from_numpy(_spread_over(frames, GLANCE)).to(torch.float32)
    noise = guess_noise(some, psf)
    trial = Settings(psf=psf, threshold=max(1.0, LEAST * noise), base=base, noise=noise)
    settings = dataclasses.replace(trial, threshold=threshold or trial.threshold)
    if threshold is not None and alike is False:
        return settings
    pilot = _pilot(frames, psf, device)
    with one_thread() if device == "cpu" else contextlib.nullcontext():
        found, _ = localise(pilot, _level(pilot, background), trial)
        chosen = threshold_at(fdr, pilot, found, trial)
    if threshold is None:
        settings = dataclasses.replace(
            settings, threshold=_rounded(chosen.counts), false=_rounded(chosen.rate)
        )
    if alike is False:
        return settings
    # Learnt from all that are no noise, also where only the brightest are asked for.
    brightness = learn(prune(found, chosen.counts), psf)
    if alike and brightness is None:
        raise UserError(
            f"--alike needs {ENOUGH} emitters that stand alone, in {PILOT} frames.",
            "Leave it out: emitters are too few, or too crowded, to learn how bright they are.",
        )
    if brightness is None or not (alike or brightness.alike):
        return settings
    if threshold is None:  # what has much less than the usual light is not one of them
        weakest = _rounded(WEAKEST * brightness.mean)
        settings = dataclasses.replace(settings, threshold=max(settings.threshold, weakest))
    return dataclasses.replace(settings, brightness=brightness)


def limit_of(settings: Settings) -> str:
    """Say what keeps the threshold from being lower; nothing where the rate of false ones does."""
    if settings.brightness and settings.threshold == _rounded(WEAKEST * settings.brightness.mean):
        return f"alike emitters have at least {WEAKEST:g} of the mean"
    if settings.threshold == _rounded(max(1.0, LEAST * settings.noise)):
        return f"no threshold is below {LEAST:g} standard deviations of the noise"
    return ""


def find_width(
    frames: np.ndarray, base: float, *, roughly: bool = False, device: str = "cpu"
) -> Width | None:
    """Return how wide emitters are that stand alone; None if there are too few to tell."""
    with one_thread() if device == "cpu" else contextlib.nullcontext():
        return measure_width(_pilot(frames, Gaussian(USUAL), device), base, roughly=roughly)


def shows_another(
    frames: np.ndarray, found: Width, given: Psf, base: float, device: str = "cpu"
) -> bool:
    """Return whether emitters that stand alone look more like a Gaussian than like `given`."""
    with one_thread() if device == "cpu" else contextlib.nullcontext():
        return explains_better(_pilot(frames, Gaussian(USUAL), device), found, given, base)


def check_width(frames: np.ndarray, psf: Psf) -> None:
    """Refuse a point-spread function that is too narrow or too wide for the frames."""
    side, sigma = min(frames.shape[1:]), psf.sigma
    if not 0.3 <= sigma <= side / 6:
        raise UserError(
            f"The point-spread function has a standard deviation of {sigma:.3g} pixels, on frames "
            f"of {frames.shape[1]} x {frames.shape[2]}.",
            "It must be at least 0.3 pixels and fit six times into a frame: check --psf and "
            "--pixel.",
        )


def _pilot(frames: np.ndarray, psf: Psf, device: str) -> Tensor:
    """Return some windows of some frames."""
    windows = Windows(_on_device(_spread_over(frames, PILOT), device), psf.sigma).pixels
    places = torch.linspace(0, len(windows) - 1, min(len(windows), PILOT_WINDOWS))
    return windows[places.round().long()]


def _rounded(value: float) -> float:
    """Keep three digits: a run that is continued finds the same, though sums differ a little."""
    return float(f"{value:.3g}")


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
        sure = self._deviations(light, found)
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
            sure[window, emitter] * self.pixel,
            uncovered[window] / self.gain,
        ]
        return torch.stack(columns, -1).cpu().numpy().astype(np.float64)

    def _deviations(self, frames: Tensor, found: Emitters) -> Tensor:
        """Return the standard deviation of coordinates, in pixels; unknown for other methods."""
        if self.method != "sliding":  # their fits are no joint ones
            return torch.full_like(found.counts, torch.nan)
        psf = self.settings.psf
        base = self.settings.base
        sure = deviations(found, variances(frames, found, psf, base), psf, self.settings.brightness)
        grain = measure_grain(frames, found, psf, base)
        return with_companions(sure, frames, found, grain, self.settings)


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
