"""The tab of score fields: a drawing, its field with noise, and what each link makes of it."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable
from typing import Any

import entmax
import numpy as np
import torch
from scipy.ndimage import zoom
from sklearn.datasets import load_digits
from torch import Tensor

from geosoftmax import GridCost, hausdorff_divergence, sinkhorn_potential, solve
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.play.drawing import figure, table
from geosoftmax_experiments.play.values import answer, choice, number, numbers

__all__ = ["COSTS", "MEANINGS", "SIDE", "digit", "show_fields"]

SIDE = 28
#: Power of the distance between pixels, by its name on the page.
COSTS = {"squared distance": 2.0, "Manhattan distance": 1.0}
#: Whether what is drawn is a distribution, of which the links get the distance field.
MEANINGS = {"a distribution, seen through its distance field": True, "a score field": False}
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
    data: Any = load_digits()
    found = []
    for k in range(10):
        small = data.images[(data.target == k).argmax()] / 16
        large = np.asarray(zoom(small, 20 / 8, order=3, grid_mode=True, mode="nearest"))
        found.append(np.pad(np.where(large > 0.45, np.clip(large, 0, 1), 0), (SIDE - 20) // 2))
    return found


@answer
def show_fields(ink: Any, meaning: Any, noise: Any, cost: Any, scale: Any, seed: Any) -> str:
    """Return the pictures and the table of the tab."""
    drawing = torch.tensor(numbers("the drawing", ink, SIDE * SIDE, 0, 1)[: SIDE * SIDE])
    drawing = drawing.double().reshape(SIDE, SIDE)
    if not bool(drawing.any()):
        raise UserError("The sheet is empty.", "Draw on it, or pick a digit.")
    costs = GridCost((SIDE, SIDE), p=choice("cost", cost, COSTS)) * number("scale", scale, 0.25, 4)
    alpha = drawing / drawing.sum()
    field = (
        sinkhorn_potential(alpha, costs)
        if choice("meaning", meaning, MEANINGS)
        else HEIGHT * drawing
    )
    generator = torch.Generator().manual_seed(int(number("seed", seed, 0, 1e6)))
    noise = number("noise", noise, 0, 1)
    scores = field + noise * torch.randn(field.shape, generator=generator, dtype=field.dtype)

    start = time.perf_counter()
    solution = solve(scores, costs, tol=TOL)
    found = [("geometric softmax", solution.alpha, time.perf_counter() - start)]
    others: list[tuple[str, Callable[..., Tensor]]] = [
        ("softmax", torch.softmax),
        ("sparsemax", entmax.sparsemax),
    ]
    for name, link in others:
        start = time.perf_counter()
        found.append((name, link(scores.flatten(), 0), time.perf_counter() - start))

    peak = float(alpha.max()) * 1.1
    pictures = [
        figure(scores, "scores", colours="cividis", low=float(field.min()), high=float(field.max()))
    ]
    rows = []
    for name, beta, seconds in found:
        beta = beta.reshape(SIDE, SIDE)
        pictures.append(figure(beta, name, colours="gray_r", low=0.0, high=peak))
        gap = f"{float(solution.gap):.0e}" if name == "geometric softmax" else "closed form"
        variation = float((beta - alpha).abs().sum() / 2)
        used = int((beta > 1e-9).sum())
        far = float(hausdorff_divergence(alpha, beta / beta.sum(), costs))
        cells = f"{1e3 * seconds:.2f}", str(used), f"{variation:.3f}", f"{far:.4f}"
        rows.append((name, gap, *cells))
    head = ("link", "certified gap", "ms", "pixels", "total variation", "Hausdorff divergence")
    bracket = (
        f"g-LSE(f) lies between {float(solution.lower):.9g} and {float(solution.upper):.9g}, "
        f"certified after {int(solution.iterations)} iterations. Total variation and divergence: "
        "from what was drawn."
    )
    row = f'<div class="g-row">{"".join(pictures)}</div>'
    return f'{row}{table(head, rows)}<p id="bracket">{bracket}</p>'
