"""Trees with edges of very different lengths, against arithmetic with 60 digits.

Two outputs at distance 1e-9 have nearly the same row in ``K``: in float64 no dense solver tells
them apart. Python's `decimal` does.
"""

from decimal import Decimal, localcontext

import pytest
import torch

from geosoftmax import TreeCost, solve
from geosoftmax.backends import numba, reference
from geosoftmax.solvers.plans import tree_tables
from geosoftmax.solvers.products import Products
from tests.generators import randn

DIGITS = 60
SHORT = [1e-3, 1e-6, 1e-9, 1e-12, 1e-17, 1e-100]


def random_tree(n, lengths, outputs="nodes", seed=0):
    generator = torch.Generator().manual_seed(seed)
    parents = [-1, *(int(torch.randint(i, (), generator=generator)) for i in range(1, n))]
    chosen = torch.randint(len(lengths), (n,), generator=generator)
    edges = torch.tensor(lengths, dtype=torch.float64)[chosen]
    return TreeCost(parents, edges, outputs=outputs)


def by_numba(f, cost):
    found = solve(f, cost)
    return found.u, found.lower - f.amax(-1), found.upper - f.amax(-1)


def by_torch(f, cost):
    b = torch.exp((f - f.amax(-1, keepdim=True)) / 2)
    found = reference.policy(Products(cost), b)
    return found.u, found.lower, found.upper


BACKENDS = pytest.mark.parametrize("method", [by_numba, by_torch])


@BACKENDS
@pytest.mark.parametrize("outputs", ["nodes", "leaves"])
@pytest.mark.parametrize("short", SHORT)
def test_short_edges_cost_no_digits(method, outputs, short):
    for seed, lengths in enumerate([(1.0, short), (30.0, 1.0, short, short**0.5)]):
        cost = random_tree(150, lengths, outputs, seed)
        scores = randn(64, cost.size)
        for f in (scores, scores.round(), torch.zeros_like(scores[:1])):  # with ties too
            _, lower, upper = method(f, cost)
            assert float((upper - lower).max()) <= 1e-12


def kernel_of(cost):
    """``exp(-C/2)`` between the outputs, the lengths of all paths summed with all digits."""
    lengths = [Decimal(float(length)) for length in cost.lengths]
    rows = [[Decimal(0)]]
    for k in range(1, len(lengths)):
        row = [d + lengths[k] for d in rows[int(cost.parents[k])][:k]]
        for j, d in enumerate(row):
            rows[j].append(d)
        rows.append([*row, Decimal(0)])
    places = cost.outputs.tolist()
    scale = Decimal(float(cost.scale))
    return [[(-scale * rows[i][j] / 2).exp() for j in places] for i in places]


def gauss(A, y):
    """Solve by Gaussian elimination; ``A`` is positive definite."""
    n = len(y)
    A = [[*row, right] for row, right in zip(A, y, strict=True)]
    for k in range(n):
        for i in range(k + 1, n):
            factor = A[i][k] / A[k][k]
            A[i] = [a - factor * p for a, p in zip(A[i], A[k], strict=True)]
    x = [Decimal(0)] * n
    for k in reversed(range(n)):
        x[k] = (A[k][n] - sum(A[k][j] * x[j] for j in range(k + 1, n))) / A[k][k]
    return x


@BACKENDS
@pytest.mark.parametrize("outputs", ["nodes", "leaves"])
@pytest.mark.parametrize("short", [1e-3, 1e-9, 1e-17])
def test_solutions_are_those_of_60_digits(method, outputs, short):
    """The support satisfies the optimality conditions; weights and brackets are right."""
    with localcontext(prec=DIGITS):
        for seed in range(3):
            cost = random_tree(14, (1.0, short), outputs, seed)
            f = randn(3, cost.size, seed=seed)
            K = kernel_of(cost)
            for scores, u, lower, upper in zip(f, *method(f, cost), strict=True):
                peak = Decimal(float(scores.max()))
                b = [((Decimal(float(s)) - peak) / 2).exp() for s in scores]
                S = [i for i in range(cost.size) if u[i] > 0]
                x = gauss([[K[i][j] for j in S] for i in S], [b[i] for i in S])
                assert min(x) > 0
                for i in range(cost.size):
                    h = sum(K[i][j] * weight for j, weight in zip(S, x, strict=True))
                    assert h >= b[i] * (1 - Decimal(f"1e-{DIGITS - 10}"))
                value = sum(b[i] * weight for i, weight in zip(S, x, strict=True)).ln()
                assert Decimal(float(lower)) <= value <= Decimal(float(upper))
                expected = torch.tensor([float(weight) for weight in x], dtype=torch.float64)
                torch.testing.assert_close(u[S], expected, rtol=1e-12, atol=0)


def compiled(cost, rhs, support):
    found = numba.policy.solve_on(tree_tables(cost), support.numpy(), rhs.numpy())
    return torch.from_numpy(found)


@pytest.mark.parametrize("solve_on", [compiled, TreeCost.solve])
@pytest.mark.parametrize("short", [1e-3, 1e-9, 1e-17])
def test_solves_on_a_support_are_those_of_60_digits(solve_on, short):
    """Any right-hand side: what derivatives ask for. Supports without two outputs that are one."""
    with localcontext(prec=DIGITS):
        cost = random_tree(14, (1.0, short), seed=4)
        K, support = kernel_of(cost), solve(randn(5, 14), cost).u > 0
        rhs = randn(5, 14, seed=1)
        found = solve_on(cost, rhs, support)
        for x, right, inside in zip(found, rhs, support, strict=True):
            S = inside.nonzero()[:, 0].tolist()
            exact = gauss([[K[i][j] for j in S] for i in S], [Decimal(float(right[i])) for i in S])
            expected = torch.tensor([float(v) for v in exact], dtype=torch.float64)
            torch.testing.assert_close(x[S], expected, rtol=1e-11, atol=1e-13)
            assert (x[~inside] == 0).all()


def test_a_tree_in_single_precision_has_one_kernel():
    """``r² + D = 1`` to all digits there too, or the bracket is of another kernel."""
    cost = random_tree(40, (1.0, 0.3, 1e-9)).float() * 0.7
    scores = randn(16, 40)
    assert float(solve(scores, cost).gap.max()) <= 1e-12
    tree = cost.as_tree()
    assert float((tree.r.square() + tree.D - 1).abs().max()) <= 1e-15
