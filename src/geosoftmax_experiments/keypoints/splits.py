"""Which frames are trained on, and which are predicted: at random, or in blocks of time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from geosoftmax_experiments.errors import UserError

__all__ = ["KINDS", "Split", "inner_split", "make_split", "read_size"]

#: "random": frames at random; neighbours in time lie on both sides. "blocks": blocks of time.
KINDS = ("random", "blocks")
#: Into how many blocks a video is cut.
BLOCKS = 12
#: The share of the training frames on which settings are chosen.
INNER = 0.25


class Split(NamedTuple):
    """Numbers of frames, in the order of time."""

    train: np.ndarray
    test: np.ndarray


def read_size(text: str, frames: int) -> int:
    """Return how many frames to train on: a number, or a share as in ``95%``."""
    try:
        size = round(float(text[:-1]) / 100 * frames) if text.endswith("%") else int(text)
    except ValueError:
        size = 0
    if not 4 <= size < frames:
        raise UserError(
            f"--sizes: {text!r} is no number of training frames.",
            f"There are {frames} frames: give numbers from 4 to {frames - 1}, or shares as in 95%.",
        )
    return size


def make_split(frames: int, size: int, kind: str, number: int) -> Split:
    """Return a split; smaller sizes of the same number are parts of larger ones."""
    order = _order(frames, kind, number)
    return Split(np.sort(order[:size]), np.sort(order[size:]))


def inner_split(frames: int, size: int, kind: str) -> Split:
    """Return a split of the training frames of split 0, of the same kind: settings are chosen here.

    The test frames of split 0 are in neither part.
    """
    train = _order(frames, kind, 0)[:size]
    kept = size - max(2, round(INNER * size))
    return Split(np.sort(train[:kept]), np.sort(train[kept:]))


def _order(frames: int, kind: str, number: int) -> np.ndarray:
    rng = np.random.default_rng([number, KINDS.index(kind)])
    if kind == "random":
        return rng.permutation(frames)
    blocks = np.array_split(np.arange(frames), min(BLOCKS, frames))
    return np.concatenate([blocks[k] for k in rng.permutation(len(blocks))])
