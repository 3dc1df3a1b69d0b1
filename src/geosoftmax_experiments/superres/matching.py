"""How well positions agree with the truth: optimal matching, and optimal transport."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

__all__ = ["Agreement", "compare", "flat_distance", "within"]


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
    for distance in _distances(found, truth):
        ours, true = distance.shape
        # Beyond the tolerance a pair costs more than all pairs within it together.
        far = distance > tolerance
        price = np.where(far, (ours + 1) * tolerance**2 + 1, distance**2)
        rows, columns = linear_sum_assignment(price)
        near = ~far[rows, columns]
        matched += int(near.sum())
        squares += float((distance[rows, columns][near] ** 2).sum())
        spurious += ours - int(near.sum())
        missed += true - int(near.sum())
    return Agreement(matched, spurious, missed, squares)


def flat_distance(found: np.ndarray, truth: np.ndarray, scale: float) -> float:
    r"""Return the flat metric between positions and truth, in nm for each emitter.

    With ``n`` positions in a frame, ``m`` true ones and distances ``d``, it is the least cost of a
    partial matching ``M``, where a position without a partner costs half of the `scale` ``L``,

        F = min_M  Σ_{(i,j) ∈ M} d_ij + L/2 (n + m - 2 |M|)  =  max_f  Σ_i f(x_i) - Σ_j f(y_j)

    over functions ``f`` with slopes of at most 1 and values between ``-L/2`` and ``L/2``: optimal
    transport, in which mass may also appear and vanish. The answer is the sum over frames divided
    by the mean of the numbers of positions, at most `scale`. No pair is right or wrong by a hair.

    Examples
    --------
    >>> table = np.array([[1, 0.0, 0.0], [1, 500.0, 0.0]])
    >>> flat_distance(table + [0, 30.0, 40.0], table, 250.0)
    50.0
    >>> flat_distance(table[:1], table, 250.0)  # one is missed: 125 nm, for 1.5 emitters
    83.33333333333333
    """
    from scipy.optimize import linear_sum_assignment

    total = 0.0
    for distance in _distances(found, truth):
        ours, true = distance.shape
        price = np.minimum(distance, scale)  # to part a pair costs as much as to carry it so far
        total += float(price[linear_sum_assignment(price)].sum()) + scale / 2 * abs(ours - true)
    number = (len(found) + len(truth)) / 2
    return total / number if number else 0.0


def _distances(found: np.ndarray, truth: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the distances between the positions and the true ones of each frame."""
    for frame in np.union1d(found[:, 0], truth[:, 0]):
        ours, true = (table[table[:, 0] == frame, 1:3] for table in (found, truth))
        yield np.linalg.norm(ours[:, None] - true[None], axis=-1)


def within(table: np.ndarray, first: int, last: int) -> np.ndarray:
    """Return the positions of some frames, both ends included."""
    return table[(table[:, 0] >= first) & (table[:, 0] <= last)]
