"""What the laws are drawn over: a cost of any kind, with signals over its outputs."""

import numpy as np
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.paper.examples import COSTS, TINY_COSTS

law = settings(
    max_examples=40,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

costs = st.sampled_from([*COSTS.values(), *TINY_COSTS.values()])
unit = st.floats(0.0, 1.0)


def signals(cost, low=-8.0, high=8.0, rows=3):
    values = st.floats(low, high, width=32)
    return arrays(np.float64, (rows, *cost.shape), elements=values).map(torch.from_numpy)


@st.composite
def distributions(draw, cost, rows=3):
    """Small integers over their sum: zeros, ties and single outputs are all frequent."""
    counts = draw(arrays(np.int64, (rows, cost.size), elements=st.integers(0, 6)))
    counts[:, draw(st.integers(0, cost.size - 1))] += counts.sum(1) == 0
    weights = torch.from_numpy(counts).double()
    return (weights / weights.sum(1, keepdim=True)).reshape(rows, *cost.shape)


@st.composite
def cost_and(draw, *kinds):
    """Draw a cost, then one signal of each kind over it."""
    cost = draw(costs)
    return (cost, *(draw(kind(cost)) for kind in kinds))
