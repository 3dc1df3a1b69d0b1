"""Pictures of one's own: the one place where files are opened as pictures."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from geosoftmax_experiments.errors import UserError

__all__ = ["FORMATS", "MOST_PIXELS", "find_pictures", "paper", "picture_size", "read_picture"]

T = TypeVar("T")

#: What is read, by content; Pillow's other readers (some start programs) are never tried.
FORMATS = ("PNG", "JPEG", "TIFF", "WEBP")
SUFFIXES = {".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp"}
#: What large cameras have. Files that say more are refused before they are unpacked.
MOST_PIXELS = 50_000_000


def find_pictures(folder: Path) -> list[Path]:
    """Return the pictures of a folder in the order of their names."""
    paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
    if not paths:
        raise UserError(
            f"{folder} holds no pictures.",
            "Give a folder with PNG, JPEG, TIFF or WebP files, whose names end so.",
        )
    return paths


def picture_size(path: Path) -> tuple[int, int]:
    """Return the sides of a picture, which only its header says."""
    return _guarded(path, _size)


def read_picture(path: Path, size: int | None = None) -> np.ndarray:
    """Return a picture as grey bytes, of shape ``(h, w)``; what is clear is white.

    With `size` it becomes ``(size, size)``: what is wider or higher is shrunk, never squeezed.
    """
    return _guarded(path, lambda path: _read(path, size))


def _guarded(path: Path, read: Callable[[Path], T]) -> T:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's: of damage that is an error, or harmless
            return read(path)
    except UserError:
        raise
    except Exception as error:  # whatever a damaged file makes of Pillow
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"{path} cannot be read: {reason}",
            "The file is damaged, or neither PNG, JPEG, TIFF nor WebP.",
        ) from None


def _open(path: Path) -> Any:
    from PIL import Image

    return Image.open(path, formats=FORMATS)


def _size(path: Path) -> tuple[int, int]:
    with _open(path) as opened:
        return opened.size


def _read(path: Path, size: int | None) -> np.ndarray:
    from PIL import Image, ImageOps

    with _open(path) as opened:
        width, height = opened.size
        if width * height > MOST_PIXELS:
            raise UserError(
                f"{path} has {width} × {height} pixels; at most {MOST_PIXELS:,} are read.",
                "Make it smaller.",
            )
        if getattr(opened, "n_frames", 1) > 1:
            raise UserError(f"{path} has several pages or frames.", "Save each as a picture.")
        image = ImageOps.exif_transpose(opened)  # as its camera was held
        if image.mode.startswith("I"):  # 16 bits
            image = Image.fromarray(_high_bytes(np.asarray(image), path))
        elif image.mode == "F":
            raise UserError(f"{path} has pixels that are not whole.", "Save it with 8 bits.")
        elif image.has_transparency_data:
            clear = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear)
        grey = image.convert("L")
    if size is not None and grey.size != (size, size):
        ground = paper(np.asarray(grey))
        grey = ImageOps.pad(grey, (size, size), Image.Resampling.BOX, color=ground)
    return np.asarray(grey)


def _high_bytes(pixels: np.ndarray, path: Path) -> np.ndarray:
    if pixels.min() < 0 or pixels.max() > 0xFFFF:
        raise UserError(f"{path} has pixels of more than 16 bits.", "Save it with 8 or 16.")
    return (pixels / 257).astype(np.uint8)


def paper(picture: np.ndarray) -> int:
    """Return what is drawn on: the commonest grey along the edges."""
    edges = np.concatenate([picture[0], picture[-1], picture[:, 0], picture[:, -1]])
    return int(np.bincount(edges).argmax())
