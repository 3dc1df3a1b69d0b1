"""The outputs of a comparison: numbers, figures, pictures, and a report in Markdown and HTML.

All that the report says and draws is in ``results.json`` and ``pictures.npz``: it can be written
again from these two, without the runs.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
from rich.table import Column, Table

from geosoftmax_experiments import files
from geosoftmax_experiments.data.drawings import Drawings
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.report import Report, escape, escape_all
from geosoftmax_experiments.store import provenance
from geosoftmax_experiments.vae import figures, pictures
from geosoftmax_experiments.vae.comparing import Comparison, Run
from geosoftmax_experiments.vae.frontier import (
    ALIKE,
    BUDGETS,
    DEAREST,
    LEAST_RATE,
    REFERENCE,
    Rows,
    Verdict,
    affordable_step,
    at_budget,
    compared,
    matched_weights,
    verdicts,
)
from geosoftmax_experiments.vae.layers import LAYERS
from geosoftmax_experiments.vae.measures import MEASURES
from geosoftmax_experiments.vae.presets import PARTS

__all__ = ["console_table", "console_verdicts", "rewrite_report", "sentence", "write_report"]

#: The weight of the paper.
PAPER_WEIGHT = 1.0
#: The columns of the table of all weights, and how they are written.
SHOWN = {"hausdorff": ".3g", "hausdorff_reverse": ".3g", "kl": "", "kl_finite": "",
         "latent_kl": ".1f", "support": ".0f", "entropy": ""}  # fmt: skip
#: Drawings in a line of a picture.
COUNT = 10
ALONE = "nothing to compare, as softmax, or every other loss, is not among the losses."
DIRECTION = {"hausdorff": "D(α‖β)", "hausdorff_reverse": "D(β‖α)"}


def write_report(comparison: Comparison, drawings: Drawings) -> Path:
    """Write everything into the comparison's folder; return the path of the HTML page."""
    columns = _columns(comparison.records())
    rows = pd.DataFrame(columns)
    matched = matched_weights(at_budget(rows, "epochs"), PAPER_WEIGHT)
    shown = _pictures(comparison, drawings, rows, matched)
    results = {
        "settings": comparison.summary(),
        "drawings": drawings.counts(),
        "commits": comparison.commits(),
        "drawn_on": provenance(),
        **comparison.timing(),
        "verdicts": [verdict._asdict() for verdict in verdicts(rows)],
        "pictures_at_weight": matched,
        "rows": columns,
    }
    pictures.write_pictures(shown, comparison.folder / "pictures.npz")
    files.write_text(comparison.folder / "results.json", json.dumps(results))
    return _write_pages(comparison.folder, results, shown)


