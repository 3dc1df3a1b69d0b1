"""The outputs of a comparison: rows, tables, figures, and a report in Markdown and HTML."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from rich.table import Table

from geosoftmax_experiments.figures.style import BLUE, GREEN, ORANGE, PURPLE, SKY, SMALL, plain
from geosoftmax_experiments.keypoints.comparison import Comparison, Results
from geosoftmax_experiments.keypoints.losses import CONTROLS, LABELS, LOSSES, OURS
from geosoftmax_experiments.keypoints.measures import (
    LEVELS,
    NEAR,
    calibration,
    differences,
    errors,
    standing,
)
from geosoftmax_experiments.keypoints.timing import BATCHES, read_timing
from geosoftmax_experiments.report import Report, escape, write_csv
from geosoftmax_experiments.store import Store

__all__ = ["LEAST", "console_table", "draw_confidence", "write_report"]

#: Spreads and errors below this many pixels are drawn there: logarithms have no place for 0.
LEAST = 0.05

_COLOURS = (
    BLUE,
    "#000000",
    "#666666",
    ORANGE,
    GREEN,
    "#bbbb00",
    PURPLE,
    SKY,
    "#e69f00",
    "#5d3a00",
    "#7f0000",
)


def write_report(comparison: Comparison, store: Store, results: Results) -> Path:
    """Write everything into the folder of a store; return the path of the HTML page."""
    folder, rows = store.folder, results.tests
    parts = {"test": rows, "inner": results.inner}
    tables = [part.assign(part=name) for name, part in parts.items()]
    write_csv(folder / "rows.csv", pd.concat(tables, ignore_index=True))
    write_csv(folder / "decoders.csv", results.decoders)
    found, apart = errors(rows), differences(rows, OURS)
    report = Report(folder, "Key points: the comparison")
    report.add(*_what(comparison, store, results))
    _add_summary(report, found, apart)
    report.add_figure("errors", _draw_errors(rows), "Share of the points within a distance")
    for kind in comparison.kinds:
        for size in comparison.sizes:
            _add_cell(report, comparison, kind, size, found, apart)
    report.add("## How sure", *_how_sure())
    report.add_table(_calibration_table(calibration(rows, results.inner)))
    losses = [loss for loss in comparison.losses if LOSSES[loss][0].is_distribution]
    if losses:
        report.add_figure("confidence", draw_confidence(rows, losses), "Error against spread")
    _add_times(report, comparison)
    report.add("## Decoders", _DECODERS)
    report.add_table(_decoder_table(results.decoders))
    return report.write()


def _what(comparison: Comparison, store: Store, results: Results) -> list[str]:
    frames, recipe = comparison.frames, comparison.recipe
    inner = max(2, round(0.25 * min(comparison.sizes)))
    units = [unit.key for unit in (*comparison.trials(), *comparison.tests(results.chosen))]
    made = ", ".join(
        f"{escape(commit)} ({count})" for commit, count in store.commits(units).items()
    )
    most = min(comparison.most_settings, max(len(row[1]) for row in LOSSES.values()))
    full = recipe.steps >= 2000 and comparison.splits >= 5 and most == 6
    caution = (
        []
        if full
        else [
            f"**This is a reduced comparison**: {recipe.steps} steps of {recipe.batch} frames, "
            f"maps of {comparison.shape[0]}×{comparison.shape[1]}, splits of each kind: "
            f"{comparison.splits}, settings of each loss: at most {most}. It shows that everything "
            "runs, and at best a tendency."
        ]
    )
    return [
        f"{len(frames)} frames, {frames.parts} points each "
        f"({', '.join(map(escape, frames.labels.parts))}). One network for all losses (width "
        f"{recipe.width}, maps of {comparison.shape[0]}×{comparison.shape[1]}), from scratch, the "
        f"same augmentation, order and {recipe.steps} steps of {recipe.batch} frames. Errors are "
        "distances in pixels of the labels.",
        *caution,
        f"Settings (at most {most} a loss) and decoder are chosen once for each size and kind of "
        "split, by the mean error on a quarter of the training frames of split 0 (at the smallest "
        f"size {inner} frames), then fixed. With random splits, frames that are tested in one "
        "split are trained on in another: so the choice, the same way for all losses, may have "
        "seen them.",
        "Intervals are 95 %, by resampling frames with all their points, splits and seeds. What "
        "another split or seed would change, only more of those can tell. Times are of the wall "
        "clock, with whatever else the machine was doing.",
        f"Commits, and how many trainings each computed: {made}.",
    ]


# ------------------------------------------------------------------ errors


def _add_summary(report: Report, found: pd.DataFrame, apart: pd.DataFrame) -> None:
    """Add in how many cells ours is best, or behind the best."""
    if apart.empty:  # ours is not compared, or nothing else is
        return
    names = {"mean": "mean error", "median": "median error", "near": f"share within {NEAR:g} px"}
    report.add(
        "## In short",
        f"Sizes and kinds of split ({len(found.groupby(['kind', 'size']))} in all): in how many "
        f"{LABELS[OURS]} is best, and in how many it is behind the best loss there. The best is "
        "looked for in the test errors themselves, which flatters it.",
    )
    table = standing(found, apart, OURS)
    report.add_table(
        pd.DataFrame(
            {
                "by": [names[measure] for measure in table["measure"]],
                "best": table["best"],
                "behind, and the interval holds 0": table["close"],
                "behind, and it does not": table["behind"],
            }
        )
    )


def _add_cell(
    report: Report,
    comparison: Comparison,
    kind: str,
    size: int,
    found: pd.DataFrame,
    apart: pd.DataFrame,
) -> None:
    here: Any = found[(found["kind"] == kind) & (found["size"] == size)]
    tested = len(comparison.frames) - size
    splits = {"random": "random splits", "blocks": "splits in blocks of time"}[kind]
    report.add(f"## {size} training frames, {splits}", f"{tested} test frames in each split.")
    table = []
    best = {"mean": here["mean"].min(), "median": here["median"].min(), "near": here["near"].max()}
    for row in here.to_dict("records"):
        cells = {"loss": LABELS[row["loss"]], "setting": escape(row["setting"])}
        cells["decoder"] = row["decoder"]
        for name, label in (("mean", "mean"), ("median", "median"), ("near", f"≤ {NEAR:g} px")):
            text = f"{row[name]:.2f}"
            cells[label] = f"**{text}**" if row[name] == best[name] else text
        cells |= _against(apart, kind, size, row["loss"])
        cells["training, s"] = f"{row['seconds']:.0f}"
        cells["network, ms"] = f"{row['network_ms']:.1f}"
        cells["head, ms"] = f"{row['head_ms']:.2f}"
        table.append(cells)
    report.add_table(pd.DataFrame(table))


def _against(apart: pd.DataFrame, kind: str, size: int, loss: str) -> dict[str, str]:
    if apart.empty:
        return {}
    here: Any = apart[(apart["kind"] == kind) & (apart["size"] == size) & (apart["loss"] == loss)]
    names = {"mean": "mean", "median": "median", "near": f"≤ {NEAR:g} px"}
    names = {name: f"ours − it, {label}" for name, label in names.items()}
    if here.empty:
        return dict.fromkeys(names.values(), "–")
    row = here.iloc[0]
    return {
        label: f"{row[name]:+.2f} [{row[f'{name}_low']:+.2f}, {row[f'{name}_high']:+.2f}]"
        for name, label in names.items()
    }


def _draw_errors(rows: Any) -> Figure:
    cells = list(dict.fromkeys(zip(rows["kind"], rows["size"], strict=True)))
    columns = min(2, len(cells))
    lines = -(-len(cells) // columns)
    figure, axes = plt.subplots(
        lines, columns, figsize=(4.4 * columns + 1.6, 3.0 * lines), squeeze=False,
        layout="constrained",
    )  # fmt: skip
    colours = dict(zip(LOSSES, _COLOURS, strict=True))
    for axis in axes.flat[len(cells) :]:
        axis.set_visible(False)
    for axis, (kind, size) in zip(axes.flat, cells, strict=False):
        here: Any = rows[(rows["kind"] == kind) & (rows["size"] == size)]
        for loss, part in here.groupby("loss", sort=False):
            error = np.sort(part["error"])
            share = np.arange(1, len(error) + 1) / len(error)
            width = 2.2 if loss in (OURS, *CONTROLS) else 1.2
            axis.plot(error, share, color=colours[loss], lw=width, label=LABELS[loss])
        axis.axvline(NEAR, color="#999999", lw=0.8)
        axis.set_xscale("log")
        axis.set_xlim(0.5, max(20, float(rows["error"].quantile(0.98))))
        axis.set_ylim(0, 1)
        _plain_ticks(axis.xaxis, (1, 2, 5))
        x = f"error in pixels (grey: {NEAR:g})"
        plain(axis, f"{size} training frames, {kind}", x, "share of the points")
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", fontsize=SMALL, frameon=False)
    return figure


def _plain_ticks(axis: Any, subs: tuple[int, ...]) -> None:
    """Label a logarithmic axis with plain numbers: `subs` times powers of ten."""
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


# ------------------------------------------------------------------ confidence


def _how_sure() -> list[str]:
    levels = " and ".join(f"{100 * level:g} %" for level in LEVELS)
    return [
        "Of losses that predict a distribution: the share of the points inside the disc that is to "
        f"cover {levels}, if errors were Gaussian with the predicted spread; as predicted, and "
        "with all spreads times one factor, which was fitted to cover half on the inner split. "
        "Then the rank correlation of the error with spread, with entropy, and with one less the "
        "likelihood. The others have a likelihood alone."
    ]


def _calibration_table(sure: pd.DataFrame) -> pd.DataFrame:
    table = []
    rows: Any = sure.to_dict("records")
    for row in rows:
        cells: dict[str, Any] = {
            "frames": f"{row['size']}, {row['kind']}",
            "loss": LABELS[row["loss"]],
        }
        is_distribution = LOSSES[row["loss"]][0].is_distribution
        for level in LEVELS:
            for name, label in (("raw", "as predicted"), ("scaled", "times factor")):
                value = f"{row[f'{name}_{level:g}']:.2f}" if is_distribution else "–"
                cells[f"{100 * level:g} %, {label}"] = value
        cells["factor"] = f"{row['factor']:.2f}" if is_distribution else "–"
        for name in ("spread", "entropy", "likelihood"):
            shown = is_distribution or name == "likelihood"
            cells[f"rank, {name}"] = f"{row[f'rank_{name}']:.2f}" if shown else "–"
        table.append(cells)
    return pd.DataFrame(table)


def draw_confidence(rows: pd.DataFrame, losses: list[str]) -> Figure:
    """Draw error against spread: a panel for each loss, a mark for each point of each split."""
    columns = math.ceil(math.sqrt(len(losses)))
    lines = -(-len(losses) // columns)
    figure, axes = plt.subplots(
        lines, columns, figsize=(max(6.0, 3.0 * columns), 2.6 * lines), squeeze=False,
        sharex=True, sharey=True, layout="constrained",
    )  # fmt: skip
    for axis in axes.flat[len(losses) :]:
        axis.set_visible(False)
    for axis in axes.flat[max(0, len(losses) - columns) : len(losses)]:  # nothing is below them
        axis.tick_params(labelbottom=True)
    both: Any = rows.loc[rows["loss"].isin(losses), ["spread", "error"]].clip(lower=LEAST)
    ends = [both.min().min(), both.max().max()]
    for axis, loss in zip(axes.flat, losses, strict=False):
        part: Any = rows.loc[rows["loss"] == loss, ["spread", "error"]].clip(lower=LEAST)
        axis.plot(
            part["spread"], part["error"], ".", ms=3.5, alpha=0.4, mew=0, color=BLUE, clip_on=False
        )
        axis.plot(ends, ends, color="#999999", lw=0.8, zorder=0)
        axis.set_xscale("log")
        axis.set_yscale("log")
        _plain_ticks(axis.xaxis, (1,))
        _plain_ticks(axis.yaxis, (1,))
        plain(axis, LABELS[loss])
    figure.supxlabel(
        f"predicted spread in pixels (values below {LEAST:g} are drawn at {LEAST:g}; "
        "grey: as large as the error)",
        fontsize=SMALL,
    )
    figure.supylabel("error in pixels", fontsize=SMALL)
    return figure


# ------------------------------------------------------------------ times


def _add_times(report: Report, comparison: Comparison) -> None:
    """Add the times that were measured alone."""
    timing = read_timing(comparison.folder)
    timed = {loss: timing[loss] for loss in comparison.losses if loss in timing}
    if not timed:
        return
    first = BATCHES[0]
    report.add(
        "## Times",
        "Of a training step, and of a prediction with a batch of "
        f"{' and of '.join(map(str, BATCHES))}: medians, measured in one process while nothing "
        "else ran, with the setting that was chosen most often. Networks were trained for some "
        "hundred steps before; the head is what makes a distribution of the maps. The other times "
        "of this page are those of trainings that shared the machine.",
    )
    table = []
    for loss, row in timed.items():
        cells = {"loss": LABELS[loss], "setting": escape(row["setting"])}
        cells["step, ms"] = f"{row['step']:.2f}"
        if "softmax" in timed:
            cells["step / softmax's step"] = f"{row['step'] / timed['softmax']['step']:.2f}"
        cells["network, ms a frame"] = f"{row[f'network {first}']:.3f}"
        for batch in BATCHES:
            cells[f"head, ms a frame ({batch})"] = f"{row[f'head {batch}']:.3f}"
        table.append(cells)
    report.add_table(pd.DataFrame(table))


# ------------------------------------------------------------------ decoders


_DECODERS = (
    "Mean test error by every decoder, over all cells: to see what the choice of a decoder is "
    "worth. Above, the one that the inner split chose is used."
)


def _decoder_table(found: pd.DataFrame) -> pd.DataFrame:
    means: Any = found.pivot_table(index="loss", columns="decoder", values="error", sort=False)
    means.insert(0, "loss", [LABELS[loss] for loss in means.index])
    return means.reset_index(drop=True)


def console_table(results: Results) -> Table:
    """Return the errors for the terminal."""
    found = errors(results.tests)
    table = Table(title="Error in pixels")
    for name in ("frames", "loss", "setting", "decoder", "mean", "median", f"≤ {NEAR:g} px"):
        table.add_column(name)
    records: Any = found.to_dict("records")
    for row in records:
        table.add_row(
            f"{row['size']}, {row['kind']}",
            LABELS[row["loss"]],
            row["setting"],
            row["decoder"],
            f"{row['mean']:.2f}",
            f"{row['median']:.2f}",
            f"{row['near']:.2f}",
        )
    return table
