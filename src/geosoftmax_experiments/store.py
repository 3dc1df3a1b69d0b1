"""The folder of a run: what it was made with, who is working in it, and one file for each result.

    settings.json     all that the results depend on: a folder belongs to one of these
    provenance.json   the commits, packages and devices that worked on it
    units/<key>.json  (or .npy) the result of each unit that is done
    .lock             the process that is working in it

Files are moved into place when they are complete. So a run that is stopped, also by ``kill -9`` or
a full disk, has lost nothing but the units under way, and the next one does the rest.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from geosoftmax_experiments import files
from geosoftmax_experiments.errors import UserError

__all__ = ["ARRAY", "JSON", "Format", "Store", "claim", "locked", "provenance", "versions"]

_ELSEWHERE = "Choose another folder with --output, or remove this one."


class Format(NamedTuple):
    """How results are written; `read` raises a ValueError for whatever is no such result."""

    suffix: str
    write: Callable[[Path, Any], None]
    read: Callable[[Path], Any]


def _write_json(path: Path, result: Any) -> None:
    files.write_text(path, json.dumps({"commit": commit(), "rows": result}))


def _read_json(path: Path) -> Any:
    """Read a result; the first versions wrote it without the commit."""
    found = files.read_json(path)
    return found["rows"] if isinstance(found, dict) and "rows" in found else found


def _write_array(path: Path, result: np.ndarray) -> None:
    files.write(path, lambda partial: np.save(partial, result))


JSON = Format(".json", _write_json, _read_json)
ARRAY = Format(".npy", _write_array, lambda path: np.array(files.map_array(path)))


class Store:
    """The results in a folder.

    Parameters
    ----------
    folder : Path
    settings : mapping
        What the results depend on, for a JSON file. A folder that was made with others is refused.
    format : Format
    beside : sequence of str
        Files and folders, besides those of the store, that are forgotten with the results.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, Any],
        format: Format = JSON,
        beside: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.settings = settings
        self._format = format
        self._beside = beside
        self._units = folder / "units"

    @contextlib.contextmanager
    def opened(self, *, fresh: bool = False) -> Iterator[Store]:
        """Lock the folder, and make it these settings' own; with `fresh`, forget what it holds."""
        files.make_folder(self.folder)
        with locked(self.folder):
            if fresh:
                self.forget()
            files.make_folder(self._units)
            for folder in (self.folder, self._units):
                files.remove_partial(folder)
            claim(self.folder / "settings.json", self.settings, holds_results=bool(self.keys()))
            yield self

    def forget(self) -> None:
        """Remove the results, of whatever settings."""
        if (self.folder / "settings.json").exists():
            for name in (*self._beside, "units", "provenance.json", "settings.json"):
                files.remove(self.folder / name)

    def keys(self) -> list[str]:
        """Return the keys of all results."""
        return sorted(path.stem for path in self._units.glob(f"[!.]*{self._format.suffix}"))

    def __contains__(self, key: str) -> bool:
        return self._path(key).exists()

    def write(self, key: str, result: Any) -> None:
        """Write a result whole or not at all."""
        self._format.write(self._path(key), result)

    def read(self, key: str, check: Callable[[Any], object] = lambda result: True) -> Any:
        """Return a result; one that is damaged, or that `check` finds wrong, is an error."""
        path = self._path(key)
        try:
            result = self._format.read(path)
            whole = bool(check(result))
        except (ValueError, OSError, KeyError, IndexError, TypeError, AttributeError):
            result, whole = None, False
        if not whole:
            raise UserError(
                f"{path} is damaged.", "Remove it and run again: it alone is done anew."
            )
        return result

    def record_provenance(self) -> None:
        """Add this process's provenance to those of the folder, unless it is there already."""
        path = self.folder / "provenance.json"
        try:
            found = files.read_json(path)
        except (ValueError, OSError):
            found = []
        this = provenance()
        if isinstance(found, list) and this not in found:
            files.write_text(path, json.dumps([*found, this], indent=1))

    def commits(self, keys: Iterable[str]) -> dict[str, int]:
        """Return how many of these results, in JSON, each commit has made."""
        made = (files.read_json(self._path(key)) for key in keys)
        return Counter(
            (found.get("commit") if isinstance(found, dict) else None) or "unknown"
            for found in made
        )

    def _path(self, key: str) -> Path:
        return self._units / f"{key}{self._format.suffix}"


# ------------------------------------------------------------------ settings


