"""Losses with unequal costs: CPU time of loss and gradient, beside torch's cross-entropy."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

from benchmarks.harness import Bench
from benchmarks.report import Report, Section
from geosoftmax_experiments.rivals import price
from geosoftmax_experiments.rivals.table import RIVALS

#: Times that all losses are measured; each is the median of many turns.
RUNS = 3
#: Samples of a step with a tree, and its groups: each has as many leaves.
TREE = (512, 10)


def run(bench: Bench) -> Report:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        report = Report("Losses: what a step takes, beside cross-entropy")
        labels = {name: rival.label for name, rival in RIVALS.items()}
        for samples, classes in price.SIZES:
            size = (8, 3) if bench.quick else (samples, classes)
            found = _runs(bench, lambda size=size: price.prices(*size))
            title = f"{samples} × {classes}"
            note = f"{size[0]} samples of {size[1]} classes on a line."
            rows = _rows({labels[name]: found[name] for name in labels})
            report.add(bench, Section(title, rows, f"{note} {_how(bench)}"))
        samples, groups = (8, 2) if bench.quick else TREE
        found = _runs(bench, lambda: price.tree_prices(samples, groups))
        del found["torch"]
        note = f"{samples} samples, {groups} groups of {groups} leaves. {_how(bench)}"
        report.add(bench, Section("The leaves of a tree", _rows(found), note))
    finally:
        torch.set_num_threads(threads)
    return report


def _runs(bench: Bench, measure: Callable[[], dict[str, float]]) -> dict[str, list[float]]:
    found = [measure() for _ in range(_count(bench))]
    return {name: [ratios[name] for ratios in found] for name in found[0]}


def _rows(found: dict[str, list[float]]) -> list[dict[str, object]]:
    return [
        {
            "": label,
            "÷ cross-entropy": f"{statistics.median(ratios):.1f}",
            "least": f"{min(ratios):.1f}",
            "most": f"{max(ratios):.1f}",
        }
        for label, ratios in found.items()
    ]


def _count(bench: Bench) -> int:
    return 1 if bench.quick else RUNS


def _how(bench: Bench) -> str:
    return (
        "CPU time of loss and gradient, divided by that of torch's `cross_entropy` in the same "
        f"turn; float32, one thread. The median of {_count(bench)} runs, the least and the most."
    )
