"""The outputs of a comparison: numbers, figures, pictures, and a report in Markdown and HTML.

All that the report says and draws is in ``results.json`` and ``pictures.npz``: it can be written
again from these two, without the runs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor

from geosoftmax_experiments import files
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.report import Report, escape, escape_all
from geosoftmax_experiments.store import provenance
from geosoftmax_experiments.vae import figures, pictures
from geosoftmax_experiments.vae.comparing import Run, Shared
from geosoftmax_experiments.vae.frontier import (
    ALIKE,
    BUDGETS,
    LEAST_RATE,
    Rows,
    at_budget,
    compared,
    matched_weights,
    measures_of,
    verdicts,
)
from geosoftmax_experiments.vae.judge import real_floor
from geosoftmax_experiments.vae.layers import LAYERS
from geosoftmax_experiments.vae.measures import INDEPENDENT, picture_errors
from geosoftmax_experiments.vae.presets import PAPER_P, PARTS
from geosoftmax_experiments.vae.samples import fit_codes
from geosoftmax_experiments.vae.tables import (
    ALONE,
    REFERENCES,
    all_standings,
    all_table,
    count,
    rate_table,
    sample_table,
    sentence,
    standing_table,
    timing_table,
    verdict_table,
)

__all__ = ["rewrite_report", "write_report"]

#: The weight of the paper.
PAPER_WEIGHT = 1.0
#: Levels of ink that are tried beside the rule that the darkest pixel is 1.
INK_LEVELS = (1.0, 1.25, 1.5, 2.0)


def write_report(shared: Shared) -> Path:
    """Write everything into the comparison's folder; return the path of the HTML page."""
    comparison, drawings, _, judge = shared
    columns = _columns(comparison.records())
    rows = pd.DataFrame(columns)
    matched = matched_weights(at_budget(rows, "epochs"), PAPER_WEIGHT)
    shown = _pictures(shared, rows, matched)
    results = {
        "settings": comparison.summary(),
        "drawings": drawings.counts(),
        "commits": comparison.commits(),
        "drawn_on": provenance(),
        **comparison.timing(),
        "verdicts": [verdict._asdict() for verdict in verdicts(rows)],
        "standings": [standing._asdict() for standing in all_standings(rows)],
        "floors": real_floor(judge, drawings, comparison.common.on),
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
    _add_measures(report, rows, common["on"])
    _add_samples(report, results, rows)
    _add_training(report, results, rows)
    _add_pictures(report, rows, results["pictures_at_weight"], shown)
    last = rows[rows["epoch"] == rows["epoch"].max()]
    report.add(
        "## All weights",
        f"Means over seeds at the last epoch, on the {common['on']} drawings, from sampled "
        f"codes. The drawings themselves use {last['true_support'].mean():.0f} pixels and have an "
        f"entropy of {last['true_entropy'].mean():.2f}; a pixel is used from 1e-4 of the ink on.",
    )
    report.add_table(all_table(rows))
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
        report.add_table(verdict_table(found))
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


def _add_measures(report: Report, rows: Rows, part: str) -> None:
    """Add how losses compare by every measure; results of old have the divergence alone."""
    found = all_standings(rows)
    if not set(measures_of(rows)) & INDEPENDENT.keys() or not found:
        return
    report.add(
        "## By measures that nobody trains on",
        "Each measure of a loss over that of a reference at the same latent KL: the geometric mean "
        "over rates and seeds, below 1 is better; ± is the standard error over seeds. In brackets: "
        "at how many rates the loss is worse by more than one standard error of that rate. Total "
        "variation is of the distributions; MSE, SSIM and the Chamfer distance (between pixels of "
        "at least half the darkest ink) are of pictures whose darkest pixel is 1. The energy "
        "distance is a relative of the divergence, and not independent of it. **All** says whether "
        "the loss is better on the average by every measure, and nowhere worse.",
    )
    for reference in REFERENCES:
        for budget in BUDGETS:
            table = standing_table(found, reference, budget)
            if table is not None:
                report.add(f"Over {LAYERS[reference].label}, at equal {budget}:")
                report.add_table(table)
    for reference in REFERENCES:
        by_rate = rate_table(rows, reference)
        if by_rate is not None:
            title = f"Over {LAYERS[reference].label} rate by rate, at equal epochs (means of seeds)"
            report.add(f"{title}:")
            report.add_table(by_rate)
    figure = figures.draw_measures(rows, part)
    report.add_figure("measures", figure, "Each measure against latent KL, at equal epochs")


def _add_samples(report: Report, results: dict[str, Any], rows: Rows) -> None:
    """Add what is said of samples, beside what real drawings have."""
    if "floors" not in results:
        return
    report.add(
        "## Samples, by a network that has seen training drawings alone",
        "Means over seeds at the last epoch. *Prior*: codes from the prior. *Fitted*: codes from "
        "a mixture of normal distributions that was fitted, after training and for all losses "
        "alike, to the codes of training drawings. The first line compares as many real training "
        "drawings with the same real ones. The gap to the prior, in nats, is a lower bound of the "
        "KL from the codes of all drawings together to the prior: where it is large, samples from "
        "the prior are codes that the decoder has never seen.",
    )
    report.add_table(sample_table(rows, results["floors"]))
    figure = figures.draw_samples(rows, results["floors"])
    report.add_figure("judged", figure, "Samples against latent KL, at equal epochs")


def _add_training(report: Report, results: dict[str, Any], rows: Rows) -> None:
    settings = results["settings"]
    weight = min(settings["weights"], key=lambda weight: abs(weight - PAPER_WEIGHT))
    curves = figures.draw_curves(rows, weight, settings["common"]["on"])
    report.add("## Training")
    report.add_figure("curves", curves, "Divergence during training")
    report.add_table(timing_table(results, rows))
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
    captions = {"fitted": "Samples from a density that was fitted to the codes"}
    for name, lines in shown.items():
        if lines:
            caption = captions.get(name, name.capitalize())
            report.add_figure(name, pictures.draw_rows(lines), caption)
    _add_ink(report, shown["reconstructions"])


def _add_ink(report: Report, lines: dict[str, Tensor]) -> None:
    """Add what MSE and SSIM of the reconstructions that are shown owe to how mass becomes ink."""
    others = dict(lines)
    alpha = others.pop("drawing", None)
    if alpha is None:
        return
    report.add(
        "How dark a pixel is drawn is a choice. Measures and pictures here let the darkest pixel "
        "of each be 1. The table has MSE and 1 − SSIM of the reconstructions above with that rule, "
        "and where pixels are 1 from so many times the mean mass of the ink on: one dark pixel "
        "then does not make the others pale."
    )
    rules = {"darkest is 1": None, **{f"{level:g} × mean": level for level in INK_LEVELS}}
    table = []
    for label, beta in others.items():
        line = {"layer": label.replace("\n", ", ")}
        for rule, level in rules.items():
            mse, dissimilarity = picture_errors(alpha, beta, level)
            line |= {f"MSE, {rule}": f"{mse:.4f}", f"1 − SSIM, {rule}": f"{dissimilarity:.3f}"}
        table.append(line)
    report.add_table(pd.DataFrame(table))


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
        f"{_cost_in_words(common)}{annealed}; weights "
        f"{', '.join(f'{w:g}' for w in settings['weights'])}; {count(settings['seeds'], 'seed')}. "
        f"On {where['device']}, torch {where['versions']['torch']}, "
        f"{_made_by(results['commits'], results['on']['commit'])}."
    )


