"""Single calls: what do a small softmax, a loss and the very first call take, beside torch?"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.harness import Bench, Measurement, Rival
from benchmarks.report import Report, Section, Target, compare
from geosoftmax import Cost, LineCost, geometric_logistic_loss, geometric_softmax
from geosoftmax.nn import GeometricLogisticLoss

CLASSES = 5
COSTS: dict[str, Cost] = {"p = 2": LineCost(CLASSES, p=2) / 2, "p = 1": LineCost(CLASSES)}
BATCHES = (1, 64)
SOFTMAX_LIMIT, LOSS_LIMIT = 15.0, 2.5
#: Seconds of the first call, and the cost, as a script writes it.
FIRST_CALLS = {
    "line, p = 2": (10.0, "LineCost(5, p=2) / 2"),
    "line, p = 1": (5.0, "LineCost(5)"),
    "tree": (5.0, "TreeCost([-1, 0, 0, 1, 1])"),
    "grid 28×28": (5.0, "GridCost((28, 28), p=2) / 2"),
}
FIRST_CALL = """
import time, torch
from geosoftmax import GridCost, LineCost, TreeCost, geometric_softmax
cost = {cost}
scores = torch.randn(1, *cost.shape, generator=torch.Generator().manual_seed(0))
start = time.perf_counter()
geometric_softmax(scores, cost)
print(time.perf_counter() - start)
"""


def run(bench: Bench) -> Report:
    report = Report("Single calls, on one thread")
    with one_thread():
        _softmax(bench, report)
        for batch in BATCHES:
            _losses(bench, report, batch)
    _first_calls(bench, report)
    return report


@contextmanager
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _softmax(bench: Bench, report: Report) -> None:
    scores = _scores(1)
    calls = [
        _rival(
            f"ours: geometric_softmax, {name}", lambda cost=cost: geometric_softmax(scores, cost)
        )
        for name, cost in COSTS.items()
    ]
    calls += bench.others(lambda: [_rival("torch softmax", lambda: torch.softmax(scores, -1))])
    measured = bench.measure(calls)
    title = f"One row of {CLASSES} classes, float32, without gradients"
    report.add(bench, _table(title, measured))
    for name, found in zip(COSTS, measured, strict=False):
        target = f"one geometric_softmax, {CLASSES} classes, {name}"
        report.targets.append(Target(target, found.median * 1e6, SOFTMAX_LIMIT, unit="µs"))


def _losses(bench: Bench, report: Report, batch: int) -> None:
    """Functions and modules; each of ours is compared with the one of torch in its place."""
    theirs = {"function": F.cross_entropy, "module": torch.nn.CrossEntropyLoss()}
    ours = {
        ("function", name): lambda f, y, cost=cost: geometric_logistic_loss(f, y, cost)
        for name, cost in COSTS.items()
    } | {("module", name): GeometricLogisticLoss(cost) for name, cost in COSTS.items()}
    calls = [
        _rival(f"ours: {kind}, {name}", _step(loss, batch)) for (kind, name), loss in ours.items()
    ]
    calls += bench.others(
        lambda: [
            _rival(f"torch cross-entropy: {kind}", _step(loss, batch))
            for kind, loss in theirs.items()
        ]
    )
    measured = bench.measure(calls)
    title = f"Loss, forward + backward: batch {batch}, {CLASSES} classes, float32"
    report.add(bench, _table(title, measured))
    if bench.own:
        return
    reference = dict(zip(theirs, measured[len(ours) :], strict=True))
    for (kind, name), found in zip(ours, measured, strict=False):
        ratio = found.median / reference[kind].median
        target = f"loss, forward + backward, batch {batch}, {name}, {kind} / torch cross-entropy"
        report.targets.append(Target(target, ratio, LOSS_LIMIT, unit="×"))


def _first_calls(bench: Bench, report: Report) -> None:
    """Time the first call of a process that finds no compiled kernel."""
    rounds = 1 if bench.quick or bench.own else 3
    found: dict[str, list[float]] = {name: [] for name in FIRST_CALLS}
    for _ in range(rounds):
        for name, (_, cost) in FIRST_CALLS.items():
            found[name].append(_first_call(cost))
            bench.say(f"    first call, {name}: {found[name][-1]:.3g} s")
    median = {name: statistics.median(times) for name, times in found.items()}
    rows = [
        {"": name, "seconds": median[name], "fastest": min(times), "repeats": rounds}
        for name, times in found.items()
    ]
    note = "In a fresh process with an empty cache of compiled kernels; imports are not counted."
    report.add(bench, Section("The first geometric_softmax", rows, note, median))
    for name, (limit, _) in FIRST_CALLS.items():
        target = f"first geometric_softmax of a fresh installation, {name}"
        report.targets.append(Target(target, median[name], limit, unit="s"))


def _first_call(cost: str) -> float:
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            [sys.executable, "-c", FIRST_CALL.format(cost=cost)],
            env=os.environ | {"NUMBA_CACHE_DIR": cache},
            check=True,
            capture_output=True,
            text=True,
        )
    return float(done.stdout)


# ------------------------------------------------------------------ shared pieces


def _scores(batch: int) -> Tensor:
    return 2 * torch.randn(batch, CLASSES, generator=torch.Generator().manual_seed(0))


def _step(loss: Callable[[Tensor, Tensor], Tensor], batch: int) -> Callable[[], Tensor]:
    scores = _scores(batch).requires_grad_()
    target = torch.arange(batch) % CLASSES

    def step() -> Tensor:
        scores.grad = None
        loss(scores, target).backward()
        assert scores.grad is not None
        return scores.grad

    return step


def _rival(name: str, call: Callable[[], Tensor]) -> Rival:
    return Rival(name, call, samples=1, compiles=True)


def _table(title: str, measured: list[Measurement]) -> Section:
    """One call is one sample here; the first row is what the others are compared with."""
    return compare(title, measured, unit="µs/call", scale=1e6)
