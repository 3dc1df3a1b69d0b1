"""Off the grid: how fast do the Frank–Wolfe methods converge, and what does a solve take?"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.harness import Bench
from benchmarks.report import Report, Section, Target
from geosoftmax import ConvergenceWarning
from geosoftmax.continuous import Box, PowerCost, geometric_softmax

ROUNDS = {"sliding": 12, "corrective": 24, "pairwise": 200, "away": 200, "plain": 200}
SAMPLES = 4
BATCHES = (1, 8, 64)
SCALE = 60.0
#: Below this, errors are rounding.
ROUNDING = 1e-13


def run(bench: Bench) -> Report:
    report = Report("Off the grid")
    cost, domain = PowerCost(scale=SCALE), Box([0.0, 0.0], [1.0, 1.0])
    report.add(bench, _solves(bench, domain, cost))
    score = waves(SAMPLES)
    exact = geometric_softmax(score, domain, cost, tol=1e-12)[1]
    assert bool(exact.converged.all())
    rows, took = [], {}
    for method, most in ROUNDS.items():
        rounds = _rounds(bench, most)
        bench.say(f"  {method}")
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            solution = geometric_softmax(
                score, domain, cost, method=method, tol=1e-14, max_iter=rounds
            )[1]
        took[method] = time.perf_counter() - start
        error = (exact.lower - solution.history).clamp_min(0).mean(-1)
        rows.append(_row(method, error, took[method]))
    note = (
        f"Mean of {SAMPLES} random smooth scores on the unit square, C = {SCALE:g} |x - y|², up to "
        f"{exact.measure.weights.shape[-1]} points in a solution, whose bracket is at most "
        f"{float(exact.gap.max()):.0e} wide. 'Order': of the decrease, as t^-order, over the last "
        "three quarters of the rounds."
    )
    report.add(bench, Section("Error of the value after some rounds", rows, note, took))
    if not bench.quick:
        _promise(report, {row[""]: row for row in rows})
    return report


def _solves(bench: Bench, domain: Box, cost: PowerCost) -> Section:
    """A default solve of batches: samples that are done leave it."""
    rows, took = [], {}
    geometric_softmax(waves(1), domain, cost)  # warms up
    for count in (1, 4) if bench.quick else BATCHES:
        bench.say(f"  {count} samples")
        start = time.perf_counter()
        solution = geometric_softmax(waves(count), domain, cost)[1]
        seconds = time.perf_counter() - start
        assert bool(solution.converged.all())
        took[str(count)] = seconds
        rows.append(
            {
                "samples": count,
                "ms a sample": seconds / count * 1e3,
                "rounds": float(solution.iterations.double().mean()),
                "most rounds": int(solution.iterations.max()),
            }
        )
    note = f"Random smooth scores on the unit square, C = {SCALE:g} |x - y|², by default settings."
    return Section("Solves of a batch", rows, note, took)


def _rounds(bench: Bench, most: int) -> int:
    if bench.quick:
        return max(4, most // 20)
    return min(most, 50) if bench.own else most


def waves(rows: int) -> Callable[[Tensor], Tensor]:
    """Random smooth scores: sums of plane waves, one for each row."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    direction, phase, size = draw(rows, 6, 2), draw(rows, 1, 6), draw(rows, 1, 6)
    return lambda x: (2 * size * torch.sin(6 * x @ direction.mT + 6 * phase)).sum(-1)


def _row(method: str, error: Tensor, seconds: float) -> dict[str, Any]:
    """Errors at some rounds, and the order of the decrease over the last rounds."""
    history = [float(e) for e in error]
    reached = [t for t, e in enumerate(history) if e < 1e-9]
    last = len(history) - 1
    early = max(1, last // 4)
    order = None
    if history[last] > ROUNDING:
        order = -math.log(history[last] / history[early]) / math.log(last / early)
    return {
        "": method,
        "rounds": last,
        **{f"error at {t}": history[t] if t <= last else None for t in (1, 2, 4, 8, 16, 64)},
        "last error": history[-1],
        "rounds to 1e-9": reached[0] if reached else None,
        "order": order,
        "ms a round": seconds / max(1, last) * 1e3,
        "history": history,
    }


def _promise(report: Report, rows: dict[str, dict[str, Any]]) -> None:
    for method in ("sliding", "corrective"):
        needed = rows[method]["rounds to 1e-9"]
        name = f"off the grid, {method}: rounds to an error of 1e-9"
        report.targets.append(Target(name, needed or math.inf, ROUNDS[method]))


def draw(result: dict[str, Any], path: Path) -> None:
    """Draw the errors against rounds: 1/t is straight on the right, geometric rates on the left."""
    import matplotlib.pyplot as plt

    section = result["sections"][-1]
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for row in section["rows"]:
        error = [max(e, ROUNDING) for e in row["history"]]
        axes[0].semilogy(error[:25], ".-", label=row[""])
        axes[1].loglog(range(1, len(error)), error[1:], label=row[""])
        if row[""] == "plain":
            start = 10
            line = [error[start] * start / t for t in range(1, len(error))]
            axes[1].loglog(range(1, len(error)), line, ":", color="0.4", label="1/t")
    axes[0].set_xlabel("round")
    axes[1].set_xlabel("round, on a logarithmic axis")
    axes[0].set_ylabel("error of the value")
    axes[1].legend(frameon=False, fontsize=8)
    figure.suptitle("Frank–Wolfe methods off the grid")
    figure.savefig(path, dpi=110)
    plt.close(figure)
