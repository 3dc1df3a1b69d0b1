"""Data sets of the experiments, read from where their publishers' files lie."""

from __future__ import annotations

import os
from pathlib import Path

from geosoftmax_experiments.errors import UserError

__all__ = ["data_folder"]


def data_folder(hint: str = "Let it name the folder that holds the data sets.") -> Path:
    """Return the folder that the environment variable ``GEOSOFTMAX_DATA`` names.

    Where it names none, the error has this hint: what the folder has to hold, and where that is.
    """
    root = os.environ.get("GEOSOFTMAX_DATA")
    if not root:
        raise UserError("The environment variable GEOSOFTMAX_DATA is not set.", hint)
    if not Path(root).is_dir():
        raise UserError(f"GEOSOFTMAX_DATA={root} is not a folder.", hint)
    return Path(root)
