"""How well positions agree with the truth: optimal matching within a tolerance."""

from __future__ import annotations

import dataclasses

import numpy as np

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


def compare(found: np.ndarray, truth: np.ndarray, tolerance: float) -> Agreement:
    """Match the positions of each frame: as many pairs as possible, then the closest.

    Positions are rows of frame, x and y in nm.
    """
    from scipy.optimize import linear_sum_assignment

    matched = spurious = missed = 0
    squares = 0.0
    for frame in np.union1d(found[:, 0], truth[:, 0]):
        ours, true = (table[table[:, 0] == frame, 1:] for table in (found, truth))
        distance = np.linalg.norm(ours[:, None] - true[None], axis=-1)
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


def within(table: np.ndarray, first: int, last: int) -> np.ndarray:
    """Return the positions of some frames, both ends included."""
    return table[(table[:, 0] >= first) & (table[:, 0] <= last)]
