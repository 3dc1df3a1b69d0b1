"""All rivals with labels, in one form, and what is known of each.

The facts are tested, one by one, in `tests/experiments/rivals/test_claims.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import entmax
import torch
from torch import Tensor

import geosoftmax
from geosoftmax import LineCost
from geosoftmax.costs.base import Cost
from geosoftmax_experiments.rivals import entropies, margins, ordinal, soft_labels, transport

__all__ = ["RIVALS", "Bound", "Rival", "line"]


def _softmax(scores: Tensor, cost: Cost) -> Tensor:
    return torch.softmax(scores, -1)


def _scaled(cost: Cost, scale: float) -> Cost:
    return cost * scale


def _squared(cost: Cost, scale: float) -> Cost:
    return LineCost(cost.positions, p=2) * scale


def _geometric(scores: Tensor, target: Tensor, cost: Cost, scale: float) -> Tensor:
    return geosoftmax.geometric_logistic_loss(scores, target, cost, reduction="none")


@dataclass(frozen=True)
class Rival:
    """A loss for labels, its link, and its decision.

    Parameters
    ----------
    name, label : str
        For files and options, and for readers.
    loss : callable
        From scores, labels, cost and parameter to one value a sample; see `bind`.
    link : callable or None
        From scores and cost to distributions. Margins have none.
    decision : str
        The rule that belongs to it: one of `geosoftmax.decide`, or ``"scores"`` for the largest.
    convex : bool
        Whether the loss is convex in the scores.
    proper : bool
        Whether the link returns the distribution of the labels, at the scores that minimise the
        expected loss. Then it is consistent for every cost, by the least-cost decision.
    consistent : str
        For which cost the decision is the best with infinite data: of a proper loss the decision of
        least expected cost, of others their own.
    sparse : bool
        Whether the link has exact zeros.
    parameter : str
        What has to be chosen: a temperature, a scale; empty where nothing.
    values : tuple of float
        Candidates for it.
    thresholds : bool
        Whether it takes a score for each of the d - 1 thresholds, not for each class.
    shared : bool
        Whether those scores share their weights, and differ by an offset alone.
    geometry : callable
        From the cost between outputs and the parameter to the cost that the loss is given.
    """

    name: str
    label: str
    loss: Callable[[Tensor, Tensor, Cost, float], Tensor]
    link: Callable[[Tensor, Cost], Tensor] | None
    decision: str
    convex: bool
    proper: bool
    consistent: str
    sparse: bool = False
    parameter: str = ""
    values: tuple[float, ...] = (1.0,)
    thresholds: bool = False
    shared: bool = False
    geometry: Callable[[Cost, float], Cost] = lambda C, t: C

    def outputs(self, classes: int) -> int:
        """How many scores it takes for so many classes."""
        return classes - 1 if self.thresholds else classes

    def bind(self, cost: Cost, parameter: float) -> Bound:
        """Return the loss with its cost, made once, and its parameter."""
        return Bound(self, self.geometry(cost, parameter), parameter)


@dataclass(frozen=True)
class Bound:
    """A loss with its cost and its parameter."""

    rival: Rival
    cost: Cost
    parameter: float

    def loss(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return one value for each sample."""
        return self.rival.loss(scores, target, self.cost, self.parameter)

    def distributions(self, scores: Tensor) -> Tensor | None:
        """Return what the link makes of scores, without rounding errors; None without a link."""
        if self.rival.link is None:
            return None
        p = self.rival.link(scores, self.cost).clamp(min=0)
        return p / p.sum(-1, keepdim=True)

    def decide(self, scores: Tensor) -> Tensor:
        """Return the labels that its own decision chooses."""
        p = self.distributions(scores)
        if p is None or self.rival.decision == "scores":
            return scores.argmax(-1)
        return geosoftmax.decide(p, self.cost, self.rival.decision)


def line(classes: int) -> Cost:
    """Return the cost that rivals for ordered classes are given: the difference in rank."""
    return LineCost(classes)


_EVERY = "every cost"

