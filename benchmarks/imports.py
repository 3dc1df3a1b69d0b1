"""Importing: how much does geosoftmax add to the import of torch?"""

from __future__ import annotations

import statistics
import subprocess
import sys

from benchmarks.harness import Bench
from benchmarks.report import Report, Section, Target

MODULES = ("torch", "geosoftmax")


def run(bench: Bench) -> Report:
    rounds = 2 if bench.quick else 11
    times: dict[str, list[float]] = {module: [] for module in MODULES}
    for turn in range(rounds + 1):
        for module in MODULES:
            seconds = _import(module)
            if turn:  # the first round warms the disk
                times[module].append(seconds)
    median = {module: statistics.median(times[module]) for module in MODULES}
    rows = [
        {
            "": f"import {module}",
            "ms": median[module] * 1e3,
            "fastest": min(times[module]) * 1e3,
            "× torch": median[module] / median["torch"],
            "repeats": rounds,
        }
        for module in MODULES
    ]
    report = Report("Importing")
    report.add(bench, Section("In fresh interpreters, interleaved", rows))
    ratio = median["geosoftmax"] / median["torch"]
    report.targets.append(Target("import geosoftmax / import torch", ratio, 1.1, unit="×"))
    return report


def _import(module: str) -> float:
    code = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return float(done.stdout)
