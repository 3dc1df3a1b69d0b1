"""The bracket is true for any u ≥ 0, of any solver, stopped anywhere.

lower = log(⟨b,u⟩² / uᵀKu) ≤ g-LSE(f) ≤ log(wᵀKw) = upper,     w ≥ 0 with Kw ≥ b
"""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from geosoftmax import ConvergenceWarning, GridCost, LineCost, TreeCost, ZeroOneCost, solve
from geosoftmax.backends import reference
from geosoftmax.solvers.products import Products
from tests.laws.strategies import cost_and, law, signals
from tests.paper.examples import flat, kernel


def nonnegative(cost):
    values = st.one_of(st.just(0.0), st.floats(1e-6, 10.0))
    return arrays(np.float64, (3, *cost.shape), elements=values).map(torch.from_numpy)


def half_exponential(f, cost):
    peak = f.flatten(1).amax(1).reshape(-1, *[1] * len(cost.shape))
    return torch.exp((f - peak) / 2), peak.reshape(-1)


@law
@given(cost_and(signals, nonnegative))
def test_any_candidate_brackets_the_truth(drawn):
    cost, f, u = drawn
    assume(bool((u.flatten(1).sum(1) > 0).all()))
    b, peak = half_exponential(f, cost)
    truth = solve(f, cost)
    assert bool((truth.gap <= 1e-12).all())
    _, lower, upper = reference.certify(Products(cost), b, u)
    assert bool((lower + peak <= truth.upper).all())
    assert bool((upper + peak >= truth.lower).all())


@law
@given(cost_and(signals, nonnegative))
def test_lower_end_is_the_value_of_the_candidate(drawn):
    """-log Φ at α ∝ u b: the bracket of a rescaled candidate is the same one."""
    cost, f, u = drawn
    assume(bool((u.flatten(1).sum(1) > 0).all()))
    b, _ = half_exponential(f, cost)
    scaled, lower, upper = reference.certify(Products(cost), b, u)
    v, c = flat(u, cost), flat(b, cost)
    energy = torch.einsum("ni,ij,nj->n", v, kernel(cost), v)
    value = torch.log((c * v).sum(-1).square() / energy)
    torch.testing.assert_close(lower, value, rtol=0, atol=1e-10)
    _, again, upper_again = reference.certify(Products(cost), b, 7 * u)
    torch.testing.assert_close(again, lower, rtol=0, atol=1e-10)
    torch.testing.assert_close(upper_again, upper, rtol=0, atol=1e-10)
    s = flat(scaled, cost)
    balance = torch.einsum("ni,ij,nj->n", s, kernel(cost), s)
    torch.testing.assert_close((c * s).sum(-1), balance, rtol=1e-9, atol=0)


@law
@given(cost_and(signals))
def test_solution_certifies_itself(drawn):
    cost, f = drawn
    solution = solve(f, cost)
    b, peak = half_exponential(f, cost)
    _, lower, upper = reference.certify(Products(cost), b, solution.u)
    assert bool(((lower + peak) <= solution.upper).all())
    assert bool(((upper + peak) >= solution.lower).all())
    assert float((upper - lower).max()) < 1e-11


@pytest.mark.filterwarnings("ignore::geosoftmax.ConvergenceWarning")
@pytest.mark.parametrize("cost", [GridCost((12, 11), p=2) / 2, LineCost(132, p=2) / 8], ids=repr)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_more_iterations_narrow_the_bracket(cost, dtype):
    scores = torch.randn(5, *cost.shape, dtype=torch.float64).to(dtype)
    exact = solve(scores.double(), cost)
    assert bool(exact.converged.all())
    gaps = []
    for max_iter in (1, 2, 5, 10, 20, 50, 100):
        solution = solve(scores, cost, tol=1e-3, max_iter=max_iter, method="accelerated")
        assert bool((solution.lower <= exact.upper).all())
        assert bool((solution.upper >= exact.lower).all())
        gaps.append(solution.gap.clamp_min(1e-3))  # how far below tol is left open
    assert bool((torch.stack(gaps).diff(dim=0) <= 1e-12).all())
    assert bool((gaps[-1] == 1e-3).all())


@pytest.mark.filterwarnings("ignore::geosoftmax.ConvergenceWarning")
@pytest.mark.parametrize("tol", [1e-3, 1e-9])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_max_iter_is_honoured(tol, dtype):
    cost = LineCost(132, p=2) / 8
    scores = torch.randn(5, 132, dtype=dtype)
    solution = solve(scores, cost, tol=tol, max_iter=7, method="accelerated")
    assert int(solution.iterations.max()) <= 7


@pytest.mark.parametrize("method", ["splitting", "accelerated", "lbfgs"])
@pytest.mark.parametrize("max_iter", [1, 3, 30])
def test_bracket_is_true_wherever_the_solver_stops(method, max_iter):
    cost = GridCost((5, 6), p=2) / 2
    scores = 2 * torch.randn(4, *cost.shape, dtype=torch.float64)
    exact = solve(scores, cost)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        solution = solve(scores, cost, tol=1e-12, max_iter=max_iter, method=method)
    assert bool((solution.lower <= exact.upper).all())
    assert bool((solution.upper >= exact.lower).all())
    assert torch.equal(solution.converged, solution.gap <= 1e-12)


def test_warm_start_does_not_widen_the_bracket():
    cost = GridCost((12, 11), p=2) / 2
    scores = torch.randn(4, 12, 11, dtype=torch.float64)
    first = solve(scores, cost)
    again = solve(scores, cost, init=first)
    assert bool((again.gap <= first.gap + 1e-12).all())
    assert bool((again.iterations == 0).all())


@pytest.mark.parametrize("seed", range(5))
def test_bracket_of_few_outputs_of_a_deep_tree_is_true(seed):
    """Sums run over its nodes. One output, whatever lies above it, has the value of its score."""
    generator = torch.Generator().manual_seed(seed)
    nodes = 1000
    lengths = 10 ** (-5 * torch.rand(nodes, generator=generator, dtype=torch.float64))
    cost = TreeCost(range(-1, nodes - 1), lengths, outputs=[nodes - 1])
    for scale in (1e-3, 1.0):
        scores = torch.zeros(1, 1, dtype=torch.float64)
        for init in (None, torch.ones(1, 1)):
            solution = solve(scores, cost * scale, init=init)
            assert float(solution.lower) <= 0 <= float(solution.upper)


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="long doubles are doubles here")
@pytest.mark.parametrize("d", [128, 1000, 5000, 20_000])
def test_bracket_is_true_where_all_terms_round_the_same_way(d):
    """Constant scores have closed forms; their sums are of equal terms, whose errors add up."""
    zeros = torch.zeros(1, d, dtype=torch.float64)
    for c in (3e-4, 0.02, 0.7, 9.0):
        wide = np.longdouble(c)
        k = np.exp(-wide / 2)
        line, equal = np.log1p((d - 1) * np.tanh(wide / 4)), np.log(d / (1 - k + k * d))
        star = TreeCost([-1] + [0] * d, 0.5, outputs="leaves")
        for cost, value in ((LineCost(d), line), (ZeroOneCost(d), equal), (star, equal)):
            first = solve(zeros, cost * c)
            for solution in (first, solve(zeros, cost * c, init=first)):
                assert np.longdouble(float(solution.lower)) <= value, cost
                assert np.longdouble(float(solution.upper)) >= value, cost
