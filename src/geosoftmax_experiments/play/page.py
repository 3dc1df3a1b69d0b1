"""The page: three tabs, put together with gradio."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import gradio as gr  # pyright: ignore[reportMissingImports] (an extra)
from gradio.themes import Base  # pyright: ignore[reportMissingImports]

from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.play import fields, ordinal, simplex

__all__ = ["CSS", "THEME", "build"]

_FILES = resources.files("geosoftmax_experiments.play")
CSS = _FILES.joinpath("page.css").read_text(encoding="utf8")
_SANS = ("system-ui", "sans-serif")
#: Fonts of the system: none is fetched.
THEME = Base(font=_SANS, font_mono=("ui-monospace", "monospace"), primary_hue="green")

INTRODUCTION = """# Play with the geometric softmax
A softmax that knows the cost between its outputs. Every answer comes with a certificate: a bracket
that holds the exact value."""
FIELDS = """Draw (pointer, finger, or arrow keys and space; shift erases) or pick a digit. Links
turn scores into a distribution; the geometric softmax undoes the distance field exactly, and
sharpens what noise there is."""
ORDINAL = "Drag the scores of ordered classes."
SIMPLEX = """Move the scores of three classes. Scores outside the green region give a zero: their
geometric softmax is that of the extrapolation fᴱ, on the border of the region."""
#: Answers come at once, without a queue, and are for this page alone.
_QUIETLY: dict[str, Any] = {"show_progress": "hidden", "queue": False, "api_visibility": "private"}
_SCORES = [-2.0, 0.6, 1.7, 1.9, 1.2, -0.8, -2.0, -3.0, -4.0, -4.0]


def build() -> gr.Blocks:
    """Return the page, ready to be served."""
    with gr.Blocks(title="geosoftmax", analytics_enabled=False) as page:
        gr.Markdown(INTRODUCTION)
        with gr.Tab("Score fields"):
            _fields_tab()
        with gr.Tab("Ordered classes"):
            _ordinal_tab()
        with gr.Tab("Three classes"):
            _simplex_tab()
    return page


def _fields_tab() -> None:
    gr.Markdown(FIELDS)
    with gr.Row():
        with gr.Column(scale=1, min_width=260):
            ink = gr.HTML(
                fields.digit(3),
                html_template='<canvas width="280" height="280" tabindex="0" role="img" '
                'aria-label="Sheet to draw on: arrow keys move, space draws, shift erases">'
                "</canvas>",
                css_template="canvas { width: min(280px, 100%); border: 1px solid #888; "
                "touch-action: none; cursor: crosshair; background: white; }",
                js_on_load=_FILES.joinpath("painter.js").read_text(encoding="utf8"),
                elem_id="sheet",
            )
            with gr.Row():
                digit = gr.Dropdown(
                    [str(k) for k in range(10)], value="3", label="Pick a digit", min_width=90
                )
                clear = gr.Button("Clear the sheet", min_width=90)
        with gr.Column(scale=1, min_width=260):
            meaning = gr.Radio(
                [*fields.MEANINGS], value=next(iter(fields.MEANINGS)), label="What you draw is"
            )
            noise = _slider(0, 1, 0, step=0.01, label="Noise on the scores", elem_id="noise")
            seed = _slider(0, 20, 0, step=1, label="Which noise")
            cost = gr.Radio([*fields.COSTS], value="squared distance", label="Cost between pixels")
            scale = _slider(0.25, 4, 1, step=0.05, label="times", elem_id="scale")
    inputs = [ink, meaning, noise, cost, scale, seed]
    shown = _live(fields.show_fields, inputs, "fields")
    empty = json.dumps([0] * fields.SIDE**2)
    digit.input(_pick, [digit, ink], ink, **_QUIETLY).then(
        fields.show_fields, inputs, shown, **_QUIETLY
    )
    clear.click(lambda: empty, None, ink, **_QUIETLY).then(
        fields.show_fields, inputs, shown, **_QUIETLY
    )


def _pick(name: Any, ink: Any) -> Any:
    """Return the digit of this name; what was drawn before, if there is none."""
    try:
        return fields.digit(name)
    except UserError:
        return ink


def _ordinal_tab() -> None:
    gr.Markdown(ORDINAL)
    names = range(1, ordinal.MOST + 1)
    sliders = "".join(
        f'<label>{k}<input type="range" min="-10" max="10" step="0.1" '
        f'aria-label="score of class {k}"><output></output></label>'
        for k in names
    )
    with gr.Row():
        with gr.Column(scale=1, min_width=260):
            scores = gr.HTML(
                json.dumps(_SCORES),
                html_template=sliders,
                css_template="label { display: grid; grid-template-columns: 1.6em 1fr 2.6em; "
                "gap: 8px; align-items: center; } "
                "label:nth-child(n + ${classes + 1}) { display: none; } "
                "input { width: 100%; accent-color: #009e73; }",
                classes=6,
                js_on_load=_FILES.joinpath("scores.js").read_text(encoding="utf8"),
                elem_id="scores",
            )
        with gr.Column(scale=1, min_width=260):
            classes = _slider(3, ordinal.MOST, 6, step=1, label="Classes", elem_id="classes")
            cost = gr.Radio([*ordinal.COSTS], value="squared distance", label="Cost")
            scale = _slider(0.02, 10, 0.5, step=0.02, label="times")
            true = _slider(1, ordinal.MOST, 3, step=1, label="True class")
    _live(ordinal.show_ordinal, [scores, classes, cost, scale, true], "ordinal")
    classes.input(_with_classes, classes, scores, **_QUIETLY)


def _with_classes(d: Any) -> Any:
    """Show so many of the sliders of the scores; as many as before, if it is no such number."""
    good = isinstance(d, (int, float)) and 3 <= d <= ordinal.MOST
    return gr.HTML(classes=int(d)) if good else gr.skip()


def _simplex_tab() -> None:
    gr.Markdown(SIMPLEX)
    with gr.Row():
        with gr.Column(scale=1, min_width=260):
            values = (1.5, -1.5, 0.5)
            scores = [
                _slider(-5, 5, value, step=0.1, label=f"Score of class {k}", elem_id=f"score-{k}")
                for k, value in enumerate(values, 1)
            ]
        with gr.Column(scale=1, min_width=260):
            cost = gr.Radio([*simplex.COSTS], value=next(iter(simplex.COSTS)), label="Cost")
            scale = _slider(0.1, 10, 2, step=0.1, label="times")
    _live(simplex.show_simplex, [*scores, cost, scale], "simplex")


def _slider(*arguments: Any, **options: Any) -> gr.Slider:
    """Return a slider that passes on what was typed in its box, also if it is out of range.

    gradio would refuse it with a traceback; the answers say in words what is wrong.
    """
    slider = gr.Slider(*arguments, **options)
    slider.preprocess = lambda payload: payload
    return slider


def _live(show: Any, inputs: list[Any], name: str) -> gr.HTML:
    """Show the answer to the first values, and a new one whenever an input moves."""
    first = show(*(component.value for component in inputs))
    shown = gr.HTML(first, elem_id=name, apply_default_css=False)
    gr.on(
        [component.input for component in inputs],
        show,
        inputs,
        shown,
        trigger_mode="always_last",
        **_QUIETLY,
    )
    return shown
