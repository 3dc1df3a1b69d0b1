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
from geosoftmax_experiments.pages import as_markdown, escape, escape_all, html_page
from geosoftmax_experiments.vae import figures, pictures
from geosoftmax_experiments.vae.comparing import Comparison, Unit, provenance
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
from geosoftmax_experiments.vae.kept import keep, read_kept
from geosoftmax_experiments.vae.layers import LAYERS
from geosoftmax_experiments.vae.measures import MEASURES
from geosoftmax_experiments.vae.settings import PARTS

__all__ = ["console_table", "console_verdicts", "rewrite_report", "sentence", "write_report"]

#: The weight of the paper.
PAPER_WEIGHT = 1.0
SHOWN = ("hausdorff", "hausdorff_reverse", "kl", "kl_finite", "latent_kl", "support", "entropy")
COUNT = 10
_ALONE = "nothing to compare, as softmax, or every other loss, is not among the losses."
DIRECTION = {"hausdorff": "D(α‖β)", "hausdorff_reverse": "D(β‖α)"}


def write_report(comparison: Comparison, drawings: Drawings) -> Path:
    """Write everything into the comparison's folder; return the path of the HTML page."""
    columns = _columns(comparison.records())
    rows = pd.DataFrame(columns)
    matched = matched_weights(at_budget(rows, "epochs"), PAPER_WEIGHT)
    shown = _pictures(comparison, drawings, rows, matched)
    results = {
        "settings": comparison.words(),
        "drawings": _counts(drawings),
        "on": comparison.measured_on(),
        "commits": comparison.commits(),
        "drawn_on": provenance(),
        "seconds_per_step": comparison.timing(),
        "rounds": comparison.rounds(),
        "verdicts": [verdict._asdict() for verdict in verdicts(rows)],
        "pictures_at_weight": matched,
        "rows": columns,
    }
    keep(shown, comparison.folder / "pictures.npz")
    files.write_text(comparison.folder / "results.json", json.dumps(results))
    return _write_pages(comparison.folder, results, shown)


def rewrite_report(folder: Path, output: Path) -> Path:
    """Write figures, pictures and pages again from the results that a folder holds."""
    path = folder / "results.json"
    try:
        results = files.read_json(path)
        shown = read_kept(folder / "pictures.npz")
        return _write_pages(output, results, shown)
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


def _write_pages(folder: Path, results: dict[str, Any], shown: dict[str, dict[str, Any]]) -> Path:
    """Write all but the numbers."""
    rows, common = pd.DataFrame(results["rows"]), results["settings"]["common"]
    if common["on"] not in PARTS or not set(rows["loss"]) <= LAYERS.keys():
        raise ValueError("these are not the results of a comparison")
    written = {"curves.png", "frontier.png", *(f"{name}.png" for name in shown)}
    weight = min(results["settings"]["weights"], key=lambda weight: abs(weight - PAPER_WEIGHT))
    found = verdicts(rows)
    figures.save(figures.draw_curves(rows, weight, common["on"]), folder / "curves.png")
    figures.save(figures.draw_frontier(rows, common["on"]), folder / "frontier.png")
    if _comparable(found):
        figures.save(figures.draw_ratio(rows, common["on"]), folder / "ratio.png")
        written.add("ratio.png")
    else:
        (folder / "ratio.png").unlink(missing_ok=True)
    for name, lines in shown.items():
        figures.save(pictures.draw_rows(lines), folder / f"{name}.png")
    text = _markdown(results, rows, found)
    files.write_text(folder / "report.md", text)
    page = folder / "report.html"
    files.write_text(page, html_page(f"Drawings: {common['data']}", text, folder, written))
    return page


