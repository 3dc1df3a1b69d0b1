"""GPU: what do a solve, a prediction, Sinkhorn and a tree cost on the device?"""

from __future__ import annotations

import functools
import itertools
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.grid import _fields, load_drawings
from benchmarks.harness import Bench, Problem
from benchmarks.report import Report, Section, Target
from geosoftmax import (
    Cost,
    DenseCost,
    GridCost,
    TreeCost,
    geometric_logistic_loss,
    geometric_softmax,
    potential_logistic_loss,
    sinkhorn_negentropy,
    sinkhorn_potential,
    solve,
)

GAP = 1e-3
BATCH = 512
#: Input sets that take turns, so that no run finds its own in the cache.
SETS = 4
#: How the kernel of grids works, for the floor: the first steps, the steps between two looks at the
#: gap, and those between two times that ``x`` is made afresh.
FIRST_STEPS, CHECK_EVERY, REFRESH_EVERY = 20, 5, 40
#: Dense bf16/fp16 tensor-core rate of the data sheet, for the floor.
HALF_RATE = 990e12


def run(bench: Bench) -> Report:
    need_cuda()
    report = Report("On a GPU")
    _solves(bench, report)
    _sizes(bench, report)
    _others(bench, report)
    _predictions(bench, report)
    _sinkhorn(bench, report)
    _trees(bench, report)
    return report


def need_cuda() -> None:
    if not torch.cuda.is_available():
        raise SystemExit("this question needs a CUDA device")


# ------------------------------------------------------------------ solves


def _solves(bench: Bench, report: Report) -> None:
    limits = {28: 0.15, 64: 0.6}
    for side, limit in limits.items():
        cost = (GridCost((side, side), p=2) / 2).to("cuda")
        drawings, source = load_drawings(side, BATCH)
        rows = []
        for field, scores in _fields(drawings.cuda(), cost).items():
            sets = [scores.float().roll(k, 0).contiguous() for k in range(SETS)]
            solution = solve(sets[0], cost, tol=GAP)
            gap = _true_gap(cost, sets[0], solution.u)
            milliseconds = device_time(functools.partial(solve, cost=cost, tol=GAP), sets)
            steps = float(solution.iterations.double().mean())
            rows.append(
                {
                    "": field,
                    "ms": milliseconds,
                    "softmax, ms": _softmax_time(bench, sets),
                    "floor, ms": floor(side, side, BATCH, steps),
                    "iterations": steps,
                    "most": int(solution.iterations.max()),
                    "worst gap, in float64": gap,
                }
            )
        note = f"Batch {BATCH}, gap {GAP:g}, scores of {source}."
        report.add(bench, Section(f"{side}×{side}, forward", rows, note, _seconds(rows)))
        worst = max(row["ms"] for row in rows)
        name = f"GPU, {side}×{side}, batch {BATCH}, worst of three fields"
        report.targets.append(Target(name, worst, limit, unit="ms"))
        assert all(row["worst gap, in float64"] <= GAP for row in rows)


def _sizes(bench: Bench, report: Report) -> None:
    rows = []
    shapes = [(n, n, BATCH) for n in (4, 16, 28, 64, 128)]
    shapes += [(28, 28, 1), (28, 28, 32), (28, 28, 2048), (31, 17, BATCH)]
    for h, w, batch in shapes:
        cost = (GridCost((h, w), p=2) / 2).to("cuda")
        torch.manual_seed(h)
        sets = [torch.randn(batch, h, w, device="cuda") for _ in range(SETS)]
        solution = solve(sets[0], cost, tol=GAP)
        rows.append(
            {
                "": f"{h}×{w}",
                "batch": batch,
                "ms": device_time(functools.partial(solve, cost=cost, tol=GAP), sets),
                "softmax, ms": _softmax_time(bench, sets),
                "floor, ms": floor(h, w, batch, float(solution.iterations.double().mean())),
                "iterations": float(solution.iterations.double().mean()),
                "worst gap, in float64": _true_gap(cost, sets[0], solution.u),
            }
        )
    seconds = {f"{row['']}, batch {row['batch']}": row["ms"] / 1e3 for row in rows}
    report.add(bench, Section("Sizes and batches, scores randn", rows, seconds=seconds))


def _others(bench: Bench, report: Report) -> None:
    """What else a step or a measurement calls."""
    rows = []
    for side in (28, 64):
        cost = (GridCost((side, side), p=2) / 2).to("cuda")
        target = load_drawings(side, BATCH)[0].cuda().float()
        for call in (geometric_logistic_loss, potential_logistic_loss):
            slope = _slope_of(functools.partial(call, target=target, cost=cost))
            scores = torch.randn_like(target)
            rows.append(_row(f"{side}×{side}, {call.__name__} and gradient, randn", slope, scores))
    cost, target = dense_cost().to("cuda"), torch.arange(256, device="cuda")
    slope = _slope_of(functools.partial(geometric_logistic_loss, target=target, cost=cost))
    scores = torch.randn(256, 1000, device="cuda")
    name = "dense, 1,000 classes, geometric_logistic_loss and gradient, randn"
    rows.append(_row(name, slope, scores))
    for p in (1, 2):
        cost = (GridCost((16, 16, 16), p=p) / 2).to("cuda")
        call = functools.partial(solve, cost=cost, tol=GAP)
        scores = torch.randn(64, 16, 16, 16, device="cuda")
        rows.append(_row(f"16×16×16, p = {p}, scale ½, solve to {GAP:g}, randn", call, scores))
    report.add(bench, Section("Other calls", rows, seconds=_seconds(rows)))


