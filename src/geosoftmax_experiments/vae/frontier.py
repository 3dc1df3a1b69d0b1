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

from geosoftmax_experiments.vae.measures import COMPARED

__all__ = ["BUDGETS", "DEAREST", "DIRECTIONS", "Standing", "Verdict", "affordable_step",
           "at_budget", "compared", "curves_at_rate", "matched_weights", "mean_frontier",
           "measures_of", "ratios", "reference_at", "standings", "verdicts"]  # fmt: skip

#: A DataFrame; its own types stop a type checker at every selection.
Rows = Any
REFERENCE = "softmax"
DIRECTIONS = ("hausdorff", "hausdorff_reverse")
BUDGETS = ("epochs", "seconds")
#: Below this latent KL, in nats, codes say next to nothing: such runs are not compared.
LEAST_RATE = 1.0
#: Steps are taken to be up to so many times as long as those of softmax.
DEAREST = 2.0
#: Values below this count as this: a classifier may make no error.
LEAST_VALUE = 1e-4
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


class Standing(NamedTuple):
    """How a loss compares with another one, the reference, by one measure at equal rate.

    `ratio` is the geometric mean, over rates and seeds, of its measure over that of the reference;
    `error` the standard error of that over seeds. At `worse` of `rates` it is worse by more than
    one standard error.
    """

    loss: str
    reference: str
    measure: str
    budget: str
    ratio: float
    error: float
    worse: int
    rates: int

    @property
    def holds(self) -> bool:
        """Whether it is better on the average, and nowhere worse by more than the error."""
        return self.rates > 0 and self.ratio < 1 and not self.worse


def measures_of(rows: Rows) -> list[str]:
    """Return the measures of `COMPARED` that were taken: results of old have the first two."""
    return [name for name in COMPARED if name in rows and rows[name].notna().any()]


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
    taken = [name for name in measures_of(rows) if rows[name].notna().all()]  # not the errors
    moving = ["epoch", "seconds", "latent_kl", *taken]
    return pd.DataFrame(
        dict(zip(names, which, strict=True))
        | {name: np.interp(most, run["seconds"], run[name].astype(float)) for name in moving}
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
    best = np.minimum.accumulate(np.maximum(values[order], LEAST_VALUE))
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


def standings(rows: Rows, reference: str, budget: str = "epochs") -> list[Standing]:
    """Compare each loss with the reference by every measure that was taken."""
    points = at_budget(rows, budget)
    losses = list(dict.fromkeys(points["loss"]))
    if reference not in losses:
        return []
    found = []
    for loss in losses:
        for name in measures_of(points):
            if loss != reference:
                found.append(_standing(points, loss, name, reference, budget))
    return found


def _standing(points: Rows, loss: str, name: str, reference: str, budget: str) -> Standing:
    own = ratios(points, loss, name, reference)
    logs = np.log(own["ratio"].astype(float))
    if not len(logs):
        return Standing(loss, reference, name, budget, np.nan, np.nan, 0, 0)
    by_rate = logs.groupby(own["weight"]).agg(["mean", "sem"]).fillna(0.0)
    error = logs.groupby(own["seed"]).mean().sem()
    worse = (by_rate["mean"] > by_rate["sem"]).sum()
    ratio = float(np.exp(logs.mean()))
    spread = 0.0 if np.isnan(error) else ratio * error
    return Standing(loss, reference, name, budget, ratio, spread, int(worse), len(by_rate))


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


def ratios(points: Rows, loss: str, measure: str, reference: str = REFERENCE) -> Rows:
    """Return a measure of a loss over that of the reference at the same rate, seed by seed.

    A row for each run that counts and whose rate lies between those of the reference; the column
    ``ratio``, beside those of `points`.
    """
    found = compared(points[points["loss"] == loss]).assign(ratio=np.nan)
    for seed, ours in found.groupby("seed"):
        rates, values = _frontier(points, reference, seed, measure)
        other = reference_at(rates, values, ours["latent_kl"].to_numpy(float))
        own = np.maximum(ours[measure].to_numpy(float), LEAST_VALUE)
        found.loc[ours.index, "ratio"] = own / other
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


def curves_at_rate(rows: Rows, loss: str, rate: float) -> Rows:
    """Return the divergence during training of runs that end at a latent KL: epoch, seconds, value.

    Between the two weights that end nearest on both sides, for each seed and epoch (logarithms);
    beyond the rates that were tried, those of the nearest weight. The column ``rate`` says which.
    """
    found = []
    for seed, own in rows[rows["loss"] == loss].groupby("seed"):
        ends = own.loc[own.groupby("weight")["epoch"].idxmax()].set_index("weight")["latent_kl"]
        ends = ends.sort_values()
        values = own.pivot(index="epoch", columns="weight", values="hausdorff")[ends.index].dropna()
        seconds = own.groupby("epoch")["seconds"].mean()
        for epoch, row in values.iterrows():
            value = np.exp(np.interp(_log(rate), _log(ends), np.log(row.to_numpy(float))))
            at = np.clip(rate, ends.iloc[0], ends.iloc[-1])
            found.append((seed, epoch, seconds[epoch], at, value))
    return pd.DataFrame(found, columns=["seed", "epoch", "seconds", "rate", "value"])


def _log(rates: Any) -> Any:
    """``log``, of rates that may have collapsed to zero."""
    return np.log(np.maximum(rates, 1e-3))
