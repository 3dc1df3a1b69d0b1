"""What comes from the page is read here: any value, also a bad one, and never a crash."""

from __future__ import annotations

import functools
import html
import json
import math
from collections.abc import Callable
from typing import Any

from geosoftmax_experiments.errors import UserError

__all__ = ["answer", "choice", "number", "numbers"]


def answer(function: Callable[..., str]) -> Callable[..., str]:
    """Show a `UserError` on the page, where the answer would have been."""

    @functools.wraps(function)
    def wrapped(*values: Any) -> str:
        try:
            inside = function(*values)
        except UserError as error:
            inside = f'<p role="alert" class="g-alert">{html.escape(str(error))}</p>'
        return f'<div class="g-answer">{inside}</div>'

    return wrapped


def number(name: str, value: Any, low: float, high: float) -> float:
    """Return a number between two others; a whole one is given back as it is."""
    try:
        found = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not low <= found <= high:
        raise UserError(
            f"{name} must be a number from {low:g} to {high:g}; got {str(value)[:40]}.",
            "Move its slider.",
        )
    return found


def numbers(name: str, text: Any, least: int, low: float, high: float) -> list[float]:
    """Read a JSON list of at least so many numbers."""
    try:
        found = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not least <= len(found) <= 4096:
        raise UserError(f"{name} cannot be read.", "Reload the page.")
    return [number(name, value, low, high) for value in found]


def choice(name: str, value: Any, known: Any) -> Any:
    """Return what a name stands for."""
    if not isinstance(value, str) or value not in known:
        raise UserError(f"{name} {str(value)[:40]!r} is not known.", "Choose one of the list.")
    return known[value]