def _predictions(bench: Bench, report: Report) -> None:
    """Distributions with all their digits, at the default tolerance."""
    limits = {28: (0.5, 1.5), 64: (3.0, 12.0), 128: (15.0, 15.0)}
    rows = []
    for p, (side, (noisy, exact)) in itertools.product((1, 2), limits.items()):
        cost = (GridCost((side, side), p=p) / 2).to("cuda")
        drawings = load_drawings(side, BATCH)[0].cuda()
        for field, scores in _fields(drawings, cost).items():
            name = f"{side}×{side}, p = {p}, scale ½, geometric_softmax, {field}"
            row = _row(name, functools.partial(geometric_softmax, cost=cost), scores.float())
            rows.append(row)
            limit = exact if field.startswith("exact") else noisy
            report.targets.append(Target(f"GPU, {name}", row["ms"], limit, unit="ms"))
    for size in (128, 512, 1000):
        name = f"dense, {size:,} classes, geometric_softmax, randn"
        call = functools.partial(geometric_softmax, cost=dense_cost(size).to("cuda"))
        row = _row(name, call, torch.randn(256, size, device="cuda"))
        rows.append(row)
        report.targets.append(Target(f"GPU, {name}", row["ms"], 15.0, unit="ms"))
    report.add(bench, Section("Predictions", rows, seconds=_seconds(rows)))


def _sinkhorn(bench: Bench, report: Report) -> None:
    """Potentials and values, as a user waits for them, beside those in float64."""
    limits = {28: 0.1, 64: 0.4}
    rows = []
    for p, (side, limit) in itertools.product((1, 2), limits.items()):
        cost = (GridCost((side, side), p=p) / 2).to("cuda")
        drawings = load_drawings(side, BATCH)[0].cuda().float()
        for call in (sinkhorn_potential, sinkhorn_negentropy):
            name = f"{side}×{side}, p = {p}, scale ½, {call.__name__}"
            found = call(drawings, cost).double()
            precise = call(drawings.double(), cost)
            error = float(((found - precise).abs() / precise.abs().clamp_min(1e-3)).max())
            took = wall_time(functools.partial(call, drawings, cost))
            rows.append({"": name, "batch": BATCH, "ms": took, "relative error": error})
            report.targets.append(Target(f"GPU, {name}", took, limit, unit="ms"))
    report.add(bench, Section("Sinkhorn, drawings", rows, seconds=_seconds(rows)))


def _trees(bench: Bench, report: Report) -> None:
    """Losses of class indices, with gradient, as a user waits for them."""
    rows = []
    batch = 256
    target = torch.arange(batch, device="cuda")
    for name, cost in TREES.items():
        tree, size = cost().to("cuda"), cost().size
        for scale in (0.3, 3.0):
            scores = scale * torch.randn(batch, size, device="cuda")
            slope = _slope_of(functools.partial(geometric_logistic_loss, target=target, cost=tree))
            took = wall_time(functools.partial(slope, scores))
            torch.cuda.synchronize()
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            slope(scores)
            memory = (torch.cuda.max_memory_allocated() - before) / (4 * scores.numel())
            solution = solve(scores, tree)
            row = {
                "": f"{name}, scores {scale:g} · randn",
                "batch": batch,
                "ms": took,
                "rounds": float(solution.iterations.double().mean()),
                "in the support": float((solution.alpha > 0).sum(-1).double().mean()),
                "memory ÷ scores": memory,
            }
            rows.append(row)
            if size == 1000:
                target_name = f"GPU, loss of a {row['']}, batch {batch}"
                report.targets.append(Target(target_name, took, 0.5, unit="ms"))
    report.add(bench, Section("Trees", rows, seconds=_seconds(rows)))


def _row(name: str, call: Callable[[Tensor], Any], scores: Tensor) -> dict[str, Any]:
    sets = [scores.roll(k, 0).contiguous() for k in range(SETS)]
    return {"": name, "batch": len(scores), "ms": device_time(call, sets)}


def _seconds(rows: list[dict[str, Any]]) -> dict[str, float]:
    return {row[""]: row["ms"] / 1e3 for row in rows}


def _softmax_time(bench: Bench, sets: list[Tensor]) -> float | None:
    if bench.own:
        return None
    return device_time(lambda x: torch.softmax(x.flatten(1), 1), sets)


