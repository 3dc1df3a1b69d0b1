"""Writing: what a question found, as JSON and Markdown, with the machine and the commit."""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import importlib.util
import json
import os
import platform
import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness import Bench, Measurement, Rates

ROOT = Path(__file__).resolve().parent.parent
#: What a later run, which was stopped, measured again of a result: by its title and date.
LATER = {
    ("On a GPU", "2026-11-16"): (
        "Solves, predictions, Sinkhorn and trees were measured on a GPU again on 2026-11-18, and "
        "[these newer figures](gpu_solves.md) hold. Predictions are several times faster there, "
        "and reach all their targets. Of the two trees with a target, the other one misses it. "
        "The 28×28 negentropies are slower, and still reach their target."
    )
}
VERSIONS = (
    "torch",
    "triton",
    "numba",
    "numpy",
    "scipy",
    "scikit-learn",
    "mord",
    "entmax",
    "POT",
    "proxsuite",
    "cvxpylayers",
)


@dataclasses.dataclass(frozen=True)
class Section:
    """One table, and the seconds of those of its rows that `benchmarks.beside` compares."""

    title: str
    rows: list[dict[str, Any]]
    note: str = ""
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    cpu_seconds: dict[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Target:
    """A promise, and what came of it."""

    name: str
    measured: float
    limit: float
    at_most: bool = True
    unit: str = ""

    @property
    def reached(self) -> bool:
        return self.measured <= self.limit if self.at_most else self.measured >= self.limit

    def row(self) -> dict[str, Any]:
        sign = "≤" if self.at_most else "≥"
        return {
            "": self.name,
            "target": f"{sign} {self.limit:g} {self.unit}".strip(),
            "measured": f"{number(self.measured)} {self.unit}".strip(),
            "reached": "yes" if self.reached else "no",
        }


@dataclasses.dataclass
class Report:
    """What a question found."""

    title: str
    sections: list[Section] = dataclasses.field(default_factory=list)
    targets: list[Target] = dataclasses.field(default_factory=list)

    def add(self, bench: Bench, section: Section) -> None:
        self.sections.append(section)
        bench.say(markdown_section(section))


def compare(
    title: str, measured: list[Measurement], *, unit: str, scale: float, note: str = ""
) -> Section:
    """One table of rivals; the first is what the others are compared with."""
    ours = measured[0].per_sample
    rows = [
        {
            "": m.name,
            unit: m.per_sample * scale,
            "fastest": m.fastest / m.samples * scale,
            "× ours": m.per_sample / ours,
            "worst gap": m.gap,
            "median gap": m.gap_median,
            "peak MB": None if m.peak_bytes is None else m.peak_bytes / 2**20,
            "iterations": m.iterations,
            "samples": m.samples if m.repeats else None,
            "repeats": m.repeats or None,
            "note": m.note,
        }
        for m in measured
    ]
    return Section(title, rows, note, *medians(measured))


def medians(
    measured: list[Measurement], prefix: str = ""
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the seconds and the CPU seconds of a call, by name; floors were not measured."""
    timed = [m for m in measured if m.repeats]
    seconds = {prefix + m.name: m.median for m in timed}
    return seconds, {prefix + m.name: m.cpu for m in timed if m.cpu is not None}


# ------------------------------------------------------------------ Markdown


def number(value: Any) -> str:
    """Three digits, without exponents where people read none."""
    if value is None:
        return "–"
    if isinstance(value, bool | str | int):
        return str(value)
    if value == 0 or 1e-2 <= abs(value) < 1e5:
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:.1e}"


def _shown(value: Any) -> bool:
    return value not in (None, "") and not isinstance(value, list)


def table(rows: list[dict[str, Any]]) -> str:
    """A Markdown table, without lists and columns that are empty everywhere."""
    keys = [k for k in rows[0] if any(_shown(row[k]) for row in rows)]
    lines = [keys, ["---"] + ["--:"] * (len(keys) - 1)]
    lines += [[number(row[k]) for k in keys] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def markdown_section(section: Section) -> str:
    parts = [f"## {section.title}", section.note, table(section.rows)]
    return "\n\n".join(part for part in parts if part) + "\n"


def markdown(result: dict[str, Any]) -> str:
    parts = [f"# {result['title']}", *_later(result), _provenance(result)]
    if result["targets"]:
        parts.append(table(_target_rows(result)))
    if result["missing"]:
        parts.append(f"Not installed, so not measured: {', '.join(result['missing'])}.")
    parts += [markdown_section(Section(**section)) for section in result["sections"]]
    return "\n\n".join(parts)


def pictures(folder: Path) -> None:
    """Draw what is easier to look at, where matplotlib is installed."""
    for name in ("gpu", "continuous", "crowds"):
        found = folder / f"{name}.json"
        if found.exists() and importlib.util.find_spec("matplotlib"):
            question = importlib.import_module(f"benchmarks.{name}")
            question.draw(json.loads(found.read_text()), folder / f"{name}.png")


def summary(folder: Path) -> str:
    """The headline table, from the JSON files in the folder."""
    paths = [path for path in sorted(folder.glob("*.json")) if path.stem != "beside"]
    results = {path.stem: json.loads(path.read_text()) for path in paths}
    rows = [
        row | {"details": f"[{name}]({name}.md)"}
        for name, result in results.items()
        for row in _target_rows(result)
    ]
    runs = sorted({_provenance(result) for result in results.values()})
    targets = table(rows) if rows else "None of these has a target."
    later = [note for result in results.values() for note in _later(result)]
    parts = ["# Results", *later, targets, *runs, "Written by `python -m benchmarks summary`.\n"]
    return "\n\n".join(parts)


def _target_rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [Target(**target).row() for target in result["targets"]]


def _later(result: dict[str, Any]) -> list[str]:
    found = LATER.get((result["title"], result["environment"]["date"]))
    return [found] if found else []


def _provenance(result: dict[str, Any]) -> str:
    e = result["environment"]
    rates, versions = e["rates"], ", ".join(f"{k} {v}" for k, v in e["versions"].items())
    dirty = " with uncommitted changes" if e["dirty"] else ""
    gpu = f"{e['gpu']}; " if e.get("gpu") else ""
    return (
        f"`{e['command']}` on {e['date']}, commit `{e['commit'][:12]}`{dirty}. "
        f"{gpu}{e['cpu']}, {e['cores']} cores ({e['threads']} threads used by torch), "
        f"{e['memory_gb']:.0f} GB, {e['os']}; Python {e['python']}, {versions}. "
        f"Measured peaks: {rates['flops32'] / 1e9:.0f} GFLOP/s in float32, "
        f"{rates['flops64'] / 1e9:.0f} in float64, {rates['bytes'] / 1e9:.0f} GB/s copied."
    )


# ------------------------------------------------------------------ files


def save(
    name: str, report: Report, bench: Bench, environment: dict[str, Any], folder: Path
) -> None:
    """Write ``name.json`` and ``name.md``."""
    result = {
        "title": report.title,
        "environment": environment,
        "missing": sorted(bench.missing),
        "targets": [dataclasses.asdict(t) for t in report.targets],
        "sections": [dataclasses.asdict(s) for s in report.sections],
    }
    write(folder / f"{name}.json", json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    write(folder / f"{name}.md", markdown(result))


def write(path: Path, text: str) -> None:
    """Write a whole file or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def environment(rates: Rates) -> dict[str, Any]:
    """Where, when and of what: read once, before anything is measured."""
    return {
        **origin("benchmarks", "benchmarks/results"),
        "cpu": _cpu(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "",
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30,
        "os": platform.platform(terse=True),
        "rates": dataclasses.asdict(rates),
    }


def origin(package: str, results: str) -> dict[str, Any]:
    """Return the command, date, commit and versions. Changes of `results` do not count.

    A copy without its history says in ``GEOSOFTMAX_COMMIT`` which commit it is.
    """
    commit = os.environ.get("GEOSOFTMAX_COMMIT", "")
    return {
        "command": shlex.join(["python", "-m", package, *_asked(sys.argv[1:])]),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "commit": commit or _git("rev-parse", "HEAD"),
        "dirty": not commit and bool(_git("status", "--porcelain", "--", ".", f":!{results}")),
        "python": platform.python_version(),
        "versions": {k: v for k in VERSIONS if (v := _version(k))},
    }


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip()


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _asked(arguments: list[str]) -> list[str]:
    """Leave out where the results went: another reader has another folder."""
    where = arguments.index("--output") if "--output" in arguments else len(arguments)
    return arguments[:where] + arguments[where + 2 :]
