"""Pixels: how long to a certified gap on drawings, against the paper's L-BFGS?"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks import rivals
from benchmarks.harness import Bench, Measurement, Problem, product_operations
from benchmarks.report import Report, Target, compare
from geosoftmax import GridCost, sinkhorn_potential

GAPS = (1e-3, 1e-4)


def run(bench: Bench) -> Report:
    report = Report("Drawings on a grid")
    for side, rows in _sizes(bench):
        cost = GridCost((side, side), p=2) / 2
        drawings, source = load_drawings(side, rows)
        slowest, ratio = 0.0, float("inf")
        for field, scores in _fields(drawings, cost).items():
            bench.say(f"  {side}×{side}, {field}")
            problem = Problem(cost, scores)
            few = problem.first(rows // 8)
            tries = [
                *(rivals.ours_solve(problem, torch.float32, gap) for gap in GAPS),
                rivals.ours_softmax(few),
                *bench.others(lambda p=problem, few=few: _rivals(bench, p, few)),
                *bench.optional("entmax", lambda p=problem: rivals.sparsemax(p)),
            ]
            measured = bench.measure(tries)
            slowest = max(slowest, measured[0].per_sample)
            if not bench.own:
                theirs = measured[3 if side == 28 else 5]
                ratio = min(ratio, theirs.per_sample / measured[0].per_sample)
            measured.append(_floor(bench, cost, measured[0]))
            note = f"Scores of {source}. Slow rivals get fewer samples, in one call."
            title = f"{side}×{side}, {field}"
            report.add(bench, compare(title, measured, unit="ms/sample", scale=1e3, note=note))
        where = f"grid {side}×{side}, worst of three fields"
        if side == 28:
            name = f"{where}: to a gap of {GAPS[0]:g}"
            report.targets.append(Target(name, slowest * 1e3, 1.0, unit="ms/sample"))
        if bench.own:
            continue
        # On larger grids it gives up after one step at its training settings, with no digit right.
        rival = (
            "at its training settings" if side == 28 else f"until a gap of {GAPS[0]:g}, or stuck,"
        )
        name = f"{where}: L-BFGS {rival} / ours"
        report.targets.append(Target(name, ratio, 50, at_most=False, unit="×"))
    return report


def _sizes(bench: Bench) -> tuple[tuple[int, int], ...]:
    """Return sides and numbers of drawings."""
    if bench.quick:
        return ((28, 8),)
    return ((28, 64), (64, 16)) if bench.own else ((28, 256), (64, 64))


def _rivals(bench: Bench, problem: Problem, few: Problem) -> list[rivals.Rival]:
    return [
        rivals.paper(few),
        rivals.paper_by_hand(few),
        rivals.paper_until(problem.first(4), GAPS[0], bench),
        rivals.torch_softmax(problem),
    ]


def _fields(drawings: Tensor, cost: GridCost) -> dict[str, Tensor]:
    """What a perfect, a good and a new network would output."""
    torch.manual_seed(0)
    potential = sinkhorn_potential(drawings, cost)
    return {
        "exact potential": potential,
        "potential + 0.5 noise": potential + 0.5 * torch.randn_like(potential),
        "0.1 noise": 0.1 * torch.randn_like(potential),
    }


def load_drawings(side: int, rows: int) -> tuple[Tensor, str]:
    """Distributions of ink: QuickDraw cats where they are, else scikit-learn's digits."""
    cats = Path(os.environ.get("GEOSOFTMAX_DATA", "")) / "quickdraw/numpy_bitmap/cat.npy"
    if cats.is_file():
        images, source = np.load(cats, mmap_mode="r")[:rows].reshape(-1, 28, 28), "QuickDraw cats"
    else:
        from sklearn.datasets import load_digits

        images, source = load_digits().images[:rows], "scikit-learn digits, upscaled"
    ink = torch.from_numpy(np.array(images, dtype=np.float64))
    if ink.shape[-1] != side:
        ink = torch.nn.functional.interpolate(ink[:, None], (side, side), mode="bilinear")[:, 0]
    return ink / ink.sum((1, 2), keepdim=True), source


def _floor(bench: Bench, cost: GridCost, ours: Measurement) -> Measurement:
    """The iterations that ours took: a product and a step, and a product for every tenth gap."""
    step = 1.1 * product_operations(cost) + 10 * cost.size
    operations = (ours.iterations or 0) * step
    return bench.floor("the iterations of the first row", operations, 0, torch.float32)