def _cost_in_words(common: dict[str, Any]) -> str:
    """Say what the cost is; results from before there was p have that of the paper."""
    if (p := common.get("p", PAPER_P)) == PAPER_P:
        return f"{common['scale']:g} times the squared distance"
    power = "distance" if p == 1 else f"distance to the power {p:g}"
    return (
        f"{common['scale']:g} times the {power} along each axis (p = {p:g}; smoothing "
        f"{common['smoothing']:g}); the paper's layer has its own, and all divergences are "
        f"measured with that; split {common['split']}"
    )


def _made_by(commits: dict[str, int], timed: str | None) -> str:
    """Say which commits have made the runs, and which has timed the steps."""
    if list(commits) == [timed or "unknown"]:
        return f"commit {escape(timed)}"
    runs = (f"{count(n, 'run')} by commit {escape(commit)}" for commit, n in commits.items())
    return f"{', '.join(runs)}; steps timed by {escape(timed)}"


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


def _pictures(shared: Shared, rows: Rows, weights: dict[str, float]) -> pictures.Shown:
    """Return reconstructions and samples of the first seed, a line for each loss and its rate."""
    comparison, drawings = shared.comparison, shared.drawings
    shown: pictures.Shown = {name: {} for name in pictures.PICTURES}
    last = at_budget(rows[rows["seed"] == 0], "epochs").set_index(["loss", "weight"])
    for loss, weight in weights.items():
        run = pictures.open_run(comparison.run_folder(Run(loss, weight, 0)), drawings)
        label = f"{run.label}\n{last.loc[(loss, weight), 'latent_kl']:.0f} nats"
        alpha, beta = pictures.reconstructions(run, pictures.LINE).values()
        shown["reconstructions"] |= {"drawing": alpha, label: beta}
        shown["samples"][label] = run.decode(
            pictures.prior_codes(pictures.LINE, run.settings.latent)
        )
        shown["fitted"][label] = run.decode(fit_codes(run, drawings, pictures.LINE))
    return shown
