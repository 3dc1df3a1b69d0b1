"""Labelled frames in DeepLabCut's layout, read without DeepLabCut.

A project holds ``labeled-data/<video>/CollectedData_<scorer>.csv`` with the frames beside it. The
table has three rows of header (scorer, bodyparts, coords), then a frame a row: its path, in one
column or in three, and x and y of each body part; empty where the part is not seen.
"""

from __future__ import annotations

import csv
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from geosoftmax_experiments.data import data_folder
from geosoftmax_experiments.data.images import find_pictures, read_picture
from geosoftmax_experiments.errors import UserError

__all__ = ["OPENFIELD", "Frames", "Labels", "Project", "load_project", "read_labels", "unlabelled"]

#: The name of DeepLabCut's example, and the size (height, width) of the frames it was labelled on.
OPENFIELD = "openfield"
OPENFIELD_SIZE = (480, 640)
#: Frames of a table, at most: people label some hundreds.
MOST_FRAMES = 100_000
_HEADER = ("scorer", "bodyparts", "coords")


@dataclass(frozen=True)
class Labels:
    """Points of frames: `points` has shape (frames, parts, 2), (row, column), NaN where missing."""

    scorer: str
    parts: tuple[str, ...]
    paths: tuple[str, ...]
    points: np.ndarray


