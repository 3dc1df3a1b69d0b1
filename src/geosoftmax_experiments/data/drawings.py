"""Drawings as distributions over pixels.

Sets by name: ``digits`` (scikit-learn's, 8×8, nothing to download), ``cats`` (QuickDraw bitmaps,
28×28), ``mnist``, ``drawings`` and ``cat-strokes`` (QuickDraw strokes, one pixel wide, 64×64). Or a
path: a folder of pictures, a ``.npy`` of the layout of QuickDraw's bitmaps, an ``.ndjson`` of
strokes.

Pictures stay as bytes, mapped from disk where their file allows it; `as_distributions` makes
distributions of those that are needed.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from geosoftmax_experiments.data.download import find
from geosoftmax_experiments.data.images import find_pictures, paper, picture_size, read_picture
from geosoftmax_experiments.data.strokes import read_strokes
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.files import map_array

__all__ = ["NAMES", "Drawings", "Split", "as_distributions", "load_drawings"]

AGAIN = "The file is damaged or truncated: download it again."
#: The side at which strokes are drawn unless one is asked for.
STROKE_SIZE = 64
#: The seed by which sets are split. Results from before there was p were made with 0.
SPLIT = 1
#: Pictures of a folder that are larger than this, or of several sizes, become so small by default.
LARGE, USUAL_SIZE = 64, 28
#: Pictures that are looked at to tell paper from ink.
LOOKED_AT = 1000
#: Bytes of an idx file, unpacked: MNIST has 47 million.
MOST_IDX = 2**28


class Split(NamedTuple):
    """Rows of pictures, apart."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


