"""Figure 1: distance fields to measures, and the link function that goes back."""

from __future__ import annotations

import math

import matplotlib.pyplot as plt
import torch
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track
from torch import Tensor

from geosoftmax import GridCost, sinkhorn_potential, solve
from geosoftmax_experiments.figures.style import SMALL, WIDTH, bare

__all__ = ["COST", "MEASURES", "draw_fields"]

SIDE = 48
#: Between pixels: the squared distance, by 8.
COST = GridCost((SIDE, SIDE), p=2) / 8


def draw_fields(console: Console) -> Figure:
    """Draw a line of pictures for each measure: itself, its field, and what links make of it."""
    figure, axes = plt.subplots(
        len(MEASURES), 4, figsize=(WIDTH, 1.85 * len(MEASURES) + 0.45), layout="compressed"
    )
    measures = track(MEASURES.items(), "Figure 1: fields", console=console)
    for line, (name, make) in zip(axes, measures, strict=True):
        alpha = make()
        field = sinkhorn_potential(alpha, COST)
        solution = solve(field, COST)
        softmax = torch.softmax(field.flatten(), 0).reshape(field.shape)
        difference = float((solution.alpha - alpha).abs().sum() / 2)
        for axis, picture in ((line[0], alpha), (line[2], solution.alpha), (line[3], softmax)):
            axis.imshow(
                picture.sqrt().numpy(), cmap="gray_r", vmin=0, vmax=float(alpha.max().sqrt())
            )
        line[1].imshow(field.numpy(), cmap="cividis")
        line[1].contour(
            field.numpy(), _levels(field), colors="white", linewidths=0.6, linestyles="-"
        )
        for axis in line:
            bare(axis)
        line[0].set_ylabel(name, fontsize=SMALL + 1)
        line[1].set_xlabel("cost ‖x − y‖² / 8,\nx and y in pixels", fontsize=SMALL)
        line[2].set_xlabel(
            f"total variation to α {difference:.0e}\ncertified gap {float(solution.gap):.0e}",
            fontsize=SMALL,
        )
    titles = ("measure α", "∇Ω(α): minus the distance", "its geometric softmax", "its softmax")
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title, fontsize=SMALL + 1)
    return figure


def _levels(field: Tensor) -> list[float]:
    """Return values at even distances from the measure: the cost is a squared distance."""
    steps = torch.arange(9, 1, -1, dtype=torch.float64) / 10
    return (field.max() - (field.max() - field.min()) * steps**2).tolist()


def points() -> Tensor:
    """Five points, the heaviest with five times the mass of the lightest."""
    alpha = torch.zeros(SIDE, SIDE, dtype=torch.float64)
    for k, (row, column) in enumerate([(10, 12), (14, 33), (25, 21), (38, 10), (36, 38)]):
        alpha[row, column] = k + 1.0
    return alpha / alpha.sum()


def curve() -> Tensor:
    """A heart, which weighs more towards its foot."""
    t = torch.linspace(0, 2 * math.pi, 2001, dtype=torch.float64)[:-1]
    x = 16 * torch.sin(t) ** 3
    y = 13 * torch.cos(t) - 5 * torch.cos(2 * t) - 2 * torch.cos(3 * t) - torch.cos(4 * t)
    column = (SIDE / 2 + 1.1 * x).round().long()
    row = (SIDE / 2 - 2 - 1.1 * y).round().long()
    alpha = torch.zeros(SIDE, SIDE, dtype=torch.float64)
    alpha[row, column] = 0.4 + (row - row.min()) / (row.max() - row.min()).double()
    return alpha / alpha.sum()


#: The measures that are drawn.
MEASURES = {"weighted points": points, "a curve": curve}
