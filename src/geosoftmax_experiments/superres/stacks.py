"""Camera stacks, lengths with units, and tables of positions."""

from __future__ import annotations

import contextlib
import logging
import math
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.files import map_array, write
from geosoftmax_experiments.tables import read_csv

__all__ = [
    "COLUMNS", "MEMORY", "read_length", "read_memory", "read_positions", "read_stack",
    "write_positions",
]  # fmt: skip

#: ThunderSTORM's columns, and how strong an emitter the fit of the frame leaves out at most.
COLUMNS = (
    "id", "frame", "x [nm]", "y [nm]", "sigma [nm]", "intensity [photon]", "offset [photon]",
    "bkgstd [photon]", "uncertainty [nm]", "uncovered [photon]",
)  # fmt: skip

#: Bytes that the frames of a stack may take, in float64, unless more is asked for.
MEMORY = 10**9
#: Pixels beyond this are no counts: in float32, which fits use, their squares would overflow.
BRIGHTEST = 1e15
_BYTES = {"MB": 10**6, "GB": 10**9, "TB": 10**12}
_MEMORY = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(MB|GB|TB)", re.IGNORECASE)
_NANOMETRES = {"nm": 1.0, "um": 1e3, "µm": 1e3, "μm": 1e3}
_LENGTH = re.compile(r"([0-9.]+(?:[eE][-+]?[0-9]+)?)\s*(nm|um|µm|μm)")


def read_length(name: str, text: str) -> float:
    """Return a positive length in nanometres, from text such as ``110nm`` or ``0.11um``."""
    match = _LENGTH.fullmatch(text.strip())
    try:
        number = float(match[1]) if match else 0.0
    except ValueError:
        number = 0.0
    if match is None or not 0 < number < float("inf"):
        raise UserError(
            f"{name} must be a positive length with its unit; got {text!r}.",
            "Write it as 110nm or 0.11um.",
        )
    return number * _NANOMETRES[match[2]]


def read_memory(name: str, text: str) -> int:
    """Return a number of bytes, from text such as ``4GB``."""
    match = _MEMORY.fullmatch(text.strip())
    if match is None or float(match[1]) == 0:
        raise UserError(
            f"{name} must be a size with its unit; got {text!r}.", "Write it as 500MB or 4GB."
        )
    return int(float(match[1]) * _BYTES[match[2].upper()])


def read_stack(path: Path, memory: int = MEMORY) -> tuple[np.ndarray, int]:
    """Return frames ``(frames, height, width)`` in float64, and how many hold saturated pixels.

    A stack whose frames take more than so many bytes of `memory` is refused before it is unpacked.
    """
    if path.suffix == ".npy":
        stack, coloured = _read_array(path, memory), False
    else:
        stack, coloured = _read_tiff(path, memory)
    if stack.ndim == 2:
        stack = stack[None]
    if stack.ndim != 3 or coloured:
        raise UserError(
            f"{path} must hold grey frames, (frames, height, width); got shape {stack.shape}.",
            "Convert colours to grey, and channels or slices to one stack each.",
        )
    if stack.dtype.kind not in "uif" or stack.dtype.itemsize > 8:
        raise UserError(
            f"{path} holds pixels of type {stack.dtype}.", "Save it with 8, 16 or 32 bits a pixel."
        )
    saturated = 0
    if stack.dtype.kind in "ui":
        full = stack == np.iinfo(stack.dtype).max
        saturated = int(full.any((1, 2)).sum())
    frames = stack.astype(np.float64)
    if not np.isfinite(frames).all():
        raise UserError(
            f"{path} holds NaN or infinite pixels.", "Replace them, or drop the frames."
        )
    most = float(np.abs(frames).max(initial=0.0))
    if most > BRIGHTEST:
        raise UserError(
            f"{path} holds a pixel of {most:.3g}; counts are at most {BRIGHTEST:.0e}.",
            "Divide all pixels by one number, or mend those that are no counts.",
        )
    return frames, saturated


