"""Output layers: what they make, and how often."""

from __future__ import annotations

import torch

from geosoftmax import GridCost
from geosoftmax_experiments.vae.layers import layer_of


def test_the_smoothing_cost_is_made_once_for_a_cost(monkeypatch):
    made = []
    divide = GridCost.__truediv__

    def counted(cost, number):
        made.append(number)
        return divide(cost, number)

    monkeypatch.setattr(GridCost, "__truediv__", counted, raising=False)
    layer, scores = layer_of("smoothed", 2.0), torch.randn(3, 4, 4)
    one, other = GridCost((4, 4), p=1), GridCost((4, 4), p=1) * 3
    first = [layer.link(scores, cost) for cost in (one, one, one)]
    assert made == [2.0]
    assert not torch.equal(layer.link(scores, other), first[0])  # another cost has its own
    assert made == [2.0, 2.0]