# fmt: off
RIVALS = {
    rival.name: rival
    for rival in (
        Rival("cross-entropy", "cross-entropy",
              lambda f, y, C, t: entropies.cross_entropy(f, y), _softmax, "cost",
              convex=True, proper=True, consistent=_EVERY),
        Rival("geometric", "g-logistic", _geometric, geosoftmax.geometric_softmax, "scores",
              convex=True, proper=True, consistent=_EVERY, sparse=True,
              parameter="scale", values=(0.5, 2.0, 8.0), geometry=_scaled),
        Rival("geometric-squared", "g-logistic, squared cost",
              _geometric, geosoftmax.geometric_softmax, "scores",
              convex=True, proper=True, consistent=_EVERY, sparse=True,
              parameter="scale", values=(0.5, 2.0, 8.0), geometry=_squared),
        Rival("sparsemax", "sparsemax",
              lambda f, y, C, t: entropies.sparsemax_loss(f, y),
              lambda f, C: entmax.sparsemax(f, dim=-1), "cost",
              convex=True, proper=True, consistent=_EVERY, sparse=True),
        Rival("entmax", "1.5-entmax",
              lambda f, y, C, t: entropies.entmax15_loss(f, y),
              lambda f, C: entmax.entmax15(f, dim=-1), "cost",
              convex=True, proper=True, consistent=_EVERY, sparse=True),
        Rival("hinge", "cost-augmented hinge",
              lambda f, y, C, t: margins.cost_augmented_hinge(f, y, C), None, "scores",
              convex=True, proper=False, consistent="distances of a line, not in general",
              parameter="scale", values=(0.5, 2.0, 8.0), geometry=_scaled),
        Rival("softmax-margin", "softmax-margin",
              lambda f, y, C, t: margins.softmax_margin(f, y, C), None, "scores",
              convex=True, proper=False, consistent="none in general",
              parameter="scale", values=(0.5, 2.0, 8.0), geometry=_scaled),
        Rival("pairwise-hinge", "pairwise hinge",
              lambda f, y, C, t: margins.pairwise_hinge(f, y, C), None, "scores",
              convex=True, proper=False, consistent="none in general"),
        Rival("wasserstein", "Wasserstein of a softmax",
              lambda f, y, C, t: transport.wasserstein_softmax(f, y, C), _softmax, "mode",
              convex=False, proper=False, consistent="its own cost"),
        Rival("squared-emd", "squared EMD (RPS) of a softmax",
              lambda f, y, C, t: transport.squared_emd_softmax(f, y), _softmax, "cost",
              convex=False, proper=True, consistent=_EVERY),
        Rival("energy", "energy distance of a softmax",
              lambda f, y, C, t: transport.energy_softmax(f, y, C), _softmax, "cost",
              convex=False, proper=True, consistent=_EVERY),
        Rival("sord", "soft labels (SORD)",
              lambda f, y, C, t: soft_labels.sord(f, y, C, t), _softmax, "mode",
              convex=True, proper=False, consistent="none in general",
              parameter="temperature", values=(0.25, 0.5, 1.0)),
        Rival("label-smoothing", "label smoothing",
              lambda f, y, C, t: soft_labels.label_smoothing(f, y, t), _softmax, "mode",
              convex=True, proper=False, consistent="zero-one cost",
              parameter="share", values=(0.05, 0.1, 0.2)),
        Rival("coral", "CORAL",
              lambda f, y, C, t: ordinal.coral(f, y),
              lambda f, C: ordinal.coral_link(f), "median",
              convex=True, proper=True, consistent=_EVERY, thresholds=True, shared=True),
        Rival("corn", "CORN",
              lambda f, y, C, t: ordinal.corn(f, y),
              lambda f, C: ordinal.corn_link(f), "median",
              convex=True, proper=True, consistent=_EVERY, thresholds=True),
        Rival("distance-weighted", "CDW-CE",
              lambda f, y, C, t: ordinal.distance_weighted(f, y, t), _softmax, "mode",
              convex=False, proper=False, consistent="none in general",
              parameter="power", values=(1.0, 2.0, 5.0)),
    )
}
# fmt: on