@dataclass(frozen=True)
class Drawings:
    """A set of pictures.

    Parameters
    ----------
    name : str
    images : ndarray of uint8, shape (N, h, w)
        Bright is ink.
    rows : ndarray of int
        The pictures that are not blank.
    last : int
        How many of the last pictures the publisher keeps for testing.
    seed : int
        Decides which pictures are for training, validation and test.
    size : int or None
        The side at which they were read, where that is not their own.
    invert : bool
        Whether dark was taken for ink.
    """

    name: str
    images: np.ndarray
    rows: np.ndarray
    last: int = 0
    seed: int = SPLIT
    size: int | None = None
    invert: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width."""
        return self.images.shape[1], self.images.shape[2]

    @property
    def blank(self) -> int:
        """How many pictures were dropped, as they hold no ink."""
        return len(self.images) - len(self.rows)

    def split(self) -> Split:
        """Return rows for training, validation (a tenth) and test (a tenth).

        Seed 0 keeps the publisher's test part, where there is one. Other seeds divide all pictures
        anew: that part has been looked at.
        """
        published = self.last if self.seed == 0 else 0
        apart = self.rows >= len(self.images) - published
        rows, test = self.rows[~apart], self.rows[apart]
        rows = np.random.default_rng(self.seed).permutation(rows)
        tenth = len(rows) // 10
        if not published:
            rows, test = rows[tenth:], rows[:tenth]
        found = Split(rows[tenth:], rows[:tenth], test)
        if min(map(len, found)) == 0:
            raise UserError(
                f"{self.name} has {len(self.rows)} pictures that are not blank: too few to train, "
                "validate and test.",
                "Give at least 10.",
            )
        return found

    def counts(self) -> dict[str, int]:
        """Return how many pictures there are, how many are blank, and those of each part."""
        parts = {name: len(rows) for name, rows in self.split()._asdict().items()}
        return {"pictures": len(self.images), "blank": self.blank, **parts}

    def ink(self) -> float:
        """Return how much of a picture is ink, from 0 to 1: the mean over the first thousand."""
        x = self.images[self.rows[:1000]].astype(np.float32)
        low, high = x.min((1, 2), keepdims=True), x.max((1, 2), keepdims=True)
        return float(((x - low) / (high - low)).mean())

    def digest(self) -> str:
        """Return a short fingerprint of the pictures, to know the same data again."""
        found = hashlib.sha256(repr((self.images.shape, self.last)).encode())
        for part in _parts(self.images):
            found.update(np.ascontiguousarray(part).tobytes())
        return found.hexdigest()[:12]

    def labels(self) -> np.ndarray | None:
        """Return the class of each picture, where the set has classes."""
        read = LABELS.get(self.name)
        return None if read is None else read()[: len(self.images)]

    def tensor(self, rows: np.ndarray) -> Tensor:
        """Return pictures as bytes."""
        return torch.from_numpy(np.ascontiguousarray(self.images[rows]))


def as_distributions(images: Tensor) -> Tensor:
    """``α = (x - min x) / Σ (x - min x)``, picture by picture, in float32.

    Parameters
    ----------
    images : Tensor, shape (batch, h, w)
        Not blank: each has two values at least.

    Examples
    --------
    >>> as_distributions(torch.tensor([[[10, 10], [11, 13]]], dtype=torch.uint8))
    tensor([[[0.0000, 0.0000],
             [0.2500, 0.7500]]])
    """
    x = images.to(torch.float32)
    x = x - x.amin((-2, -1), keepdim=True)
    return x / x.sum((-2, -1), keepdim=True)


def load_drawings(
    name: str,
    *,
    size: int | None = None,
    limit: int | None = None,
    invert: bool | None = None,
    seed: int = SPLIT,
) -> Drawings:
    """Read a set by its name or path.

    Parameters
    ----------
    name : str
        One of `NAMES`, or a path.
    size : int, optional
        The side at which strokes are drawn [64], or to which pictures of a folder are resized [as
        they are where all have one size, of at most `LARGE`; else `USUAL_SIZE`].
    limit : int, optional
        Only so many pictures, the first ones.
    invert : bool, optional
        Dark is ink. By default what most edges are is paper: bright ones mean that dark is ink.
        Sets by name, and strokes, are bright on dark.
    seed : int
        Of the split.
    """
    if size is not None and size < 4:
        raise UserError(f"A size of {size} leaves nothing to draw.", "Take at least 4.")
    name = name if name in NAMES else str(Path(name))  # a slash at the end makes no difference
    read, sizes = _reader(name)
    if size is not None and not sizes:
        raise UserError(
            f"The pictures of {name!r} have a size of their own.",
            "Leave --size out: it is for strokes and folders of pictures.",
        )
    images, last = read(size, limit)
    if limit is not None and len(images) > limit:
        images, last = images[:limit], 0
    if invert is None:
        own = name not in NAMES and not name.endswith(".ndjson")
        invert = own and float(np.median([paper(x) for x in images[:LOOKED_AT]])) > 127
    if invert:
        images = 255 - images
    inked = [part.max((1, 2)) > part.min((1, 2)) for part in _parts(images)]
    rows = np.flatnonzero(np.concatenate(inked))
    resized = size is None and Path(name).is_dir() and images.shape[1:] == (USUAL_SIZE, USUAL_SIZE)
    size = USUAL_SIZE if resized else size
    return Drawings(name, images, rows, last, seed, size, invert)


def _parts(images: np.ndarray) -> list[np.ndarray]:
    """Cut pictures into parts of some megabytes: a mapped file is never in memory as a whole."""
    return [images[k : k + 8192] for k in range(0, len(images), 8192)]


Reader = Callable[[int | None, int | None], tuple[np.ndarray, int]]


def _reader(name: str) -> tuple[Reader, bool]:
    """Return what reads a set, and whether it can do so at several sizes."""
    if name in NAMES:
        return NAMES[name]
    path = Path(name)
    if path.is_dir():
        return lambda size, limit: (_read_folder(path, size, limit), 0), True
    if path.is_file() and path.suffix == ".npy":
        return lambda size, limit: (_read_npy(path), 0), False
    if path.is_file() and path.suffix == ".ndjson":
        return lambda size, limit: (read_strokes(path, size or STROKE_SIZE, limit), 0), True
    raise UserError(
        f"There is no data {name!r}.",
        f"Take one of {', '.join(NAMES)}, or a path: a folder of pictures, a .npy, an .ndjson.",
    )


def _digits(size: int | None, limit: int | None) -> tuple[np.ndarray, int]:
    from sklearn.datasets import load_digits

    data: Any = load_digits()
    return (data.images * 255 / 16).astype(np.uint8), 0


def _cats(size: int | None, limit: int | None) -> tuple[np.ndarray, int]:
    return _read_npy(find("quickdraw/numpy_bitmap/cat.npy")), 0


def _mnist(size: int | None, limit: int | None) -> tuple[np.ndarray, int]:
    train, test = (_read_idx(find(f"mnist/{part}-images-idx3-ubyte.gz")) for part in _MNIST_PARTS)
    return np.concatenate([train, test]), len(test)


def _strokes(place: str) -> Reader:
    def read(size: int | None, limit: int | None) -> tuple[np.ndarray, int]:
        return read_strokes(find(place), size or STROKE_SIZE, limit), 0

    return read


def _mnist_labels() -> np.ndarray:
    parts = (_read_idx(find(f"mnist/{part}-labels-idx1-ubyte.gz"), 1) for part in _MNIST_PARTS)
    return np.concatenate(list(parts))


def _digit_labels() -> np.ndarray:
    from sklearn.datasets import load_digits

    data: Any = load_digits()
    return data.target


_MNIST_PARTS = ("train", "t10k")
NAMES: dict[str, tuple[Reader, bool]] = {
    "digits": (_digits, False),
    "cats": (_cats, False),
    "mnist": (_mnist, False),
    "drawings": (_strokes("quickdraw/simplified/mixed.ndjson"), True),
    "cat-strokes": (_strokes("quickdraw/simplified/cat.ndjson"), True),
}
#: The classes of the sets that have some.
LABELS: dict[str, Callable[[], np.ndarray]] = {"digits": _digit_labels, "mnist": _mnist_labels}


# ------------------------------------------------------------------ files


def _read_npy(path: Path) -> np.ndarray:
    """Map QuickDraw's bitmaps: a row of ``side²`` bytes for each picture."""
    try:
        found = map_array(path)
    except (ValueError, OSError) as error:
        raise UserError(f"{path} cannot be read: {error}", AGAIN) from None
    side = math.isqrt(found.shape[1]) if found.ndim == 2 else 0
    if found.dtype != np.uint8 or not side or side * side != found.shape[1] or not len(found):
        raise UserError(
            f"{path} holds {found.dtype} of shape {found.shape}; expected uint8 of shape "
            "(N, side²), as in QuickDraw's bitmaps.",
            "Give such a file.",
        )
    return found.reshape(-1, side, side)


