"""The drawings that pictures of a comparison show, kept in a file to draw them again."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geosoftmax_experiments import files

__all__ = ["PICTURES", "keep", "read_kept"]

#: The pictures of a report.
PICTURES = ("reconstructions", "samples")
#: Far more than a comparison keeps: some hundred kilobytes, ten drawings in a line.
MOST_BYTES = 2**25
MOST_DRAWINGS = 100


def keep(shown: dict[str, dict[str, Tensor]], path: Path) -> None:
    """Write the drawings of pictures, to draw them again: an array for ``picture/label``."""
    arrays: dict[str, Any] = {
        f"{name}/{label}": drawings.numpy().astype(np.float16)
        for name, lines in shown.items()
        for label, drawings in lines.items()
    }

    def write(partial: Path) -> None:
        with partial.open("wb") as file:
            np.savez_compressed(file, **arrays)

    files.write(path, write)


def read_kept(path: Path) -> dict[str, dict[str, Tensor]]:
    """Read what `keep` wrote. All else is a ValueError, before it takes memory."""
    shown: dict[str, dict[str, Tensor]] = {name: {} for name in PICTURES}
    with path.open("rb") as file, zipfile.ZipFile(file) as packed:
        if sum(entry.file_size for entry in packed.infolist()) > MOST_BYTES:
            raise ValueError(f"unpacked, it has more than {MOST_BYTES:,} bytes")
        file.seek(0)
        with np.load(file, allow_pickle=False) as kept:
            for key in kept:
                name, _, label = key.partition("/")
                shown[name][label] = _drawings(kept[key])
    return shown


def _drawings(found: np.ndarray) -> Tensor:
    if found.dtype != np.float16 or found.ndim != 3 or not 0 < len(found) <= MOST_DRAWINGS:
        raise ValueError(f"{found.dtype} of shape {found.shape} are not drawings")
    if not np.isfinite(found).all():
        raise ValueError("drawings are not finite")
    return torch.from_numpy(found.astype(np.float32))
