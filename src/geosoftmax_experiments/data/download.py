"""Files of publishers: from the folder of the user, or downloaded once, with a check."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from geosoftmax_experiments.data import data_folder
from geosoftmax_experiments.errors import UserError

__all__ = ["FILES", "find"]


class Published(NamedTuple):
    """Where a file comes from; `sha256` is None where its publisher's is not known to us."""

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
}


def find(place: str) -> Path:
    """Return a file of `FILES`: that in $GEOSOFTMAX_DATA if there is one, else a download.

    Downloads are kept in the cache of the user, and checked against the sum of their publisher.
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
    try:
        return Path(pooch.retrieve(url, sha256, fname=cache.name, path=cache.parent))
    except (OSError, ValueError, requests.RequestException) as error:
        raise UserError(
            f"Could not download {url}: {error}",
            f"Try again, or put the file at {place} in a folder that GEOSOFTMAX_DATA names.",
        ) from None
