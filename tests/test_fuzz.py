"""The fuzz: a small one finds nothing; what is false and planted is found; it can be stopped."""

import dataclasses
import json

import numpy as np
import pytest
import torch

from fuzz import checks, costs, exact, problems
from fuzz.__main__ import main
from fuzz.run import examine
from geosoftmax import DenseCost, Solution, ZeroOneCost, solve, solvers
from geosoftmax.solvers.registry import SOLVERS
from tests.generators import randn

pytestmark = pytest.mark.skipif(
    not exact.EXTENDED, reason="long doubles have no more digits than doubles here"
)
SEED = 20


def drawn(kind, rows=6, seed=0):
    """A cost of a kind; those that the library refuses are drawn again."""
    for attempt in range(100):
        rng = np.random.default_rng([seed, attempt])
        try:
            cost = costs.KINDS[kind](rng, rows)
        except ValueError as error:
            if not costs.REFUSED.search(str(error)):
                raise
            continue
        if 2 <= cost.size <= 60:
            return cost
    raise AssertionError(f"no cost of kind {kind!r}")


def asked(cost, scores):
    return problems.Problem(0, 0, "", cost, scores, "auto", None, None, None, "", "none")


def found(problem, solution):
    known = checks.truth(problem, [])
    failures = [*checks.check_solution(problem, solution, known)]
    return {failure.what: failure.row for failure in failures}


@pytest.mark.parametrize("part", range(3))
def test_a_small_fuzz_finds_nothing(part):
    outcomes = [examine(SEED, batch) for batch in range(part, 60, 3)]
    failures = [(o.snippet(f), f) for o in outcomes for f in o.failures]
    assert failures == []
    assert sum(sum(o.checked.values()) for o in outcomes) > 1000


# ------------------------------------------------------------------ what is planted is found


@pytest.mark.parametrize("kind", costs.KINDS)
def test_a_bracket_that_is_false_by_little_is_found(kind):
    cost = drawn(kind)
    problem = asked(cost, randn(6, *cost.shape))
    solution = solve(problem.scores, cost)
    assert found(problem, solution) == {}
    known = checks.truth(problem, [])
    off = 2e-13 + known.indefinite + float((known.bounds.upper - known.bounds.lower)[2])
    for name, shift, what in (
        ("upper", -off, "upper is below the value"),
        ("lower", off, "lower is above the value"),
    ):
        other = {"upper": solution.lower, "lower": solution.upper}[name]
        moved = getattr(solution, name).clone()
        moved[2] = other[2] + shift
        assert found(problem, dataclasses.replace(solution, **{name: moved})).get(what) == 2


def test_a_cost_that_is_not_positive_definite_is_found():
    """No local method leaves the middle: a point with two outputs refutes its bracket."""
    x = torch.arange(3, dtype=torch.float64)
    fourth = DenseCost((x[:, None] - x) ** 4)
    cost = fourth.with_parameter(fourth.C / 10)  # which the library does not check
    problem = asked(cost, torch.tensor([[-0.12, -0.015, -0.13]], dtype=torch.float64))
    solution = solve(problem.scores, cost)
    assert solution.converged.all()
    assert "upper is below the value" in found(problem, solution)


def test_other_false_answers_are_found():
    cost = ZeroOneCost(4)
    problem = asked(cost, randn(3, 4))
    solution = solve(problem.scores, cost)

    def planted(name, row, column, value):
        changed = getattr(solution, name).clone()
        changed[(row, column) if changed.dim() == 2 else row] = value
        return found(problem, dataclasses.replace(solution, **{name: changed}))

    largest = int(solution.alpha[1].argmax())
    assert planted("alpha", 1, largest, torch.nan)["NaN"] == 1
    assert planted("upper", 2, None, torch.nan)["NaN"] == 2
    assert planted("alpha", 0, 3, -1e-3)["a negative probability"] == 0
    assert planted("alpha", 0, 3, 0.5)["probabilities do not sum to 1"] == 0
    swapped = dataclasses.replace(solution, alpha=solution.alpha.flip(1))
    assert "the distribution is not that of the bracket" in found(problem, swapped)


