"""Who wins at equal rate: divergence against latent KL.

One weight of the penalty lands the losses at very different latent KL, so a comparison at one
weight says little. Each loss has a frontier, what it reaches at each rate; another loss is compared
with it at its own rates, seed by seed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.interpolate import PchipInterpolator

__all__ = ["BUDGETS", "DEAREST", "DIRECTIONS", "Verdict", "affordable_step", "at_budget",
           "compared", "matched_weights", "mean_frontier", "ratios", "reference_at",
           "verdicts"]  # fmt: skip

#: A DataFrame; its own types stop a type checker at every selection.
Rows = Any
REFERENCE = "softmax"
DIRECTIONS = ("hausdorff", "hausdorff_reverse")
BUDGETS = ("epochs", "seconds")
#: Below this latent KL, in nats, codes say next to nothing: such runs are not compared.
LEAST_RATE = 1.0
#: Steps are taken to be up to so many times as long as those of softmax.
DEAREST = 2.0
#: Pictures of rates within this factor may lie side by side.
ALIKE = 4 / 3


class Verdict(NamedTuple):
    """How a loss compares with softmax.

    `points` of the rates of its runs are at least `LEAST_RATE` and lie between those of softmax; at
    `lower` of them its divergence is lower. `ratio` is the geometric mean of its divergence over
    that of softmax, from `best` to `worst`.

    From the other side: softmax has `runs`, at any rate; `above` of them lie above what the loss
    reaches at their rate or less, which is at most `closest` times their divergence.
    """

    loss: str
    direction: str
    budget: str
    lower: int
    points: int
    ratio: float
    best: float
    worst: float
    above: int
    runs: int
    closest: float

    @property
    def lower_everywhere(self) -> bool:
        """Whether it is lower at each of its own rates that can be compared."""
        return 0 < self.points == self.lower

    @property
    def dominates(self) -> bool:
        """Whether the whole frontier of softmax lies above, also beyond the rates of the loss."""
        return self.lower_everywhere and self.above == self.runs


def at_budget(rows: Rows, budget: str) -> Rows:
    """Return where each run is at the end, or when softmax has ended.

    Parameters
    ----------
    rows : DataFrame
    budget : {"epochs", "seconds"}
        Equal epochs: all of them. Equal seconds: as many as softmax takes for all of them, or the
        fastest loss where softmax is not among them. Between two measurements a run is on the line
        from one to the other, before its first it is there; a loss that is faster than softmax is
        at its end.
    """
    if budget not in BUDGETS:
        raise ValueError(f"budget must be one of {BUDGETS}; got {budget!r}.")
    names = ["loss", "weight", "seed"]
    runs = rows.sort_values("epoch", kind="stable").groupby(names, sort=False)
    if budget == "epochs":
        return rows.loc[runs["epoch"].idxmax()].reset_index(drop=True)
    ends = rows.groupby("loss")["seconds"].max()
    most = ends.get(REFERENCE, ends.min())
    moving = ["epoch", "seconds", "latent_kl", *DIRECTIONS]
    return pd.DataFrame(
        dict(zip(names, which, strict=True))
        | {name: np.interp(most, run["seconds"], run[name]) for name in moving}
        for which, run in runs
    )


def compared(points: Rows) -> Rows:
    """Return the runs that count: those whose codes say something."""
    return points[points["latent_kl"] >= LEAST_RATE]


def mean_frontier(points: Rows, loss: str, direction: str) -> Rows:
    """Return means over seeds of latent KL and divergence, from low rates to high ones."""
    found = points[points["loss"] == loss].groupby("weight")[["latent_kl", direction]]
    return found.mean().sort_values("latent_kl")


def reference_at(rates: np.ndarray, values: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return what is reached at other rates; NaN beyond those that were tried.

    Between points a monotone cubic of the logarithms: frontiers bend, and a chord would lie on one
    side of them. A higher rate never counts against a loss: what it reached at a lower one, it
    still has.
    """
    x, order = np.unique(_log(rates), return_index=True)
    best = np.minimum.accumulate(values[order])
    if len(x) < 2:
        return np.full(len(at), np.nan)
    return np.exp(PchipInterpolator(x, np.log(best), extrapolate=False)(_log(at)))


def verdicts(rows: Rows) -> list[Verdict]:
    """Compare each loss with softmax, in both directions, at equal epochs and at equal seconds."""
    found = []
    for budget in BUDGETS:
        points = at_budget(rows, budget)
        for direction in DIRECTIONS:
            for loss in points["loss"].unique():
                if loss != REFERENCE and REFERENCE in set(points["loss"]):
                    found.append(_verdict(points, loss, direction, budget))
    return found


