"""How good points are, how sure they were, and whether differences are more than chance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

__all__ = ["LEVELS", "MEASURES", "NEAR", "calibration", "differences", "errors", "standing"]

#: Points nearer than this many pixels are counted as found.
NEAR = 2.0
#: Shares of the points that a region is to cover.
LEVELS = (0.5, 0.9)
RESAMPLES = 2000
#: So many numbers at a time are resampled.
BLOCK = 4_000_000
#: What differences are taken of, and whether more of it is better.
MEASURES = {"mean": -1, "median": -1, "near": 1}
_CELL = ["kind", "size"]


def errors(rows: pd.DataFrame) -> pd.DataFrame:
    """Return mean and median error, and the share within 2 pixels, of each loss in each cell."""
    groups: Any = rows.groupby([*_CELL, "loss"], sort=False)
    found = groups.agg(
        mean=("error", "mean"),
        median=("error", "median"),
        near=("error", lambda error: float((error <= NEAR).mean())),
        setting=("setting", "first"),
        decoder=("decoder", "first"),
        seconds=("seconds", "median"),
        network_ms=("network_ms", "median"),
        head_ms=("head_ms", "median"),
    )
    return found.reset_index()


def differences(rows: pd.DataFrame, ours: str, seed: int = 0) -> pd.DataFrame:
    """Return ours less each other loss, with 95 % intervals by resampling frames.

    All points of a frame, on all splits and seeds, are drawn together: they are not independent.
    """
    found = []
    groups: Any = rows.groupby(_CELL, sort=False)
    for cell, group in groups:
        if ours not in set(group["loss"]):
            continue
        frames = np.unique(group["frame"])
        rng = np.random.default_rng(seed)
        draws = rng.integers(len(frames), size=(RESAMPLES, len(frames)))
        times = np.stack([np.bincount(draw, minlength=len(frames)) for draw in draws])
        times = np.concatenate([np.ones((1, len(frames)), np.int64), times])  # each frame once
        values = {
            loss: _resampled(
                part["error"].to_numpy(), np.searchsorted(frames, part["frame"]), times
            )
            for loss, part in group.groupby("loss", sort=False)
        }
        for loss in filter(ours.__ne__, values):
            row: dict[str, Any] = dict(zip(_CELL, cell, strict=True)) | {"loss": loss}
            for name in MEASURES:
                whole, *apart = values[ours][name] - values[loss][name]
                row[name] = whole
                row[f"{name}_low"], row[f"{name}_high"] = np.quantile(apart, [0.025, 0.975])
            found.append(row)
    return pd.DataFrame(found)


def _resampled(error: np.ndarray, frame: np.ndarray, times: np.ndarray) -> dict[str, np.ndarray]:
    """Return each measure where the frames are taken so many times: a row of `times` each."""
    counts, sums, near = (
        times @ np.bincount(frame, weights, times.shape[1])
        for weights in (np.ones(len(error)), error, error <= NEAR)
    )
    return {"mean": sums / counts, "median": _medians(error, frame, times), "near": near / counts}


def _medians(error: np.ndarray, frame: np.ndarray, times: np.ndarray) -> np.ndarray:
    order = np.argsort(error)
    error, frame = error[order], frame[order]
    found = []
    for some in np.array_split(times, max(1, len(times) * len(error) // BLOCK)):
        upto = some[:, frame].cumsum(1)
        middle = [upto > place[:, None] for place in ((upto[:, -1] - 1) // 2, upto[:, -1] // 2)]
        found.append(sum(error[beyond.argmax(1)] for beyond in middle) / 2)
    return np.concatenate(found)


def standing(found: pd.DataFrame, apart: pd.DataFrame, ours: str) -> pd.DataFrame:
    """Return in how many cells ours is best, and is behind the best loss there, by each measure.

    Parameters
    ----------
    found, apart : DataFrame
        Of `errors` and `differences`.
    ours : str

    Returns
    -------
    DataFrame
        For each measure the numbers of cells: `best`; `close`, where it is not best and the
        interval of the difference to the best holds 0; `behind`, where it does not.
    """
    table = []
    for measure, better in MEASURES.items():
        row: dict[str, Any] = {"measure": measure, "best": 0, "close": 0, "behind": 0}
        groups: Any = found.groupby(_CELL, sort=False)
        for (kind, size), group in groups:
            values = better * group.set_index("loss")[measure]
            if ours not in values:
                continue
            if values[ours] == values.max():
                row["best"] += 1
                continue
            here: Any = apart[(apart["kind"] == kind) & (apart["size"] == size)]
            (one,) = here[here["loss"] == values.idxmax()].to_dict("records")
            is_close = one[f"{measure}_low"] <= 0 <= one[f"{measure}_high"]
            row["close" if is_close else "behind"] += 1
        table.append(row)
    return pd.DataFrame(table)


def calibration(rows: pd.DataFrame, inner: pd.DataFrame) -> pd.DataFrame:
    r"""Return how well the spread of each loss tells its errors, in each cell.

    If errors were Gaussian with root mean square `spread`, the disc of radius
    :math:`s \sqrt{-\log(1 - q)}` would cover the share q of them. Coverage is given as predicted,
    and after all spreads of a loss were multiplied by one factor, which covers half of the inner
    split. `rank` is Spearman's correlation of spread and error, `rank_entropy` that of Shannon's
    entropy, and `rank_likelihood` that of one less the likelihood.
    """
    found, names = [], [*_CELL, "loss"]
    groups: Any = rows.groupby(names, sort=False)
    for cell, part in groups:
        other: Any = inner
        for name, value in zip(names, cell, strict=True):
            other = other[other[name] == value]
        factor = _factor(other)
        row: dict[str, Any] = dict(zip(names, cell, strict=True))
        row |= {"factor": factor, "spread": float(part["spread"].median())}
        for level in LEVELS:
            radius = part["spread"] * np.sqrt(-np.log(1 - level))
            row[f"raw_{level:g}"] = float((part["error"] <= radius).mean())
            row[f"scaled_{level:g}"] = float((part["error"] <= factor * radius).mean())
        for name, sign in (("spread", 1), ("entropy", 1), ("likelihood", -1)):
            row[f"rank_{name}"] = _rank(sign * part[name], part["error"])
        found.append(row)
    return pd.DataFrame(found)


def _factor(inner: Any) -> float:
    """Return what spreads are to be multiplied by, so that half of the points are covered."""
    positive = inner["spread"] > 0
    if not positive.any():
        return float("nan")
    ratio = inner["error"][positive] / (inner["spread"][positive] * np.sqrt(np.log(2)))
    return float(ratio.median())


def _rank(sure: Any, error: Any) -> float:
    if sure.nunique() < 2 or error.nunique() < 2:
        return float("nan")
    found: Any = spearmanr(sure, error)
    return float(found.statistic)
