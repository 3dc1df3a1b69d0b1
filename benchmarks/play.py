"""The page to play with: how long does an answer take on this machine?"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.harness import Bench
from benchmarks.report import Report, Section, Target
from geosoftmax_experiments.play import fields, ordinal, simplex

#: Of the page and back included, an answer may take 200 ms; what is measured here is half of it.
MOST = 100.0

FIELD, SCORES = fields.MEANINGS
ANSWERS: dict[str, tuple[Callable[..., str], tuple[Any, ...]]] = {
    "field of a digit, exact": (
        fields.show_fields, (fields.digit(3), FIELD, 0.0, "squared distance", 1.0, 0)
    ),
    "field of a digit, noise": (
        fields.show_fields, (fields.digit(3), FIELD, 0.3, "squared distance", 1.0, 0)
    ),
    "scores of a digit": (
        fields.show_fields, (fields.digit(8), SCORES, 0.3, "squared distance", 0.5, 0)
    ),
    "ordered classes": (
        ordinal.show_ordinal, (json.dumps([0.5] * 10), 10, "squared distance", 0.5, 2)
    ),
    "three classes": (simplex.show_simplex, (2, -1.0, -1.5, "zero-one", 2)),
}  # fmt: skip


def run(bench: Bench) -> Report:
    repeats = 3 if bench.quick else 21
    rows = []
    for name, (show, values) in ANSWERS.items():
        seconds = []
        for turn in range(repeats + 1):
            start = time.perf_counter()
            page = show(*values)
            if turn:  # the first builds tables
                seconds.append(time.perf_counter() - start)
            assert "alert" not in page
        rows.append(
            {"": name, "ms": 1e3 * statistics.median(seconds), "slowest": 1e3 * max(seconds)}
        )
    report = Report("The page to play with")
    report.add(bench, Section("An answer, without the way to the page and back", rows))
    worst = max(row["ms"] for row in rows)
    report.targets.append(Target("geosoftmax play, slowest answer", worst, MOST, unit="ms"))
    return report
