"""Small dense costs: how fast is an exact solve, against everything that solves the same QP?"""

from __future__ import annotations

import torch

from benchmarks import rivals
from benchmarks.harness import Bench, Measurement, Problem
from benchmarks.report import Report, Target, compare
from geosoftmax import Cost, DenseCost, GridCost, LineCost, solve

ROWS = 2000
#: Batch × d² of the rivals whose time is proportional to it and would be too long.
LARGEST_WORK = 400_000
EQUAL_GAP = 1e-6


def run(bench: Bench) -> Report:
    report = Report("Small dense costs, exactly")
    sizes = (5, 9) if bench.quick else (3, 5, 9, 17, 32, 64)
    found: dict[tuple[str, int], list[Measurement]] = {}
    for d in sizes:
        for kind, cost in _costs(d).items():
            bench.say(f"  {kind}, d = {d}")
            torch.manual_seed(d)
            problem = Problem(cost, 2 * torch.randn(ROWS, d, dtype=torch.float64))
            measured = bench.measure(_rivals(bench, problem))
            measured.append(_floor(bench, problem))
            found[kind, d] = measured
            note = "Scores 2 · randn. Slow rivals get fewer samples, in one call."
            title = f"{kind}, d = {d}"
            report.add(bench, compare(title, measured, unit="µs/sample", scale=1e6, note=note))
    _nearly_singular(bench, report)
    for d, limit in ((5, 1.0), (9, 2.0)):
        worst = max(found[kind, d][0].per_sample for kind in _costs(d))
        report.targets.append(
            Target(f"dense, exact, d = {d}", worst * 1e6, limit, unit="µs/sample")
        )
    for d in () if bench.own else sizes:
        ratio = min(_ratio(found[kind, d]) for kind in _costs(d))
        name = f"dense, d = {d}: L-BFGS at its training settings / ours, float32"
        report.targets.append(Target(name, ratio, 300, at_most=False, unit="×"))
    return report


def _nearly_singular(bench: Bench, report: Report) -> None:
    """A plane whose outputs are all near: block pivoting does not end, one at a time does."""
    side = 7 if bench.quick else 11
    bench.say(f"  nearly singular, {side}×{side}")
    torch.manual_seed(side)
    scores = 0.1 * torch.randn(128, side, side, dtype=torch.float64)
    problem = Problem(GridCost((side, side), p=2) * 0.05, scores)
    measured = bench.measure([rivals.ours_solve(problem), rivals.ours_softmax(problem)])
    note = "Scores 0.1 · randn, C = 0.05 times the squared distance."
    title = f"nearly singular, {side}×{side}"
    report.add(bench, compare(title, measured, unit="µs/sample", scale=1e6, note=note))


def _costs(d: int) -> dict[str, Cost]:
    torch.manual_seed(d)
    points = torch.randn(d, 3, dtype=torch.float64)
    return {
        "ordinal": DenseCost((LineCost(d, p=2) / 2).matrix()),
        "random points": DenseCost.from_points(points, p=1),
    }


def _rivals(bench: Bench, problem: Problem) -> list[rivals.Rival]:
    d = problem.cost.size
    shorter = problem.first(min(ROWS, LARGEST_WORK // d**2))
    few = problem.first(20)
    return [
        rivals.ours_solve(problem),
        rivals.ours_solve(problem, torch.float32),
        rivals.ours_softmax(problem),
        rivals.ours_loss(problem),
        *bench.others(
            lambda: [
                rivals.paper(shorter),
                rivals.paper_by_hand(shorter),
                rivals.paper_until(few, EQUAL_GAP, bench),
                rivals.torch_softmax(problem),
            ]
        ),
        *bench.optional("scipy", lambda: rivals.nnls(problem)),
        *bench.optional("proxsuite", lambda: rivals.proxqp(problem.first(500))),
        *bench.optional("cvxpylayers", lambda: rivals.cvxpylayer(problem.first(200))),
        *bench.optional("entmax", lambda: rivals.sparsemax(problem)),
    ]


def _ratio(measured: list[Measurement]) -> float:
    """L-BFGS against ours, both in float32."""
    ours = next(m for m in measured if "solve (float32)" in m.name)
    paper = next(m for m in measured if "training settings" in m.name)
    return paper.per_sample / ours.per_sample


def _floor(bench: Bench, problem: Problem) -> Measurement:
    """One Cholesky solve on the support that is right, and one product to check it."""
    d = problem.cost.size
    s = (solve(problem.scores, problem.cost).u > 0).sum(-1).double()
    operations = float((s**3 / 3 + 2 * s**2 + 2 * d * s).mean())
    return bench.floor("one solve on the support, one product", operations, 2 * 8 * d)