def _check_size(path: Path, shape: tuple[int, ...], memory: int) -> None:
    """Refuse what would take too much memory."""
    needed = 8 * math.prod(shape)
    if needed > memory:
        raise UserError(
            f"{path} has pixels of shape {shape}: its frames need {needed / 1e9:,.1f} GB, more "
            f"than {memory / 1e9:g} GB.",
            "If it is your own, allow them with --memory, as in --memory "
            f"{math.ceil(needed / 1e9)}GB.",
        )


def _read_tiff(path: Path, memory: int) -> tuple[np.ndarray, bool]:
    """Return what the file holds, and whether its pixels have several samples: colours."""
    import tifffile

    try:
        with _hear("tifffile") as heard, tifffile.TiffFile(path) as file:
            series = file.series[0]
            _check_size(path, series.shape, memory)
            found, coloured = series.asarray(), "S" in series.axes
        if any("invalid page offset" in message for message in heard):
            raise ValueError(f"after pixels of shape {found.shape} a page is missing")
        return found, coloured
    except FileNotFoundError:
        raise UserError(f"There is no file {path}.", "Check the path.") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder.", "Name one TIFF file.") from None
    except UserError:
        raise
    except Exception as error:  # whatever a damaged file makes of tifffile
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"{path} could not be read as a TIFF stack: {reason}.",
            "Save it as an uncompressed TIFF again; it may be cut off, or compressed."
            if _begins_as_tiff(path)
            else "It is another format: save it as an uncompressed TIFF.",
        ) from None


def _begins_as_tiff(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) in (b"II", b"MM")  # the order of bytes


@contextlib.contextmanager
def _hear(name: str) -> Iterator[list[str]]:
    """Collect what a logger says instead of printing it."""
    heard: list[str] = []
    logger = logging.getLogger(name)

    def listen(record: logging.LogRecord) -> bool:
        heard.append(record.getMessage())
        return False

    logger.addFilter(listen)
    try:
        yield heard
    finally:
        logger.removeFilter(listen)


def _read_array(path: Path, memory: int) -> np.ndarray:
    try:
        found = map_array(path)
        _check_size(path, found.shape, memory)
        return found
    except FileNotFoundError:
        raise UserError(f"There is no file {path}.", "Check the path.") from None
    except (ValueError, OSError) as error:
        raise UserError(
            f"{path} could not be read as a NumPy array: {error}.", "Save it with numpy.save."
        ) from None


def write_positions(path: Path, rows: np.ndarray) -> None:
    """Write rows in ThunderSTORM's columns, whose names it quotes, whole or not at all."""
    import pandas as pd

    table = pd.DataFrame(rows, columns=list(COLUMNS))
    table = table.astype({"id": int, "frame": int})

    def save(partial: Path) -> None:
        with partial.open("w", encoding="utf8", newline="") as file:
            file.write(",".join(f'"{name}"' for name in COLUMNS) + "\n")
            table.to_csv(file, index=False, header=False, float_format="%.5f", lineterminator="\n")

    write(path, save)


def read_positions(path: Path) -> np.ndarray:
    """Return rows of frame, x and y of a table of positions."""
    import pandas as pd

    try:
        table = read_csv(path)
    except FileNotFoundError:
        raise UserError(f"There is no file {path}.", "Check the path.") from None
    except (ValueError, OSError) as error:  # pandas' own errors are ValueErrors
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(f"{path} could not be read as CSV: {reason}", "Check the file.") from None
    missing = [name for name in COLUMNS[1:4] if name not in table.columns]
    if missing:
        raise UserError(
            f"{path} has no column {', '.join(map(repr, missing))}.",
            "Positions have ThunderSTORM's columns: frame, x [nm], y [nm].",
        )
    columns = [pd.to_numeric(table[name], errors="coerce") for name in COLUMNS[1:4]]
    values = np.stack([np.asarray(column, dtype=float) for column in columns], -1)
    broken = ~np.isfinite(values).all(-1)
    if broken.any():
        line = int(broken.argmax()) + 2
        raise UserError(f"Line {line} of {path} misses a number.", "Complete it, or remove it.")
    return values
