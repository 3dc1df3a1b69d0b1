"""The page: its tabs, the controls of each, and the HTML of all of it. Imports nothing heavy."""

from __future__ import annotations

import functools
import html
import importlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from geosoftmax_experiments.errors import UserError

__all__ = ["FILES", "TABS", "Choice", "Slider", "Tab", "answer", "render"]

_FOLDER = resources.files("geosoftmax_experiments.play")
#: What the page loads: name, and its type.
FILES = {"page.css": "text/css", "page.js": "text/javascript"}
#: The most ordered classes.
MOST = 10
SIDE = 28


@dataclass(frozen=True)
class Slider:
    """A number: a slider with a box. In a browser neither leaves its range."""

    name: str
    label: str
    low: float
    high: float
    value: float
    step: float = 1

    def render(self, tab: str) -> str:
        """Return its HTML."""
        limits = f'min="{self.low:g}" max="{self.high:g}" step="{self.step:g}"'
        own = f'value="{self.value:g}" {limits}'
        key = f"{tab}-{self.name}"
        return (
            f'<div class="control" id="{key}" data-name="{self.name}"><label for="{key}-range">'
            f'{html.escape(self.label)}</label><input type="range" id="{key}-range" {own}>'
            f'<input type="number" aria-label="{html.escape(self.label)}" {own}></div>'
        )


@dataclass(frozen=True)
class Choice:
    """One of some names."""

    name: str
    label: str
    options: Sequence[str]

    @property
    def value(self) -> str:
        """The first."""
        return self.options[0]

    def render(self, tab: str) -> str:
        """Return its HTML."""
        buttons = "".join(
            f'<label><input type="radio" name="{tab}-{self.name}" value="{html.escape(option)}"'
            f"{' checked' if option == self.value else ''}> {html.escape(option)}</label>"
            for option in self.options
        )
        return (
            f'<fieldset class="control" id="{tab}-{self.name}" data-name="{self.name}">'
            f"<legend>{html.escape(self.label)}</legend>{buttons}</fieldset>"
        )


@dataclass(frozen=True)
class Sheet:
    """A sheet of pixels to draw on; its value is the ink, row by row."""

    name: str = "ink"
    value: str = ""

    def render(self, tab: str) -> str:
        """Return its HTML; the script draws."""
        digits = "".join(f"<option>{k}</option>" for k in range(10))
        return (
            f'<div class="control" id="sheet" data-name="{self.name}"><canvas width="280" '
            'height="280" tabindex="0" role="img" aria-label="Sheet to draw on: arrow keys move, '
            'space draws, shift erases"></canvas><div class="buttons"><label>Pick '
            f'<select id="digit"><option>heart</option>{digits}</select></label>'
            '<button type="button" id="clear">Clear</button></div></div>'
        )


@dataclass(frozen=True)
class Scores:
    """One slider for each class; its value is the list of scores."""

    name: str = "scores"
    start: tuple[float, ...] = (-2.0, 0.6, 1.7, 1.9, 1.2, -0.8, -2.0, -3.0, -4.0, -4.0)

    @property
    def value(self) -> str:
        """The scores, as JSON."""
        return json.dumps(self.start)

    def render(self, tab: str) -> str:
        """Return its HTML."""
        sliders = "".join(
            f'<label><span>{k}</span><input type="range" min="-10" max="10" step="0.1" '
            f'value="{value:g}" aria-label="score of class {k}">'
            f"<output>{value:.1f}</output></label>"
            for k, value in enumerate(self.start, 1)
        )
        return f'<div class="control" id="scores" data-name="{self.name}">{sliders}</div>'


Control = Slider | Choice | Sheet | Scores


@dataclass(frozen=True)
class Tab:
    """A tab: what it is about, its controls, and the function that gets their values in order."""

    key: str
    title: str
    words: str
    controls: tuple[Control, ...]
    function: str

    def show(self) -> Callable[..., str]:
        """Import and return the function."""
        module, _, name = self.function.partition(":")
        return getattr(importlib.import_module(f"geosoftmax_experiments.play.{module}"), name)


