"""How well positions agree with the truth: optimal matching within a tolerance."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

__all__ = ["Agreement", "compare", "within"]


@dataclasses.dataclass(frozen=True)
class Agreement:
    """Matched pairs, positions without a partner, and the distances of the pairs in nm."""

    matched: int
    spurious: int
    missed: int
    squares: float

    @property
    def jaccard(self) -> float:
        """Matched, of all that was found or true."""
        return _share(self.matched, self.matched + self.spurious + self.missed)

    @property
    def recall(self) -> float:
        """Matched, of all that was true."""
        return _share(self.matched, self.matched + self.missed)

    @property
    def precision(self) -> float:
        """Matched, of all that was found."""
        return _share(self.matched, self.matched + self.spurious)

    @property
    def rmse(self) -> float:
        """Root mean square of the distances of the pairs, in nm; NaN without pairs."""
        return (self.squares / self.matched) ** 0.5 if self.matched else float("nan")


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0


def compare(found: pd.DataFrame, truth: pd.DataFrame, tolerance: float) -> Agreement:
    """Match the positions of each frame: as many pairs as possible, then the closest."""
    matched = spurious = missed = 0
    squares = 0.0
    for frame in np.union1d(found["frame"], truth["frame"]):
        ours = found.loc[found["frame"] == frame, ["x [nm]", "y [nm]"]].to_numpy(float)
        true = truth.loc[truth["frame"] == frame, ["x [nm]", "y [nm]"]].to_numpy(float)
        distance = cdist(ours, true)
        # Beyond the tolerance a pair costs more than all pairs within it together.
        far = distance > tolerance
        price = np.where(far, (len(ours) + 1) * tolerance**2 + 1, distance**2)
        rows, columns = linear_sum_assignment(price)
        near = ~far[rows, columns]
        matched += int(near.sum())
        squares += float((distance[rows, columns][near] ** 2).sum())
        spurious += len(ours) - int(near.sum())
        missed += len(true) - int(near.sum())
    return Agreement(matched, spurious, missed, squares)


def within(table: pd.DataFrame, first: int, last: int) -> pd.DataFrame:
    """Return the positions of some frames, both ends included."""
    return pd.DataFrame(table[table["frame"].between(first, last)])
