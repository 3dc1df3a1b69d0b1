"""From a stack to a table of positions, some frames at a time."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.superres.brightness import ENOUGH, learn
from geosoftmax_experiments.superres.emitters import (
    Settings,
    guess_background,
    guess_noise,
    guess_threshold,
    localise,
)
from geosoftmax_experiments.superres.measures import model
from geosoftmax_experiments.superres.parts import Parts
from geosoftmax_experiments.superres.psf import Psf
from geosoftmax_experiments.superres.rivals import METHODS
from geosoftmax_experiments.superres.windows import Windows

__all__ = ["choose_settings", "count_finished", "find_emitters"]

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
    with _one_thread_each(device):
        brightness = learn(localise(pilot, _level(pilot, background), settings)[0], psf)
    if alike and brightness is None:
        raise UserError(
            f"--alike needs {ENOUGH} emitters that stand alone, in {PILOT} frames.",
            "Leave it out: emitters are too few, or too crowded, to learn how bright they are.",
        )
    if alike is None and not (brightness and brightness.alike):
        return settings
    return dataclasses.replace(settings, brightness=brightness)


def find_emitters(
    frames: np.ndarray,
    settings: Settings,
    *,
    method: str,
    pixel: float,
    gain: float = 1.0,
    background: float | None = None,
    device: str = "cpu",
    parts: Parts | None = None,
    advance: Callable[[int], object] = lambda done: None,
) -> np.ndarray:
    """Return rows of ThunderSTORM's columns: lengths in nm, intensities in photons, frames from 1.

    A photon makes `gain` counts. `background` in counts is where the fit of each frame's background
    starts; by default a low percentile of the frame. `parts` keeps finished batches: those it holds
    are not done again.
    """
    together = _together(frames, device)

    def work(start: int) -> np.ndarray:
        rows = parts.get(start) if parts else None
        if rows is None:
            batch = _on_device(frames[start : start + together], device)
            rows = _rows(batch, settings, method, pixel, gain, background)
            rows[:, 1] += start
            if parts:
                parts.put(start, rows)
        return rows

    every = []
    starts = range(0, len(frames), together)
    with _one_thread_each(device) as count:
        pool = ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,))
        try:
            batches = pool.map(work, starts) if count > 1 else map(work, starts)
            for start, rows in zip(starts, batches, strict=True):
                every.append(rows)
                advance(min(together, len(frames) - start))
        finally:
            pool.shutdown(cancel_futures=True)
    table = np.concatenate(every)
    table = table[np.lexsort((table[:, 2], table[:, 3], table[:, 1]))]
    table[:, 0] = np.arange(1, len(table) + 1)
    return table


def count_finished(frames: np.ndarray, device: str, parts: Parts) -> int:
    """Return how many frames `find_emitters` will take from `parts`."""
    together = _together(frames, device)
    starts = range(0, len(frames), together)
    return sum(min(together, len(frames) - start) for start in starts if start in parts)


def _together(frames: np.ndarray, device: str) -> int:
    """Return how many frames are a batch."""
    return max(1, PIXELS[device] // frames[0].size)


def _rows(
    frames: Tensor,
    settings: Settings,
    method: str,
    pixel: float,
    gain: float,
    background: float | None,
) -> np.ndarray:
    """Return the columns of the emitters of some frames, the first of which is number 1."""
    windows = Windows(frames, settings.psf.sigma)
    light = windows.pixels
    found, uncovered = METHODS[method](light, _level(light, background), settings)
    spread = (light - model(found, light, settings.psf)).flatten(1).std(-1)
    frame, window, emitter = windows.own(found)
    x, y = (found.points[window, emitter] + windows.corner(window, light)).T
    columns = [
        torch.zeros_like(x),  # the id
        (frame + 1).to(x.dtype),
        x * pixel,
        y * pixel,
        torch.full_like(x, settings.psf.sigma * pixel),
        found.counts[window, emitter] / gain,
        (found.background[window] - settings.base) / gain,
        spread[window] / gain,
        uncovered[window] / gain,
    ]
    return torch.stack(columns, -1).cpu().numpy().astype(np.float64)


@contextlib.contextmanager
def _one_thread_each(device: str) -> Iterator[int]:
    """Give how many batches to do at once: on a CPU as many as torch has threads, each with one.

    Several threads for one batch would wait for each other in every small product.
    """
    threads = torch.get_num_threads()
    if device != "cpu":
        yield 1
        return
    torch.set_num_threads(1)
    try:
        yield threads
    finally:
        torch.set_num_threads(threads)


def _spread_over(frames: np.ndarray, most: int) -> np.ndarray:
    """Return some frames, at equal distances."""
    return frames[np.unique(np.linspace(0, len(frames) - 1, most).round().astype(int))]


def _on_device(frames: np.ndarray, device: str) -> Tensor:
    return torch.from_numpy(frames).to(device, torch.float32)


def _level(frames: Tensor, background: float | None) -> Tensor:
    level = guess_background(frames)
    return level if background is None else torch.full_like(level, background)
