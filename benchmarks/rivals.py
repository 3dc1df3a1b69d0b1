"""The ways to solve (QP), ``min ½ uᵀKu - bᵀu`` over ``u ≥ 0``: ours, and everybody else's."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.harness import Bench, Problem, Rival
from geosoftmax import (
    ConvergenceWarning,
    Solution,
    geometric_logistic_loss,
    geometric_softmax,
    solve,
)

#: The authors' settings in training: 50 iterations, tolerance 1e-4, float32.
TRAINING: dict[str, Any] = {"max_iter": 50, "tol": 1e-4}

# ------------------------------------------------------------------ ours


def ours_solve(
    problem: Problem, dtype: torch.dtype = torch.float64, tol: float | None = None
) -> Rival:
    scores = problem.scores.to(dtype)
    asked = "" if tol is None else f", gap {tol:g}"
    return Rival(
        name=f"ours: solve{asked} ({_name(dtype)})",
        call=lambda: solve(scores, problem.cost, tol=tol),
        samples=problem.rows,
        gaps=lambda solution: problem.gaps(solution.u),
        iterations=_iterations,
        compiles=True,
    )


def ours_softmax(problem: Problem, dtype: torch.dtype = torch.float32) -> Rival:
    scores = problem.scores.to(dtype)
    return Rival(
        name=f"ours: geometric_softmax ({_name(dtype)})",
        call=lambda: geometric_softmax(scores, problem.cost),
        samples=problem.rows,
        gaps=lambda alpha: problem.gaps(alpha / problem.b),
        compiles=True,
    )


def ours_loss(problem: Problem, dtype: torch.dtype = torch.float32) -> Rival:
    scores = problem.scores.to(dtype).requires_grad_()
    target = torch.arange(problem.rows) % problem.cost.size

    def call() -> Tensor:
        loss = geometric_logistic_loss(scores, target, problem.cost)
        return torch.autograd.grad(loss, scores)[0]

    return Rival(
        name=f"ours: loss, forward + backward ({_name(dtype)})",
        call=call,
        samples=problem.rows,
        compiles=True,
    )


# ------------------------------------------------------------------ the paper's method


class Answer(NamedTuple):
    """What an iterative rival returns: ``u``, and the iterations of each row."""

    u: Tensor
    iterations: Tensor


def paper(problem: Problem) -> Rival:
    """L-BFGS on log-probabilities at the authors' training settings, differentiated by autograd.

    As the authors run it; `paper_by_hand` is kinder to it.
    """
    scores, cost = problem.scores.float(), problem.cost
    dims = tuple(range(1, scores.dim()))
    half = scores / 2

    def normalised(logits: Tensor) -> Tensor:
        return logits - torch.logsumexp(logits, dims, keepdim=True)

    def call() -> Answer:
        logits = torch.nn.Parameter(normalised(scores))
        optimizer = torch.optim.LBFGS(
            [logits],
            max_iter=TRAINING["max_iter"],
            tolerance_grad=0,
            tolerance_change=TRAINING["tol"],
            line_search_fn="strong_wolfe",
        )

        def closure() -> Tensor:
            optimizer.zero_grad()
            log_u = normalised(logits) - half
            value = torch.logsumexp(log_u + cost.log_matvec(log_u), dims).sum()
            value.backward()
            return value

        optimizer.step(closure)
        u = torch.exp((normalised(logits) - half).detach())
        count = torch.full((len(u),), optimizer.state[logits]["n_iter"])
        return Answer(u, count)

    return Rival(
        name="L-BFGS, training settings (float32)",
        call=call,
        samples=problem.rows,
        gaps=lambda answer: problem.gaps(answer.u),
        iterations=_iterations,
    )


def paper_by_hand(problem: Problem) -> Rival:
    """The same with its gradient written out: ``solve(..., method="lbfgs")``."""
    name = "L-BFGS, its gradient by hand (float32)"
    return _lbfgs(problem, name, torch.float32, **TRAINING)


def paper_until(problem: Problem, gap: float, bench: Bench) -> Rival:
    """The same in float64, with ever more iterations until the gap, or our patience, is met."""
    name, limit = f"L-BFGS until gap {gap:g} (float64)", TRAINING["max_iter"]
    while True:
        rival = _lbfgs(problem, name, torch.float64, limit, 1e-15)
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            solution = rival.call()
        seconds = time.perf_counter() - start
        if bool((problem.gaps(solution.u) <= gap).all()):
            return rival
        done = int(solution.iterations.max())
        if (
            2 * done < limit or 4 * seconds > bench.patience
        ):  # it stopped by itself, or takes too long
            return replace(rival, note=f"not reached in {done} iterations")
        limit *= 4


def _lbfgs(problem: Problem, name: str, dtype: torch.dtype, max_iter: int, tol: float) -> Rival:
    scores = problem.scores.to(dtype)
    return Rival(
        name=name,
        call=lambda: solve(scores, problem.cost, method="lbfgs", tol=tol, max_iter=max_iter),
        samples=problem.rows,
        gaps=lambda solution: problem.gaps(solution.u),
        iterations=_iterations,
    )


# ------------------------------------------------------------------ quadratic programming


def nnls(problem: Problem) -> Rival:
    """``min |Lᵀu - L⁻¹b|`` over ``u ≥ 0``, with ``K = LLᵀ``, row by row."""
    from scipy.linalg import solve_triangular
    from scipy.optimize import nnls as solve_row

    b = problem.b.numpy()
    L = np.linalg.cholesky(_kernel(problem))

    def call() -> np.ndarray:
        sides = solve_triangular(L, b.T, lower=True).T
        return np.stack([solve_row(L.T, side)[0] for side in sides])

    return _row_by_row("scipy nnls, row by row", problem, call)


def proxqp(problem: Problem, accuracy: float = 1e-9) -> Rival:
    """One QP object, updated and solved row by row; its duality gap is checked too."""
    from proxsuite import proxqp as library

    d = problem.cost.size
    K, b = _kernel(problem), problem.b.numpy()

    def call() -> np.ndarray:
        qp = library.dense.QP(d, 0, 0, True)
        qp.settings.initial_guess = library.InitialGuess.NO_INITIAL_GUESS
        qp.settings.check_duality_gap = True
        qp.settings.eps_abs = qp.settings.eps_duality_gap_abs = accuracy
        qp.settings.eps_rel = qp.settings.eps_duality_gap_rel = 0.0
        qp.init(H=K, g=-b[0], l_box=np.zeros(d), u_box=np.full(d, 1e20))
        u = np.empty_like(b)
        for row, side in enumerate(b):
            qp.update(g=-side)
            qp.solve()
            u[row] = qp.results.x
        return u

    return _row_by_row("ProxQP, row by row", problem, call)


def cvxpylayer(problem: Problem, accuracy: float = 1e-10) -> Rival:
    """One differentiable layer over the batch."""
    import cvxpy
    from cvxpylayers.torch import CvxpyLayer

    d = problem.cost.size
    L, b = np.linalg.cholesky(_kernel(problem)), problem.b
    variable, side = cvxpy.Variable(d), cvxpy.Parameter(d)
    objective = cvxpy.Minimize(cvxpy.sum_squares(L.T @ variable) / 2 - side @ variable)
    layer = CvxpyLayer(cvxpy.Problem(objective, [variable >= 0]), [side], [variable])
    return Rival(
        name="cvxpylayers",
        call=lambda: layer(b, solver_args={"eps": accuracy})[0],
        samples=problem.rows,
        gaps=problem.gaps,
    )


# ------------------------------------------------------------------ without geometry


def torch_softmax(problem: Problem, dtype: torch.dtype = torch.float32) -> Rival:
    flat = problem.scores.flatten(1).to(dtype)
    name = f"torch softmax ({_name(dtype)})"
    return Rival(name, lambda: torch.softmax(flat, -1), problem.rows)


def sparsemax(problem: Problem, dtype: torch.dtype = torch.float32) -> Rival:
    from entmax import sparsemax as function

    flat = problem.scores.flatten(1).to(dtype)
    return Rival(f"entmax sparsemax ({_name(dtype)})", lambda: function(flat, -1), problem.rows)


# ------------------------------------------------------------------ shared pieces


def _row_by_row(name: str, problem: Problem, call: Callable[[], np.ndarray]) -> Rival:
    return Rival(
        name=name,
        call=call,
        samples=problem.rows,
        gaps=lambda u: problem.gaps(torch.from_numpy(u)),
        note="one core",
    )


def _kernel(problem: Problem) -> np.ndarray:
    return torch.exp(-problem.cost.matrix().double() / 2).numpy()


def _iterations(answer: Solution | Answer) -> Tensor:
    return answer.iterations


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
