"""Figures of a comparison: training curves, frontiers, and ratios at equal rate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from geosoftmax_experiments.vae.frontier import (
    BUDGETS,
    DIRECTIONS,
    LEAST_RATE,
    REFERENCE,
    Rows,
    at_budget,
    compared,
    curves_at_rate,
    matched_weights,
    mean_frontier,
    measures_of,
    ratios,
)
from geosoftmax_experiments.vae.judge import SAMPLED
from geosoftmax_experiments.vae.layers import LAYERS
from geosoftmax_experiments.vae.measures import COMPARED, MEASURES
from geosoftmax_experiments.vae.samples import SOURCES

matplotlib.use("Agg")  # pictures go to files: no screen is needed

__all__ = ["draw_curve", "draw_curves", "draw_frontier", "draw_measures", "draw_ratio",
           "draw_samples", "plain_numbers"]  # fmt: skip

AXES = {"epoch": "epochs", "seconds": "seconds of training"}
MOST_EPOCHS = 8  # beside an axis
#: Ticks of logarithmic axes, times powers of ten, and how many of them are enough. The first line
#: that has enough between the ends of an axis is taken.
TICKS: tuple[tuple[tuple[float, ...], int], ...] = (
    ((1,), 4),
    ((1, 3), 5),
    ((1, 2, 5), 4),
    ((1, 1.5, 2, 3, 5, 7), 6),
    ((1, 1.2, 1.5, *range(2, 10)), 4),
    ((1, 1.2, 1.4, 1.6, 1.8, *(k / 2 for k in range(4, 20))), 4),
    ((*(k / 10 for k in range(10, 50)), *(k / 5 for k in range(25, 50))), 4),
)
MARKERS = dict(zip(LAYERS, "sovD^PX", strict=True))


def draw_curves(rows: Rows, weight: float, part: str) -> Figure:
    """Draw the divergence during training, of runs that end at one latent KL.

    It is that of softmax at the weight nearest to the one given whose rate the others come to.
    Between weights we interpolate. Lines are means over seeds, bands reach from the lowest to the
    highest.
    """
    points = at_budget(rows, "epochs")
    matched = matched_weights(points, weight)
    reference = REFERENCE if REFERENCE in matched else next(iter(matched))
    at = (points["loss"] == reference) & (points["weight"] == matched[reference])
    rate = float(points.loc[at, "latent_kl"].mean())
    figure, axes = plt.subplots(1, 2, figsize=(11, 3.6), sharey=True, layout="constrained")
    for loss in matched:
        runs = curves_at_rate(rows, loss, rate)
        label = f"{LAYERS[loss].label}, {runs['rate'].mean():.1f} nats"
        for axis, x in zip(axes, AXES, strict=True):
            _draw_range(axis, runs, x, "value", loss, label)
    for axis, label in zip(axes, AXES.values(), strict=True):
        axis.set_xlabel(label, fontsize=9)
        _log_axis(axis, "y")
    title = f"during training, interpolated between runs to end at {rate:.1f} nats where possible"
    figure.suptitle(title, fontsize=10)
    axes[0].set_xticks(_some_epochs(rows))
    axes[0].set_ylabel(f"{MEASURES['hausdorff']}, {part}", fontsize=9)
    axes[1].legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _some_epochs(rows: Rows) -> list[int]:
    """Return up to eight epochs at which runs were measured, evenly spaced; the last is one."""
    measured = sorted(rows["epoch"].unique(), reverse=True)
    return measured[:: -(-len(measured) // MOST_EPOCHS)][::-1]


def draw_frontier(rows: Rows, part: str) -> Figure:
    """Draw divergence against latent KL: both directions, equal epochs and equal seconds.

    Runs of less than `LEAST_RATE` are not compared, and not drawn.
    """
    figure, axes = _draw_panels(rows, list(dict.fromkeys(rows["loss"])), _frontier)
    _finish(figure, axes, f"{{}}, {part}")
    return figure


def draw_ratio(rows: Rows, part: str) -> Figure:
    """Draw the divergence of each loss over that of softmax at the same latent KL.

    A dot for each run, a line through the geometric means over seeds: below 1 a loss is better than
    softmax. Panels as those of `draw_frontier`.
    """

    def lines(points: Rows, loss: str, direction: str) -> tuple[Rows, Rows]:
        own = ratios(points, loss, direction)[["weight", "latent_kl", "ratio"]].astype(float)
        means = np.exp(np.log(own).groupby("weight").mean()).sort_values("latent_kl")
        return own[["latent_kl", "ratio"]], means

    others = [loss for loss in dict.fromkeys(rows["loss"]) if loss != REFERENCE]
    figure, axes = _draw_panels(rows, others, lines)
    label = f"{LAYERS[REFERENCE].label} (below 1 is better)"
    for axis in axes.flat:
        axis.axhline(1.0, color=LAYERS[REFERENCE].colour, linewidth=1.2, label=label)
    _finish(figure, axes, f"{{}}, {part}:\nratio to softmax (logarithmic axis)")
    return figure


def draw_measures(rows: Rows, part: str) -> Figure:
    """Draw each measure besides the divergence against latent KL, at equal epochs."""
    names = {n: COMPARED[n] for n in measures_of(rows) if n not in DIRECTIONS}
    figure, axes = _draw_grid(at_budget(rows, "epochs"), names, 3)
    for axis, label in zip(axes, names.values(), strict=True):
        axis.set_ylabel(f"{label}, {part}", fontsize=9)
    return figure


def draw_samples(rows: Rows, floors: dict[str, float]) -> Figure:
    """Draw the measures of samples against latent KL, with those of real drawings as a line."""
    names = {f"{s}_{n}": f"{label}\n({s})" for s in SOURCES for n, label in SAMPLED.items()}
    points = at_budget(rows, "epochs")
    figure, axes = _draw_grid(points, names, len(SAMPLED))
    for axis, (name, label) in zip(axes, names.items(), strict=True):
        kind = name.split("_")[1]
        if kind != "frechet":
            axis.set_yscale("linear")
        if kind in ("precision", "recall"):
            axis.set_ylim(-0.02, 1.02)
        axis.axhline(floors[kind], color="black", ls=":", lw=1)
        if kind == "frechet":
            _log_axis(axis, "y")  # again: the line may have made the axis longer
        axis.set_ylabel(label, fontsize=9)
    axes[0].plot([], [], ":", color="black", lw=1, label="real training drawings")
    _legend(figure, axes[0])
    return figure


def _draw_grid(points: Rows, names: dict[str, str], columns: int) -> tuple[Figure, list[Axes]]:
    """Draw a panel for each measure, of all losses against latent KL."""
    lines = -(-len(names) // columns)
    figure, axes = plt.subplots(
        lines, columns, figsize=(11, 3.1 * lines), squeeze=False, sharex=True, layout="constrained"
    )
    used = list(axes.flat)[: len(names)]
    for axis in list(axes.flat)[len(names) :]:
        axis.set_visible(False)
    for axis, name in zip(used, names, strict=True):
        for loss in dict.fromkeys(points["loss"]):
            own, means = _frontier(points.astype({name: float}), loss, name)
            _line(axis, loss, own.to_numpy(), means.to_numpy())
        _log_axis(axis, "x")
        if compared(points)[name].gt(0).all():
            _log_axis(axis, "y")
        else:  # no error, or a kernel distance that is negative
            _plain_axis(axis)
        axis.set_xlabel("latent KL (nats)", fontsize=9)
        axis.tick_params(labelbottom=True)
    _legend(figure, used[0])
    return figure, used


def _frontier(points: Rows, loss: str, name: str) -> tuple[Rows, Rows]:
    """Return the runs of a loss, latent KL and measure, and their means over seeds."""
    shown = compared(points)
    return shown.loc[shown["loss"] == loss, ["latent_kl", name]], mean_frontier(shown, loss, name)


def _draw_panels(
    rows: Rows, losses: list[str], lines: Callable[[Rows, str, str], tuple[Rows, Rows]]
) -> tuple[Figure, Any]:
    """Draw a panel for each direction and budget; `lines` are the runs of a loss, and their means.

    Both are tables of two columns, of which the first is the latent KL.
    """
    figure, axes = plt.subplots(
        2, 2, figsize=(9, 7.4), sharex=True, sharey="row", layout="constrained"
    )
    for column, budget in enumerate(BUDGETS):
        points = at_budget(rows, budget)
        for line, direction in enumerate(DIRECTIONS):
            for loss in losses:
                own, means = lines(points, loss, direction)
                _line(axes[line, column], loss, own.to_numpy(), means.to_numpy())
    return figure, axes


def _line(axis: Axes, loss: str, runs: np.ndarray, means: np.ndarray) -> None:
    """Draw the runs of a loss, and their means as a line."""
    layer, marker = LAYERS[loss], MARKERS[loss]
    axis.plot(*runs.T, marker, color=layer.colour, markersize=4, alpha=0.45, markeredgewidth=0)
    axis.plot(*means.T, f"{marker}-", color=layer.colour, markersize=5, linewidth=1.2,
              label=layer.label)  # fmt: skip


def _finish(figure: Figure, axes: Any, label: str) -> None:
    """Name the axes, the columns and the rates, and put the legend below the panels."""
    for axis, direction in zip(axes[:, 0], DIRECTIONS, strict=True):
        axis.set_ylabel(label.format(MEASURES[direction]), fontsize=9)
    for axis, budget in zip(axes[0], BUDGETS, strict=True):
        axis.set_title(f"equal {budget}", fontsize=10)
    for axis in axes[1]:
        axis.set_xlabel("latent KL (nats)", fontsize=9)
    for axis in axes.flat:
        _log_axis(axis, "y")
    for axis in axes.flat:
        _log_axis(axis, "x")
        axis.set_xlim(left=max(axis.get_xlim()[0], LEAST_RATE))
    _legend(figure, axes[0, 0])


def _legend(figure: Figure, axis: Axes) -> None:
    """Put the legend of an axis below all, in place of one that is there."""
    for legend in figure.legends:
        legend.remove()
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)


def draw_curve(
    axis: Axes, rows: Rows, loss: str, weight: float, x: str, label: str, **style: Any
) -> None:
    """Draw the divergence of a loss during training: mean and range over seeds.

    The label is a format of the layer's name, its weight, and its latent KL at the end.
    """
    own = rows[(rows["loss"] == loss) & (rows["weight"] == weight)]
    rate = own.loc[own["epoch"] == own["epoch"].max(), "latent_kl"].mean()
    text = label.format(LAYERS[loss].label, weight, rate)
    _draw_range(axis, own, x, "hausdorff", loss, text, **style)


def _draw_range(
    axis: Axes, runs: Rows, x: str, y: str, loss: str, label: str, **style: Any
) -> None:
    """Draw the mean over seeds at each epoch, and the range."""
    groups, colour = runs.groupby("epoch"), LAYERS[loss].colour
    place, value = groups[x].mean(), groups[y]
    axis.plot(place, value.mean(), color=colour, label=label, **style)
    axis.fill_between(place, value.min(), value.max(), color=colour, alpha=0.2, linewidth=0)


def plain_numbers(scale: Axis, subs: Sequence[float]) -> None:
    """Write plain numbers, not powers, beside ticks at `subs` times the powers of ten."""
    scale.set_major_locator(LogLocator(subs=subs))
    scale.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    scale.set_minor_formatter(NullFormatter())


def _log_axis(axis: Axes, name: str) -> None:
    """Let an axis be logarithmic, with plain numbers also where it spans less than a decade."""
    scale = axis.xaxis if name == "x" else axis.yaxis
    (axis.set_xscale if name == "x" else axis.set_yscale)("log")
    low, high = scale.get_view_interval()
    decades = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    for subs, enough in TICKS:
        plain_numbers(scale, subs)
        ticks = np.multiply.outer(decades, subs)
        if ((low <= ticks) & (ticks <= high)).sum() >= enough:
            break
    else:  # so short an axis is nearly linear
        scale.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    _plain_axis(axis)


def _plain_axis(axis: Axes) -> None:
    axis.tick_params(labelsize=8)
    axis.grid(True, color="0.93", zorder=0)
    axis.spines[["top", "right"]].set_visible(False)
