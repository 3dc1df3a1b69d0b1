"""Calibration of the geometric loss: the paper's Figure 3.

During training, the geometric logistic loss ``ℓ(α, f)`` and the Hausdorff divergence
``D(α | g-softmax(f))``, on the samples that are trained on and on others. By Prop. 4 the loss is
never below the divergence; by Prop. 5 the gap closes where the scores can be any function.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from rich.console import Console
from rich.progress import track
from sklearn.preprocessing import StandardScaler

from geosoftmax import LineCost, geometric_logistic_loss, geometric_softmax, hausdorff_divergence
from geosoftmax_experiments.data.ordinal import Fold
from geosoftmax_experiments.report import save, write_csv

matplotlib.use("Agg")  # pictures go to files: no screen is needed

__all__ = ["SCORES", "draw", "run", "train"]

#: Width of the hidden layer of each score function; 0 for none.
SCORES = {"linear": 0, "MLP": 64}


def run(fold: Fold, steps: int, seed: int, output: Path, console: Console) -> pd.DataFrame:
    """Train with each score function, save the curves and the picture, and print the gaps."""
    curves = pd.concat(
        [train(fold, scores, steps, seed, console) for scores in SCORES], ignore_index=True
    )
    save(draw(curves, fold.name), output)
    write_csv(output.with_suffix(".csv"), curves)
    for scores in SCORES:
        last: Any = curves[curves["scores"] == scores].iloc[-1]
        gap = last["train loss"] - last["train divergence"]
        console.print(
            f"{scores}: on train, loss {last['train loss']:.4f} and divergence "
            f"{last['train divergence']:.4f} after {steps} steps: gap {gap:.2e}"
        )
    lowest = min((curves[f"{p} loss"] - curves[f"{p} divergence"]).min() for p in PARTS)
    console.print(f"The smallest difference, loss less divergence, at any step: {lowest:.2e}")
    console.print(f"Picture saved to {output.resolve()}", soft_wrap=True)
    return curves


PARTS = ("train", "validation")
#: Gaps below this are rounding, and drawn at it.
FLOOR = 1e-9


def train(fold: Fold, scores: str, steps: int, seed: int, console: Console) -> pd.DataFrame:
    """Minimise the mean loss by Adam; return loss and divergence before each step, and at the end.

    The test samples of the fold are the validation set.
    """
    scaler: Any = StandardScaler().fit(fold.X_train)
    X = {"train": fold.X_train, "validation": fold.X_test}
    X = {part: torch.from_numpy(scaler.transform(x)) for part, x in X.items()}
    y = {"train": torch.from_numpy(fold.y_train), "validation": torch.from_numpy(fold.y_test)}
    cost = LineCost(fold.classes, p=2) / 2
    model = _scores(X["train"].shape[1], SCORES[scores], fold.classes, seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    rows = []
    for step in track(range(steps + 1), f"training, {scores} scores", console=console):
        row: dict[str, object] = {"scores": scores, "step": step}
        f = {part: model(x) for part, x in X.items()}
        loss = geometric_logistic_loss(f["train"], y["train"], cost)
        with torch.no_grad():
            for part in PARTS:
                truth = torch.nn.functional.one_hot(y[part], fold.classes).to(torch.float64)
                alpha = geometric_softmax(f[part], cost)
                divergence = hausdorff_divergence(truth, alpha / alpha.sum(1, keepdim=True), cost)
                row[f"{part} loss"] = float(geometric_logistic_loss(f[part], y[part], cost))
                row[f"{part} divergence"] = float(divergence.mean())
        rows.append(row)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return pd.DataFrame(rows)


def _scores(features: int, hidden: int, classes: int, seed: int) -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if not hidden:
            return torch.nn.Linear(features, classes).double()
        layers = torch.nn.Linear(features, hidden), torch.nn.ReLU()
        return torch.nn.Sequential(*layers, torch.nn.Linear(hidden, classes)).double()


def draw(curves: pd.DataFrame, name: str) -> Figure:
    """Draw the curves of each score function, and below them the gap on a logarithmic axis."""
    kinds = list(dict.fromkeys(curves["scores"]))
    figure, axes = plt.subplots(
        2,
        len(kinds),
        figsize=(4.4 * len(kinds), 5.4),
        sharex=True,
        sharey="row",
        squeeze=False,
        height_ratios=[2, 1],
        layout="constrained",
    )
    for (upper, lower), kind in zip(axes.T, kinds, strict=True):
        part = curves[curves["scores"] == kind]
        for where, colour in (("train", "#d62728"), ("validation", "#1f77b4")):
            loss, divergence = part[f"{where} loss"], part[f"{where} divergence"]
            step = part["step"] + 1
            upper.plot(step, loss, color=colour, label=f"loss, {where}")
            upper.plot(step, divergence, color=colour, ls="--", label=f"divergence, {where}")
            lower.plot(step, np.maximum(loss - divergence, FLOOR), color=colour)
        upper.set_title(f"{kind} scores", fontsize=10)
        upper.set_ylim(bottom=0)
        lower.set_yscale("log")
        lower.set_ylim(bottom=FLOOR / 4)
        lower.set_xscale("log")
        lower.set_xlabel("step")
    axes[0, 0].set_ylabel("mean over samples")
    axes[1, 0].set_ylabel("loss - divergence")
    axes[1, 0].yaxis.set_major_formatter(FuncFormatter(_gap_in_words))
    axes[0, -1].legend(fontsize=9, frameon=False)
    figure.suptitle(f"g-logistic loss and Hausdorff divergence in training: {name}", fontsize=11)
    return figure


def _gap_in_words(value: float, position: int) -> str:
    """Name a tick by its power of ten; the lowest stands for all that is lower."""
    power = f"$10^{{{round(math.log10(value))}}}$"
    return f"under {power}" if value < 2 * FLOOR else power