MEANINGS = ("a distribution, seen through its distance field", "a score field")
POWERS = ("p = 1 beside p = 2", "p = 1, Manhattan distance", "p = 2, squared distance")
TABS = (
    Tab(
        "fields",
        "Drawings",
        "Draw (pointer, finger, or arrow keys and space; shift erases), or pick one. A link "
        "turns scores into a distribution. The geometric softmax undoes the distance field "
        "exactly. With noise, try both powers p of the distance, and other scales of the cost.",
        (
            Sheet(),
            Choice("meaning", "What you draw is", MEANINGS),
            Slider("noise", "Noise on the scores", 0, 1, 0.05, 0.01),
            Slider("seed", "Which noise", 0, 20, 0),
            Choice("cost", "Cost between pixels", POWERS),
            Slider("scale", "Scale of the cost", 0.25, 4, 1, 0.05),
        ),
        "fields:show_fields",
    ),
    Tab(
        "keypoints",
        "Key points",
        "A heat map with a key point anywhere between pixels, and a second, lower peak. "
        "Soft-argmax is drawn to a place between them; the geometric softmax marks both.",
        (
            Slider("row", "Row of the key point", 4, 27, 9.3, 0.1),
            Slider("column", "Column of the key point", 4, 27, 11.6, 0.1),
            Slider("second", "Second peak, lower by", 0, 5, 1, 0.1),
            Slider("noise", "Noise on the scores", 0, 2, 0.3, 0.05),
            Slider("seed", "Which noise", 0, 20, 0),
            Choice("cost", "Cost between pixels", POWERS[1:]),
            Slider("scale", "Scale of the cost", 0.1, 3, 1, 0.1),
        ),
        "keypoints:show_keypoints",
    ),
    Tab(
        "ordinal",
        "Ordered classes",
        "Drag the scores of ordered classes.",
        (
            Scores(),
            Slider("classes", "Classes", 3, MOST, 6),
            Choice("cost", "Cost", ("distance", "squared distance", "zero-one")),
            Slider("scale", "Scale of the cost", 0.02, 10, 0.5, 0.02),
            Slider("true", "True class", 1, 6, 3),
        ),
        "ordinal:show_ordinal",
    ),
    Tab(
        "simplex",
        "Three classes",
        "Move the scores of three classes. Scores outside the green region give a zero: their "
        "geometric softmax is that of the extrapolation fᴱ, on the border of the region.",
        (
            Slider("score-1", "Score of class 1", -5, 5, 1.5, 0.1),
            Slider("score-2", "Score of class 2", -5, 5, -1.5, 0.1),
            Slider("score-3", "Score of class 3", -5, 5, 0.5, 0.1),
            Choice(
                "cost",
                "Cost",
                (
                    "ordered, distance",
                    "ordered, squared distance",
                    "1 and 2 near, 3 far",
                    "zero-one",
                ),
            ),
            Slider("scale", "Scale of the cost", 0.1, 10, 2, 0.1),
        ),
        "simplex:show_simplex",
    ),
)


def answer(request: Any) -> str:
    """Return the answer to what the page sent: ``{"tab": key, "values": {name: value}}``.

    ``{"digit": name}`` asks for a drawing, as JSON.
    """
    if isinstance(request, dict) and "digit" in request:
        from geosoftmax_experiments.play.fields import digit

        return digit(request["digit"])
    tabs = {tab.key: tab for tab in TABS}
    key = request.get("tab") if isinstance(request, dict) else None
    values = request.get("values") if isinstance(request, dict) else None
    if not isinstance(key, str) or key not in tabs or not isinstance(values, dict):
        raise UserError("The request cannot be read.", "Reload the page.")
    tab = tabs[key]
    return tab.show()(*(values.get(control.name) for control in tab.controls))


@functools.cache
def render() -> str:
    """Return the page."""
    buttons = "".join(
        f'<button role="tab" id="tab-{tab.key}" aria-controls="{tab.key}" '
        f'aria-selected="{"true" if k == 0 else "false"}">{tab.title}</button>'
        for k, tab in enumerate(TABS)
    )
    sections = "".join(_section(tab, hidden=k > 0) for k, tab in enumerate(TABS))
    text = _FOLDER.joinpath("page.html").read_text(encoding="utf8")
    return text.replace("{{tabs}}", buttons).replace("{{sections}}", sections)


def _section(tab: Tab, hidden: bool) -> str:
    controls = "".join(control.render(tab.key) for control in tab.controls)
    return (
        f'<section id="{tab.key}" role="tabpanel" aria-labelledby="tab-{tab.key}"'
        f"{' hidden' if hidden else ''}><p>{html.escape(tab.words)}</p>"
        f'<form class="controls" autocomplete="off">{controls}</form>'
        '<div class="shown" aria-live="polite"><p class="g-wait">Computing…</p></div></section>'
    )
