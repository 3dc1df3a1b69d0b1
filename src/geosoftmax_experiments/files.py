"""Files that are written whole or not at all; JSON and arrays of NumPy that are read."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from geosoftmax_experiments.errors import UserError

__all__ = [
    "make_folder",
    "map_array",
    "read_json",
    "remove",
    "remove_partial",
    "write",
    "write_text",
]

#: What the names of files begin with while they are being written.
PARTIAL = ".part-"


def write(path: Path, fill: Callable[[Path], object]) -> None:
    """Let `fill` write to a new file beside `path`, then move it there in one step.

    Whoever reads `path`, at any moment and also after a crash, finds the old file, the new one, or
    none: never a part. A failure (a full disk, a folder that cannot be written to) is a
    `UserError`.
    """
    make_folder(path.parent)
    partial = None
    try:
        handle, name = tempfile.mkstemp(prefix=PARTIAL, suffix=path.suffix, dir=path.parent)
        partial = Path(name)
        os.fchmod(handle, 0o666 & ~_umask())
        os.close(handle)
        fill(partial)
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        raise UserError(
            f"Could not write {path}: {error.strerror or error}.",
            "Free some space or choose another folder; what was written before is kept.",
        ) from None
    finally:
        if partial is not None:
            partial.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    write(path, lambda partial: partial.write_text(text, encoding="utf8"))


def read_json(path: Path) -> Any:
    """Read a JSON file; whatever is wrong with its text, its depth too, is a ValueError."""
    try:
        return json.loads(path.read_text(encoding="utf8"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def map_array(path: Path) -> np.ndarray:
    """Map a ``.npy`` file, so that its size is known before it takes memory.

    Whatever is no array of NumPy, also a pickle or an archive, is a ValueError.
    """
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except OSError:
        raise
    except Exception as error:  # whatever a strange header makes of NumPy
        raise ValueError(str(error)) from None


def make_folder(path: Path) -> None:
    """Make a folder and those above it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"Could not make the folder {path}: {error.strerror or error}.",
            "Choose another one with --output.",
        ) from None


def remove_partial(folder: Path) -> None:
    """Remove what a run that was killed had begun to write."""
    for path in folder.glob(f"{PARTIAL}*"):
        remove(path)


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that it holds, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
