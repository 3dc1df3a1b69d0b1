"""A problem: a cost, rows of scores, and how the library is asked to solve them."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fuzz import costs
from geosoftmax import ConvergenceWarning, Cost, Solution, solve
from geosoftmax.solvers import registry, running
from geosoftmax.solvers.base import MAX_ITER, Request

DTYPES = {
    torch.float64: 0.47,
    torch.float32: 0.43,
    torch.float16: 0.05,
    torch.bfloat16: 0.05,
}
#: Of the methods that are slow on hard problems, the most iterations.
FEW = {"lbfgs": 60, "accelerated": 1500, "splitting": 1500}
#: Entries of kernels in a batch: fewer rows where there are more outputs.
ENTRIES = 40_000
MOST_ROWS = 256


@dataclasses.dataclass(frozen=True)
class Problem:
    """Everything about one batch. Scores have the shape ``(rows, *cost.shape)``."""

    seed: int
    batch: int
    kind: str
    cost: Cost
    scores: Tensor
    #: The name of a solver of the registry, "method/backend", or "auto".
    solver: str
    tol: float | None
    max_iter: int | None
    init: Tensor | None
    #: What the scores and the start are like: for the figures.
    shape_of_scores: str
    start: str

    @property
    def rows(self) -> int:
        return self.scores.shape[0]

    @property
    def flat(self) -> np.ndarray:
        """The scores as an array ``(rows, outputs)`` of doubles, exactly."""
        return self.scores.double().reshape(self.rows, -1).numpy()

    def take(self, rows: Any) -> Problem:
        """Return some of the rows."""
        cost = self.cost
        if cost.batch_shape:
            cost = cost.with_parameter(cost.parameter[rows])
        init = None if self.init is None else self.init[rows]
        return dataclasses.replace(self, cost=cost, scores=self.scores[rows], init=init)

    def options(self) -> dict[str, Any]:
        found = {"tol": self.tol, "max_iter": self.max_iter, "init": self.init}
        return {name: value for name, value in found.items() if value is not None}

    def snippet(self, row: int) -> str:
        """Return a program that solves one row again."""
        alone = self.take(slice(row, row + 1))
        options = "".join(
            f", {name}={costs.literal(value) if isinstance(value, Tensor) else repr(value)}"
            for name, value in alone.options().items()
        )
        call = f"solve(scores, cost{options})"
        if self.solver != "auto":
            call = f"solve_by({self.solver!r}, scores, cost{options})"
        return "\n".join(
            [
                f"# batch {self.batch}: python -m fuzz --seed {self.seed} --batch {self.batch}",
                "import torch",
                "from math import inf, nan",
                "from geosoftmax import *",
                "from fuzz.problems import solve_by",
                f"cost = {costs.code(alone.cost)}",
                f"scores = {costs.literal(alone.scores)}",
                f"solution = {call}",
                "print(solution, solution.lower, solution.upper, solution.alpha)",
            ]
        )


def draw(seed: int, batch: int) -> tuple[str, Problem | None, bool]:
    """Return the kind, the problem (None if its cost was refused), and whether it was refused."""
    rng = np.random.default_rng([seed, batch])
    wanted = int(rng.integers(1, MOST_ROWS + 1))
    kind, cost, refused = costs.draw(rng, min(wanted, 64))
    if cost is None:
        return kind, None, True
    rows = max(1, min(wanted, ENTRIES // cost.size**2))
    if cost.batch_shape:
        rows = cost.batch_shape[0]
    dtype = list(DTYPES)[rng.choice(len(DTYPES), p=list(DTYPES.values()))]
    shape_of_scores, scores = draw_scores(rng, cost, rows, dtype)
    tol = None if rng.random() < 0.6 else costs.power_of_ten(rng, -12, -1)
    solver = draw_solver(rng, cost, dtype, tol)
    max_iter = None if rng.random() < 0.7 else int(rng.choice([1, 3, 30, 300]))
    most = FEW.get(solver.split("/")[0])
    if most is not None:
        max_iter = min(max_iter or most, most)
    start, init = draw_start(rng, cost, scores)
    problem = Problem(
        seed, batch, kind, cost, scores, solver, tol, max_iter, init, shape_of_scores, start
    )
    return kind, problem, refused


# ------------------------------------------------------------------ scores


def draw_scores(
    rng: np.random.Generator, cost: Cost, rows: int, dtype: torch.dtype
) -> tuple[str, Tensor]:
    """Return what they are like, and scores whose differences are from 1e-8 to 1e6."""
    shape = (rows, cost.size)
    spread = costs.power_of_ten(rng, *([-1, 1], [-8, 6])[rng.integers(2)])
    kind = str(rng.choice(["normal", "ties", "constant", "peaks", "potential", "cone", "slope"]))
    C = -2 * np.log(np.maximum(costs.kernel(cost), 1e-300).astype(np.float64))
    if kind == "normal":
        f = spread * rng.normal(size=shape)
    elif kind == "ties":
        f = spread * rng.integers(0, 3, shape).astype(float)
    elif kind == "constant":
        f = np.zeros(shape)
    elif kind == "peaks":
        f = -spread * (rng.random(shape) < 0.8)
    elif kind == "slope":
        f = np.linspace(0, spread, cost.size) * rng.choice([-1, 1], (rows, 1))
    elif kind == "cone":  # the potential of one output: every other is just about covered
        centre = rng.integers(0, cost.size, rows)
        f = -(C[centre] if C.ndim == 2 else C[np.arange(rows), centre])
    else:  # of several outputs, also with little noise
        u = np.where(rng.random(shape) < 0.4, rng.exponential(size=shape), 1e-300)
        product = u @ np.exp(-C / 2) if C.ndim == 2 else np.einsum("nij,nj->ni", np.exp(-C / 2), u)
        f = 2 * np.log(product) + (rng.random() < 0.5) * spread * 1e-3 * rng.normal(size=shape)
    if rng.random() < 0.3:
        f = f + rng.choice([-1, 1]) * costs.power_of_ten(rng, 0, 6)
    if dtype == torch.float16:
        f = np.clip(f, -2e4, 2e4)  # so that losses do not overflow
    if rng.random() < 0.25:
        kind += ", masked"
        hidden = rng.random(shape) < rng.random()
        hidden[np.arange(rows), rng.integers(0, cost.size, rows)] = False
        f = np.where(hidden, -np.inf, f)
    return kind, torch.from_numpy(f).to(dtype).reshape(rows, *cost.shape)


def draw_start(rng: np.random.Generator, cost: Cost, scores: Tensor) -> tuple[str, Tensor | None]:
    """Return what it is like, and a warm start, or None."""
    if rng.random() < 0.65:
        return "none", None
    kind = str(
        rng.choice(["own", "other row", "far away", "zeros", "ones", "tiny", "huge", "wild"])
    )
    if kind in ("own", "other row", "far away"):
        others = {"own": scores, "other row": scores.flip(0), "far away": -scores * 100}[kind]
        others = torch.where(torch.isfinite(others), others, scores)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = solve(others, cost, max_iter=100).u
        return kind, found if rng.random() < 0.5 else found.float()
    shape = tuple(scores.shape)
    if kind == "wild":
        values = 10 ** rng.uniform(-150, 150, shape) * (rng.random(shape) < 0.5)
    else:
        value = {"zeros": 0.0, "ones": 1.0, "tiny": 1e-300, "huge": 1e300}[kind]
        values = np.full(shape, value)
    return kind, torch.from_numpy(values)


# ------------------------------------------------------------------ solvers


def draw_solver(rng: np.random.Generator, cost: Cost, dtype: torch.dtype, tol: float | None) -> str:
    if rng.random() < 0.5:
        return "auto"
    accepted = [
        f"{solver.method}/{solver.backend}"
        for solver in registry.SOLVERS
        if "distribution" in solver.purposes
        and solver.accepts(cost, _request(solver.method, cost, dtype, tol)) is None
    ]
    return str(rng.choice(accepted))


def _request(method: str, cost: Cost, dtype: torch.dtype, tol: float | None) -> Request:
    computed = dtype if dtype == torch.float64 else torch.float32
    if tol is None:
        tol = registry.default_tolerance(dtype, "distribution")
    return Request("distribution", cost.device, computed, tol, method)


def solve_by(
    name: str,
    scores: Tensor,
    cost: Cost,
    *,
    tol: float | None = None,
    max_iter: int | None = None,
    init: Tensor | None = None,
) -> Solution:
    """As `solve`, by one solver of the registry: its method on its backend."""
    method, backend = name.split("/")
    solver = next(s for s in registry.SOLVERS if (s.method, s.backend) == (method, backend))
    request = _request(method, cost, scores.dtype, tol)
    plan = solver.prepare(cost, request)
    with torch.no_grad():
        f = scores.to(request.dtype)
        alpha, *rest = running.solve(plan, f, init, max_iter or MAX_ITER)
    return Solution(alpha.to(scores.dtype), *rest, tol=request.tol, method=method)


def answer(problem: Problem) -> tuple[Solution, list[warnings.WarningMessage]]:
    """Return what the library answers, and what it warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if problem.solver == "auto":
            solution = solve(problem.scores, problem.cost, **problem.options())
        else:
            solution = solve_by(problem.solver, problem.scores, problem.cost, **problem.options())
    return solution, caught


def eps(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps
