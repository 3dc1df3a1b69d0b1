"""The drawings that pictures of a comparison show, kept in a file to draw them again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geosoftmax_experiments import files

__all__ = ["keep", "read_kept"]


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
    """Read what `keep` wrote."""
    shown: dict[str, dict[str, Tensor]] = {}
    with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
        for key in kept:
            name, _, label = key.partition("/")
            shown.setdefault(name, {})[label] = torch.from_numpy(kept[key].astype(np.float32))
    return shown
