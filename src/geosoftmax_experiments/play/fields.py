"""The tab of drawings: a drawing, its field with noise, and what each link makes of it."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable
from typing import Any

import entmax
import numpy as np
import torch
from torch import Tensor

from geosoftmax import GridCost, Solution, hausdorff_divergence, sinkhorn_potential, solve
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.play import page
from geosoftmax_experiments.play.drawing import figure, table
from geosoftmax_experiments.play.page import POWERS, SIDE
from geosoftmax_experiments.play.values import answer, choice, number, numbers

__all__ = ["COSTS", "MEANINGS", "SIDE", "digit", "show_fields"]

#: Powers of the distance between pixels, by their name on the page.
COSTS = dict(zip(POWERS, ((1.0, 2.0), (1.0,), (2.0,)), strict=True))
#: Whether what is drawn is a distribution, of which the links get the distance field.
MEANINGS = dict(zip(page.MEANINGS, (True, False), strict=True))
#: Height of a score field where the ink is full.
HEIGHT = 6.0
#: Asked of the solver: more digits than one can see, and fast also where it is ill-conditioned.
TOL = 1e-6


def digit(name: Any) -> str:
    """Return a digit of scikit-learn's as ink on the page: a JSON list, row by row."""
    image = _images()[int(number("digit", name, 0, 9))]
    return json.dumps([round(float(value), 3) for value in image.flatten()])


@functools.cache
def _images() -> list[np.ndarray]:
    from scipy.ndimage import zoom
    from sklearn.datasets import load_digits  # here, as the page starts without it

    data: Any = load_digits()
    found = []
    for k in range(10):
        small = data.images[(data.target == k).argmax()] / 16
        large = np.asarray(zoom(small, 20 / 8, order=3, grid_mode=True, mode="nearest"))
        found.append(np.pad(np.where(large > 0.45, np.clip(large, 0, 1), 0), (SIDE - 20) // 2))
    return found


@answer
def show_fields(ink: Any, meaning: Any, noise: Any, seed: Any, cost: Any, scale: Any) -> str:
    """Return the pictures and the table of the tab."""
    drawing = torch.tensor(numbers("the drawing", ink, SIDE * SIDE, 0, 1)[: SIDE * SIDE])
    drawing = drawing.double().reshape(SIDE, SIDE)
    if not bool(drawing.any()):
        raise UserError("The sheet is empty.", "Draw on it, or pick a drawing.")
    distribution = choice("meaning", meaning, MEANINGS)
    powers = choice("cost", cost, COSTS)
    scale = number("scale", scale, 0.25, 4)
    generator = torch.Generator().manual_seed(int(number("seed", seed, 0, 1e6)))
    noise = number("noise", noise, 0, 1)
    noise = noise * torch.randn(drawing.shape, generator=generator, dtype=drawing.dtype)

    pictures, rows, notes = [], [], []
    for p in powers:
        one = _Case(drawing / drawing.sum(), GridCost((SIDE, SIDE), p=p) * scale)
        field = sinkhorn_potential(one.alpha, one.cost) if distribution else HEIGHT * drawing
        suffix = f", p = {p:g}" if len(powers) > 1 else ""
        low, high = float(field.min()), float(field.max())
        words = f"scores{suffix}"
        pictures.append(figure(field + noise, words, colours="cividis", low=low, high=high))
        solution = _links(one, field + noise, suffix, pictures, rows, others=p == powers[-1])
        notes.append(
            f"g-LSE(f){suffix} lies between {float(solution.lower):.9g} and "
            f"{float(solution.upper):.9g}, certified after {int(solution.iterations)} iterations."
        )
    head = ("link", "certified gap", "ms", "pixels", "total variation", "Hausdorff divergence")
    words = "Total variation and divergence: from what was drawn."
    row = f'<div class="g-row">{"".join(pictures)}</div>'
    return f'{row}{table(head, rows)}<p id="bracket">{" ".join(notes)} {words}</p>'


class _Case:
    """A distribution that links should recover, and the cost."""

    def __init__(self, alpha: Tensor, cost: GridCost) -> None:
        self.alpha, self.cost = alpha, cost

    def row(self, name: str, gap: str, seconds: float, beta: Tensor) -> tuple[str, ...]:
        """Return the cells of a row of the table."""
        variation = float((beta - self.alpha).abs().sum() / 2)
        far = float(hausdorff_divergence(self.alpha, beta / beta.sum(), self.cost))
        used = int((beta > 1e-9).sum())
        return name, gap, f"{1e3 * seconds:.2f}", str(used), f"{variation:.3f}", f"{far:.4f}"


def _links(
    case: _Case, scores: Tensor, suffix: str, pictures: list[str], rows: list[Any], others: bool
) -> Solution:
    """Apply the geometric softmax, and the other links if they are wanted; add what they show."""
    peak = float(case.alpha.max()) * 1.1
    start = time.perf_counter()
    solution = solve(scores, case.cost, tol=TOL)
    seconds = time.perf_counter() - start
    name = f"geometric softmax{suffix}"
    pictures.append(figure(solution.alpha, name, colours="gray_r", low=0.0, high=peak))
    rows.append(case.row(name, f"{float(solution.gap):.0e}", seconds, solution.alpha))
    links: list[tuple[str, Callable[..., Tensor]]] = [
        ("softmax", torch.softmax),
        ("sparsemax", entmax.sparsemax),
    ]
    for link_name, link in links if others else []:
        start = time.perf_counter()
        beta = link(scores.flatten(), 0).reshape(SIDE, SIDE)
        seconds = time.perf_counter() - start
        named = f"{link_name}{suffix}"
        pictures.append(figure(beta, named, colours="gray_r", low=0.0, high=peak))
        rows.append(case.row(named, "closed form", seconds, beta))
    return solution