def affordable_step(rows: Rows, loss: str) -> float:
    """Return how long a step may be for a loss to dominate softmax at equal seconds.

    As a multiple of a step of softmax, up to `DEAREST`: up to there it dominates throughout, as far
    as was tried (every 0.05, and every 0.01 before the first that is too long). Timings differ from
    machine to machine and from day to day: this says how much that matters. NaN where the loss does
    not dominate even if its steps take no longer.
    """
    rows = rows[rows["loss"].isin([REFERENCE, loss])]

    def dominates(hundredths: int) -> bool:
        slower = np.where(rows["loss"] == loss, hundredths / 100, 1.0)
        points = at_budget(rows.assign(seconds=rows["epoch"] * slower), "seconds")
        return all(_verdict(points, loss, way, "seconds").dominates for way in DIRECTIONS)

    most = round(100 * DEAREST)
    long = next((times for times in range(100, most + 1, 5) if not dominates(times)), None)
    if long == 100:
        return np.nan
    if long is None:
        return DEAREST
    nearer = range(long - 4, long)
    return (next((times for times in nearer if not dominates(times)), long) - 1) / 100


def ratios(points: Rows, loss: str, direction: str) -> Rows:
    """Return the divergence of a loss over that of softmax at the same rate, seed by seed.

    A row for each run that counts and whose rate lies between those of softmax; the column
    ``ratio``, beside those of `points`.
    """
    found = compared(points[points["loss"] == loss]).assign(ratio=np.nan)
    for seed, ours in found.groupby("seed"):
        rates, values = _frontier(points, REFERENCE, seed, direction)
        reference = reference_at(rates, values, ours["latent_kl"].to_numpy(float))
        found.loc[ours.index, "ratio"] = ours[direction].to_numpy(float) / reference
    return found[np.isfinite(found["ratio"])]


def _frontier(points: Rows, loss: str, seed: Any, direction: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the rates and divergences of the runs of a loss with a seed."""
    runs = points[(points["loss"] == loss) & (points["seed"] == seed)]
    return runs["latent_kl"].to_numpy(float), runs[direction].to_numpy(float)


def _verdict(points: Rows, loss: str, direction: str, budget: str) -> Verdict:
    every = ratios(points, loss, direction)["ratio"].to_numpy(float)
    theirs = _ratios_at_softmax(points, loss, direction)
    if not len(every):
        nan = np.nan
        return Verdict(loss, direction, budget, 0, 0, nan, nan, nan, 0, len(theirs), nan)
    return Verdict(
        loss=loss,
        direction=direction,
        budget=budget,
        lower=int((every < 1).sum()),
        points=len(every),
        ratio=float(np.exp(np.log(every).mean())),
        best=float(every.min()),
        worst=float(every.max()),
        above=int((theirs < 1).sum()),
        runs=len(theirs),
        closest=float(np.fmax.reduce(theirs)),  # NaN only where there is nothing else
    )


def _ratios_at_softmax(points: Rows, loss: str, direction: str) -> np.ndarray:
    """Return what a loss reaches at the rates of softmax or less, over softmax, run by run.

    NaN where all rates of the loss are higher.
    """
    found = []
    for seed, theirs in compared(points[points["loss"] == REFERENCE]).groupby("seed"):
        rates, values = _frontier(points, loss, seed, direction)
        at = np.minimum(theirs["latent_kl"].to_numpy(float), rates.max(initial=0.0))
        found.append(reference_at(rates, values, at) / theirs[direction].to_numpy(float))
    return np.concatenate(found) if found else np.zeros(0)


def matched_weights(points: Rows, near: float) -> dict[str, float]:
    """Return a weight for each loss, such that their latent KLs are about equal.

    Softmax has the weight nearest to `near` of those where all others come within `ALIKE` times its
    rate; where there is none, that where the farthest of them comes nearest. Rates that are not
    compared are taken only where there are no others.
    """
    rates = _log(points.groupby(["loss", "weight"])["latent_kl"].mean())
    losses = list(dict.fromkeys(points["loss"]))
    reference = REFERENCE if REFERENCE in losses else losses[0]
    own = rates[reference]
    counting = own[own >= np.log(LEAST_RATE)]

    def matched(weight: float) -> dict[str, float]:
        nearest = {loss: float((rates[loss] - own[weight]).abs().idxmin()) for loss in losses}
        return {**nearest, reference: float(weight)}

    def merit(weight: float) -> tuple[float, float]:
        apart = max(abs(rates[loss, at] - own[weight]) for loss, at in matched(weight).items())
        return max(float(apart), np.log(ALIKE)), abs(weight - near)

    return matched(min(counting.index if len(counting) else own.index, key=merit))


def _log(rates: Any) -> Any:
    """``log``, of rates that may have collapsed to zero."""
    return np.log(np.maximum(rates, 1e-3))
