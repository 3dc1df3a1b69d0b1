"""QuickDraw's simplified strokes, drawn one pixel wide at any size.

A file holds a drawing in each line: ``{"drawing": [[[x, …], [y, …]], …], …}`` with coordinates from
0 to 255. Lines are drawn with whole numbers only, so pictures are the same on every machine.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from geosoftmax_experiments.errors import UserError

__all__ = ["read_strokes", "render"]

#: The largest coordinate of the simplified format.
LARGEST = 255
#: Bytes of a line; drawings have some hundred.
LONGEST = 2**20


def read_strokes(path: Path, size: int, limit: int | None = None) -> np.ndarray:
    """Return the drawings of a file as pictures of 0 and 255, of shape ``(N, size, size)``."""
    pictures = []
    with path.open("rb") as lines:
        for number, line in enumerate(iter(lambda: lines.readline(LONGEST), b""), start=1):
            if limit is not None and len(pictures) == limit:
                break
            try:
                pictures.append(render(json.loads(line)["drawing"], size))
            except (ValueError, LookupError, TypeError, OverflowError, RecursionError):
                raise UserError(
                    f"{path}, line {number}: not a drawing of the simplified format.",
                    "The file is damaged or truncated: download it again.",
                ) from None
    if not pictures:
        raise UserError(f"{path} is empty.", "Download it again.")
    return np.stack(pictures)


def render(strokes: list[Any], size: int) -> np.ndarray:
    """Draw strokes into the middle of a picture, one pixel wide.

    Parameters
    ----------
    strokes : list of [x, y]
        Lists of coordinates, from 0 to 255.
    size : int
        The side of the picture; about a thirtieth of it stays free on each side.

    Examples
    --------
    >>> render([[[0, 255], [0, 255]]], 4)[:2]
    array([[255,   0,   0,   0],
           [  0, 255,   0,   0]], dtype=uint8)
    """
    picture = np.zeros((size, size), dtype=np.uint8)
    points = [np.array(stroke, dtype=np.int64)[:2] for stroke in strokes]
    if not points:
        return picture
    every = np.concatenate(points, axis=1)
    if every.min() < 0 or every.max() > LARGEST:
        raise ValueError("a coordinate lies outside 0 … 255")
    margin = size // 30
    scale = size - 1 - 2 * margin
    middle = every.min(1) + every.max(1)  # twice the middle of the drawing
    for stroke in points:
        # margin + scale (x + (255 - middle) / 2) / 255, rounded
        doubled = scale * (2 * stroke + LARGEST - middle[:, None])
        x, y = margin + (doubled + LARGEST) // (2 * LARGEST)
        picture[_line(x, y)] = 255
    return picture


def _line(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and columns of the pixels between consecutive points."""
    x, y = (np.append(c, c[-1]) for c in (x, y))  # a lone point is a line to itself
    dx, dy = np.diff(x), np.diff(y)
    steps = np.maximum(np.maximum(abs(dx), abs(dy)), 1)
    piece = np.repeat(np.arange(len(steps)), steps + 1)
    k = np.arange(len(piece)) - np.repeat(np.cumsum(steps + 1) - steps - 1, steps + 1)
    n = steps[piece]
    columns = x[piece] + (2 * k * dx[piece] + n) // (2 * n)
    rows = y[piece] + (2 * k * dy[piece] + n) // (2 * n)
    return rows, columns
