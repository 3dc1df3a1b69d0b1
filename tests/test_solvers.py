"""The solver contract for every method, the closed forms, and the one table that chooses."""

import subprocess
import sys
import warnings
from typing import ClassVar

import pytest
import torch

from geosoftmax import (
    ConvergenceWarning,
    DenseCost,
    GridCost,
    LineCost,
    TreeCost,
    ZeroOneCost,
    solve,
    solvers,
)
from geosoftmax.solvers.solution import has_converged
from tests import generators
from tests.conftest import assert_close
from tests.contracts.solver import Interruptible, RowsAreIndependent, SolverContract, same_bits
from tests.generators import DRAWING_COST, oracle, randn, total_variation

UNEVEN = [0.0, 0.1, 1.5, 1.75, 4.0, 4.5, 9.0, 11.0]
PARENTS = [-1, 0, 0, 1, 1, 1, 2, 4, 4, 7, 9]


@pytest.mark.parametrize(
    "cost",
    [LineCost(2), LineCost(2, p=2), ZeroOneCost(2), TreeCost([-1, 0]), GridCost((2, 1), p=2)],
    ids=repr,
)
@pytest.mark.parametrize("far", [200.0, 760.0, 1400.0, 3000.0])
def test_a_start_on_the_other_side_is_no_worse_than_none(cost, far):
    """Its energy underflows: it then says nothing about the row."""
    scores = torch.tensor([[far, 0.0], [1.0, 2.0]], dtype=torch.float64).reshape(2, *cost.shape)
    first = solve(scores, cost)
    other = scores.reshape(2, 2).flip(1).reshape(scores.shape)
    warm = solve(other, cost, init=first)
    assert warm.converged.all()
    assert_close(warm.alpha, solve(other, cost).alpha)


class TestThreshold(RowsAreIndependent, SolverContract):
    method = "threshold"
    costs: ClassVar = {
        "three": lambda: ZeroOneCost(3),
        "many": lambda: ZeroOneCost(50) * 0.5,
    }


class TestHull(RowsAreIndependent, SolverContract):
    method = "hull"
    costs: ClassVar = {
        "even": lambda: LineCost(30),
        "uneven": lambda: LineCost(UNEVEN) * 0.5,
        "grid": lambda: GridCost(20, p=1, spacing=0.3),
    }


class TestPolicy(RowsAreIndependent, SolverContract):
    method = "policy"
    costs: ClassVar = {
        "nodes": lambda: TreeCost(PARENTS, 0.6),
        "leaves": lambda: TreeCost(PARENTS, 1.2, outputs="leaves"),
        "chain": lambda: TreeCost([*range(1, 20), -1], 0.3),
    }


class TestActiveSet(RowsAreIndependent, SolverContract):
    method = "active_set"
    costs: ClassVar = {
        "ordinal": lambda: LineCost(9, p=2) / 2,
        "line-p1.5": lambda: LineCost(UNEVEN, p=1.5),
        "grid": lambda: GridCost((5, 6), p=2),
        "per-sample": lambda: DenseCost.from_points(randn(6, 2)).with_parameter(
            DenseCost.from_points(randn(6, 2)).C
            * torch.linspace(1, 2, 5, dtype=torch.float64)[:, None, None]
        ),
        "large": lambda: LineCost(80, p=2) / 2,
    }


class TestAccelerated(RowsAreIndependent, Interruptible, SolverContract):
    method = "accelerated"
    tol, gap, tv = 1e-9, 1e-9, 1e-5
    costs: ClassVar = {
        "grid": lambda: GridCost((8, 7), p=2) / 2,
        "grid-p1": lambda: GridCost((6, 5), p=1) * 0.5,
        "grid-3d": lambda: GridCost((3, 4, 3), p=2),
        "dense": lambda: DenseCost((LineCost(70, p=1.5) / 2).matrix()),
        "line": lambda: LineCost(90, p=2) / 2,
    }

    def test_a_near_start_needs_fewer_iterations(self, cost):
        scores = 2 * randn(4, *cost.shape)
        first = self.solve(scores, cost, tol=1e-4)
        near = scores + 1e-3 * randn(4, *cost.shape, seed=1)
        cold = self.solve(near, cost, tol=1e-4).iterations.sum()
        warm = self.solve(near, cost, tol=1e-4, init=first).iterations.sum()
        assert warm < cold

    def test_rows_that_the_start_solves_are_returned_as_they_are(self, cost):
        scores = 2 * randn(3, *cost.shape)
        first = self.solve(scores, cost)
        init = first.u.clone()
        init[1] = 1.0
        again = self.solve(scores, cost, init=init)
        assert again.iterations[[0, 2]].tolist() == [0, 0]
        assert again.iterations[1] > 0


