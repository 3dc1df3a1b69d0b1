"""Exact solves on large supports: by the support, or by what is outside of it."""

import pytest
import torch

from geosoftmax import GridCost, solve
from geosoftmax.backends import numba as nb

ROWS, COLUMNS = torch.meshgrid(torch.arange(9.0), torch.arange(13.0), indexing="ij")
FIELDS = {
    "wide: all outputs": -0.2 * ((ROWS - 4.3).abs() + (COLUMNS - 5.2).abs()),
    "half of the outputs": torch.randn(9, 13, generator=torch.manual_seed(1)) * 0.3,
    "few outputs": torch.randn(9, 13, generator=torch.manual_seed(2)) * 3,
}


def kernels(p, scale):
    sides = (torch.arange(float(n), dtype=torch.float64) for n in (9, 13))
    return [torch.exp(-scale * (x[:, None] - x).abs() ** p / 2) for x in sides]


def test_inverses_are_banded_for_p_1_alone():
    assert nb.factor_tables(kernels(1, 1.0)).inverse_bands == (0, 1, 1)
    assert nb.factor_tables(kernels(1.5, 1.0)).inverse_bands == (0, 8, 12)
    ill_conditioned = nb.factor_tables(kernels(2, 0.5))
    assert all(Q.size == 0 for Q in ill_conditioned.inverses)


def test_there_are_no_inverses_where_kernels_differ_by_row():
    K = torch.stack([torch.eye(4, dtype=torch.float64)] * 3)
    assert all(Q.size == 0 for Q in nb.factor_tables([K]).inverses)


@pytest.mark.parametrize("p", [1, 1.5])
@pytest.mark.parametrize("name", FIELDS)
def test_both_ways_give_the_same(name, p):
    tables = nb.factor_tables(kernels(p, 1.0))
    b = torch.exp(FIELDS[name].double() / 2)[None]
    empty = tuple(Q[:0, :0] for Q in tables.inverses)
    by_outside = nb.exchange(tables, b, b > 0, 1e-12, 200)
    by_support = nb.exchange(tables._replace(inverses=empty), b, b > 0, 1e-12, 200)
    torch.testing.assert_close(by_outside.u, by_support.u, atol=1e-11, rtol=0)
    assert float((by_outside.upper - by_outside.lower).max()) <= 1e-12


@pytest.mark.parametrize("name", FIELDS)
def test_kkt_conditions_hold_in_three_dimensions(name):
    cost = GridCost((3, 9, 13), p=1)
    scores = torch.stack([FIELDS[name], FIELDS[name] - 1, FIELDS[name].flip(0)]).double()
    found = solve(scores, cost, method="splitting", tol=1e-11)
    b = torch.exp((scores - scores.max()) / 2)
    K = torch.exp(-cost.matrix() / 2)
    short = b.flatten() - K @ found.u.flatten()
    assert float(short.max()) <= 1e-10
    assert float((short * found.u.flatten()).abs().max()) <= 1e-10