def _read_idx(path: Path, axes: int = 3) -> np.ndarray:
    """Read MNIST's pictures, or labels (one axis): numbers of four bytes, then the bytes."""
    size = 4 * (1 + axes)
    try:
        with gzip.open(path) as file:
            header = file.read(size)
            magic, *shape = struct.unpack(f">{1 + axes}i", header) if len(header) == size else (0,)
            if magic != 2048 + axes:
                what = "pictures" if axes == 3 else "labels"
                raise UserError(f"{path} holds no {what} of the idx format.", AGAIN)
            size = math.prod(shape)
            if min(shape) < 1 or size > MOST_IDX:
                raise UserError(
                    f"{path} says that it holds {' × '.join(map(str, shape))} bytes of pixels; at "
                    f"most {MOST_IDX:,} are read.",
                    AGAIN,
                )
            content = file.read(size + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read: {error}", AGAIN) from None
    if len(content) != size:
        found = f"{len(content)}" if len(content) < size else "more"
        raise UserError(
            f"{path} holds {found} bytes of pixels; its header says {' × '.join(map(str, shape))}.",
            AGAIN,
        )
    return np.frombuffer(content, np.uint8).reshape(shape)


def _read_folder(folder: Path, size: int | None, limit: int | None) -> np.ndarray:
    """Read the pictures of a folder in the order of their names."""
    paths = find_pictures(folder)[:limit]
    if size is None:
        sizes = {picture_size(path) for path in paths}
        if len(sizes) > 1 or max(max(sides) for sides in sizes) > LARGE:
            size = USUAL_SIZE
    pictures = [read_picture(path, size) for path in paths]
    if len({picture.shape for picture in pictures}) > 1:  # some were turned by their camera
        pictures = [read_picture(path, USUAL_SIZE) for path in paths]
    return np.stack(pictures)
