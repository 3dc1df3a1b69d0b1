"""``python -m fuzz [--rows N] [--seconds S] [--seed S] [--output F] [--batch B]``.

Solves random problems, and checks every answer against points that an independent solver found and
that were evaluated in long double. It can be stopped at any moment: what was counted is saved, and
the same command at the same commit goes on. The exit status is 1 where anything was false.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch
from rich.console import Console

from benchmarks.report import ROOT, origin
from fuzz import exact
from fuzz.checks import Failure
from fuzz.figures import Figures
from fuzz.run import Outcome, examine
from geosoftmax_experiments.runs import progress_bar

#: Of `make fuzz`.
SECONDS = 120.0
#: Seconds between two saves.
SAVE_EVERY = 15.0
#: Failures that are printed.
PRINTED = 5


def main(arguments: list[str] | None = None) -> int:
    """Run, and return the exit status."""
    asked = _parser().parse_args(arguments)
    if not exact.EXTENDED:
        sys.exit("fuzz: long doubles have no more digits than doubles on this machine.")
    torch.set_num_threads(1)
    console = Console(stderr=True)
    if asked.batch is not None:
        outcome = examine(asked.seed, asked.batch)
        _print_failures(outcome, outcome.examples)
        return int(bool(outcome.failures))
    if asked.rows is None and asked.seconds is None:
        asked.seconds = SECONDS
    figures = Figures.load(asked.output, asked.seed, origin("fuzz", "docs/results/fuzz*"))
    try:
        _run(figures, asked, console)
    except KeyboardInterrupt:
        console.print("stopped; the same command goes on")
    figures.save(asked.output)
    failed = sum(figures.failed.values())
    print(f"{figures.rows:,} rows, {failed:,} failures: {asked.output.with_suffix('.md')}")
    return int(failed > 0)


def _run(figures: Figures, asked: argparse.Namespace, console: Console) -> None:
    start = saved = time.monotonic()
    before, left = figures.seconds, PRINTED
    with progress_bar(console) as bar:
        total = asked.rows if asked.rows is not None else int(asked.seconds)
        task = bar.add_task("rows" if asked.rows is not None else "seconds", total=total)
        while True:
            passed = time.monotonic() - start
            figures.seconds = before + passed
            done = figures.rows if asked.rows is not None else int(passed)
            bar.update(task, completed=min(done, total))
            over = asked.seconds is not None and passed >= asked.seconds
            if over or (asked.rows is not None and figures.rows >= asked.rows):
                return
            outcome = examine(figures.seed, figures.batches)
            figures.add(outcome)
            _print_failures(outcome, outcome.examples[:left])
            left -= len(outcome.examples[:left])
            if time.monotonic() - saved >= SAVE_EVERY:
                figures.save(asked.output)
                saved = time.monotonic()


def _print_failures(outcome: Outcome, failures: list[Failure]) -> None:
    for failure in failures:
        print(f"\n# {failure.what}: {failure.detail}\n{outcome.snippet(failure)}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--rows", type=int, help="stop after so many rows, in all")
    parser.add_argument("--seconds", type=float, help=f"stop after so many ({SECONDS:g})")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other problems")
    parser.add_argument("--batch", type=int, help="one batch of the seed alone: shows a failure")
    parser.add_argument(
        "--output", type=Path, default=ROOT / "results/fuzz", metavar="F",
        help="writes F.json and F.md (results/fuzz)",
    )  # fmt: skip
    return parser


if __name__ == "__main__":
    sys.exit(main())
