"""How good points are, how sure they were, and whether differences are more than chance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

__all__ = ["LEVELS", "NEAR", "calibration", "differences", "errors"]

#: Points nearer than this many pixels are counted as found.
NEAR = 2.0
#: Shares of the points that a region is to cover.
LEVELS = (0.5, 0.9)
RESAMPLES = 2000
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
        rng = np.random.default_rng(seed)
        table = _by_frame(group)
        if ours not in table:
            continue
        frames = len(next(iter(table.values())))
        draws = rng.integers(frames, size=(RESAMPLES, frames))
        for loss in table:
            if loss == ours:
                continue
            row: dict[str, Any] = dict(zip(_CELL, cell, strict=True)) | {"loss": loss}
            for name, measure in _MEASURES.items():
                values = [measure(table[ours], d) - measure(table[loss], d) for d in draws]
                everything = np.arange(frames)
                row[name] = measure(table[ours], everything) - measure(table[loss], everything)
                row[f"{name}_low"], row[f"{name}_high"] = np.quantile(values, [0.025, 0.975])
            found.append(row)
    return pd.DataFrame(found)


def _by_frame(group: Any) -> dict[str, list[np.ndarray]]:
    """Return the errors of each frame, for each loss, with frames in the same order."""
    frames = sorted(set(group["frame"]))
    return {
        str(loss): [part["error"].to_numpy()[part["frame"].to_numpy() == f] for f in frames]
        for loss, part in group.groupby("loss", sort=False)
    }


def _joined(errors: list[np.ndarray], draw: np.ndarray) -> np.ndarray:
    return np.concatenate([errors[k] for k in draw])


_MEASURES = {
    "mean": lambda errors, draw: float(_joined(errors, draw).mean()),
    "median": lambda errors, draw: float(np.median(_joined(errors, draw))),
    "near": lambda errors, draw: float((_joined(errors, draw) <= NEAR).mean()),
}


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
