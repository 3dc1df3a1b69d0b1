"""The tables and sentences of a comparison, for its report and for the console."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from rich.table import Column, Table

from geosoftmax_experiments.vae.frontier import (
    BUDGETS,
    DEAREST,
    REFERENCE,
    Rows,
    Standing,
    Verdict,
    affordable_step,
    at_budget,
    measures_of,
    ratios,
    standings,
)
from geosoftmax_experiments.vae.judge import SAMPLED
from geosoftmax_experiments.vae.layers import LAYERS
from geosoftmax_experiments.vae.measures import COMPARED, MEASURES
from geosoftmax_experiments.vae.samples import SOURCES

__all__ = ["ALONE", "REFERENCES", "all_standings", "all_table", "console_standings", "count",
           "rate_table", "sample_table", "sentence", "standing_table", "timing_table",
           "verdict_table"]  # fmt: skip

#: What losses are compared with by every measure.
REFERENCES = (REFERENCE, "sigmoid")
#: The columns of the table of all weights, and how they are written.
SHOWN = {"hausdorff": ".3g", "hausdorff_reverse": ".3g", "total_variation": "", "mse": ".4f",
         "dissimilarity": "", "chamfer": "", "energy": "", "kl": "", "kl_finite": "",
         "latent_kl": ".1f", "support": ".0f", "entropy": ""}  # fmt: skip
ALONE = "nothing to compare, as softmax, or every other loss, is not among the losses."
DIRECTION = {"hausdorff": "D(α‖β)", "hausdorff_reverse": "D(β‖α)"}


def count(number: int, noun: str) -> str:
    """Return a number of things."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def all_standings(rows: Rows) -> list[Standing]:
    """Compare each loss with each reference, at equal epochs and at equal seconds."""
    return [
        standing
        for reference in REFERENCES
        for budget in BUDGETS
        for standing in standings(rows, reference, budget)
    ]


def standing_table(found: list[Standing], reference: str, budget: str) -> pd.DataFrame | None:
    """Return a line for each loss, a column for each measure; None where there is nothing."""
    lines: dict[str, dict[str, Standing]] = {}
    for standing in found:
        if (standing.reference, standing.budget) == (reference, budget):
            lines.setdefault(standing.loss, {})[standing.measure] = standing
    if not lines:
        return None
    return pd.DataFrame(
        {
            "loss": LAYERS[loss].label,
            **{_short(name): _standing(standing) for name, standing in measures.items()},
            "all": "**yes**" if all(s.holds for s in measures.values()) else "no",
        }
        for loss, measures in lines.items()
    )


def _standing(standing: Standing) -> str:
    if not standing.rates:
        return "no rate in common"
    error = f" ± {standing.error:.3f}" if standing.error else ""
    return f"{standing.ratio:.3f}{error} ({standing.worse} of {standing.rates})"


def rate_table(rows: Rows, reference: str) -> pd.DataFrame | None:
    """Return the same rate by rate, at equal epochs: a line for each loss and weight.

    None where no loss has a rate in common with the reference.
    """
    points = at_budget(rows, "epochs")
    tables = []
    for loss in dict.fromkeys(points["loss"]):
        found = {name: ratios(points, loss, name, reference) for name in measures_of(points)}
        runs = next(iter(found.values())).groupby("weight")  # those of every measure
        if loss != reference and len(runs):
            shown = {"loss": LAYERS[loss].label, "latent KL": runs["latent_kl"].mean()}
            for name, own in found.items():
                logs = own["ratio"].astype(float).map(math.log)
                shown[_short(name)] = logs.groupby(own["weight"]).mean().map(math.exp)
            tables.append(pd.DataFrame(shown).sort_values("latent KL"))
    if not tables:
        return None
    table = pd.concat(tables)
    table["latent KL"] = [f"{rate:.1f}" for rate in table["latent KL"]]
    return table


def _short(name: str) -> str:
    return DIRECTION.get(name, COMPARED[name])