@dataclass(frozen=True)
class Frames:
    """Frames as a network sees them, and their points in pixels of the labels.

    Attributes
    ----------
    pictures : ndarray, shape (n, height, width), uint8
        Grey.
    sizes : ndarray, shape (n, 2)
        Height and width of the frames that were labelled, in which `labels.points` are.
    labels : Labels
    """

    pictures: np.ndarray
    sizes: np.ndarray
    labels: Labels

    def __len__(self) -> int:
        return len(self.pictures)

    @property
    def parts(self) -> int:
        """How many points a frame has."""
        return len(self.labels.parts)

    def to_grid(self, shape: tuple[int, int]) -> np.ndarray:
        """Return the points in index units of a grid over the frames; on the rim, clamped to it."""
        scale = np.asarray(shape) / self.sizes[:, None]
        return np.clip((self.labels.points + 0.5) * scale - 0.5, 0, np.asarray(shape) - 1.0)

    def from_grid(self, points: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        """Return points of a grid, of shape (n, parts, 2), in pixels of the labels."""
        return (points + 0.5) * self.sizes[:, None] / np.asarray(shape) - 0.5

    def digest(self) -> str:
        """Return what tells these frames from others."""
        found = hashlib.sha256(self.pictures.tobytes())
        found.update(np.ascontiguousarray(self.labels.points).tobytes())
        found.update("\n".join(self.labels.parts).encode())
        return found.hexdigest()[:16]


# ------------------------------------------------------------------ a project


@dataclass(frozen=True)
class Project:
    """A project that was found: where its frames lie, and their labels.

    `size` is that of the frames that were labelled (height, width), where all have the same.
    """

    paths: tuple[Path, ...]
    labels: Labels
    size: tuple[int, int]
    is_given: bool

    def frames(self, shape: tuple[int, int]) -> Frames:
        """Read the pictures, as grey and of a shape (height, width)."""
        pictures, sizes = read_frames(self.paths, shape)
        _check_alike(self.paths, sizes)
        if self.is_given:
            sizes = np.tile(np.asarray(self.size, dtype=float), (len(self.paths), 1))
        points = self.labels.points
        outside = ((points < -0.5) | (points > sizes[:, None] - 0.5)).any((1, 2))
        if outside.any():
            first = int(outside.argmax())
            height, width = sizes[first].astype(int)
            raise UserError(
                f"{int(outside.sum())} of {len(self.paths)} frames have points outside their "
                f"picture; the first is {self.paths[first].name}, of {width}×{height} pixels.",
                "If the pictures were shrunk after labelling, say from which size: --label-size "
                "640x480 (width x height).",
            )
        return Frames(pictures, sizes, self.labels)


def load_project(data: str, label_size: tuple[int, int] | None = None) -> Project:
    """Find a project and read its tables; its pictures are read by `Project.frames`.

    Parameters
    ----------
    data : str
        "openfield", or a folder in DeepLabCut's layout.
    label_size : tuple of int, optional
        Height and width of the frames that were labelled; by default those of the pictures.
    """
    if label_size is None and data == OPENFIELD:
        label_size = OPENFIELD_SIZE
    tables = _find_tables(_openfield() if data == OPENFIELD else Path(data))
    paths: list[Path] = []
    found: list[Labels] = []
    for table in tables:
        one = read_labels(table)
        if found and one.parts != found[0].parts:
            raise UserError(
                f"{table} has the body parts {', '.join(one.parts)}; {tables[0]} has "
                f"{', '.join(found[0].parts)}.",
                "Give videos that were labelled alike.",
            )
        # The frames lie beside their table: paths in it may be those of another machine.
        paths += [table.parent / _file_name(path) for path in one.paths]
        found.append(one)
    labels = replace(
        found[0],
        paths=tuple(path for one in found for path in one.paths),
        points=np.concatenate([one.points for one in found]),
    )
    if label_size is not None:
        return Project(tuple(paths), labels, label_size, True)
    height, width = read_picture(paths[0]).shape
    return Project(tuple(paths), labels, (height, width), False)


def _openfield() -> Path:
    hint = (
        "Let it name the folder that holds openfield/, which is "
        "examples/openfield-Pranav-2018-10-30 of DeepLabCut's repository."
    )
    return data_folder(hint) / OPENFIELD


def read_frames(paths: Sequence[Path], shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return pictures as grey bytes of a shape, and the sizes (height, width) that they had."""
    from PIL import Image

    pictures = np.empty((len(paths), *shape), dtype=np.uint8)
    sizes = np.empty((len(paths), 2))
    for k, path in enumerate(paths):
        grey = read_picture(path)
        sizes[k] = grey.shape
        if grey.shape != shape:
            image = Image.fromarray(grey).resize((shape[1], shape[0]), Image.Resampling.BILINEAR)
            grey = np.asarray(image)  # Pillow's filters widen when they shrink: nothing is skipped
        pictures[k] = grey
    return pictures, sizes


def _check_alike(paths: Sequence[Path], sizes: np.ndarray) -> None:
    """Refuse a video whose frames have several sizes: points would be in the wrong place."""
    first: dict[Path, int] = {}
    for k, path in enumerate(paths):
        other = first.setdefault(path.parent, k)
        if (sizes[k] != sizes[other]).any():
            (height, width), (tall, wide) = sizes[k].astype(int), sizes[other].astype(int)
            raise UserError(
                f"{path} has {width}×{height} pixels, {paths[other].name} beside it {wide}×{tall}.",
                "Frames of one video have one size; leave out what is no frame.",
            )


def unlabelled(folder: Path, parts: tuple[str, ...], shape: tuple[int, int]) -> Frames:
    """Read the pictures of a folder, whose points are not known."""
    paths = find_pictures(folder)
    pictures, sizes = read_frames(paths, shape)
    points = np.full((len(paths), len(parts), 2), np.nan)
    return Frames(pictures, sizes, Labels("", parts, tuple(path.name for path in paths), points))


def _find_tables(folder: Path) -> list[Path]:
    for pattern in ("CollectedData_*.csv", "*/CollectedData_*.csv", "labeled-data/*/*.csv"):
        found = sorted(p for p in folder.glob(pattern) if p.name.startswith("CollectedData_"))
        if found:
            break
    else:
        raise UserError(
            f"{folder} holds no labels.",
            "Give a DeepLabCut project, with labeled-data/<video>/CollectedData_<scorer>.csv and "
            "the frames beside it; or openfield, with GEOSOFTMAX_DATA set.",
        )
    folders = [path.parent for path in found]
    if len(set(folders)) < len(folders):
        raise UserError(
            f"{folder} has several CollectedData tables for one video.",
            "Leave the one of the scorer whose labels are to be learnt.",
        )
    return found


# ------------------------------------------------------------------ a table


def read_labels(path: Path) -> Labels:
    """Read one ``CollectedData`` table."""
    try:
        with path.open(newline="", encoding="utf8") as file:
            rows = [row for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} cannot be read: {error}", "Give DeepLabCut's CSV.") from None
    names = [row[0] for row in rows[:4]]
    if "individuals" in names:
        raise UserError(
            f"{path} has several individuals.", "Label one animal, or one table for each."
        )
    if tuple(names[:3]) != _HEADER or len(rows) < 4:
        raise UserError(
            f"{path} does not begin with the rows scorer, bodyparts and coords, then frames.",
            "Give the CSV that DeepLabCut writes beside the frames.",
        )
    if len(rows) - 3 > MOST_FRAMES:
        raise UserError(f"{path} has more than {MOST_FRAMES:,} frames.", "Give fewer.")
    scorer, parts, coords = rows[:3]
    first = 3 if coords[1:3] == ["", ""] else 1  # the path, in three columns or in one
    expected = ["x", "y"] * ((len(parts) - first) // 2)
    if len({len(row) for row in rows}) > 1 or coords[first:] != expected:
        raise UserError(
            f"{path} must have columns x and y for each body part, as many in every row.",
            "Give the CSV as DeepLabCut wrote it.",
        )
    frames = ["/".join(row[:first]) for row in rows[3:]]
    values = np.array([[_number(cell, path) for cell in row[first:]] for row in rows[3:]])
    points = values.reshape(len(frames), -1, 2)[..., ::-1]  # x, y: to (row, column)
    points = np.where(np.isnan(points).any(-1, keepdims=True), np.nan, points)
    order = sorted(range(len(frames)), key=frames.__getitem__)  # of time: names are numbered
    names = parts[first::2]
    if len(set(frames)) < len(frames) or len(set(names)) < len(names) or not names:
        raise UserError(f"{path} has a frame or a body part twice.", "Leave each once.")
    return Labels(scorer[first], tuple(names), tuple(frames[k] for k in order), points[order])


def _number(cell: str, path: Path) -> float:
    try:
        value = float(cell) if cell.strip() else math.nan
    except ValueError:
        value = math.inf
    if math.isinf(value) or abs(value) > 1e6:
        raise UserError(
            f"{path}: {cell[:40]!r} is no coordinate.", "Give numbers, or leave it empty."
        )
    return value


def _file_name(path: str) -> str:
    """Return the name of a file alone, whatever machine the path is of."""
    name = path.replace("\\", "/").rsplit("/", 1)[-1]
    if name in ("", ".", ".."):
        raise UserError(f"{path!r} is no path of a frame.", "Give DeepLabCut's CSV as it was.")
    return name
