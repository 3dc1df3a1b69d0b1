"""Figures of the comparison: a dot for each set and method, and critical-difference diagrams."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from geosoftmax_experiments.ordinal.measures import MEASURES
from geosoftmax_experiments.ordinal.summary import REFERENCE, Method
from geosoftmax_experiments.report import plain_label, save
from geosoftmax_experiments.statistics import Ranks

matplotlib.use("Agg")  # pictures go to files: no screen is needed

__all__ = ["SHOWN", "draw_critical_differences", "draw_dots", "save"]

#: What dots are drawn for: more can hardly be told apart on a page, and the tables have them all.
SHOWN = (
    REFERENCE,
    Method("g", "scores"),
    Method("lr", "mode"),
    Method("lr", "chosen"),
    Method("at", "median"),
)

COLOURS = {
    "g": "#d62728",
    "g-scale": "#8c1d18",
    "lr": "#1f77b4",
    "at": "#2ca02c",
    "it": "#98a62b",
    "sparsemax": "#9467bd",
    "pom": "#17a2b8",
    "redsvm": "#7f7f7f",
    "ridge": "#bcbcbc",
}
MARKERS = {"mode": "s", "median": "o", "mean": "D", "scores": "^", "own": "v", "chosen": "*"}


def draw_dots(tables: dict[str, pd.DataFrame], shown: Sequence[Method] = SHOWN) -> Figure:
    """Draw one panel for each measure: a line for each set, a dot for each method.

    Methods are those of `shown` that the tables have, or the first five where they have none.
    Sets are of unequal difficulty, so the dots show the difference to the median of all methods,
    also of those that are not drawn. Most are close to it and a few far out: axes are linear in
    the middle, logarithmic beyond.
    """
    names = list(next(iter(tables.values())).index)
    every = list(max(tables.values(), key=lambda table: table.shape[1]).columns)
    methods = [method for method in every if method in shown] or every[: len(SHOWN)]
    height = 0.5 * len(names) + 0.3 * np.ceil(len(methods) / 4) + 1.1
    figure, axes = plt.subplots(
        1, len(tables), figsize=(4.0 * len(tables), height), sharey=True, layout="constrained"
    )
    shifts = np.linspace(-0.38, 0.38, len(methods))
    for axis, (measure, table) in zip(np.atleast_1d(axes), tables.items(), strict=True):
        centred = table.sub(table.median(axis=1), axis=0)
        for method, shift in zip(methods, shifts, strict=True):
            if method not in table.columns:
                continue
            axis.plot(
                centred[method],
                np.arange(len(names)) + shift,
                MARKERS[method.decision],
                color=COLOURS[method.model],
                markersize=7 if method.decision == "chosen" else 5,
                markeredgewidth=0,
                label=method.label,
            )
        better = "left" if MEASURES[measure].lower_is_better else "right"
        axis.set_title(f"{MEASURES[measure].label} ({better} is better)", fontsize=10)
        _bend(axis, centred[[m for m in methods if m in table.columns]].to_numpy())
        axis.axvline(0, color="0.7", linewidth=0.8, zorder=0)
        for line in np.arange(len(names) - 1) + 0.5:
            axis.axhline(line, color="0.92", linewidth=0.8, zorder=0)
        axis.tick_params(labelsize=9)
        axis.spines[["top", "right"]].set_visible(False)
    first = np.atleast_1d(axes)[0]
    first.set_yticks(range(len(names)), [plain_label(name) for name in names])
    first.set_ylim(len(names) - 0.5, -0.5)
    entries = [axis.get_legend_handles_labels() for axis in np.atleast_1d(axes)]
    handles, labels = max(entries, key=lambda entry: len(entry[1]))
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=9, frameon=False)
    return figure


def draw_critical_differences(found: dict[str, Ranks]) -> Figure:
    """Draw mean ranks for each measure; a bar joins methods that Nemenyi's test does not part."""
    most = max(len(ranks.mean) for ranks in found.values())
    panel = 0.21 * most + 1.1
    figure, axes = plt.subplots(
        len(found), 1, figsize=(8.4, panel * len(found)), layout="constrained"
    )
    for axis, (measure, ranks) in zip(np.atleast_1d(axes), found.items(), strict=True):
        _draw_ranks(axis, ranks)
        axis.set_title(
            f"{MEASURES[measure].label}: mean ranks over {ranks.sets} sets "
            f"(Friedman p = {ranks.p:.2g})",
            fontsize=10,
        )
    figure.supxlabel(
        "A thick bar joins methods whose ranks differ by no more than the critical difference:\n"
        "Nemenyi's test does not tell them apart (5 %).",
        fontsize=9,
    )
    return figure


