"""A folder of results belongs to the settings it was made with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from geosoftmax_experiments import files
from geosoftmax_experiments.errors import UserError

__all__ = ["claim"]

_ELSEWHERE = "Choose another folder with --output, or remove this one."


def claim(path: Path, settings: dict[str, Any], *, holds_results: bool) -> None:
    """Write settings to a JSON file, or see that those in it are the same.

    Parameters
    ----------
    path : Path
        The file; its folder is what belongs to the settings.
    settings : dict
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
        told = [_difference(k, found.get(k), wanted.get(k)) for k in names[:3]]
        return f"{key} ({', '.join(told)})"
    if key == "digest":
        return "other data"
    return f"{key} {found}, now {wanted}"
