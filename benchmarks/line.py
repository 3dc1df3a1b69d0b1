"""Classes on a line, p = 1: is the scan linear, and how many nanoseconds does a class take?"""

from __future__ import annotations

import numpy as np
import torch

from benchmarks import rivals
from benchmarks.harness import Bench, Measurement, Problem, Rival
from benchmarks.report import Report, Target, compare
from geosoftmax import LineCost

#: Scores in a batch, whatever the number of classes.
ENTRIES = 1_000_000
#: What the scan does with a class: hull test 9, weight 9, product 6, certificate 8, exponential 20.
OPERATIONS = 52
SLOW = ("L-BFGS", "scipy")


def run(bench: Bench) -> Report:
    report = Report("Classes on a line, p = 1")
    sizes = [10**k for k in (range(2, 5) if bench.quick else range(2, 7))]
    for kind in ("one row", "batches"):
        ours: list[Measurement] = []
        hopeless: set[str] = set()
        for d in sizes:
            rows = 1 if kind == "one row" else max(2, ENTRIES // d)  # rows are what threads share
            bench.say(f"  {kind}, d = {d}")
            torch.manual_seed(d)
            problem = Problem(LineCost(d), torch.randn(rows, d, dtype=torch.float64))
            measured = bench.measure([r for r in _rivals(bench, problem) if r.name not in hopeless])
            ours.append(measured[0])
            hopeless |= {
                m.name
                for m in measured
                if m.name.startswith(SLOW) and 10 * m.median > bench.patience
            }
            measured.append(bench.floor("the scan, on all cores", OPERATIONS * d, 2 * 8 * d))
            title = f"{kind}: {rows} × {d:,} classes"
            section = compare(title, measured, unit="ns/class", scale=1e9 / d)
            report.add(bench, section)
        times = [m.per_sample for m in ours]
        slope = float(np.polyfit(np.log(sizes), np.log(times), 1)[0])
        report.targets.append(
            Target(f"line, {kind}: slope, 100 … {sizes[-1]:,} classes", slope, 1.05)
        )
        by_class = [1e9 * t / d for t, d in zip(times, sizes, strict=True)]
        if kind == "one row":
            name, ns = f"line, one row of {sizes[-1]:,} classes", by_class[-1]
        else:
            name, ns = "line, batches: worst of all sizes", max(by_class)
        report.targets.append(Target(name, ns, 25, unit="ns/class"))
    return report


def _rivals(bench: Bench, problem: Problem) -> list[Rival]:
    """Everyone; the slow ones come last, for one row, as long as they finish."""
    one = problem.first(1)
    candidates = [
        rivals.ours_solve(problem),
        rivals.ours_softmax(problem),
        *bench.others(lambda: [rivals.torch_softmax(problem)]),
        *bench.optional("entmax", lambda: rivals.sparsemax(problem)),
        *bench.others(lambda: [rivals.paper(one)]),
    ]
    if one.cost.size <= 1000:  # beyond, its matrix alone is too large
        candidates += bench.optional("scipy", lambda: rivals.nnls(one))
    return candidates
