"""The tab of three classes: level sets in the plane of scores, distributions in the simplex."""

from __future__ import annotations

import functools
from typing import Any

import contourpy
import entmax
import torch
from torch import Tensor

from geosoftmax import Cost, LineCost, ZeroOneCost, extrapolate, geometric_logsumexp, solve
from geosoftmax_experiments.play.drawing import BLUE, GREEN, ORANGE, table
from geosoftmax_experiments.play.values import answer, choice, number
from geosoftmax_experiments.three_classes import DIRECTIONS, plane, potentials_of_the_border

__all__ = ["COSTS", "show_simplex"]

COSTS = {
    "ordered, distance": lambda scale: LineCost(3) * scale,
    "ordered, squared distance": lambda scale: LineCost(3, p=2) * scale,
    "1 and 2 near, 3 far": lambda scale: LineCost([0, 1, 4]) * scale,
    "zero-one": lambda scale: ZeroOneCost(3) * scale,
}
REACH = 6.5
SIZE = 300.0


@answer
def show_simplex(first: Any, second: Any, third: Any, cost: Any, scale: Any) -> str:
    """Return both charts and the table of the tab."""
    values = [number(f"score {k}", v, -5, 5) for k, v in enumerate((first, second, third), 1)]
    scale = number("scale", scale, 0.1, 10)
    choice("cost", cost, COSTS)
    f = torch.tensor(values, dtype=torch.float64)
    costs = COSTS[cost](scale)
    solution = solve(f, costs)
    links = {
        "geometric softmax": (GREEN, solution.alpha),
        "softmax": (BLUE, torch.softmax(f, 0)),
        "sparsemax": (ORANGE, entmax.sparsemax(f, 0)),
    }
    extrapolated = extrapolate(f, costs)
    charts = _scores(f, extrapolated, cost, scale) + _simplex(links)
    rows = [(name, *(f"{p:.3f}" for p in alpha.tolist())) for name, (_, alpha) in links.items()]
    rows.append(("scores f", *(f"{v:.2f}" for v in f.tolist())))
    rows.append(("extrapolated fᴱ", *(f"{v:.2f}" for v in extrapolated.tolist())))
    note = f"Certified: g-LSE(f) = {float(solution.upper):.6f}, gap {float(solution.gap):.0e}."
    head = ("", "class 1", "class 2", "class 3")
    return f'<div class="g-row g-two">{charts}</div>{table(head, rows)}<p id="level">{note}</p>'


def _scores(f: Tensor, extrapolated: Tensor, cost: str, scale: float) -> str:
    """Draw the plane of scores: levels of g-LSE, the cylinder of potentials, and f → fᴱ."""
    start, end = (_place(plane(g)[None])[0] for g in (f, extrapolated))
    arrow = (
        f'<line x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}" '
        f'stroke="{ORANGE}" stroke-width="2"/>'
        + _dot(*start, f'fill="{ORANGE}"', "f")
        + _dot(*end, f'fill="none" stroke="{ORANGE}" stroke-width="2"', "fᴱ")
    )
    caption = (
        "Scores, up to a constant. Grey: level sets of g\u2011LSE. Green: scores without zeros. "
        "Orange: from f to fᴱ."
    )
    return _chart(_background(cost, scale) + arrow, "plane of scores", caption)


@functools.lru_cache(maxsize=64)
def _background(name: str, scale: float) -> str:
    """Return what does not depend on the scores; it is kept while these are moved."""
    cost: Cost = COSTS[name](scale)
    line = torch.linspace(-REACH, REACH, 61, dtype=torch.float64)
    x, y = torch.meshgrid(line, line, indexing="xy")
    grid = torch.stack([x, y], -1) @ DIRECTIONS.T * (2 / 3)
    value = geometric_logsumexp(grid, cost)
    contours = contourpy.contour_generator(x.numpy(), y.numpy(), value.numpy())
    low, high = float(value.min()), float(value.max())
    parts = []
    for k in range(1, 10):
        for part in contours.lines(low + (high - low) * k / 10):
            parts.append(_path(_place(torch.from_numpy(part)), 'class="g-level"'))
    border = _place(plane(potentials_of_the_border(cost)))
    style = f'fill="{GREEN}" fill-opacity="0.2" stroke="{GREEN}" stroke-width="2"'
    return "".join(parts) + _path(border, style) + _corners(0.92 * REACH * DIRECTIONS)


def _simplex(links: dict[str, tuple[str, Tensor]]) -> str:
    """Draw the simplex, with the distribution of each link."""
    corners = 0.85 * REACH * DIRECTIONS
    outline = _path(_place(torch.cat([corners, corners[:1]])), 'class="g-line"')
    points = ""
    for name, (colour, alpha) in links.items():
        x, y = _place((alpha.to(corners) @ corners)[None])[0]
        points += _dot(x, y, f'fill="{colour}"', name)
    legend = ", ".join(
        f'<span style="color:{colour}">●</span> {name}' for name, (colour, _) in links.items()
    )
    return _chart(outline + _corners(0.95 * REACH * DIRECTIONS) + points, "simplex", legend)


def _dot(x: float, y: float, style: str, title: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" {style}><title>{title}</title></circle>'


def _corners(places: Tensor) -> str:
    return "".join(
        f'<text class="g-corner" x="{x:.1f}" y="{y + (4 if k == 2 else 18):.1f}">class {k}</text>'
        for k, (x, y) in enumerate(_place(places), 1)
    )


def _place(points: Tensor) -> list[tuple[float, float]]:
    """Return where points of the plane lie on the chart."""
    x = (points[:, 0] / REACH + 1) * SIZE / 2
    y = (1 - points[:, 1] / REACH) * SIZE / 2
    return list(zip(x.tolist(), y.tolist(), strict=True))


def _path(points: list[tuple[float, float]], style: str) -> str:
    text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    fill = "" if "fill=" in style else 'fill="none" '
    return f'<polyline points="{text}" {fill}{style}/>'


def _chart(inside: str, label: str, caption: str) -> str:
    return (
        f'<figure><svg viewBox="0 0 {SIZE:g} {SIZE:g}" role="img" aria-label="{label}">'
        f"{inside}</svg><figcaption>{caption}</figcaption></figure>"
    )
