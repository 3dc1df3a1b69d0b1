"""The tables of all losses: what is known of each, and what a step takes beside cross-entropy.

``python -m geosoftmax_experiments.rivals.price`` prints them in Markdown. A step is the loss of a
batch and its gradient in the scores, in float32 and on one thread. Losses are measured in turns,
in CPU time, and compared with the cross-entropy of torch in the same turn.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import pandas as pd
import torch
from torch import Tensor

from geosoftmax import TreeCost
from geosoftmax_experiments.report import as_markdown
from geosoftmax_experiments.rivals.table import RIVALS, Rival, line
from geosoftmax_experiments.rivals.trees import TREE_RIVALS, TreeRival

__all__ = ["facts", "prices", "table", "tree_prices", "tree_table"]

#: Samples and classes of a step.
SIZES = ((64, 5), (512, 100))
TURNS = 15
#: CPU seconds that a loss takes in one turn, about.
TURN_SECONDS = 0.005


def facts(rival: Rival | TreeRival) -> dict[str, str]:
    """Return what is known of a loss, in words."""
    return {
        "loss": rival.label,
        "convex": "yes" if rival.convex else "no",
        "recovers p": "–" if rival.link is None else "yes" if rival.proper else "no",
        "best decision for": rival.consistent,
        "exact zeros": "–" if rival.link is None else "yes" if rival.sparse else "no",
        "to choose": rival.parameter or "nothing",
    }


def prices(samples: int, classes: int) -> dict[str, float]:
    """Return the CPU time of a step of each loss, divided by that of torch's cross-entropy."""
    labels = torch.arange(samples) % classes
    steps: dict[str, Callable[[], None]] = {
        "torch": _step(lambda f: torch.nn.functional.cross_entropy(f, labels), samples, classes)
    }
    cost = line(classes)
    for name, rival in RIVALS.items():
        bound = rival.bind(cost, rival.values[0])
        steps[name] = _step(
            lambda f, bound=bound: bound.loss(f, labels).mean(), samples, rival.outputs(classes)
        )
    return _measure(steps)


def tree_prices(samples: int, groups: int) -> dict[str, float]:
    """Return the same for losses of trees: as many groups as leaves in each."""
    tree = TreeCost.from_dict(
        {f"g{k}": [f"c{k}.{j}" for j in range(groups)] for k in range(groups)}
    )
    labels = torch.arange(samples) % tree.size
    steps = {
        "torch": _step(lambda f: torch.nn.functional.cross_entropy(f, labels), samples, tree.size)
    }
    for rival in TREE_RIVALS:
        loss, _ = rival.make(tree, rival.value)
        steps[rival.label] = _step(
            lambda f, loss=loss: loss(f, labels).mean(), samples, rival.outputs(tree)
        )
    return _measure(steps)


def _measure(steps: dict[str, Callable[[], None]]) -> dict[str, float]:
    counts = {name: max(1, int(TURN_SECONDS / _clock(step, 2))) for name, step in steps.items()}
    turns = [
        {name: _clock(step, counts[name]) for name, step in steps.items()} for _ in range(TURNS)
    ]
    return {name: statistics.median(turn[name] / turn["torch"] for turn in turns) for name in steps}


def _step(loss: Callable[[Tensor], Tensor], samples: int, outputs: int) -> Callable[[], None]:
    draw = torch.Generator().manual_seed(0)
    scores = (2 * torch.randn(samples, outputs, generator=draw)).requires_grad_()

    def step() -> None:
        scores.grad = None
        loss(scores).backward()

    step()  # kernels are compiled, tables are made
    return step


def _clock(step: Callable[[], None], count: int) -> float:
    for _ in range(3):  # the first calls also give back the memory of the loss before
        step()
    start = time.process_time()
    for _ in range(count):
        step()
    return (time.process_time() - start) / count


def table() -> pd.DataFrame:
    """Return the table: facts, and prices for each size."""
    found = {f"{n} × {d}": prices(n, d) for n, d in SIZES}
    return pd.DataFrame(
        {**facts(rival), **{size: f"{ratios[name]:.1f}" for size, ratios in found.items()}}
        for name, rival in RIVALS.items()
    )


def tree_table() -> pd.DataFrame:
    """Return the same for losses of trees."""
    ratios = tree_prices(512, 10)
    return pd.DataFrame(
        {**facts(rival), "512 × 100": f"{ratios[rival.label]:.1f}"} for rival in TREE_RIVALS
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(as_markdown(table()), as_markdown(tree_table()), sep="\n\n")