class TestSplitting(TestAccelerated):
    method = "splitting"
    costs: ClassVar = {
        "grid": lambda: GridCost((8, 7), p=2) / 2,
        "grid-p1": lambda: GridCost((6, 5), p=1) * 0.5,
        "grid-3d": lambda: GridCost((3, 4, 3), p=2),
        "grid-1d": lambda: GridCost(40, p=2) / 2,
        "wide": lambda: GridCost((12, 12), p=1) / 8,
    }


class TestGrowingSet(RowsAreIndependent, SolverContract):
    method = "growing_set"
    tol, gap, tv = 1e-9, 1e-9, 1e-5
    costs: ClassVar = {
        "grid": lambda: GridCost((8, 7), p=2) / 2,
        "grid-p1": lambda: GridCost((6, 5), p=1) * 0.5,
        "grid-3d": lambda: GridCost((3, 4, 3), p=2),
        "wide": lambda: GridCost((12, 12), p=1) / 8,
    }


class TestLbfgs(SolverContract):
    """The paper's own method: it stops when its value stalls, whatever the gap is."""

    method = "lbfgs"
    tol, gap, tv = 1e-12, 5e-2, 5e-2
    costs: ClassVar = {
        "line": lambda: LineCost(5),
        "ordinal": lambda: LineCost(5, p=2) / 2,
        "zero-one": lambda: ZeroOneCost(4),
        "tree": lambda: TreeCost([-1, 0, 0, 1, 1]),
        "grid": lambda: GridCost((3, 2)),
        "dense": lambda: DenseCost(LineCost(4).matrix()),
    }

    def solve(self, scores, cost, **options):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return super().solve(scores, cost, **options)

    def test_a_bad_start_does_no_harm(self, cost):
        """Log-space iterates do not come back from zero, but their bracket stays true."""
        scores = 2 * randn(4, *cost.shape)
        solution = self.solve(scores, cost, init=randn(4, *cost.shape, seed=1).clamp_min(0))
        self.check_bracket(solution, oracle(cost, scores)[1])

    def check(self, solution, alpha, value):
        assert (solution.gap <= self.gap).all()
        assert total_variation(solution.alpha, alpha) <= self.tv
        self.check_bracket(solution, value)


# ------------------------------------------------------------------ closed forms

CLOSED_FORMS = {
    "two-classes": generators.two_classes(),
    "two-far-classes": generators.two_classes(c=30.0),
    "zero-one": generators.equal_scores_zero_one(),
    "constant-line": generators.constant_line(),
    "constant-near-line": generators.constant_line(c=1e-3),
    "star": generators.star(),
}


@pytest.mark.parametrize("problem", CLOSED_FORMS.values(), ids=CLOSED_FORMS)
@pytest.mark.parametrize("method", ["auto", "active_set"])
def test_closed_forms(problem, method):
    cost = problem.cost if method == "auto" else DenseCost(problem.cost.matrix())
    solution = solve(problem.scores, cost, method=method)
    assert total_variation(solution.alpha, problem.alpha) <= 1e-10
    torch.testing.assert_close(solution.lower, problem.value, rtol=0, atol=1e-12)


TIE = """
import torch, geosoftmax as gs
scores = torch.tensor([[{scores}]], dtype=torch.float64)
assert (gs.solve(scores, gs.ZeroOneCost(3)).gap < 1e-12).all()
"""


