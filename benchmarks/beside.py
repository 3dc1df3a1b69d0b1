"""``python -m benchmarks.beside COMMIT [name ...] [--runs 5]``: is the library faster than it was?

Our own rows, with the library of a commit and with that of the working tree, in interleaved runs:
each in a process of its own, by the benchmark code of the working tree.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import report
from benchmarks.__main__ import QUESTIONS, question

OTHERS = ("losses", "gpu", "gpu_steps", "superres", "crowds", "play")
#: Asked unless others are named: those about the library on a CPU.
NAMES = tuple(name for name in QUESTIONS if name not in OTHERS)
FOLDER = report.ROOT / "results/benchmarks"


class Times(NamedTuple):
    """What one run took, by row."""

    seconds: dict[str, float]
    cpu_seconds: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Row:
    """One row in all runs, in seconds; runs at the same place were neighbours in time."""

    name: str
    before: list[float]
    now: list[float]
    cpu_ratio: float | None = None

    @property
    def ratio(self) -> float:
        """Below 1, the working tree is faster."""
        return statistics.median(self.now) / statistics.median(self.before)

    @property
    def pairs(self) -> list[float]:
        """The ratio of each pair of neighbours."""
        return [now / before for before, now in zip(self.before, self.now, strict=True)]

    def cells(self) -> dict[str, Any]:
        return {
            "": self.name,
            "before, ms": statistics.median(self.before) * 1e3,
            "now, ms": statistics.median(self.now) * 1e3,
            "now / before": self.ratio,
            "least": min(self.pairs),
            "most": max(self.pairs),
            "CPU time, now / before": self.cpu_ratio,
        }


def main() -> None:
    arguments = _parser().parse_args()
    commit = _git("rev-parse", "--verify", f"{arguments.commit}^{{commit}}")
    names = arguments.names or list(NAMES)
    here = {
        "working_tree": _git("rev-parse", "HEAD"),
        "dirty": bool(_git("status", "--porcelain", "--", "src")),
    }
    with checked_out(commit) as folder:
        sources = {"before": folder / "src", "now": report.ROOT / "src"}
        for label, source in sources.items():
            _check_library(source)
            _say(f"{label}: an untimed run, which compiles")
            _run(source, names, "--quick")
        runs = interleave(sources, names, arguments.runs)
    rows, missing = pair(runs["before"], runs["now"])
    result = {
        "commit": commit,
        **here,
        "questions": names,
        "runs": arguments.runs,
        "geometric_mean": geometric_mean([row.ratio for row in rows]),
        "geometric_mean_cpu": geometric_mean(_known(rows)),
        "missing": missing,
        "rows": [dataclasses.asdict(row) | {"ratio": row.ratio} for row in rows],
    }
    text = markdown(rows, result)
    output = arguments.output
    report.write(output / "beside.json", json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    report.write(output / "beside.md", text)
    print(text)


# ------------------------------------------------------------------ runs


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """Check a commit out into a temporary worktree; it is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="geosoftmax-beside-") as parent:
        folder = Path(parent) / "library"
        _git("worktree", "add", "--quiet", "--detach", str(folder), commit)
        try:
            yield folder
        finally:
            _git("worktree", "remove", "--force", str(folder))


def interleave(sources: dict[str, Path], names: list[str], runs: int) -> dict[str, list[Times]]:
    """Run each question with both libraries in turn, so that a slow minute hits both.

    The one that goes first alternates.
    """
    found = {label: [Times({}, {}) for _ in range(runs)] for label in sources}
    for turn in range(runs):
        order = list(sources) if turn % 2 == 0 else list(sources)[::-1]
        for name in names:
            for label in order:
                _say(f"run {turn + 1} of {runs}, {name}, {label}")
                times = _run(sources[label], [name])
                found[label][turn].seconds.update(times.seconds)
                found[label][turn].cpu_seconds.update(times.cpu_seconds)
    return found


def _run(source: Path, names: list[str], *options: str) -> Times:
    """Run the benchmarks of the working tree with the library in `source`."""
    with tempfile.TemporaryDirectory() as output:
        command = [sys.executable, "-m", "benchmarks", *names, "--own", *options]
        done = subprocess.run(
            [*command, "--output", output],
            cwd=report.ROOT,
            env=_environment(source),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} failed with {source}:\n{done.stderr[-4000:]}")
        return times_in(Path(output), names)


def times_in(folder: Path, names: list[str]) -> Times:
    """Read the times of all rows of some questions."""
    times = Times({}, {})
    for name in names:
        for section in json.loads((folder / f"{name}.json").read_text())["sections"]:
            for kind, found in times._asdict().items():
                for row, seconds in section[kind].items():
                    found[f"{name}: {section['title']}: {row}"] = seconds
    return times


