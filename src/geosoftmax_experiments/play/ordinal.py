"""The tab of ordered classes: scores that one drags; probabilities, decisions and losses."""

from __future__ import annotations

from typing import Any

import entmax
import torch
from torch import Tensor

from geosoftmax import (
    Cost,
    LineCost,
    ZeroOneCost,
    decide,
    geometric_logistic_loss,
    hausdorff_divergence,
    solve,
)
from geosoftmax_experiments.ordinal.decisions import RULES
from geosoftmax_experiments.play.drawing import BLUE, GREEN, ORANGE, bars, table
from geosoftmax_experiments.play.page import MOST
from geosoftmax_experiments.play.values import answer, choice, number, numbers

__all__ = ["COSTS", "show_ordinal"]

COSTS = {
    "squared distance": lambda d: LineCost(d, p=2),
    "distance": lambda d: LineCost(d),
    "zero-one": lambda d: ZeroOneCost(d),
}


@answer
def show_ordinal(scores: Any, classes: Any, cost: Any, scale: Any, true: Any) -> str:
    """Return the chart and the tables of the tab."""
    d = int(number("classes", classes, 3, MOST))
    f = torch.tensor(numbers("the scores", scores, MOST, -10, 10)[:d], dtype=torch.float64)
    costs = choice("cost", cost, COSTS)(d) * number("scale", scale, 0.02, 10)
    y = int(number("true class", true, 1, d)) - 1
    solution = solve(f, costs)
    links = {
        "geometric softmax": (GREEN, solution.alpha),
        "softmax": (BLUE, torch.softmax(f, 0)),
        "sparsemax": (ORANGE, entmax.sparsemax(f, 0)),
    }
    names = [str(k + 1) for k in range(d)]
    chart = bars(
        {name: (colour, alpha.tolist()) for name, (colour, alpha) in links.items()},
        names,
        "class",
    )
    rows = [
        (name, *_decisions(alpha), f"{_loss(name, f, y, costs):.3f}", _divergence(alpha, y, costs))
        for name, (_, alpha) in links.items()
    ]
    head = ("link", *RULES, f"loss if {y + 1} is true", "Hausdorff divergence")
    note = (
        f"Certified: g-LSE(f) = {float(solution.upper):.6f}, gap {float(solution.gap):.0e}. "
        "A decision is a class: the likeliest, or that of least expected absolute or squared error."
    )
    return f'{chart}{table(head, rows)}<p id="certificate">{note}</p>'


def _decisions(alpha: Tensor) -> tuple[str, ...]:
    line = LineCost(alpha.shape[0])
    return tuple(str(int(decide(alpha, line, rule)) + 1) for rule in RULES)


def _loss(name: str, f: Tensor, y: int, cost: Cost) -> float:
    target = torch.tensor([y])
    if name == "softmax":
        return float(torch.nn.functional.cross_entropy(f[None], target))
    if name == "sparsemax":
        return float(entmax.sparsemax_loss(f[None], target))
    return float(geometric_logistic_loss(f[None], target, cost))


def _divergence(alpha: Tensor, y: int, cost: Cost) -> str:
    truth = torch.zeros_like(alpha)
    truth[y] = 1.0
    return f"{float(hausdorff_divergence(truth, alpha / alpha.sum(), cost)):.3f}"
