"""A small network for each inner fold and each value of a loss's parameter, trained all at once.

The networks are stacked: one batched product does a layer of all of them. Each sees all samples,
and its loss counts those it may learn from. The last of a group learns from all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from geosoftmax.costs.base import Cost
from geosoftmax_experiments.rivals.table import Rival

__all__ = ["Snapshot", "Training", "train"]


@dataclass(frozen=True)
class Training:
    """How networks are trained: full batches, AdamW, one hidden layer.

    Parameters
    ----------
    width : int
        Units of the hidden layer.
    rate, decay : float
        Of AdamW.
    steps : tuple of int
        When predictions are taken: the number of steps is a candidate, as in early stopping.
    """

    width: int = 32
    rate: float = 0.01
    decay: float = 1e-2
    steps: tuple[int, ...] = (25, 50, 100, 200, 400)


@dataclass(frozen=True)
class Snapshot:
    """The scores of the networks of one value of the parameter, after some steps.

    Parameters
    ----------
    value, steps
        The parameter, and the steps.
    train : Tensor of shape (networks, samples, outputs)
    test : Tensor of shape (networks, test samples, outputs)
    """

    value: float
    steps: int
    train: Tensor
    test: Tensor


class Stack(torch.nn.Module):
    """``copies`` networks with one hidden layer, all with the same first weights.

    With `shared`, all outputs of a network have the same weights and differ by their offset.
    """

    def __init__(
        self, copies: int, features: int, width: int, outputs: int, shared: bool, seed: int
    ) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)

        def weights(rows: int, columns: int) -> torch.nn.Parameter:
            bound = math.sqrt(6 / (rows + columns))
            one = (2 * torch.rand(rows, columns, generator=draw) - 1) * bound
            return torch.nn.Parameter(one.repeat(copies, 1, 1))

        self.hidden = weights(features, width)
        self.hidden_offset = torch.nn.Parameter(torch.zeros(copies, 1, width))
        self.last = weights(width, 1 if shared else outputs)
        self.last_offset = torch.nn.Parameter(torch.zeros(copies, 1, outputs))

    def forward(self, X: Tensor) -> Tensor:
        """Return scores of shape (copies, samples, outputs)."""
        hidden = torch.relu(X @ self.hidden + self.hidden_offset)
        return hidden @ self.last + self.last_offset


def train(
    rival: Rival, cost: Cost, X: Tensor, y: Tensor, seen: Tensor, X_test: Tensor,
    training: Training, seed: int,
) -> list[Snapshot]:  # fmt: skip
    """Train a network for each value of the rival's parameter and each row of `seen`.

    Parameters
    ----------
    X, y, X_test : Tensor
        Standardised features, in float32, and labels.
    seen : Tensor of shape (networks, samples)
        1 for samples that a network learns from, 0 for others.
    """
    groups, values = len(seen), rival.values
    bounds = [rival.bind(cost, value) for value in values]
    outputs = rival.outputs(cost.size)
    stack = Stack(groups * len(values), X.shape[1], training.width, outputs, rival.shared, seed)
    if rival.shared:
        with torch.no_grad():
            stack.last_offset.copy_(_log_odds(y, seen, outputs).repeat(len(values), 1, 1))
    decayed = [stack.hidden, stack.last]
    free = [stack.hidden_offset, stack.last_offset]
    optimiser = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": training.decay}, {"params": free, "weight_decay": 0}],
        lr=training.rate,
    )
    shares = seen / seen.sum(1, keepdim=True)
    labels = y.repeat(groups)
    found = []
    for step in range(1, max(training.steps) + 1):
        scores = stack(X).reshape(len(values), -1, outputs)
        total = torch.zeros(())
        for bound, f in zip(bounds, scores, strict=True):
            losses = bound.loss(f, labels)
            total = total + (losses.reshape(groups, -1) * shares).sum()
        optimiser.zero_grad(set_to_none=True)
        total.backward()
        optimiser.step()
        if step in training.steps:
            with torch.no_grad():
                parts = [
                    stack(part).double().reshape(len(values), groups, len(part), outputs)
                    for part in (X, X_test)
                ]
            found += [
                Snapshot(value, step, *both)
                for value, *both in zip(values, *parts, strict=True)
            ]  # fmt: skip
    return found


def _log_odds(y: Tensor, seen: Tensor, thresholds: int) -> Tensor:
    """Return the log-odds of labels above each threshold, among those that a network has seen.

    Thresholds far from the middle start there: steps of `rate` would take hundreds to get so far.
    """
    above = (y[:, None] > torch.arange(thresholds)).to(seen.dtype)
    share = (seen @ above + 0.5) / (seen.sum(1, keepdim=True) + 1)
    return torch.logit(share)[:, None]
