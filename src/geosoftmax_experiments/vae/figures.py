"""Figures of a comparison: training curves, frontiers."""

from __future__ import annotations

import matplotlib
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from geosoftmax_experiments.pages import save
from geosoftmax_experiments.vae.frontier import (
    BUDGETS,
    DIRECTIONS,
    LEAST_RATE,
    Rows,
    at_budget,
    matched_weights,
    mean_frontier,
)
from geosoftmax_experiments.vae.layers import LAYERS
from geosoftmax_experiments.vae.measures import MEASURES

matplotlib.use("Agg")  # pictures go to files: no screen is needed

__all__ = ["draw_curves", "draw_frontier", "save"]

AXES = {"epoch": "epochs", "seconds": "seconds of training"}
MARKERS = dict(zip(LAYERS, "sovD^P", strict=True))


def draw_curves(rows: Rows, weight: float, part: str) -> Figure:
    """Draw the test divergence during training: above at one weight, below at one rate.

    Lines are means over seeds, bands reach from the lowest to the highest.
    """
    matched = matched_weights(at_budget(rows, "epochs"), weight)
    same = dict.fromkeys(matched, weight)
    figure, axes = plt.subplots(2, 2, figsize=(9, 6.4), sharey=True, layout="constrained")
    for line, (weights, what) in zip(
        axes,
        ((same, f"penalty weight {weight:g} for all"), (matched, "nearest latent KL at the end")),
        strict=True,
    ):
        for axis, (x, label) in zip(line, AXES.items(), strict=True):
            for loss, chosen in weights.items():
                _curve(axis, rows, loss, chosen, x)
            axis.set_xlabel(label, fontsize=9)
            axis.set_title(what, fontsize=10)
            _log_axis(axis, "y")
        line[0].xaxis.set_major_locator(MaxNLocator(integer=True))
        line[0].legend(frameon=False, fontsize=8)
        line[0].set_ylabel(f"{MEASURES['hausdorff']}, {part}", fontsize=9)
    return figure


def draw_frontier(rows: Rows, part: str) -> Figure:
    """Draw divergence against latent KL: both directions, equal epochs and equal seconds."""
    figure, axes = plt.subplots(2, 2, figsize=(9, 7), sharex=True, sharey="row",
                                layout="constrained")  # fmt: skip
    losses = list(dict.fromkeys(rows["loss"]))
    for column, budget in enumerate(BUDGETS):
        points = at_budget(rows, budget)
        for line, direction in enumerate(DIRECTIONS):
            axis = axes[line, column]
            for loss in losses:
                layer, marker = LAYERS[loss], MARKERS[loss]
                own = points[points["loss"] == loss]
                axis.plot(own["latent_kl"], own[direction], marker, color=layer.colour,
                          markersize=3, alpha=0.35, markeredgewidth=0)  # fmt: skip
                mean = mean_frontier(points, loss, direction)
                axis.plot(mean["latent_kl"], mean[direction], f"{marker}-", color=layer.colour,
                          markersize=5, linewidth=1.2, label=layer.label)  # fmt: skip
            for name in ("x", "y"):
                _log_axis(axis, name)
            axis.set_xlim(left=max(axis.get_xlim()[0], LEAST_RATE / 2))
            if line == 0:
                axis.set_title(f"equal {budget}", fontsize=10)
            else:
                axis.set_xlabel("latent KL (nats)", fontsize=9)
            if column == 0:
                axis.set_ylabel(f"{MEASURES[direction]}, {part}", fontsize=9)
    axes[0, 0].legend(frameon=False, fontsize=8)
    return figure


def _curve(axis: Axes, rows: Rows, loss: str, weight: float, x: str) -> None:
    own = rows[(rows["loss"] == loss) & (rows["weight"] == weight)]
    groups = own.groupby("epoch")
    place, value = groups[x].mean(), groups["hausdorff"]
    rate = own.loc[own["epoch"] == own["epoch"].max(), "latent_kl"].mean()
    layer = LAYERS[loss]
    axis.plot(place, value.mean(), color=layer.colour,
              label=f"{layer.label}: weight {weight:g}, KL {rate:.1f}")  # fmt: skip
    axis.fill_between(place, value.min(), value.max(), color=layer.colour, alpha=0.2, linewidth=0)


def _log_axis(axis: Axes, name: str) -> None:
    """Let an axis be logarithmic, with plain numbers also where it spans less than a decade."""
    scale = axis.xaxis if name == "x" else axis.yaxis
    (axis.set_xscale if name == "x" else axis.set_yscale)("log")
    scale.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    scale.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    scale.set_minor_formatter(NullFormatter())
    axis.tick_params(labelsize=8)
    axis.grid(True, color="0.93", zorder=0)
    axis.spines[["top", "right"]].set_visible(False)
