"""Importing: how much does geosoftmax add to the import of torch?"""

from __future__ import annotations

import statistics
import subprocess
import sys

from benchmarks.harness import Bench
from benchmarks.report import Report, Section, Target

TORCH, OURS, AFTER = "import torch", "import geosoftmax", "import geosoftmax after torch"
#: What is imported before the clock starts, and what is timed.
IMPORTS = {TORCH: ("", "torch"), OURS: ("", "geosoftmax"), AFTER: ("import torch", "geosoftmax")}


def run(bench: Bench) -> Report:
    rounds = 2 if bench.quick else 5 if bench.own else 11
    names = [AFTER] if bench.own else [*IMPORTS]
    times: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds + 1):
        for name in names:
            seconds = _import(*IMPORTS[name])
            if turn:  # the first round warms the disk
                times[name].append(seconds)
    median = {name: statistics.median(times[name]) for name in names}
    rows = [
        {
            "": name,
            "ms": median[name] * 1e3,
            "fastest": min(times[name]) * 1e3,
            "× torch": None if bench.own else median[name] / median[TORCH],
            "repeats": rounds,
        }
        for name in names
    ]
    report = Report("Importing")
    report.add(bench, Section("In fresh interpreters, interleaved", rows, seconds=median))
    if not bench.own:
        ratio = median[OURS] / median[TORCH]
        report.targets.append(Target("import geosoftmax / import torch", ratio, 1.1, unit="×"))
    return report


def _import(before: str, module: str) -> float:
    code = (
        f"import time; {before}\n"
        f"start = time.perf_counter(); import {module}; print(time.perf_counter() - start)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return float(done.stdout)
