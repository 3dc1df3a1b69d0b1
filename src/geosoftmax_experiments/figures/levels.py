"""Figure 2: two classes as the cost between them grows, and level sets of the conjugate."""

from __future__ import annotations

import math

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from rich.console import Console
from rich.progress import track
from torch import Tensor

from geosoftmax import (
    Cost,
    LineCost,
    ZeroOneCost,
    extrapolate,
    geometric_logsumexp,
    geometric_softmax,
    sinkhorn_negentropy,
    sinkhorn_potential,
)
from geosoftmax_experiments.figures.style import BLUE, GREEN, ORANGE, SMALL, WIDTH, bare, plain
from geosoftmax_experiments.three_classes import DIRECTIONS, plane, potentials_of_the_border

__all__ = ["COSTS", "draw_levels"]

#: Costs between two classes; the last gives the softmax.
COSTS = (0.5, 1.0, 2.0, 4.0, math.inf)


def draw_levels(console: Console) -> Figure:
    """Draw the binary case above, the level sets for two and for three classes below."""
    figure, axes = plt.subplots(2, 3, figsize=(WIDTH, 5.7), layout="constrained")
    panels = [
        lambda: _draw_binary(axes[0]),
        lambda: _draw_plane_of_two(axes[1, 0], 2.0),
        lambda: draw_plane_of_three(axes[1, 1], LineCost(3) * 2, "three ordered classes"),
        lambda: draw_plane_of_three(axes[1, 2], ZeroOneCost(3) * 2, "three classes, zero-one cost"),
    ]
    for panel in track(panels, "Figure 2: levels", console=console):
        panel()
    _explain(figure)
    return figure


def _explain(figure: Figure) -> None:
    """Say below what the lines, areas and arrows of the level sets are."""
    handles = [
        Line2D([], [], color=BLUE, lw=1.5, label="g-LSE = 0"),
        Line2D([], [], color="0.6", lw=0.8, label="other levels of g-LSE"),
        Line2D([], [], color="black", lw=1, ls=":", label="LSE = 0"),
        Line2D([], [], color=GREEN, lw=3.2, label="F: the potentials ∇Ω(α) of all α"),
        Patch(color=GREEN, alpha=0.2, lw=0, label="F + ℝ1: F, and any constant added"),
        Line2D([], [], color=ORANGE, marker=">", ms=5, label="extrapolation f → fᴱ, onto F + ℝ1"),
    ]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=2, fontsize=SMALL, frameon=False
    )


# ------------------------------------------------------------------ two classes


def _draw_binary(axes: list[Axes]) -> None:
    """Draw entropy, link and conjugate against the probability or the score of one class."""
    p = torch.linspace(0, 1, 201, dtype=torch.float64)
    f = torch.linspace(-5, 5, 401, dtype=torch.float64)
    alpha = torch.stack([p, 1 - p], -1)
    scores = torch.stack([f, torch.zeros_like(f)], -1)
    colours = plt.get_cmap("cividis")(np.linspace(0.85, 0, len(COSTS)))
    for c, colour in zip(COSTS, colours, strict=True):
        if math.isinf(c):
            curves = torch.xlogy(alpha, alpha).sum(-1), scores.softmax(-1), scores.logsumexp(-1)
            style = {"color": "black", "ls": (0, (4, 2)), "label": "∞: softmax"}
        else:
            cost = ZeroOneCost(2) * c
            curves = (
                sinkhorn_negentropy(alpha, cost),
                geometric_softmax(scores, cost),
                geometric_logsumexp(scores, cost),
            )
            style = {"color": colour, "label": f"{c:g}"}
        for axis, x, y in zip(
            axes, (p, f, f), (-curves[0], curves[1][:, 0], curves[2]), strict=True
        ):
            axis.plot(x.numpy(), y.numpy(), lw=1.3, **style)
    plain(axes[0], "entropy −Ω(α)", "α₁")
    plain(axes[1], "g-softmax(f)₁", "f₁ − f₂")
    plain(axes[2], "g-LSE(f), with f₂ = 0", "f₁")
    axes[2].set_xlim(-4.2, 3)
    axes[2].set_ylim(-0.1, 3)
    axes[2].legend(title="cost c", fontsize=SMALL, title_fontsize=SMALL, frameon=False)


