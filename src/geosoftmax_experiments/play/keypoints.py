"""The tab of key points: a heat map with two peaks, and what each link reads from it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from geosoftmax import GridCost, solve
from geosoftmax_experiments.play.drawing import ORANGE, figure, table
from geosoftmax_experiments.play.fields import TOL
from geosoftmax_experiments.play.page import POWERS
from geosoftmax_experiments.play.values import answer, choice, number

__all__ = ["SIDE", "show_keypoints"]

SIDE = 32
#: Where the second peak is, from the first: half the map away, around its border.
AWAY = SIDE / 2
#: Pixels around its centre that a window has: it is 5 × 5.
REACH = 2
COSTS = dict(zip(POWERS[1:], (1.0, 2.0), strict=True))


@answer
def show_keypoints(
    row: Any, column: Any, second: Any, noise: Any, seed: Any, cost: Any, scale: Any
) -> str:
    """Return the map, the distributions and the table of the tab."""
    point = (number("row", row, 4, 27), number("column", column, 4, 27))
    lower = number("second", second, 0, 5)
    noise = number("noise", noise, 0, 2)
    p = choice("cost", cost, COSTS)
    costs = GridCost((SIDE, SIDE), p=p) * number("scale", scale, 0.1, 3)
    other = (point[0] + AWAY) % SIDE, (point[1] + AWAY) % SIDE
    field = torch.maximum(_field(point, p, costs.scale), _field(other, p, costs.scale) - lower)
    generator = torch.Generator().manual_seed(int(number("seed", seed, 0, 1e6)))
    scores = field + noise * torch.randn(field.shape, generator=generator, dtype=field.dtype)

    solution = solve(scores, costs, tol=TOL)
    soft = torch.softmax(scores.flatten(), 0).reshape(SIDE, SIDE)
    largest = divmod(int(scores.argmax()), SIDE)
    found = {
        "geometric softmax, window": read_window(solution.alpha),
        "softmax, window": read_window(soft),
        "soft-argmax": (*_mean(soft), 1.0),
        "argmax": (float(largest[0]), float(largest[1]), None),
    }
    rows = []
    for name, (r, c, mass) in found.items():
        error = ((r - point[0]) ** 2 + (c - point[1]) ** 2) ** 0.5
        confidence = "none" if mass is None or name == "soft-argmax" else f"{mass:.2f}"
        rows.append((name, f"{r:.2f}", f"{c:.2f}", f"{error:.2f}", confidence))
    low, high, mark = float(field.min()), float(field.max()), _cross(point)
    words = "scores; + the key point"
    pictures = [figure(scores, words, colours="cividis", low=low, high=high, mark=mark)]
    for name, alpha in (("geometric softmax", solution.alpha), ("softmax", soft)):
        top = float(alpha.max())
        pictures.append(figure(alpha, name, colours="gray_r", low=0, high=top, mark=mark))
    head = ("read-out", "row", "column", "error, pixels", "confidence")
    note = (
        "A window is the 5 × 5 pixels with the most mass: its mean is the read-out, its mass the "
        f"confidence. Certified gap {float(solution.gap):.0e}."
    )
    return f'<div class="g-row g-three">{"".join(pictures)}</div>{table(head, rows)}<p>{note}</p>'


def read_window(alpha: Tensor) -> tuple[float, float, float]:
    """Return the mean of a distribution in the window with the most mass, and that mass."""
    size = 2 * REACH + 1
    sums = torch.nn.functional.avg_pool2d(
        alpha[None, None], size, stride=1, padding=REACH, divisor_override=1
    )[0, 0]
    row, column = divmod(int(sums.argmax()), alpha.shape[1])
    inside = torch.zeros_like(alpha)
    window = (
        slice(max(row - REACH, 0), row + REACH + 1),
        slice(max(column - REACH, 0), column + REACH + 1),
    )
    inside[window] = alpha[window]
    mass = float(inside.sum())
    return (*_mean(inside / mass), mass)


def _mean(alpha: Tensor) -> tuple[float, float]:
    places = torch.arange(SIDE, dtype=alpha.dtype)
    return float(alpha.sum(1) @ places), float(alpha.sum(0) @ places)


def _field(point: tuple[float, float], p: float, scale: Any) -> Tensor:
    """Return minus the cost to a point, which need not be a pixel: its distance field."""
    places = torch.arange(SIDE, dtype=torch.float64)
    rows, columns = ((places - place).abs() ** p for place in point)
    return -float(scale) * (rows[:, None] + columns[None, :])


def _cross(point: tuple[float, float]) -> str:
    y, x = ((place + 0.5) / SIDE * 100 for place in point)
    return (
        f'<svg viewBox="0 0 100 100"><path d="M{x - 3:.2f} {y:.2f}h6M{x:.2f} {y - 3:.2f}v6" '
        f'stroke="{ORANGE}" stroke-width="1.2"/></svg>'
    )