def claim(path: Path, settings: Mapping[str, Any], *, holds_results: bool) -> None:
    """Write settings to a JSON file, or see that those in it are the same.

    Parameters
    ----------
    path : Path
        The file; its folder is what belongs to the settings.
    settings : mapping
    holds_results : bool
        Whether the folder has results already: without a file of settings it is then refused.
    """
    wanted = json.loads(json.dumps(settings))
    if not path.exists():
        if holds_results:
            raise UserError(f"{path.parent} holds results, but no {path.name}.", _ELSEWHERE)
        files.write_text(path, json.dumps(wanted, indent=1))
        return
    try:
        found = files.read_json(path)
    except (ValueError, OSError):
        found = None
    if not isinstance(found, dict):
        raise UserError(f"{path} is damaged.", _ELSEWHERE)
    differing = [key for key in wanted if found.get(key) != wanted[key]]
    if differing:
        differing.sort(key=lambda key: key not in ("data", "digest"))  # matters most
        raise UserError(
            f"{path.parent} was made with other settings: "
            f"{'; '.join(_difference(key, found.get(key), wanted[key]) for key in differing)}.",
            "Use those settings to continue it, or choose another folder with --output.",
        )


def _difference(key: str, found: Any, wanted: Any) -> str:
    """Say in a few words how two values of a setting differ."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        names = sorted(k for k in found.keys() | wanted.keys() if found.get(k) != wanted.get(k))
        if key == "data":  # fingerprints say nothing to a reader
            return f"other data for {', '.join(names)}"
        parts = [_difference(k, found.get(k), wanted.get(k)) for k in names[:3]]
        return f"{key} ({', '.join(parts)})"
    if key == "digest":
        return "other data"
    return f"{key} {found}, now {wanted}"


# ------------------------------------------------------------------ the lock


@contextlib.contextmanager
def locked(folder: Path, patience: float = 0.0) -> Iterator[None]:
    """Keep other processes out of a folder. The system frees the lock when its holder dies.

    Where another one is there, wait for so many seconds before that is an error.
    """
    path = folder / ".lock"
    try:
        file = path.open("a+", encoding="utf8")
    except OSError as error:
        raise UserError(
            f"Could not write to {folder}: {error.strerror or error}.", _ELSEWHERE
        ) from None
    with file:
        try:
            _wait_for_lock(file, time.monotonic() + patience)
        except BlockingIOError:
            file.seek(0)
            raise UserError(
                f"{folder} is in use by {file.read() or 'another process'}.",
                "Wait until it is done, stop it, or choose another folder with --output.",
            ) from None
        except OSError:  # a file system without locks: nothing keeps others out
            pass
        since = datetime.now().astimezone().isoformat(" ", "seconds")
        with contextlib.suppress(OSError):  # the name of the holder is a courtesy
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}, since {since}")
            file.flush()
        yield


def _wait_for_lock(file: IO[str], deadline: float) -> None:
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.2)


# ------------------------------------------------------------------ provenance

#: The packages that results may depend on.
PACKAGES = ("geosoftmax", "torch", "numpy", "scipy", "scikit-learn", "pytorch-lightning")


def provenance() -> dict[str, Any]:
    """Return where numbers come from: device, packages, and the commit of a checkout."""
    import torch

    cuda = torch.cuda.is_available()
    return {
        "device": torch.cuda.get_device_name() if cuda else platform.processor() or "CPU",
        "system": platform.platform(),
        "threads": torch.get_num_threads(),
        "versions": versions(*PACKAGES),
        "commit": commit(),
    }


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of those packages that are installed."""
    found = {}
    for name in packages:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def commit() -> str | None:
    """Return the commit of the checkout this file lies in; with a plus where it was changed.

    A copy without its history says in ``GEOSOFTMAX_COMMIT`` which commit it is.
    """
    return os.environ.get("GEOSOFTMAX_COMMIT") or _commit_of_checkout()


@cache
def _commit_of_checkout() -> str | None:
    here = Path(__file__).parent
    git = ["git", "-C", str(here)]
    try:
        head = _output([*git, "rev-parse", "HEAD"])
        changed = _output([*git, "status", "--porcelain", "--", str(here.parent)])
        tracked = _output([*git, "ls-files", "--", str(here / "__init__.py")])
    except (OSError, subprocess.CalledProcessError):
        return None
    if not tracked:  # installed into an environment that lies in somebody else's checkout
        return None
    return head + ("+" if changed else "")


def _output(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()