def _bend(axis: Axes, values: np.ndarray) -> None:
    """Let an axis be linear where most values are, up to a power of ten, logarithmic beyond."""
    largest = float(np.abs(values).max()) or 1.0
    most = float(np.quantile(np.abs(values), 0.75)) or largest
    linear = float(10.0 ** np.floor(np.log10(most)))
    low, high = min(float(values.min()), -linear), max(float(values.max()), linear)
    decades = linear * 10.0 ** np.arange(np.floor(np.log10(largest / linear)) + 1)
    axis.set_xscale("symlog", linthresh=linear, linscale=1.5)
    axis.set_xticks([*-decades[::-1], -linear / 2, 0.0, linear / 2, *decades])
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_xlim(1.3 * low, 1.3 * high)
    for end in (-linear, linear):
        axis.axvline(end, color="0.85", linewidth=0.8, linestyle=":", zorder=0)
    axis.set_xlabel(f"difference to the median (beyond ±{linear:g}: logarithmic)", fontsize=9)


def _draw_ranks(axis: Axes, ranks: Ranks) -> None:
    """Draw one diagram: ranks on a line, the better half named on the left."""
    k = len(ranks.mean)
    half = (k + 1) // 2
    cliques = _cliques(ranks.mean.to_numpy(), ranks.critical)
    top = 1.3 + 0.35 * len(cliques)  # names begin below the bars
    axis.hlines(0, 1, k, color="black", linewidth=1)
    for tick in range(1, k + 1):
        axis.vlines(tick, -0.15, 0, color="black", linewidth=1)
        axis.text(tick, -0.3, str(tick), ha="center", va="bottom", fontsize=8)
    low, high = 1 - 0.04 * k, k + 0.04 * k
    for place, (method, rank) in enumerate(ranks.mean.items()):
        left = place < half
        level = top + (place if left else k - 1 - place)
        end = low if left else high
        assert isinstance(method, Method)
        colour = COLOURS[method.model]
        axis.plot([rank, rank, end], [0, level, level], color=colour, linewidth=1)
        name = f"{method.label}  {rank:.2f}" if left else f"{rank:.2f}  {method.label}"
        side = "right" if left else "left"
        axis.text(end, level, f" {name} ", ha=side, va="center", fontsize=8.5)
    for line, (start, stop) in enumerate(cliques):
        height = 0.45 + 0.35 * line
        axis.hlines(height, start - 0.05, stop + 0.05, color="black", linewidth=3)
    axis.hlines(-1.9, 1, 1 + ranks.critical, color="black", linewidth=1.5)
    axis.vlines([1, 1 + ranks.critical], -2.05, -1.75, color="black", linewidth=1.5)
    text = f"critical difference = {ranks.critical:.2f}"
    axis.text(1 + ranks.critical + 0.1, -1.9, text, va="center", fontsize=8)
    axis.set_xlim(1 - 0.62 * k, k + 0.62 * k)
    axis.set_ylim(top + half - 0.4, -2.5)
    axis.axis("off")


def _cliques(ranked: np.ndarray, critical: float) -> list[tuple[float, float]]:
    """Return the largest runs of sorted ranks that are no further apart than `critical`."""
    runs: list[tuple[float, float]] = []
    for start in ranked:
        stop = ranked[ranked <= start + critical].max()
        if stop > start and not any(a <= start and stop <= b for a, b in runs):
            runs.append((float(start), float(stop)))
    return runs