def _check_library(source: Path) -> None:
    """Stop if another library than the one in `source` would be measured."""
    done = subprocess.run(
        [sys.executable, "-c", "import geosoftmax; print(geosoftmax.__file__)"],
        cwd=report.ROOT,
        env=_environment(source),
        check=True,
        capture_output=True,
        text=True,
    )
    found = Path(done.stdout.strip()).resolve()
    if not found.is_relative_to(source.resolve()):
        raise SystemExit(f"geosoftmax is imported from {found}, not from {source}.")


def _environment(source: Path) -> dict[str, str]:
    # Kernels are cached beside their source, so that the two libraries never share any.
    kept = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
    return kept | {"PYTHONPATH": os.pathsep.join([str(source), str(report.ROOT)])}


# ------------------------------------------------------------------ comparison


def pair(before: list[Times], now: list[Times]) -> tuple[list[Row], list[str]]:
    """Return the rows that all runs have, and the names of the others."""
    every = dict.fromkeys(name for run in (*before, *now) for name in run.seconds)
    common = [name for name in every if all(name in run.seconds for run in (*before, *now))]
    rows = []
    for name in common:
        seconds = [[run.seconds[name] for run in runs] for runs in (before, now)]
        rows.append(Row(name, *seconds, _cpu_ratio(name, before, now)))
    return rows, [name for name in every if name not in common]


def _cpu_ratio(name: str, before: list[Times], now: list[Times]) -> float | None:
    if any(name not in run.cpu_seconds for run in (*before, *now)):
        return None
    old, new = (statistics.median(run.cpu_seconds[name] for run in runs) for runs in (before, now))
    return new / old


def _known(rows: list[Row]) -> list[float]:
    return [row.cpu_ratio for row in rows if row.cpu_ratio is not None]


def geometric_mean(ratios: list[float]) -> float | None:
    return math.exp(statistics.fmean(map(math.log, ratios))) if ratios else None


def chance(runs: int) -> float:
    """Return how often all ratios of so many pairs are on one side of 1 by chance."""
    return 2.0 ** (1 - runs)


def markdown(rows: list[Row], result: dict[str, Any]) -> str:
    dirty = " with uncommitted changes" if result["dirty"] else ""
    parts = [
        "# Beside an earlier commit",
        f"Before: `{result['commit'][:12]}`. Now: `{result['working_tree'][:12]}`{dirty}. "
        f"Medians of {result['runs']} interleaved runs each. Ratios below 1 are faster. 'Least' "
        "and 'most': of the ratios of neighbouring runs. A row that has not changed has both on "
        f"one side of 1 with a chance of {chance(result['runs']):.0%}, so ask again about single "
        "rows. Other work on the machine disturbs wall-clock times more than CPU times. How much "
        "noise there is, `python -m benchmarks.beside HEAD` shows.",
    ]
    if rows:
        worst = max(rows, key=lambda row: row.ratio)
        mean, cpu = result["geometric_mean"], result["geometric_mean_cpu"]
        parts += [
            report.table([row.cells() for row in rows]),
            f"Geometric mean of now / before, over {len(rows)} rows: **{mean:.3f}**"
            + (f"; of CPU times, over {len(_known(rows))} rows: **{cpu:.3f}**." if cpu else "."),
            f"Worst row: {worst.name}, **{worst.ratio:.3f}** (least {min(worst.pairs):.3f}, most "
            f"{max(worst.pairs):.3f}).",
        ]
        timed = [row for row in rows if row.cpu_ratio is not None]
        if timed:
            worst = max(timed, key=lambda row: row.cpu_ratio or 0.0)
            parts.append(f"Worst row by CPU time: {worst.name}, **{worst.cpu_ratio:.3f}**.")
    if result["missing"]:
        parts.append("Not in all runs: " + "; ".join(result["missing"]) + ".")
    return "\n\n".join(parts) + "\n"


# ------------------------------------------------------------------ shared pieces


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.beside",
        description="Compare the library of a commit with that of the working tree.",
    )
    parser.add_argument("commit", help="what to compare with")
    parser.add_argument(
        "names", nargs="*", metavar="name", type=question, help=f"questions ({', '.join(NAMES)})"
    )
    parser.add_argument("--runs", type=_positive, default=5, help="runs of each library (5)")
    parser.add_argument(
        "--output", type=Path, metavar="DIR", default=FOLDER,
        help="where to write beside.md and beside.json (results/benchmarks)",
    )  # fmt: skip
    return parser


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"runs must be a positive number; got {text!r}")
    return int(text)


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=report.ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