def _columns(records: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return records column by column, numbers with the digits that mean something."""
    return {
        name: [
            float(f"{value:.6g}") if isinstance(value, float) else value
            for value in (record[name] for record in records)
        ]
        for name in records[0]
    }


def console_verdicts(comparison: Comparison) -> str:
    """Return who is closer at equal rate, in words."""
    found = [verdict for verdict in verdicts(comparison.rows()) if verdict.budget == "epochs"]
    if not found:
        return f"At equal latent KL: {_ALONE}"
    lines = [sentence(verdict).replace("**", "") for verdict in found]
    return "\n".join(["At equal latent KL, which is what to compare, and equal epochs:", *lines])


def console_table(comparison: Comparison) -> Table:
    """Return the table of the last epoch."""
    means = _means(comparison.rows())
    common = comparison.common
    title = f"{common.data}, {common.on}, epoch {common.epochs}; D: Hausdorff divergence"
    result = Table(Column("loss", no_wrap=True), "weight", title=title)
    for name in ("hausdorff", "hausdorff_reverse", "latent_kl", "support"):
        result.add_column(DIRECTION.get(name, MEASURES[name]), justify="right")
    for (loss, weight), row in means.iterrows():
        result.add_row(
            LAYERS[loss].label,
            f"{weight:g}",
            f"{row['hausdorff']:.4f}",
            f"{row['hausdorff_reverse']:.4f}",
            f"{row['latent_kl']:.1f}",
            f"{row['support']:.0f}",
        )
    return result


# ------------------------------------------------------------------ the text


def _markdown(results: dict[str, Any], rows: Rows, found: list[Verdict]) -> str:
    matched = results["pictures_at_weight"]
    at = ", ".join(f"{LAYERS[loss].label} {weight:g}" for loss, weight in matched.items())
    common = results["settings"]["common"]
    last = rows[rows["epoch"] == rows["epoch"].max()]
    parts = [
        f"# Drawings: {escape(common['data'])}",
        _what(results),
        "## Who wins at equal rate",
        "Divergence of each loss over the lowest of softmax at the same latent KL or less (a "
        "monotone cubic of the logarithms between the rates of softmax, seed by seed; rates beyond "
        f"those of softmax, and below {LEAST_RATE:g} nat, do not count). Rates of softmax may go "
        "on beyond those of a loss, so the last two columns look from the other side: at how many "
        "runs of softmax it is above the lowest of the loss at the same latent KL or less, and the "
        "highest ratio of the latter to the former.",
        *_verdicts(found),
        "![Divergence against latent KL](frontier.png)",
        *_not_drawn(rows),
        *_ratio(found),
        "## Training",
        "![Divergence during training](curves.png)",
        as_markdown(_timing_table(results, rows)),
        "Seconds are steps times the seconds of a step: measured in the first steps of training, "
        "data included, one loss after the other in turns, with no other run of the comparison "
        "beside it; the median of its rounds, whose fastest and slowest are beside it. Equal "
        "seconds are those that softmax takes for all epochs; a loss that is faster gains nothing "
        "by it. The last column: so many times as long as one of softmax a step may be, and the "
        "loss lies below softmax everywhere at equal seconds, in both directions and from both "
        "sides (–: not even at 1).",
        "## Reconstructions of test drawings, and samples from the prior",
        f"Seed 0; weights of nearest latent KL: {at}. Codes of reconstructions are their means; "
        f"samples have the same codes for each loss.{_mind_the_rates(rows, matched)}",
        "![Reconstructions](reconstructions.png)",
        "![Samples](samples.png)",
        "## All weights",
        f"Means over seeds at the last epoch, on the {common['on']} drawings, from sampled "
        f"codes. The drawings themselves use {last['true_support'].mean():.0f} pixels and have an "
        f"entropy of {last['true_entropy'].mean():.2f}; a pixel is used from 1e-4 of the ink on.",
        as_markdown(_all_table(rows)),
    ]
    return "\n\n".join(parts) + "\n"


def _verdicts(found: list[Verdict]) -> list[str]:
    if not found:
        return [_ALONE]
    sentences = (sentence(verdict) for verdict in found if verdict.budget == "epochs")
    return [as_markdown(_verdict_table(found)), "In words, at equal epochs:", "\n".join(sentences)]


def _not_drawn(rows: Rows) -> list[str]:
    """Say how many runs the frontier leaves out."""
    counts = {}
    for budget in BUDGETS:
        points = at_budget(rows, budget)
        counts[budget] = len(points) - len(compared(points)), len(points)
    if not any(below for below, _ in counts.values()):
        return []
    told = ", ".join(f"{below} of {of} at equal {budget}" for budget, (below, of) in counts.items())
    return [f"Runs below {LEAST_RATE:g} nat are not drawn: {told}."]


def _mind_the_rates(rows: Rows, matched: dict[str, float]) -> str:
    """Say so where the rates of pictures that lie side by side are not alike."""
    rates = at_budget(rows, "epochs").groupby(["loss", "weight"])["latent_kl"].mean()
    shown = [max(float(rates[at]), LEAST_RATE) for at in matched.items()]
    apart = max(shown) / min(shown)
    if apart <= ALIKE:
        return ""
    return (
        f" Mind their rates, which differ by a factor of {apart:.1f}: who spends more nats draws "
        "better."
    )


def _ratio(found: list[Verdict]) -> list[str]:
    """Show the ratios of the table, where there are any."""
    if not _comparable(found):
        return []
    return [
        "The same as ratios, a dot for each run of the table: below 1 a loss is better than "
        "softmax. Lines join the geometric means over seeds.",
        "![Divergence over that of softmax, against latent KL](ratio.png)",
    ]


def _comparable(found: list[Verdict]) -> bool:
    """Whether any loss has a rate in common with softmax."""
    return any(verdict.points for verdict in found)


def _what(results: dict[str, Any]) -> str:
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
        f"{', '.join(f'{w:g}' for w in settings['weights'])}; {settings['seeds']} "
        f"{'seed' if settings['seeds'] == 1 else 'seeds'}. On {where['device']}, torch "
        f"{where['versions']['torch']}, {_made_by(results['commits'], results['on']['commit'])}."
    )


def _made_by(commits: dict[str, int], timed: str | None) -> str:
    """Say which commits have made the runs, and which has timed the steps."""
    if list(commits) == [timed or "unknown"]:
        return f"commit {escape(timed)}"
    runs = ", ".join(
        f"{count} {'run' if count == 1 else 'runs'} by commit {escape(commit)}"
        for commit, count in commits.items()
    )
    return f"{runs}; steps timed by {escape(timed)}"


def sentence(verdict: Verdict) -> str:
    """Return a verdict in words, an item of a list in Markdown."""
    name, what = LAYERS[verdict.loss].label, DIRECTION[verdict.direction]
    if not verdict.points:
        return f"- {name}, {what}: no rate in common with softmax; sweep other weights."
    share = f"{verdict.lower} of {verdict.points} rates"
    if verdict.dominates:
        return (
            f"- {name}, {what}: **below softmax everywhere** ({share}, and at all {verdict.runs} "
            "of softmax)."
        )
    if verdict.lower_at_all:
        return (
            f"- {name}, {what}: below softmax at {share}, but at {verdict.above} of "
            f"{verdict.runs} of softmax: sweep other weights."
        )
    if not verdict.lower:
        return f"- {name}, {what}: above softmax everywhere ({share})."
    return f"- {name}, {what}: below softmax at {share}."


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
    return pd.DataFrame(
        {
            "loss": LAYERS[loss].label,
            "ms a step": f"{1e3 * seconds:.2f}",
            "rounds": _extent(rounds.get(loss)),
            "÷ softmax": f"{seconds / base:.2f}" if base else "–",
            "may cost up to": _affordable(rows, loss) if base and loss != REFERENCE else "–",
        }
        for loss, seconds in timing.items()
    )


def _affordable(rows: Rows, loss: str) -> str:
    times = affordable_step(rows, loss)
    return "–" if math.isnan(times) else f"{times:.2f}{' or more' if times == DEAREST else ''}"


def _extent(seconds: list[float] | None) -> str:
    return f"{1e3 * min(seconds):.2f} to {1e3 * max(seconds):.2f}" if seconds else "–"


def _means(rows: Rows) -> Rows:
    points = at_budget(rows, "epochs")
    means = points.groupby(["loss", "weight"])[list(SHOWN)].mean()
    order = [loss for loss in LAYERS if loss in set(points["loss"])]
    return means.reindex(order, level="loss")


def _all_table(rows: Rows) -> pd.DataFrame:
    means = _means(rows).reset_index()
    means["loss"] = [LAYERS[loss].label for loss in means["loss"]]
    means["weight"] = [f"{weight:g}" for weight in means["weight"]]
    forms = {"hausdorff": ".3g", "hausdorff_reverse": ".3g", "latent_kl": ".1f", "support": ".0f"}
    for name, form in forms.items():
        means[name] = [f"{value:{form}}" for value in means[name]]
    return means.rename(columns=MEASURES)


def _pictures(
    comparison: Comparison, drawings: Drawings, rows: Rows, weights: dict[str, float]
) -> dict[str, dict[str, Any]]:
    """Return reconstructions and samples of the first seed, a line for each loss and its rate."""
    shown: dict[str, dict[str, Any]] = {"reconstructions": {}, "samples": {}}
    last = at_budget(rows[rows["seed"] == 0], "epochs").set_index(["loss", "weight"])
    for loss, weight in weights.items():
        run = pictures.open_run(comparison.run_folder(Unit(loss, weight, 0)), drawings)
        label = f"{LAYERS[loss].label}\n{last.loc[(loss, weight), 'latent_kl']:.0f} nats"
        alpha, beta = pictures.reconstructions(run, COUNT).values()
        (sample,) = pictures.samples(run, COUNT).values()
        shown["reconstructions"] |= {"drawing": alpha, label: beta}
        shown["samples"][label] = sample
    return shown


def _counts(drawings: Drawings) -> dict[str, int]:
    split = drawings.split()
    return {
        "pictures": len(drawings.images),
        "blank": drawings.blank,
        **{name: len(rows) for name, rows in split._asdict().items()},
    }