def rewrite_report(folder: Path, output: Path) -> Path:
    """Write figures, pictures and pages again from the results that a folder holds."""
    path = folder / "results.json"
    try:
        results = files.read_json(path)
        return _write_pages(output, results, pictures.read_pictures(folder / "pictures.npz"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(
            f"{folder} holds no results of a comparison: {Path(error.filename).name} is missing.",
            "Give the folder that `geosoftmax vae compare` wrote, once it is done.",
        ) from None
    except UserError:
        raise
    except Exception as error:  # whatever a damaged file makes of what reads and draws it
        raise UserError(
            f"{path}, or pictures.npz beside it, is damaged.", "Compare again: runs are kept."
        ) from error


def console_verdicts(rows: Rows) -> str:
    """Return who is closer at equal rate, in words."""
    found = [verdict for verdict in verdicts(rows) if verdict.budget == "epochs"]
    if not found:
        return f"At equal latent KL: {ALONE}"
    lines = [sentence(verdict).replace("**", "") for verdict in found]
    return "\n".join(["At equal latent KL, which is what to compare, and equal epochs:", *lines])


def console_table(comparison: Comparison, rows: Rows) -> Table:
    """Return the table of the last epoch."""
    common = comparison.common
    title = f"{common.data}, {common.on}, epoch {common.epochs}; D: Hausdorff divergence"
    result = Table(Column("loss", no_wrap=True), "weight", title=title)
    forms = {"hausdorff": ".4f", "hausdorff_reverse": ".4f", "latent_kl": ".1f", "support": ".0f"}
    for name in forms:
        result.add_column(DIRECTION.get(name, MEASURES[name]), justify="right")
    for (loss, weight), row in _means(rows).iterrows():
        values = (f"{row[name]:{form}}" for name, form in forms.items())
        result.add_row(LAYERS[loss].label, f"{weight:g}", *values)
    return result


# ------------------------------------------------------------------ the pages


def _write_pages(folder: Path, results: dict[str, Any], shown: pictures.Shown) -> Path:
    """Write all but the numbers."""
    rows, common = pd.DataFrame(results["rows"]), results["settings"]["common"]
    if common["on"] not in PARTS or not set(rows["loss"]) <= LAYERS.keys():
        raise ValueError("these are not the results of a comparison")
    report = Report(folder, f"Drawings: {common['data']}")
    report.add(_settings_in_words(results))
    if not _add_verdicts(report, rows, common["on"]):
        (folder / "ratio.png").unlink(missing_ok=True)
    _add_training(report, results, rows)
    _add_pictures(report, rows, results["pictures_at_weight"], shown)
    last = rows[rows["epoch"] == rows["epoch"].max()]
    report.add(
        "## All weights",
        f"Means over seeds at the last epoch, on the {common['on']} drawings, from sampled "
        f"codes. The drawings themselves use {last['true_support'].mean():.0f} pixels and have an "
        f"entropy of {last['true_entropy'].mean():.2f}; a pixel is used from 1e-4 of the ink on.",
    )
    report.add_table(_all_table(rows))
    return report.write()


def _add_verdicts(report: Report, rows: Rows, part: str) -> bool:
    """Add who wins; return whether any loss has a rate in common with softmax."""
    found = verdicts(rows)
    report.add(
        "## Who wins at equal rate",
        "The divergence of each loss, divided by the lowest that softmax reaches at the same "
        "latent KL or less. Between the rates of softmax we interpolate, seed by seed (a monotone "
        f"cubic of the logarithms). Rates beyond those of softmax, and below {LEAST_RATE:g} nat, "
        "do not count. Softmax may have rates beyond those of a loss, so the last two columns look "
        "from the other side: at how many runs of softmax its divergence is above the lowest of "
        "the loss at the same latent KL or less, and the highest ratio of the loss to softmax "
        "there.",
    )
    if found:
        report.add_table(_verdict_table(found))
        sentences = (sentence(verdict) for verdict in found if verdict.budget == "epochs")
        report.add("In words, at equal epochs:", "\n".join(sentences))
    else:
        report.add(ALONE)
    frontier = figures.draw_frontier(rows, part)
    report.add_figure("frontier", frontier, "Divergence against latent KL")
    report.add(*_not_drawn(rows))
    if comparable := any(verdict.points for verdict in found):
        report.add(
            "The same as ratios, a dot for each run of the table: below 1 a loss is better than "
            "softmax. Lines join the geometric means over seeds."
        )
        caption = "Divergence over that of softmax, against latent KL"
        report.add_figure("ratio", figures.draw_ratio(rows, part), caption)
    return comparable


def _add_training(report: Report, results: dict[str, Any], rows: Rows) -> None:
    settings = results["settings"]
    weight = min(settings["weights"], key=lambda weight: abs(weight - PAPER_WEIGHT))
    curves = figures.draw_curves(rows, weight, settings["common"]["on"])
    report.add("## Training")
    report.add_figure("curves", curves, "Divergence during training")
    report.add_table(_timing_table(results, rows))
    report.add(
        "Seconds of training are steps times the seconds of a step. These are measured in the "
        "first steps of training, data included; the losses take turns, with no other run of the "
        "comparison beside them. The table has the median of the rounds, and the fastest and the "
        "slowest. Equal seconds are those that softmax takes for all epochs; a loss that is faster "
        "gains nothing by it. The last column says how many times slower than softmax a step may "
        "be before the loss no longer wins: up to there it is below softmax everywhere at equal "
        "seconds, in both directions and from both sides (–: not even at 1)."
    )


def _add_pictures(
    report: Report, rows: Rows, matched: dict[str, float], shown: pictures.Shown
) -> None:
    at = ", ".join(f"{LAYERS[loss].label} {weight:g}" for loss, weight in matched.items())
    report.add(
        "## Reconstructions of test drawings, and samples from the prior",
        f"Seed 0; weights of nearest latent KL: {at}. Codes of reconstructions are their means; "
        f"samples have the same codes for each loss.{_mind_the_rates(rows, matched)}",
    )
    for name, lines in shown.items():
        report.add_figure(name, pictures.draw_rows(lines), name.capitalize())


def _not_drawn(rows: Rows) -> list[str]:
    """Say how many runs the frontier leaves out."""
    counts = {}
    for budget in BUDGETS:
        points = at_budget(rows, budget)
        counts[budget] = len(points) - len(compared(points)), len(points)
    if not any(below for below, _ in counts.values()):
        return []
    parts = (f"{below} of {of} at equal {budget}" for budget, (below, of) in counts.items())
    return [f"Runs below {LEAST_RATE:g} nat are not drawn: {', '.join(parts)}."]


def _mind_the_rates(rows: Rows, matched: dict[str, float]) -> str:
    """Say so where the rates of pictures that lie side by side are not alike."""
    rates = at_budget(rows, "epochs").groupby(["loss", "weight"])["latent_kl"].mean()
    shown = [max(float(rates[at]), LEAST_RATE) for at in matched.items()]
    apart = max(shown) / min(shown)
    if apart <= ALIKE:
        return ""
    return (
        f" Mind their rates, which differ by a factor of {apart:.1f}: a layer that spends more "
        "nats draws better."
    )


def _settings_in_words(results: dict[str, Any]) -> str:
    settings, counts, where = (escape_all(results[key]) for key in ("settings", "drawings", "on"))
    common = settings["common"]
    height, width = common["shape"]
    decayed = ", falling to zero" if common["decay"] else ""
    annealed = f" (annealed in {common['anneal']:g} of the epochs)" if common["anneal"] else ""
    return (
        f"{counts['pictures']:,} drawings of {height}×{width} pixels "
        f"(besides {counts['blank']} blank ones): {counts['train']:,} to train, "
        f"{counts['validation']:,} to validate, {counts['test']:,} to test. Architecture "
        f"{common['architecture']}, latent size {common['latent']}, {common['epochs']} epochs, "
        f"batch {common['batch']}, Adam at {common['learning_rate']:g}{decayed}, precision "
        f"{common['precision']}, start {common['start']}, gain {common['gain']:g}, cost "
        f"{common['scale']:g} times the squared distance{annealed}; weights "
        f"{', '.join(f'{w:g}' for w in settings['weights'])}; {_count(settings['seeds'], 'seed')}. "
        f"On {where['device']}, torch {where['versions']['torch']}, "
        f"{_made_by(results['commits'], results['on']['commit'])}."
    )


def _made_by(commits: dict[str, int], timed: str | None) -> str:
    """Say which commits have made the runs, and which has timed the steps."""
    if list(commits) == [timed or "unknown"]:
        return f"commit {escape(timed)}"
    runs = (f"{_count(n, 'run')} by commit {escape(commit)}" for commit, n in commits.items())
    return f"{', '.join(runs)}; steps timed by {escape(timed)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def sentence(verdict: Verdict) -> str:
    """Return a verdict in words, an item of a list in Markdown."""
    name, what = LAYERS[verdict.loss].label, DIRECTION[verdict.direction]
    share = f"{verdict.lower} of {verdict.points} rates"
    if not verdict.points:
        result = "no rate in common with softmax; sweep other weights"
    elif verdict.dominates:
        result = f"**below softmax everywhere** ({share}, and at all {verdict.runs} of softmax)"
    elif verdict.lower_everywhere:
        result = (
            f"below softmax at {share}, but at {verdict.above} of {verdict.runs} of softmax: "
            "sweep other weights"
        )
    elif not verdict.lower:
        result = f"above softmax everywhere ({share})"
    else:
        result = f"below softmax at {share}"
    return f"- {name}, {what}: {result}."


# ------------------------------------------------------------------ tables


def _verdict_table(found: list[Verdict]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "loss": LAYERS[v.loss].label,
            "divergence": DIRECTION[v.direction],
            "equal": v.budget,
            "lower at": f"{v.lower} of {v.points}",
            "ratio": _beside_one(v.ratio),
            "best": _beside_one(v.best),
            "worst": _beside_one(v.worst),
            "softmax above at": f"{v.above} of {v.runs}",
            "worst there": _beside_one(v.closest),
        }
        for v in found
    )


def _beside_one(ratio: float) -> float | str:
    """Return a ratio; with more digits than tables have where it would look like 1."""
    return f"{ratio:.5f}" if 0 < abs(ratio - 1) < 5e-4 else ratio


def _timing_table(results: dict[str, Any], rows: Rows) -> pd.DataFrame:
    timing, rounds = results["seconds_per_step"], results.get("rounds", {})
    base = timing.get(REFERENCE)

    def affordable(loss: str) -> str:
        times = affordable_step(rows, loss) if base and loss != REFERENCE else math.nan
        return "–" if math.isnan(times) else f"{times:.2f}{' or more' if times == DEAREST else ''}"

    def extent(loss: str) -> str:
        several = rounds.get(loss)
        return f"{1e3 * min(several):.2f} to {1e3 * max(several):.2f}" if several else "–"

    return pd.DataFrame(
        {
            "loss": LAYERS[loss].label,
            "ms a step": f"{1e3 * seconds:.2f}",
            "rounds": extent(loss),
            "÷ softmax": f"{seconds / base:.2f}" if base else "–",
            "may cost up to": affordable(loss),
        }
        for loss, seconds in timing.items()
    )


def _means(rows: Rows) -> Rows:
    points = at_budget(rows, "epochs")
    means = points.groupby(["loss", "weight"])[list(SHOWN)].mean()
    order = [loss for loss in LAYERS if loss in set(points["loss"])]
    return means.reindex(order, level="loss")


def _all_table(rows: Rows) -> pd.DataFrame:
    means = _means(rows).reset_index()
    means["loss"] = [LAYERS[loss].label for loss in means["loss"]]
    for name, form in {"weight": "g", **SHOWN}.items():
        if form:
            means[name] = [f"{value:{form}}" for value in means[name]]
    return means.rename(columns=MEASURES)


# ------------------------------------------------------------------ what is stored


def _columns(records: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return records column by column, numbers with the digits that mean something."""
    return {
        name: [
            float(f"{value:.6g}") if isinstance(value, float) else value
            for value in (record[name] for record in records)
        ]
        for name in records[0]
    }


def _pictures(
    comparison: Comparison, drawings: Drawings, rows: Rows, weights: dict[str, float]
) -> pictures.Shown:
    """Return reconstructions and samples of the first seed, a line for each loss and its rate."""
    shown: pictures.Shown = {name: {} for name in pictures.PICTURES}
    last = at_budget(rows[rows["seed"] == 0], "epochs").set_index(["loss", "weight"])
    for loss, weight in weights.items():
        run = pictures.open_run(comparison.run_folder(Run(loss, weight, 0)), drawings)
        label = f"{LAYERS[loss].label}\n{last.loc[(loss, weight), 'latent_kl']:.0f} nats"
        alpha, beta = pictures.reconstructions(run, COUNT).values()
        (sample,) = pictures.samples(run, COUNT).values()
        shown["reconstructions"] |= {"drawing": alpha, label: beta}
        shown["samples"][label] = sample
    return shown