def test_functions_and_losses_of_another_problem_are_found():
    """Scores are solved with one cost, and checked with another."""
    scores = 2 * randn(8, 5)
    right, wrong = (asked(ZeroOneCost(5) * c, scores) for c in (1.0, 1.01))

    def failures(problem, known):
        found = [*checks.check_functions(problem, known)]
        found += checks.check_losses(np.random.default_rng(0), problem, known)
        return {failure.what for failure in found}

    assert failures(right, checks.truth(right, [])) == set()
    assert failures(right, checks.truth(wrong, [])) == {
        "log-sum-exp is off",
        "softmax is off",
        "a loss (index) is off",
        "a loss (distribution) is off",
        "the slope (index) is not softmax less target",
        "the slope (distribution) is not softmax less target",
    }


def test_a_solution_that_says_what_is_not_so_is_found():
    class Boastful(Solution):
        @property
        def converged(self):
            return torch.ones_like(self.lower, dtype=torch.bool)

    solution = solve(randn(3, 4), ZeroOneCost(4))
    honest = dataclasses.replace(solution, upper=solution.upper + 1)
    fields = {f.name: getattr(honest, f.name) for f in dataclasses.fields(honest)}
    whats = [failure.what for failure in checks.check_report(Boastful(**fields), [])]
    assert whats == ["converged with a gap above tol"] * 3
    whats = [failure.what for failure in checks.check_report(honest, [])]
    assert whats == ["the warning and `converged` disagree"]


class Careless(solvers.Solver):
    """As the threshold in plain torch, but its certificates are too narrow by a little."""

    method, backend = "threshold", "reference"
    honest = next(s for s in SOLVERS if (s.method, s.backend) == ("threshold", "reference"))

    def accepts(self, cost, request):
        return self.honest.accepts(cost, request)

    def prepare(self, cost, request):
        plan = self.honest.prepare(cost, request)

        def rows(b, start, max_iter):
            solved = plan.rows(b, start, max_iter)
            return solved._replace(lower=solved.lower + 1e-11, upper=solved.upper + 1e-11)

        return dataclasses.replace(plan, rows=rows)


def test_a_solver_with_false_certificates_is_found_and_shown(tmp_path, capsys):
    careless = Careless()
    solvers.register(careless)
    try:
        status = main(["--rows", "1500", "--seed", "3", "--output", str(tmp_path / "fuzz")])
    finally:
        solvers.registry.unregister(careless)
    assert status == 1
    printed = capsys.readouterr().out
    assert "lower is above the value" in printed
    assert "python -m fuzz --seed 3 --batch" in printed
    assert "lower is above the value" in (tmp_path / "fuzz.md").read_text()


# ------------------------------------------------------------------ its parts


@pytest.mark.parametrize("kind", costs.KINDS)
def test_kernels_and_code_are_those_of_the_cost(kind):
    cost = drawn(kind)
    K = costs.kernel(cost)
    np.testing.assert_allclose(K.astype(float), cost.kernel().numpy(), rtol=1e-12, atol=1e-300)
    names = {"torch": torch, **vars(__import__("geosoftmax"))}
    again = eval(costs.code(cost), names)
    assert np.array_equal(costs.kernel(again), K)


@pytest.mark.filterwarnings("ignore::geosoftmax.ConvergenceWarning")
def test_a_program_shows_its_row_again():
    for batch in range(30):
        _, problem, _ = problems.draw(SEED, batch)
        if problem is None or problem.cost.size > 40:
            continue
        row = problem.rows - 1
        names = {}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("builtins.print", lambda *_: None)
            exec(problem.snippet(row), names)
        alone, _ = problems.answer(problem.take(slice(row, row + 1)))
        assert torch.equal(names["solution"].lower, alone.lower)


def test_a_run_that_was_stopped_goes_on(tmp_path, monkeypatch):
    monkeypatch.setenv("GEOSOFTMAX_COMMIT", "of this test")
    one, two = tmp_path / "one", tmp_path / "two"
    assert main(["--rows", "400", "--output", str(one)]) == 0
    assert main(["--rows", "900", "--output", str(one)]) == 0
    assert main(["--rows", "900", "--output", str(two)]) == 0
    in_parts, at_once = (json.loads(p.with_suffix(".json").read_text()) for p in (one, two))
    for figures in (in_parts, at_once):
        assert figures["rows"] >= 900
        del figures["seconds"], figures["origin"]
    assert in_parts == at_once
