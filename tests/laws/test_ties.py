"""Outputs that lie on the envelope up to rounding: in or out of the support, the answer is one.

Every score of a Sinkhorn potential lies on its own envelope, so this is the well-trained case.
"""

import subprocess
import sys

import pytest
import torch
from hypothesis import given

from geosoftmax import extrapolate, geometric_logsumexp, geometric_softmax, sinkhorn_potential
from tests.laws.strategies import cost_and, distributions, law
from tests.paper.examples import assert_close

# A potential with two scores below the threshold by less than rounding.
TIE = [
    -0.886071874596951,
    -1.3487001807073926,
    -1.3782695482014276,
    -0.45576890227195604,
    -0.5519995068172073,
    -0.8127952178947906,
]


def test_threshold_ends_on_ties():
    """In a process of its own: a compiled loop that does not end cannot be interrupted."""
    script = (
        "import torch, geosoftmax as g\n"
        f"f = torch.tensor({TIE}, dtype=torch.float64)\n"
        "print(float(g.geometric_softmax(f, g.ZeroOneCost(6) * 2.0).sum()))\n"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True
        )
    except subprocess.TimeoutExpired:
        pytest.fail("the threshold of a zero-one cost was not found within 30 s")
    assert abs(float(done.stdout) - 1) < 1e-12


@law
@given(cost_and(lambda cost: distributions(cost, rows=8)))
def test_potentials(drawn):
    cost, alpha = drawn
    f = sinkhorn_potential(alpha, cost)
    assert_close(geometric_softmax(f, cost), alpha, atol=1e-8)
    value = geometric_logsumexp(f, cost)
    assert_close(value, torch.zeros_like(value), atol=1e-12)
    assert_close(extrapolate(f, cost), f, atol=1e-11)
