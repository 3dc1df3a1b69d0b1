"""Trees and classes without geometry: how near is a class to the price of a softmax?"""

from __future__ import annotations

import torch

from benchmarks import rivals
from benchmarks.harness import Bench, Problem
from benchmarks.report import Report, compare
from geosoftmax import Cost, TreeCost, ZeroOneCost

#: Scores in a batch, whatever the number of classes.
ENTRIES = 200_000
#: A class: certificate 8, exponential 20; threshold, weight, product 8 (zero-one); one elimination
#: up and down, and one product, 30 (tree).
OPERATIONS = {"zero-one": 36, "tree": 58}


def run(bench: Bench) -> Report:
    report = Report("Trees and zero-one costs")
    for d in (10, 1000) if bench.quick else (10, 100, 1000, 10_000, 100_000):
        rows = max(1, ENTRIES // d)
        for kind, cost in (("zero-one", ZeroOneCost(d)), ("tree", _tree(d))):
            bench.say(f"  {kind}, {d} classes")
            torch.manual_seed(d)
            problem = Problem(cost, 2 * torch.randn(rows, d, dtype=torch.float64))
            measured = bench.measure(
                [
                    rivals.ours_solve(problem),
                    rivals.ours_softmax(problem),
                    rivals.ours_loss(problem),
                    *bench.others(lambda p=problem: [rivals.torch_softmax(p)]),
                    *bench.optional("entmax", lambda p=problem: rivals.sparsemax(p)),
                ]
            )
            measured.append(bench.floor("one round", OPERATIONS[kind] * d, 2 * 8 * d))
            title = f"{kind}: {rows} × {d:,} classes"
            report.add(bench, compare(title, measured, unit="ns/class", scale=1e9 / d))
    return report


def _tree(d: int) -> Cost:
    """A random recursive tree: each node hangs below one that came before it."""
    torch.manual_seed(d)
    earlier = (torch.rand(d - 1) * torch.arange(1, d)).long()
    parents = torch.cat([torch.tensor([-1]), earlier])
    return TreeCost(parents, 0.5 + torch.rand(d, dtype=torch.float64))
