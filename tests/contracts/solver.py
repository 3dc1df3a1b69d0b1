"""What every solver must do. A subclass names a method and the costs that it solves."""

import itertools
import warnings
from typing import ClassVar

import pytest
import torch

from geosoftmax import ConvergenceWarning, solve
from tests.conftest import assert_close
from tests.generators import (
    apply_dense,
    exact_potential,
    flat,
    kernel,
    oracle,
    planted,
    randn,
    sparse_distributions,
    total_variation,
)


def signal(cost, rows, seed=0, scale=2.0):
    rows = cost.batch_shape if cost.batch_shape else (rows,)
    return scale * randn(*rows, *cost.shape, seed=seed)


def same_bits(one, two):
    return all(
        torch.equal(getattr(one, field), getattr(two, field))
        for field in ("alpha", "u", "lower", "upper", "iterations")
    )


class SolverContract:
    method: str
    costs: ClassVar = {}
    #: What is asked for, and how exact value and distribution then are (float64).
    tol: float | None = None
    gap = 1e-12
    tv = 1e-8

    def pytest_generate_tests(self, metafunc):
        if "cost" in metafunc.fixturenames:
            costs = metafunc.cls.costs
            metafunc.parametrize("cost", [make() for make in costs.values()], ids=costs)

    def solve(self, scores, cost, **options):
        options = {"method": self.method, "tol": self.tol, **options}
        return solve(scores, cost, **options)

    # ------------------------------------------------------- right

    def check(self, solution, alpha, value):
        assert (solution.gap <= self.gap).all()
        assert solution.converged.all()
        assert solution.method == self.method
        assert total_variation(solution.alpha, alpha) <= self.tv
        self.check_bracket(solution, value)

    def check_bracket(self, solution, value):
        rounding = 1e-13 * (1 + value.abs())  # of the oracle
        assert (solution.lower <= solution.upper).all()
        assert (solution.lower <= value + rounding).all()
        assert (solution.upper >= value - rounding).all()

    def test_planted_solutions_are_found(self, cost):
        problem = planted(cost, rows=cost.batch_shape[0] if cost.batch_shape else 6)
        self.check(self.solve(problem.scores, cost), problem.alpha, problem.value)

    def test_potentials_of_sparse_distributions_are_inverted(self, cost):
        alpha = sparse_distributions(cost, rows=cost.batch_shape[0] if cost.batch_shape else 4)
        problem = exact_potential(alpha, cost)
        self.check(self.solve(problem.scores, cost), problem.alpha, problem.value)

    def test_agrees_with_nnls(self, cost):
        scores = signal(cost, 5)
        self.check(self.solve(scores, cost), *oracle(cost, scores))

    def test_masked_outputs_are_as_if_they_were_not_there(self, cost):
        scores = signal(cost, 3)
        flat(scores, cost)[:, : cost.size // 2] = -torch.inf
        solution = self.solve(scores, cost)
        assert not solution.alpha[torch.isinf(scores)].any()
        self.check(solution, *oracle(cost, scores))

    def test_optimality_conditions_hold(self, cost):
        """``u ≥ 0``, ``Ku ≥ b``, and ``Ku = b`` where ``u > 0``."""
        scores = signal(cost, 5)
        u = self.solve(scores, cost).u
        f = flat(scores, cost)
        b = torch.exp((f - f.amax(-1, keepdim=True)) / 2).reshape(scores.shape)
        slack = apply_dense(kernel(cost), u, cost) - b
        rounding = 10 * (self.gap + 1e-13) ** 0.5 if self.tol else 1e-11
        assert (u >= 0).all()
        assert slack.min() >= -rounding
        assert (u * slack).abs().max() <= rounding

    def test_distribution_is_normalised_and_follows_from_u(self, cost):
        scores = signal(cost, 4)
        solution = self.solve(scores, cost)
        weighted = flat(solution.u * torch.exp(scores / 2), cost)
        expected = weighted / weighted.sum(-1, keepdim=True)
        assert_close(flat(solution.alpha, cost), expected)

    def test_single_precision_reaches_its_gap(self, cost):
        scores = signal(cost, 5).float()
        solution = self.solve(scores, cost, tol=max(self.tol or 0.0, 1e-5))
        _, value = oracle(cost, scores)
        assert solution.alpha.dtype == solution.u.dtype == torch.float32
        assert solution.lower.dtype == solution.upper.dtype == torch.float64
        assert (solution.gap <= max(self.gap, 1e-5)).all()
        self.check_bracket(solution, value)

    # ------------------------------------------------------- warm starts

    def test_its_own_solution_needs_no_iterations(self, cost):
        scores = signal(cost, 4)
        first = self.solve(scores, cost)
        for init in (first, first.u):
            again = self.solve(scores, cost, init=init, tol=max(self.gap, 1e-9))
            assert (again.iterations == 0).all()
            assert_close(again.alpha, first.alpha)

    def test_a_bad_start_does_no_harm(self, cost):
        scores = signal(cost, 4)
        first = self.solve(scores, cost)
        for init in (torch.zeros_like(scores), torch.ones_like(scores), first.u.flip(0)):
            again = self.solve(scores, cost, init=init)
            assert (again.gap <= self.gap).all()
            assert total_variation(again.alpha, first.alpha) <= 2 * self.tv

    # ------------------------------------------------------- reproducible

    def test_scores_are_not_changed(self, cost):
        scores = signal(cost, 3)
        before = scores.clone()
        self.solve(scores, cost)
        assert torch.equal(scores, before)

    def test_same_input_gives_the_same_bits_with_any_number_of_threads(self, cost, threads):
        scores = signal(cost, 30)
        threads(1)
        first = self.solve(scores, cost)
        for count in (1, 2, 3):
            threads(count)
            assert same_bits(first, self.solve(scores, cost))


class RowsAreIndependent:
    """A row is solved to the same bits in whatever batch it comes."""

    def test_rows_do_not_depend_on_their_batch(self, cost):
        scores = signal(cost, 9)
        if cost.batch_shape:
            pytest.skip("one cost per sample: the batch is given")
        together = self.solve(scores, cost)
        for rows in (slice(0, 1), slice(3, 8)):
            alone = self.solve(scores[rows], cost)
            assert torch.equal(alone.alpha, together.alpha[rows])
            assert torch.equal(alone.lower, together.lower[rows])
            assert torch.equal(alone.upper, together.upper[rows])


class Interruptible:
    """What iterative methods add: they can be stopped early, and say so."""

    @pytest.mark.parametrize("max_iter", [1, 3])
    def test_stopped_early_the_bracket_is_true_and_a_warning_names_the_gap(self, cost, max_iter):
        scores = signal(cost, 6, scale=4.0)
        with pytest.warns(ConvergenceWarning, match="rows did not reach tol=.*gap is") as caught:
            solution = self.solve(scores, cost, max_iter=max_iter, tol=1e-4)
        assert (solution.iterations <= max_iter).all()
        assert not solution.converged.all()
        self.check_bracket(solution, oracle(cost, scores)[1])
        message = str(caught[0].message)
        assert f"{int((~solution.converged).sum())} of 6 rows" in message
        assert f"{float(solution.gap.max()):.1e}" in message

    def test_iterations_are_bounded_also_where_supports_are_exchanged(self, cost):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            solution = self.solve(signal(cost, 4), cost, max_iter=2, tol=1e-12)
        assert (solution.iterations <= 2).all()

    def test_more_iterations_never_widen_the_bracket(self, cost):
        scores = signal(cost, 4)
        gaps = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            for max_iter in (5, 20, 80, 320):
                gaps.append(self.solve(scores, cost, max_iter=max_iter, tol=1e-12).gap)
        for early, late in itertools.pairwise(gaps):
            assert (late <= early + 1e-13).all()
