"""20 newsgroups: posts with their official split, and the taxonomy that their dotted names are.

The archive is "20news-bydate", as published (``.tar.gz``) or packed anew (``.tar.xz``). Headers,
quotes and footers are removed as scikit-learn's ``fetch_20newsgroups`` does it, with its functions.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import re
import tarfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets._twenty_newsgroups import (
    strip_newsgroup_footer,
    strip_newsgroup_header,
    strip_newsgroup_quoting,
)

from geosoftmax_experiments.data import data_folder
from geosoftmax_experiments.errors import UserError

__all__ = ["Posts", "load_newsgroups", "read_archive", "tree_of_names"]

#: Posts of the official split.
EXPECTED = {"train": 11_314, "test": 7_532}
GROUPS = 20
ARCHIVES = ("20news-bydate.tar.xz", "20news-bydate.tar.gz")
SOURCE = "http://qwone.com/~jason/20Newsgroups/20news-bydate.tar.gz"
HINT = f"Let it name the folder that holds newsgroups/, with an archive from {SOURCE}"

#: Bytes of the archive once it is unpacked (it has some 53 million), and that xz may need for it.
LARGEST, MOST_MEMORY = 80_000_000, 100_000_000
_PART = 1 << 20
_NAME = re.compile(r"(?:\./)?20news-bydate-(train|test)/([a-z][a-z.\-]*)/([0-9]+)")
_AGAIN = f"Get it again: {SOURCE}"


@dataclass(frozen=True)
class Posts:
    """Texts of one part of the split; labels are places in `names`, which are sorted."""

    texts: tuple[str, ...]
    labels: np.ndarray
    names: tuple[str, ...]

    def digest(self) -> str:
        """Return a short fingerprint, to know the same posts again."""
        found = hashlib.sha256("\0".join(self.names).encode())
        for label, text in zip(self.labels.tolist(), self.texts, strict=True):
            found.update(f"\0{label}\0{text}".encode())
        return found.hexdigest()[:12]


def load_newsgroups() -> tuple[Posts, Posts]:
    """Return the posts to train on and those to test on, of $GEOSOFTMAX_DATA/newsgroups."""
    folder = data_folder(HINT) / "newsgroups"
    found = [folder / name for name in ARCHIVES if (folder / name).is_file()]
    if not found:
        raise UserError(
            f"{folder} holds neither {' nor '.join(ARCHIVES)}.", f"Put it there, from {SOURCE}"
        )
    return read_archive(found[0])


def read_archive(path: Path) -> tuple[Posts, Posts]:
    """Return the posts to train on and those to test on. Nothing is written to the disk."""
    try:
        with tarfile.open(fileobj=io.BytesIO(_unpack(path)), mode="r:") as archive:
            raw = _read_members(path, archive)
    except (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError, ValueError) as error:
        raise UserError(f"{path} is no archive of 20 newsgroups: {error}.", _AGAIN) from None
    train, test = (_posts(path, part, raw[part]) for part in ("train", "test"))
    if train.names != test.names or len(train.names) != GROUPS:
        raise UserError(
            f"{path} holds {len(train.names)} groups to train on and {len(test.names)} to test "
            f"on; {GROUPS} were expected, the same in both.",
            _AGAIN,
        )
    return train, test


def tree_of_names(names: Sequence[str]) -> dict[str, Any]:
    """Return the taxonomy of dotted names, for `TreeCost.from_dict`: leaves are the full names.

    A prefix that only one name, or only one group, has is no group.

    Examples
    --------
    >>> tree_of_names(["alt.atheism", "rec.autos", "rec.sport.baseball", "rec.sport.hockey"])
    {'alt.atheism': None, 'rec': {'rec.autos': None, 'rec.sport': {'rec.sport.baseball': None, \
'rec.sport.hockey': None}}}
    """
    return _branches({name: tuple(name.split(".")) for name in names}, 0)


def _branches(names: Mapping[str, tuple[str, ...]], depth: int) -> dict[str, Any]:
    parts: dict[str, dict[str, tuple[str, ...]]] = {}
    for name, words in names.items():
        parts.setdefault(".".join(words[: depth + 1]), {})[name] = words
    tree: dict[str, Any] = {}
    for prefix, members in parts.items():
        below = depth + 1
        if len(members) == 1:
            tree[next(iter(members))] = None
            continue
        branches = _branches(members, below)
        # A group with a single branch is that branch.
        tree |= branches if len(branches) == 1 else {prefix: branches}
    return tree


# ------------------------------------------------------------------ the archive


def _unpack(path: Path) -> bytes:
    """Return what an xz or gzip file holds; more than `LARGEST` bytes are refused."""
    with path.open("rb") as file:
        is_xz = file.read(6) == b"\xfd7zXZ\x00"
        file.seek(0)
        packed = zlib.decompressobj(wbits=31)
        if is_xz:
            packed = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MOST_MEMORY)
        unpacked = bytearray()
        while not packed.eof:
            part = file.read(_PART)
            if not part:
                raise EOFError("it is truncated")
            while True:
                unpacked += packed.decompress(part, _PART)
                if len(unpacked) > LARGEST:
                    raise ValueError(f"unpacked it has more than {LARGEST:,} bytes")
                part = b"" if is_xz else packed.unconsumed_tail  # type: ignore[union-attr]
                if packed.eof or (packed.needs_input if is_xz else not part):  # type: ignore[union-attr]
                    break
    return bytes(unpacked)


def _read_members(path: Path, archive: tarfile.TarFile) -> dict[str, dict[tuple[str, str], str]]:
    """Return the texts of both parts by group and number."""
    posts: dict[str, dict[tuple[str, str], str]] = {"train": {}, "test": {}}
    for member in archive:
        if member.isdir():
            continue
        words = _NAME.fullmatch(member.name)
        if words is None or not member.isreg():
            raise ValueError(f"it holds {member.name[:100]!r}, which is no post")
        part, group, number = words.groups()
        if (group, number) in posts[part]:
            raise ValueError(f"it holds {member.name!r} twice")
        file = archive.extractfile(member)
        posts[part][group, number] = b"" if file is None else file.read()  # type: ignore[assignment]
    return posts


def _posts(path: Path, part: str, raw: dict[tuple[str, str], Any]) -> Posts:
    """Return the posts sorted by group and number, stripped."""
    if len(raw) != EXPECTED[part]:
        raise UserError(
            f"{path} holds {len(raw)} posts to {part} on; {EXPECTED[part]} were expected.", _AGAIN
        )
    keys = sorted(raw, key=lambda key: (key[0], int(key[1])))
    names = tuple(sorted({group for group, _ in keys}))
    place = {name: k for k, name in enumerate(names)}
    return Posts(
        texts=tuple(_strip(raw[key].decode("latin1")) for key in keys),
        labels=np.array([place[group] for group, _ in keys], dtype=np.int64),
        names=names,
    )


def _strip(text: str) -> str:
    return strip_newsgroup_quoting(strip_newsgroup_footer(strip_newsgroup_header(text)))
