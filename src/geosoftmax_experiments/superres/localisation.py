"""From a stack to a table of positions, some frames at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.superres.emitters import (
    Settings,
    guess_background,
    guess_threshold,
)
from geosoftmax_experiments.superres.measures import model
from geosoftmax_experiments.superres.parts import Parts
from geosoftmax_experiments.superres.psf import Psf
from geosoftmax_experiments.superres.rivals import METHODS

__all__ = ["BATCH", "choose_settings", "find_emitters"]

#: Frames that move together: what fits the cache of a core, or fills a GPU.
BATCH = {"cpu": 8, "cuda": 512}


def choose_settings(
    frames: np.ndarray, psf: Psf, threshold: float | None, base: float, gain: float
) -> Settings:
    """Check that the point-spread function fits the frames, and set what was left open."""
    side, sigma = min(frames.shape[1:]), psf.sigma
    if not 0.3 <= sigma <= side / 6:
        raise UserError(
            f"The point-spread function has a standard deviation of {sigma:.3g} pixels, on frames "
            f"of {frames.shape[1]} x {frames.shape[2]}.",
            "It must be at least 0.3 pixels and fit six times into a frame: check --psf and "
            "--pixel.",
        )
    if threshold is None:
        every = torch.from_numpy(frames)
        threshold = guess_threshold(every, guess_background(every), psf)
    return Settings(psf=psf, threshold=threshold, base=base, gain=gain)


def find_emitters(
    frames: np.ndarray,
    settings: Settings,
    *,
    method: str,
    pixel: float,
    background: float | None,
    device: str,
    parts: Parts | None = None,
    advance: Callable[[int], object] = lambda done: None,
) -> np.ndarray:
    """Return rows of ThunderSTORM's columns: lengths in nm, intensities in photons, frames from 1.

    `background` in counts is where the fit of each frame's background starts; by default a low
    percentile of the frame. `parts` keeps finished batches: those it holds are not done again.
    """
    every = []
    for start in range(0, len(frames), BATCH[device]):
        batch = frames[start : start + BATCH[device]]
        rows = parts.get(start) if parts else None
        if rows is None:
            rows = _rows(
                torch.from_numpy(batch).to(device, torch.float32),
                settings,
                method,
                pixel,
                background,
            )
            rows[:, 1] += start
            if parts:
                parts.put(start, rows)
        every.append(rows)
        advance(len(batch))
    table = np.concatenate(every)
    table = table[np.lexsort((table[:, 2], table[:, 3], table[:, 1]))]
    table[:, 0] = np.arange(1, len(table) + 1)
    return table


def _rows(
    batch: Tensor, settings: Settings, method: str, pixel: float, background: float | None
) -> np.ndarray:
    """Return the columns of the emitters of some frames, the first of which is number 1."""
    level = guess_background(batch)
    if background is not None:
        level = torch.full_like(level, background)
    state, uncovered = METHODS[method](batch, level, settings)
    spread = (batch - model(state, batch, settings.psf)).flatten(1).std(-1)
    row, column = (state.counts > 0).nonzero(as_tuple=True)
    x, y = state.points[row, column].T
    columns = [
        torch.zeros_like(x),
        (row + 1).to(x.dtype),
        x * pixel,
        y * pixel,
        torch.full_like(x, settings.psf.sigma * pixel),
        state.counts[row, column] / settings.gain,
        (state.background[row] - settings.base) / settings.gain,
        spread[row] / settings.gain,
        uncovered[row] / settings.gain,
    ]
    return torch.stack(columns, -1).cpu().numpy().astype(np.float64)