def _draw_plane_of_two(axis: Axes, c: float) -> None:
    """Draw level sets in the plane of two scores, the potentials, and where scores are put."""
    cost = ZeroOneCost(2) * c
    low, high = -4.6, 1.6
    f = torch.linspace(low, high, 241, dtype=torch.float64)
    x, y = torch.meshgrid(f, f, indexing="xy")
    scores = torch.stack([x, y], -1)
    corners = np.array([low - 3, high + 3])
    axis.fill_between(corners, corners - c, corners + c, color=GREEN, alpha=0.13, lw=0)
    value, usual = geometric_logsumexp(scores, cost).numpy(), scores.logsumexp(-1).numpy()
    x, y = x.numpy(), y.numpy()
    axis.contour(x, y, value, levels=[-3, -2, -1, 1], colors="0.6", linewidths=0.8, linestyles="-")
    axis.contour(x, y, value, levels=[0], colors=BLUE, linewidths=1.5)
    axis.contour(x, y, usual, levels=[0], colors="black", linewidths=1, linestyles=":")
    p = torch.linspace(0, 1, 101, dtype=torch.float64)
    potentials = sinkhorn_potential(torch.stack([p, 1 - p], -1), cost)
    axis.plot(*potentials.T.numpy(), color=GREEN, lw=3.2, solid_capstyle="round")
    points = torch.tensor([[-4.0, 0.0], [-4.2, -1.0], [0.9, -2.9], [-0.8, -4.3]])
    _draw_arrows(axis, points, extrapolate(points, cost))
    axis.text(-0.85, -0.6, "F", color=GREEN, fontsize=SMALL + 2, ha="right", va="top")
    axis.text(
        -1.88, -1.88, "F + ℝ1", color=GREEN, fontsize=SMALL, rotation=45, ha="center", va="center"
    )
    plain(axis, f"level sets, two classes, c = {c:g}", "f₁", "f₂")
    axis.set_xlim(low, high)
    axis.set_ylim(low, high)
    axis.set_aspect("equal")


# ------------------------------------------------------------------ three classes


def draw_plane_of_three(axis: Axes, cost: Cost, title: str, reach: float = 4.6) -> None:
    """Draw g-LSE in the plane of three scores, the cylinder of potentials, and where scores go."""
    line = torch.linspace(-reach, reach, 161, dtype=torch.float64)
    x, y = torch.meshgrid(line, line, indexing="xy")
    scores = torch.stack([x, y], -1) @ DIRECTIONS.T * (2 / 3)
    value = geometric_logsumexp(scores, cost).numpy()
    axis.contour(x.numpy(), y.numpy(), value, 9, colors="0.6", linewidths=0.8)
    border = plane(potentials_of_the_border(cost)).numpy()
    axis.fill(*border.T, color=GREEN, alpha=0.2, lw=0)
    axis.plot(*border.T, color=GREEN, lw=1.6)
    angles = torch.arange(12) * (math.pi / 6) + 0.26
    ring = 0.86 * reach * torch.stack([angles.cos(), angles.sin()], -1).double()
    f = ring @ DIRECTIONS.T * (2 / 3)
    _draw_arrows(axis, ring, plane(extrapolate(f, cost)))
    for k, direction in enumerate(DIRECTIONS):
        x, y = (0.9 * reach * direction).tolist()
        axis.text(
            x,
            y,
            f"{k + 1}",
            fontsize=SMALL,
            ha="center",
            va="center",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
        )
    bare(axis, title)
    axis.set_aspect("equal")
    axis.set_xlim(-reach, reach)
    axis.set_ylim(-reach, reach)
    axis.set_frame_on(False)


def _draw_arrows(axis: Axes, start: Tensor, end: Tensor) -> None:
    for f, extrapolated in zip(start.tolist(), end.tolist(), strict=True):
        axis.plot(*f, "o", color=ORANGE, ms=3)
        axis.annotate(
            "", extrapolated, f, arrowprops={"arrowstyle": "-|>", "color": ORANGE, "shrinkB": 0}
        )
