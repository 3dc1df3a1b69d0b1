"""Choose scale and smoothing of the cost for a set, on its validation drawings.

The rule: train softmax and every candidate with the same weights of the latent KL, and compare each
candidate with softmax at equal latent KL on validation drawings, by both directions of the
divergence and by every independent measure. A candidate is as good as its worst measure: the
geometric mean, over rates and seeds, of that measure over softmax's. The best candidate is chosen,
one for a set. Test drawings are not looked at.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from rich.console import Console

from geosoftmax_experiments import files
from geosoftmax_experiments.data.drawings import Drawings
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.report import Report
from geosoftmax_experiments.runs import Backend
from geosoftmax_experiments.vae.comparing import JUDGE, Comparison, Shared, do_runs
from geosoftmax_experiments.vae.frontier import DIRECTIONS, REFERENCE, Rows, standings
from geosoftmax_experiments.vae.judge import open_judge
from geosoftmax_experiments.vae.measures import COMPARED, INDEPENDENT
from geosoftmax_experiments.vae.settings import RunSettings
from geosoftmax_experiments.vae.tables import count
from geosoftmax_experiments.vae.training import Machine

__all__ = ["Candidate", "choose", "rank", "read_choice"]

#: The measures of the rule; those of a set without classes lack the errors.
DECIDING = (*DIRECTIONS, *INDEPENDENT)


class Candidate(NamedTuple):
    """A cost, and how scores are smoothed; 0 is not at all."""

    scale: float
    smoothing: float

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"scale-{self.scale:g}.smoothing-{self.smoothing:g}"

    def comparison(self, folder: Path, common: RunSettings, *sweep: Any) -> Comparison:
        """Return its runs, in a folder of their own."""
        own = replace(common, scale=self.scale, smoothing=self.smoothing or 1.0)
        loss = "smoothed" if self.smoothing else "geometric"
        return Comparison(folder / self.name, own, (loss,), *sweep)


def choose(
    folder: Path,
    common: RunSettings,
    scales: tuple[float, ...],
    smoothings: tuple[float, ...],
    sweep: tuple[tuple[float, ...], int],
    drawings: Drawings,
    machine: Machine,
    backend: Backend,
    console: Console,
) -> pd.DataFrame:
    """Train what is missing, apply the rule, write a report; return the candidates, best first."""
    if common.on != "validation":
        raise UserError("Scales are chosen on validation drawings.", "Leave --on out.")
    candidates = [Candidate(*pair) for pair in itertools.product(scales, smoothings)]
    runs = {REFERENCE: Comparison(folder / REFERENCE, common, (REFERENCE,), *sweep)}
    runs |= {one.name: one.comparison(folder, common, *sweep) for one in candidates}
    files.make_folder(folder)
    judge = open_judge(drawings, folder / JUDGE)
    rows = []
    for name, comparison in runs.items():
        with comparison.store.opened():
            console.print(name)
            do_runs(Shared(comparison, drawings, machine, judge), backend, console)
            rows += [
                {**asdict(unit), **row, "loss": name}
                for unit, several in comparison.measured().items()
                for row in several
            ]
    ranked = rank(pd.DataFrame(rows))
    _write(folder, common, sweep, ranked)
    return ranked


def rank(rows: Rows) -> pd.DataFrame:
    """Return a line for each candidate, the best first: each measure over softmax's, and the worst.

    Those that have no rate in common with softmax come last.
    """
    lines: dict[str, dict[str, float]] = {}
    for standing in standings(rows, REFERENCE):
        if standing.measure in DECIDING:
            lines.setdefault(standing.loss, {})[standing.measure] = standing.ratio
    table = pd.DataFrame.from_dict(lines, orient="index")
    table["worst"] = table.max(axis=1, skipna=False)
    return table.sort_values("worst", na_position="last")


def read_choice(folder: Path) -> dict[str, float | None]:
    """Return the exponent, scale and smoothing that a folder of `choose` holds."""
    path = folder / "choice.json"
    try:
        found = files.read_json(path)
        chosen = {"p": float(found["common"]["p"])} | {
            name: float(found["chosen"][name]) for name in ("scale", "smoothing")
        }
    except FileNotFoundError:
        raise UserError(
            f"{path} is missing.", "Give the folder that `geosoftmax vae choose` wrote."
        ) from None
    except (KeyError, TypeError, ValueError, OSError):
        raise UserError(f"{path} is damaged.", "Choose again: runs are kept.") from None
    # Candidates without smoothing are the loss `geometric`, which has no width.
    return {**chosen, "smoothing": chosen["smoothing"] or None}


def _write(folder: Path, common: RunSettings, sweep: Any, ranked: pd.DataFrame) -> None:
    weights, seeds = sweep
    best = str(ranked.index[0])
    scale, smoothing = best.removeprefix("scale-").split(".smoothing-")
    found = {
        "data": common.data,
        "chosen": {"scale": float(scale), "smoothing": float(smoothing)},
        "common": {k: v for k, v in asdict(common).items() if k not in ("loss", "weight", "seed")},
        "weights": weights,
        "seeds": seeds,
        "candidates": ranked.to_dict("index"),
    }
    files.write_text(folder / "choice.json", json.dumps(found, indent=1))
    report = Report(folder, f"Scale and smoothing: {common.data}")
    swept = ", ".join(f"{weight:g}" for weight in weights)
    report.add(
        f"p = {common.p:g}; {common.epochs} epochs, weights {swept}, {count(seeds, 'seed')}, "
        f"split {common.split}, validation drawings. Each measure over that of softmax at equal "
        "latent KL; the candidate whose worst measure is lowest is chosen."
    )
    table = ranked.rename(columns=COMPARED).reset_index(names="candidate")
    report.add_table(table)
    report.add(f"Chosen: **{best}**.")
    report.write()
