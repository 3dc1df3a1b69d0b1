"""Data sets of the experiments, read from where their publishers' files lie."""

from __future__ import annotations

import os
from pathlib import Path

from geosoftmax_experiments.errors import UserError

__all__ = ["data_folder"]


def data_folder() -> Path:
    """Return the folder that the environment variable ``GEOSOFTMAX_DATA`` names."""
    root = os.environ.get("GEOSOFTMAX_DATA")
    if not root:
        raise UserError(
            "The environment variable GEOSOFTMAX_DATA is not set.",
            "Let it name the folder that holds ordinal-regression/, unpacked from "
            "http://www.uco.es/grupos/ayrna/ucobigfiles/datasets-orreview.zip; or take the sets "
            "that need no download: --source skordinal.",
        )
    if not Path(root).is_dir():
        raise UserError(f"GEOSOFTMAX_DATA={root} is not a folder.", "Let it name the data folder.")
    return Path(root)
