"""Averages over candidates: on a few dozen samples the best of many is often so by chance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from geosoftmax.costs.base import Cost
from geosoftmax.estimators._linear import decided, distributions_of, read_features
from geosoftmax.functional import decide

__all__ = ["LEAST", "Average", "vote", "weigh_candidates"]

#: Candidates whose weight is below this share of the largest are left out.
LEAST = 0.01


def weigh_candidates(losses: np.ndarray, error: float) -> np.ndarray:
    """Return ``exp(-(loss - least loss) / error)`` for each candidate, divided by the sum.

    Parameters
    ----------
    losses : ndarray
        The mean loss of each candidate on samples that were held out.
    error : float
        The standard error of the least of them. Where it is 0, only equals of the best count.

    Examples
    --------
    >>> import numpy as np
    >>> weigh_candidates(np.array([0.50, 0.75, 9.00]), 0.25).round(2)
    array([0.73, 0.27, 0.  ])
    """
    behind = losses - losses.min()
    weights = np.exp(-behind / error) if error > 0 else (behind <= 1e-12).astype(float)
    weights[weights < LEAST] = 0.0
    return weights / weights.sum()


def vote(labels: Any, weights: Any, measure: Cost) -> np.ndarray:
    """Return the label of least mean cost to weighted votes: the median of them, on a line.

    Parameters
    ----------
    labels : sequence of ndarray
        One row for each voter.
    weights : sequence of float
    measure : Cost
        `LineCost` elects the median, `ZeroOneCost` the mode.

    Examples
    --------
    >>> import numpy as np
    >>> from geosoftmax import LineCost, ZeroOneCost
    >>> votes, weights = np.array([[0], [2], [3]]), [0.4, 0.3, 0.3]
    >>> [int(vote(votes, weights, measure)[0]) for measure in (LineCost(4), ZeroOneCost(4))]
    [2, 0]
    """
    return decide(_shares(labels, weights, measure.size), measure).numpy()


def _shares(labels: Any, weights: Any, classes: int) -> torch.Tensor:
    """Return the share of the votes that each class has, for each sample."""
    ballots = np.zeros((len(labels[0]), classes))
    rows = np.arange(len(ballots))
    for row, weight in zip(labels, weights, strict=True):
        ballots[rows, row] += weight
    return torch.from_numpy(ballots / ballots.sum(1, keepdims=True))


@dataclass(frozen=True)
class Average:
    """Candidates that predict together: their distributions are averaged, or their labels vote.

    Parameters
    ----------
    members : list of GeometricClassifier
        Fitted to all samples.
    rules : list of str
        The decisions.
    weights : ndarray of shape (n_members, n_rules)
        Sum 1.
    measure : Cost
        The cost of errors that candidates were judged by. The vote minimises its mean.
    """

    members: list[Any]
    rules: list[str]
    weights: np.ndarray
    measure: Cost

    @property
    def votes(self) -> bool:
        """Whether labels vote: there are several decisions, or one without a distribution."""
        return self.rules == ["scores"] or len(self.rules) > 1

    def distributions(self, X: Any) -> np.ndarray:
        """Return the mean of the distributions; columns are in the order of the cost."""
        shares = self.weights.sum(1)
        pairs = zip(shares, self.members, strict=True)
        total = sum(share * distributions_of(member, X) for share, member in pairs)
        return np.asarray(total, dtype=self.members[0].coef_.dtype)

    def paid(self, X: Any) -> np.ndarray:
        """Return the mean cost of each class to the votes."""
        return self.measure.expected(_shares(*self._votes(X), self.measure.size)).numpy()

    def elect(self, X: Any) -> np.ndarray:
        """Return the outcome of the vote, as positions in the order of the cost."""
        return vote(*self._votes(X), self.measure)

    def _votes(self, X: Any) -> tuple[list[np.ndarray], np.ndarray]:
        X = read_features(self.members[0], X)
        labels: list[np.ndarray] = []
        for row, member in zip(self.weights, self.members, strict=True):
            used = [rule for rule, weight in zip(self.rules, row, strict=True) if weight > 0]
            labels += decided(member, X, used)
        return labels, self.weights[self.weights > 0]


def standard_error(losses: np.ndarray, squares: np.ndarray, samples: float) -> float:
    """Return the standard error of the least mean loss, from mean losses and mean squares."""
    best = np.unravel_index(losses.argmin(), losses.shape)
    return float(np.sqrt(max(squares[best] - losses[best] ** 2, 0.0) / samples))
