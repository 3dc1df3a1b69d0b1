"""What a stopped run had finished, so that the same command continues."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.files import map_array, remove_partial, write, write_text
from geosoftmax_experiments.superres.stacks import COLUMNS

__all__ = ["Parts"]


class Parts:
    """Rows of finished batches, in the folder ``<output>.parts`` until the output is written.

    Rows that were made with other settings, or of another stack, are forgotten; `forgot` says so.
    """

    def __init__(self, output: Path, stack: Path, settings: dict[str, Any]) -> None:
        self.folder = output.with_name(output.name + ".parts")
        digest = hashlib.sha256(stack.read_bytes()).hexdigest()
        text = json.dumps({**settings, "stack": digest}, indent=1, sort_keys=True)
        note = self.folder / "settings.json"
        self.forgot = False
        if not note.exists() or note.read_bytes() != text.encode():
            self.forgot = any(self.folder.glob("batch-*.npy"))
            self.remove()
            write_text(note, text)
        remove_partial(self.folder)

    def __contains__(self, start: int) -> bool:
        """Tell whether the batch that starts with a frame was finished."""
        return self._path(start).exists()

    def get(self, start: int) -> np.ndarray | None:
        """Return the rows of the batch that starts with a frame, if it was finished."""
        if start not in self:
            return None
        path = self._path(start)
        try:
            rows = np.array(map_array(path))
            whole = rows.dtype == np.float64 and rows.shape == (len(rows), len(COLUMNS))
        except (ValueError, OSError, TypeError):
            rows, whole = None, False
        if not whole:
            raise UserError(
                f"{path} is damaged.", "Remove it: the same command does its frames again."
            )
        return rows

    def put(self, start: int, rows: np.ndarray) -> None:
        """Keep the rows of a batch."""
        write(self._path(start), lambda partial: np.save(partial, rows))

    def remove(self) -> None:
        """Remove what was kept, and the folder if it holds nothing else."""
        if not self.folder.is_dir():
            return
        remove_partial(self.folder)
        for path in [*self.folder.glob("batch-*.npy"), self.folder / "settings.json"]:
            path.unlink(missing_ok=True)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _path(self, start: int) -> Path:
        return self.folder / f"batch-{start:07d}.npy"