def console_standings(rows: Rows) -> Table | str:
    """Return how losses compare with softmax at equal epochs; at equal seconds, the divergence."""
    found = standings(rows, REFERENCE)
    if not found:
        return f"At equal latent KL: {ALONE}"
    losses = dict.fromkeys(standing.loss for standing in found)
    result = Table(
        Column("÷ softmax", no_wrap=True),
        *(Column(LAYERS[loss].label, justify="right") for loss in losses),
        title="At equal latent KL and equal epochs, last lines at equal seconds:\n"
        "below 1 is better than softmax",
        caption="In brackets: at how many rates it is worse. D is the paper's divergence;\n"
        "no layer is trained on total variation, MSE, SSIM, Chamfer distance and errors.",
    )
    for name in dict.fromkeys(standing.measure for standing in found):
        result.add_row(_short(name), *_ratio_cells(found, name))
    result.add_section()
    timed = standings(rows, REFERENCE, "seconds")
    for name in DIRECTION:
        result.add_row(f"{_short(name)}, equal seconds", *_ratio_cells(timed, name))
    return result


def _ratio_cells(found: list[Standing], name: str) -> list[str]:
    cells = (s for s in found if s.measure == name)
    return [f"{s.ratio:.3f} ({s.worse}/{s.rates})" if s.rates else "–" for s in cells]


def sample_table(rows: Rows, floors: dict[str, Any]) -> pd.DataFrame:
    """Return the measures of samples: a line for real drawings, and for each loss and weight."""
    names = [f"{source}_{name}" for source in SOURCES for name in SAMPLED]
    last = at_budget(rows, "epochs")
    means = last.groupby(["loss", "weight"], sort=False)[["latent_kl", "prior_gap", *names]]
    table: Any = means.agg(lambda column: column.astype(float).mean()).reset_index()
    real = {"loss": "real training drawings", "weight": math.nan}
    real |= {name: floors[name.split("_")[1]] for name in names}
    table["loss"] = [LAYERS[loss].label for loss in table["loss"]]
    table = pd.concat([pd.DataFrame([real]), table])[table.columns]
    for name in ("weight", "latent_kl", "prior_gap"):
        form = "g" if name == "weight" else ".1f"
        table[name] = [f"{v:{form}}" if math.isfinite(v) else "–" for v in table[name]]
    labels = {f"{s}_{name}": f"{s}: {label}" for s in SOURCES for name, label in SAMPLED.items()}
    labels |= {"latent_kl": "latent KL", "prior_gap": "gap to prior"}
    table.columns = [labels.get(name, name) for name in table.columns]
    return table


def sentence(verdict: Verdict) -> str:
    """Return a verdict in words, an item of a list in Markdown."""
    name, what = LAYERS[verdict.loss].label, DIRECTION[verdict.direction]
    share = f"{verdict.lower} of {verdict.points} rates"
    if not verdict.points:
        result = "no rate in common with softmax: more weights are needed"
    elif verdict.dominates:
        result = f"**below softmax everywhere** ({share}, and at all {verdict.runs} of softmax)"
    elif verdict.lower_everywhere:
        result = (
            f"below softmax at {share}. But only {verdict.above} of the {verdict.runs} runs of "
            "softmax lie above it: more weights are needed to compare the rest"
        )
    elif not verdict.lower:
        result = f"above softmax everywhere ({share})"
    else:
        result = f"below softmax at {share}"
    return f"- {name}, {what}: {result}."


def verdict_table(found: list[Verdict]) -> pd.DataFrame:
    """Return who wins, and where."""
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


def timing_table(results: dict[str, Any], rows: Rows) -> pd.DataFrame:
    """Return how long steps take, and may take."""
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
    shown = [name for name in SHOWN if name in points]  # results of old have fewer
    means = points.groupby(["loss", "weight"])[shown].mean()
    order = [loss for loss in LAYERS if loss in set(points["loss"])]
    return means.reindex(order, level="loss")


def all_table(rows: Rows) -> pd.DataFrame:
    """Return the means over seeds of each loss and weight."""
    means = _means(rows).reset_index()
    means["loss"] = [LAYERS[loss].label for loss in means["loss"]]
    for name, form in {"weight": "g", **SHOWN}.items():
        if form and name in means:
            means[name] = [f"{value:{form}}" for value in means[name]]
    return means.rename(columns=MEASURES)