def test_a_class_exactly_at_the_threshold_does_not_loop_for_ever():
    """A potential of two classes: the third one lies on their threshold, to the last bit."""
    scores = "-0.1555610607530814, -0.29487863363374345, -0.7858666129855355"
    script = TIE.format(scores=scores)
    subprocess.run([sys.executable, "-c", script], check=True, timeout=30)


# ------------------------------------------------------------------ drawings, 28 × 28


def noisy(problem, size):
    scores = problem.scores + size * randn(*problem.scores.shape, seed=3)
    alpha, value = oracle(problem.cost, scores)
    return problem._replace(scores=scores, alpha=alpha, value=value)


def check_drawings(problem):
    solution = solve(problem.scores, problem.cost, tol=1e-9)
    assert solution.method == "growing_set"
    assert solution.converged.all()
    assert total_variation(solution.alpha, problem.alpha) <= 1e-5
    assert (solution.lower <= problem.value + 1e-12).all()
    assert (solution.upper >= problem.value - 1e-12).all()
    single = solve(problem.scores.float(), problem.cost, tol=1e-5)
    assert (single.gap <= 1e-5).all()


def test_potentials_of_digits_give_the_digits_back():
    check_drawings(generators.exact_potential(generators.digits(), DRAWING_COST))


@pytest.mark.parametrize("size", [0.01, 0.5])
def test_noisy_potentials_of_digits_agree_with_nnls(size):
    problem = generators.exact_potential(generators.digits()[:2], DRAWING_COST)
    check_drawings(noisy(problem, size))


@pytest.mark.data
def test_potentials_of_cats_give_the_cats_back():
    check_drawings(generators.exact_potential(generators.cats(6), DRAWING_COST))


@pytest.mark.data
def test_noisy_potentials_of_cats_agree_with_nnls():
    problem = generators.exact_potential(generators.cats(2), DRAWING_COST)
    check_drawings(noisy(problem, 0.2))


# ------------------------------------------------------------------ brackets and warnings


def test_brackets_of_large_scores_are_true_to_the_last_bit():
    """Scores are multiples of 2⁻¹⁰, so adding 10⁴ is exact, and so is subtracting it again."""
    scores = torch.randint(-3000, 3000, (500, 6)).double() / 1024
    near, far = (solve(s, LineCost(6)) for s in (scores, scores + 1e4))
    middle = (near.lower + near.upper) / 2  # within 1e-14
    assert ((far.lower - 1e4) - middle <= 2e-14).all()
    assert (middle - (far.upper - 1e4) <= 2e-14).all()


def test_a_gap_that_is_not_a_number_is_not_taken_for_converged():
    lower, upper = torch.tensor([[0.0, 0.0], [0.0, torch.nan]]).double()
    assert has_converged(lower, upper, 1e-6).tolist() == [True, False]


@pytest.mark.parametrize("cost", [LineCost(5), LineCost(5, p=2), ZeroOneCost(5)], ids=repr)
@pytest.mark.parametrize("size", [1e4, 1e8, 1e12])
def test_huge_scores_are_solved_without_a_warning(cost, size):
    solution = solve(size + torch.arange(10.0).double().reshape(2, 5), cost)
    assert solution.converged.all()
    assert (solution.lower <= solution.upper).all()


def test_lbfgs_honours_masks_and_says_when_it_did_not_converge():
    scores = torch.tensor([[-torch.inf, -torch.inf, 0.0, 1.0, -torch.inf, 2.0]]).double()
    for cost in (LineCost(6), ZeroOneCost(6), TreeCost([-1, 0, 0, 1, 1, 2])):
        with pytest.warns(ConvergenceWarning, match="lbfgs"):
            solution = solve(scores, cost, method="lbfgs", tol=1e-14, max_iter=2)
        assert not solution.alpha[torch.isinf(scores)].any()
        assert (solution.gap > 1e-14).all()


# ------------------------------------------------------------------ the table


