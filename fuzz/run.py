"""One batch: draw a problem, let the library solve it, and check the answer."""

from __future__ import annotations

import dataclasses
import traceback

import numpy as np

from fuzz import checks, problems
from fuzz.checks import Failure, Truth
from fuzz.problems import Problem
from geosoftmax import Solution

#: How often the other checks are made, which solve again.
OFTEN = 0.3


@dataclasses.dataclass
class Outcome:
    """What came of a batch. There is no problem where the library refused the cost."""

    seed: int
    batch: int
    kind: str = ""
    refused: bool = False
    problem: Problem | None = None
    solution: Solution | None = None
    known: Truth | None = None
    #: How many rows each check looked at.
    checked: dict[str, int] = dataclasses.field(default_factory=dict)
    failures: list[Failure] = dataclasses.field(default_factory=list)

    @property
    def examples(self) -> list[Failure]:
        """The first failure of each kind."""
        return list({failure.what: failure for failure in reversed(self.failures)}.values())

    def snippet(self, failure: Failure) -> str:
        """Return a program that shows a failure again."""
        if self.problem is None:
            return f"# python -m fuzz --seed {self.seed} --batch {self.batch}"
        return self.problem.snippet(failure.row)


def examine(seed: int, batch: int) -> Outcome:
    """Draw and check one batch. An exception of the library is a failure too."""
    outcome = Outcome(seed, batch)
    try:
        _examine(outcome)
    except Exception:
        outcome.failures.append(Failure(0, "an error", traceback.format_exc()))
    return outcome


def _examine(outcome: Outcome) -> None:
    drawn = problems.draw(outcome.seed, outcome.batch)
    outcome.kind, outcome.problem, outcome.refused = drawn
    if outcome.problem is None:
        return
    problem, failures = outcome.problem, outcome.failures
    outcome.solution, caught = problems.answer(problem)
    own = outcome.solution.u.double().reshape(problem.rows, -1).numpy()
    known = outcome.known = checks.truth(problem, [own])
    failures += checks.check_solution(problem, outcome.solution, known)
    failures += checks.check_report(outcome.solution, caught)
    outcome.checked["brackets, probabilities"] = problem.rows
    rng = np.random.default_rng([outcome.seed, outcome.batch, 1])
    if rng.random() < OFTEN:
        rows = rng.permutation(problem.rows)[: rng.integers(1, problem.rows + 1)]
        strided = rng.random() < 0.5
        failures += checks.check_layouts(problem, outcome.solution, known, rows, strided)
        outcome.checked["solved again, among fewer rows"] = len(rows)
    if rng.random() < OFTEN:
        failures += checks.check_functions(problem, known)
        outcome.checked["softmax and log-sum-exp by name"] = problem.rows
    if rng.random() < OFTEN:
        failures += checks.check_losses(rng, problem, known)
        outcome.checked["losses and their slopes"] = problem.rows