def _slope_of(loss: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def slope(scores: Tensor) -> Tensor:
        scores = scores.detach().requires_grad_()
        return torch.autograd.grad(loss(scores), scores)[0]

    return slope


def _true_gap(cost: Cost, scores: Tensor, u: Tensor) -> float:
    return float(Problem(cost, scores.double()).gaps(u).max())


def floor(height: int, width: int, batch: int, steps: float) -> float:
    """Milliseconds of the multiplications alone, as the kernel does them.

    In pairs of products: two for a step, to begin with and for the other penalty, one for a look;
    three times as much, for precision, where ``x`` is made afresh and for the certificate.
    """
    looks = 1 + max(steps - FIRST_STEPS, 0.0) / CHECK_EVERY
    afresh = max((steps - FIRST_STEPS / 2) / REFRESH_EVERY, 1.0)
    pairs = 2 * (steps + 2) + looks + 3 * (2 * afresh + 1)
    operations = pairs * 2 * height * width * (height + width)
    return batch * operations / HALF_RATE * 1e3


def draw(result: dict[str, Any], path: Path) -> None:
    """Time against size and against batch, with softmax and floor as lines."""
    import matplotlib.pyplot as plt

    rows = next(s["rows"] for s in result["sections"] if s["title"].startswith("Sizes"))
    for row in rows:
        row["sides"] = [int(n) for n in row[""].split("×")]
    square = sorted(
        (r for r in rows if r["batch"] == BATCH and r["sides"][0] == r["sides"][1]),
        key=lambda r: r["sides"],
    )
    batches = sorted((r for r in rows if r["sides"] == [28, 28]), key=lambda r: r["batch"])
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for ax, chosen, x, label in (
        (axes[0], square, [r["sides"][0] for r in square], f"side of the grid (batch {BATCH})"),
        (axes[1], batches, [r["batch"] for r in batches], "batch (28×28)"),
    ):
        ax.loglog(x, [r["ms"] for r in chosen], "o-", color="C3", label="geometric softmax")
        ax.loglog(x, [r["softmax, ms"] for r in chosen], "s--", color="C0", label="torch softmax")
        ax.loglog(
            x,
            [r["floor, ms"] for r in chosen],
            ":",
            color="0.4",
            label="floor: its multiplications",
        )
        ax.set_xticks(x, [str(n) for n in x])
        ax.minorticks_off()
        ax.set_xlabel(label)
    axes[0].set_ylabel("milliseconds")
    axes[0].legend(frameon=False)
    figure.suptitle(f"A solve to a gap of {GAP:g} on {result['environment']['gpu']}")
    figure.savefig(path, dpi=130)
    plt.close(figure)


# ------------------------------------------------------------------ costs


def dense_cost(size: int = 1000) -> Cost:
    """Points in 16 dimensions."""
    torch.manual_seed(1)
    return DenseCost.from_points(torch.randn(size, 16).double(), p=1)


def _tree() -> Cost:
    """Thousand leaves, four to a branch."""
    parents = [-1] + [(i - 1) // 4 for i in range(1, 1333)]
    cost = TreeCost(parents, 0.5, outputs="leaves")
    assert cost.size == 1000, cost
    return cost


def _large_tree(leaves: int, levels: int) -> Cost:
    """Each level is wider than the one above by the same factor; parents are drawn at random."""
    generator = random.Random(0)
    parents, above = [-1], [0]
    for level in range(1, levels):
        width = max(len(above), round(leaves ** (level / (levels - 1))))
        drawn = above + generator.choices(above, k=width - len(above))
        first = len(parents)
        parents += sorted(drawn)
        above = list(range(first, first + width))
    return TreeCost(parents, outputs="leaves")


#: By name; those of the size of iNaturalist and of ImageNet-21k among them.
TREES: dict[str, Callable[[], Cost]] = {
    "tree of 1,000 classes": _tree,
    "tree of 10,000 classes in 7 levels": lambda: _large_tree(10_000, 7),
    "tree of 21,841 classes in 9 levels": lambda: _large_tree(21_841, 9),
    "tree of 100,000 classes in 10 levels": lambda: _large_tree(100_000, 10),
}


# ------------------------------------------------------------------ clocks


def device_time(call: Callable[[Tensor], Any], sets: list[Tensor], repeats: int = 30) -> float:
    """Milliseconds on the device, the median of calls on inputs that take turns."""
    for x in sets:
        call(x)
    torch.cuda.synchronize()
    # Work ahead of the clock, so that the host is always in front and its own time is not seen.
    ahead = torch.empty(1 << 31, dtype=torch.uint8, device="cuda")
    events = []
    for _, x in zip(range(repeats), itertools.cycle(sets), strict=False):
        ahead.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call(x)
        end.record()
        events.append((start, end))
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in events)


def wall_time(step: Callable[[], None], seconds: float = 0.25) -> float:
    """Milliseconds of a step as a user waits for it."""
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    step()
    torch.cuda.synchronize()
    steps = max(5, int(seconds / (time.perf_counter() - start)))
    start = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / steps * 1e3
