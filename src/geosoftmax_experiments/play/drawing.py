"""Pictures as text: images as PNG inside the page, charts as SVG. Fast, and nothing to fetch."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

import matplotlib
import numpy as np
from PIL import Image
from torch import Tensor

__all__ = ["BLUE", "GREEN", "ORANGE", "bars", "figure", "table"]

# Okabe and Ito's colours; letters take the colour of the page, light or dark.
BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"


def figure(
    values: Tensor, caption: str, *, colours: str, low: float, high: float, mark: str = ""
) -> str:
    """Return a picture of a plane of values, with its caption; `mark` is an SVG to lay over it."""
    span = max(high - low, 1e-12)
    shade = np.clip((values.detach().numpy() - low) / span, 0, 1)
    pixels = (matplotlib.colormaps[colours](shade)[..., :3] * 255).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=1)
    data = base64.b64encode(buffer.getvalue()).decode()
    return (
        f'<figure><div class="g-map"><img alt="{caption}" src="data:image/png;base64,{data}">'
        f"{mark}</div><figcaption>{caption}</figcaption></figure>"
    )


def bars(groups: dict[str, tuple[str, Sequence[float]]], names: Sequence[str], label: str) -> str:
    """Return a chart: for each name a group of bars from 0 to 1, one of each kind and colour.

    The vertical axis is a probability; `label` names the horizontal one.
    """
    left, width, height, bottom = 84, 560, 200, 48  # room for a phone's larger letters
    slot = (width - left) / len(names)
    bar = slot * 0.8 / len(groups)
    parts = [_svg(width, height + bottom, f"probabilities; {label}")]
    for k in range(5):
        y = height * (1 - 0.95 * k / 4)
        parts.append(f'<line x1="{left}" x2="{width}" y1="{y:.1f}" y2="{y:.1f}" class="g-grid"/>')
        parts.append(f'<text class="g-left" x="{left - 6}" y="{y + 4:.1f}">{k / 4:g}</text>')
    parts.append(f'<text transform="translate(18 {height / 2}) rotate(-90)">probability</text>')
    parts.append(f'<text x="{(left + width) / 2}" y="{height + 43}">{label}</text>')
    for g, (colour, values) in enumerate(groups.values()):
        for k, value in enumerate(values):
            tall = 0.95 * height * value
            x, y = left + slot * k + slot * 0.1 + bar * g, height - tall
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{bar * 0.92:.1f}" height="{tall:.1f}" '
                f'fill="{colour}"><title>{value:.3f}</title></rect>'
            )
    for k, name in enumerate(names):
        x = left + slot * (k + 0.5)
        parts.append(f'<text class="g-name" x="{x:.1f}" y="{height + 20}">{name}</text>')
    legend = "".join(
        f'<span><i style="background:{colour}"></i>{kind}</span>'
        for kind, (colour, _) in groups.items()
    )
    return f'<p class="g-legend">{legend}</p>{"".join(parts)}</svg>'


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; the first cell of a row names it, and is its id for who looks for it."""
    top = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    body = "".join(
        f'<tr data-row="{row[0]}"><th scope="row">{row[0]}</th>'
        + "".join(
            f'<td data-label="{name}">{cell}</td>'
            for name, cell in zip(head[1:], row[1:], strict=True)
        )
        + "</tr>"
        for row in rows
    )
    inside = f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody>"
    return f"<table>{inside}</table>"


def _svg(width: float, height: float, label: str) -> str:
    return f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{label}">'