@pytest.mark.parametrize(
    ("cost", "method"),
    [
        (ZeroOneCost(100), "threshold"),
        (LineCost(1000), "hull"),
        (GridCost(1000, p=1), "hull"),
        (TreeCost([-1, *range(99)]), "policy"),
        (LineCost(128, p=2), "active_set"),
        (GridCost((8, 8)), "active_set"),
        (DenseCost([[0.0]]), "active_set"),
        (LineCost(129, p=2), "accelerated"),
        (GridCost(129, p=2), "accelerated"),
        (GridCost((12, 12), p=1), "splitting"),
        (GridCost((2, 1025)), "accelerated"),
    ],
    ids=lambda value: value if isinstance(value, str) else repr(value),
)
def test_the_table_chooses(cost, method):
    scores = torch.zeros(1, *cost.shape, dtype=torch.float64)
    request = solvers.Request("value", cost.device, torch.float64, 1e-3)
    assert solve(scores, cost, tol=1e-3).method == method
    assert solvers.choose(cost, request).method == method


def test_the_table_is_documented():
    for method in solvers.methods():
        assert f"``{method}``" in solvers.__doc__
    for cost in ("ZeroOneCost", "LineCost", "GridCost", "TreeCost"):
        assert f"``{cost}``" in solvers.__doc__
    assert solvers.table() in solvers.__doc__


@pytest.mark.parametrize(
    ("method", "cost", "needs"),
    [
        ("threshold", LineCost(3), "ZeroOneCost"),
        ("hull", ZeroOneCost(3), "LineCost with p=1"),
        ("hull", LineCost(3, p=2), "LineCost with p=1"),
        ("hull", GridCost((3, 3), p=1), "LineCost with p=1"),
        ("policy", LineCost(3), "TreeCost"),
        ("splitting", LineCost(1100, p=2), "up to 1024 outputs"),
        ("splitting", GridCost((2, 1025)), "sides up to 1024"),
    ],
)
def test_a_method_that_does_not_fit_the_cost_is_refused(method, cost, needs):
    with pytest.raises(ValueError, match=f"(?s){method}.*{needs}.*auto"):
        solve(torch.zeros(cost.shape), cost, method=method)


def test_every_method_that_fits_gives_the_same_answer():
    scores = 2 * randn(6, 8)
    for cost, methods in (
        (ZeroOneCost(8), ("threshold", "active_set", "accelerated")),
        (LineCost(8), ("hull", "active_set", "accelerated")),
        (TreeCost([-1, 0, 0, 1, 1, 2, 2, 3]), ("policy", "active_set", "accelerated")),
    ):
        first, *others = (solve(scores, cost, method=method) for method in methods)
        for other in others:
            assert total_variation(first.alpha, other.alpha) <= 1e-5


@pytest.mark.parametrize("shape", [(1, 5), (5, 1), (1, 1), (2, 1, 3)])
@pytest.mark.parametrize("batch", [(), (3,), (2, 1), (1, 5)])
def test_sides_of_one_do_not_become_batches(shape, batch):
    solution = solve(randn(*batch, *shape), GridCost(shape))
    assert solution.alpha.shape == solution.u.shape == (*batch, *shape)
    assert solution.lower.shape == solution.iterations.shape == batch
    assert_close(solution.alpha.flatten(len(batch)).sum(-1), torch.ones(batch).double())


def test_solving_twice_gives_the_same_bits():
    scores = randn(3, 12, 11)
    one, two = (solve(scores, GridCost((12, 11))) for _ in range(2))
    assert same_bits(one, two)


@pytest.mark.parametrize("max_iter", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("init", [None, 1.0, 1e300])
def test_splitting_that_is_stopped_where_nothing_is_positive_has_a_bracket(max_iter, init):
    """A first step may overshoot: then no output has mass, and what was before is returned."""
    cost = GridCost((2, 2, 2), p=1)
    scores = torch.zeros(1, 2, 2, 2)
    scores[0, [0, 1, 1], [0, 0, 1], [1, 0, 1]] = -torch.inf
    start = None if init is None else torch.full((1, 2, 2, 2), init, dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        solution = solve(scores, cost, method="splitting", max_iter=max_iter, init=start)
    _, value = oracle(cost, scores)
    assert (solution.lower <= value + 1e-13).all()
    assert (solution.upper >= value - 1e-13).all()
    assert solution.upper.isfinite().all()
