"""Files of publishers: from the folder of the user, or downloaded once, with a check."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from geosoftmax_experiments import files
from geosoftmax_experiments.data import data_folder
from geosoftmax_experiments.errors import UserError

__all__ = ["FILES", "find"]


class Published(NamedTuple):
    """Where a file comes from; where `sha256` is None, that of the first download counts."""

    url: str | None
    sha256: str | None


_QUICKDRAW = "https://storage.googleapis.com/quickdraw_dataset/full"
_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist"

#: By their place in $GEOSOFTMAX_DATA.
FILES = {
    "quickdraw/numpy_bitmap/cat.npy": Published(
        f"{_QUICKDRAW}/numpy_bitmap/cat.npy",
        "21a281839d3f2eef601d57d2338a4eafdf24649f8d0a0e42d3ec3e595911463e",
    ),
    "quickdraw/simplified/cat.ndjson": Published(f"{_QUICKDRAW}/simplified/cat.ndjson", None),
    "quickdraw/simplified/mixed.ndjson": Published(None, None),
    "mnist/train-images-idx3-ubyte.gz": Published(
        f"{_MNIST}/train-images-idx3-ubyte.gz",
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    ),
    "mnist/t10k-images-idx3-ubyte.gz": Published(
        f"{_MNIST}/t10k-images-idx3-ubyte.gz",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    ),
    "mnist/train-labels-idx1-ubyte.gz": Published(
        f"{_MNIST}/train-labels-idx1-ubyte.gz",
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    ),
    "mnist/t10k-labels-idx1-ubyte.gz": Published(
        f"{_MNIST}/t10k-labels-idx1-ubyte.gz",
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
}


def find(place: str) -> Path:
    """Return a file of `FILES`: that in $GEOSOFTMAX_DATA if there is one, else a download.

    Downloads are kept in the cache of the user, and checked each time: against the sum in `FILES`,
    or, where that is not known, against the sum of the first download, which is recorded beside it.
    """
    if os.environ.get("GEOSOFTMAX_DATA"):
        path = data_folder() / place
        if path.exists():
            return path
    url, sha256 = FILES[place]
    if url is None:
        raise UserError(
            f"{place} is missing: it lies in no folder that GEOSOFTMAX_DATA names.",
            "Put it there, or take --data cat-strokes, which is downloaded.",
        )
    import pooch
    import requests

    cache = Path(pooch.os_cache("geosoftmax")) / place
    record = cache.with_name(cache.name + ".sha256")
    recorded = _read_sum(record) if sha256 is None else None
    pooch.get_logger().setLevel("WARNING")  # it would ask to note down a sum that we record
    try:
        found = Path(pooch.retrieve(url, sha256 or recorded, fname=cache.name, path=cache.parent))
    except (OSError, ValueError, requests.RequestException) as error:
        trust = f" If the publisher has changed it, and you trust that, remove {record}."
        raise UserError(
            f"Could not download {url}: {error}",
            f"Try again, or put the file at {place} in a folder that GEOSOFTMAX_DATA names."
            + (trust if recorded else ""),
        ) from None
    if sha256 is None and recorded is None:
        files.write_text(record, f"{pooch.file_hash(str(found))}  {found.name}\n")
    return found


def _read_sum(record: Path) -> str | None:
    """Return the sum that was recorded at the first download, None if there was none."""
    try:
        words = record.read_bytes().split()
    except FileNotFoundError:
        return None
    sha256 = words[0].decode("ascii", "replace") if words else ""
    if not re.fullmatch("[0-9a-f]{64}", sha256):
        raise UserError(
            f"{record} is damaged: it holds no sha256.",
            "Remove it and the file beside it: both come with the next download.",
        )
    return sha256
