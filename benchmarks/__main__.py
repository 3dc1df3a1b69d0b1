"""``python -m benchmarks [name ...] [--quick] [--own] [--output DIR]``."""

from __future__ import annotations

import argparse
import ast
import importlib
import time
from pathlib import Path

import torch

from benchmarks import report
from benchmarks.harness import Bench, Rates

QUESTIONS = (
    "small_dense", "line", "grid", "heatmaps", "tree_zero_one", "sinkhorn", "estimators",
    "imports", "calls", "losses", "gpu", "gpu_steps", "continuous", "superres", "crowds", "play",
)  # fmt: skip


def main() -> None:
    arguments = _parser().parse_args()
    # A run that is quick, or without rivals, does not replace the results in the repository.
    partial = arguments.quick or arguments.own
    kept = report.ROOT / ("results/benchmarks" if partial else "benchmarks/results")
    folder = arguments.output or kept
    cuda = torch.cuda.is_available()
    possible = [name for name in QUESTIONS if cuda or name not in ("gpu", "gpu_steps")]
    names = arguments.names or [*possible, "summary"]
    questions = [name for name in names if name != "summary"]
    if questions:
        rates = Rates.measure(partial)
        environment = report.environment(rates)
    for name in questions:
        start = time.perf_counter()
        bench = Bench(arguments.quick, rates, arguments.own)
        bench.say(f"# {name}")
        found = importlib.import_module(f"benchmarks.{name}").run(bench)
        report.save(name, found, bench, environment, folder)
        bench.say(f"{name}: {time.perf_counter() - start:.0f} s, {folder / name}.md\n")
    if not arguments.own:  # pictures show the rivals too
        report.pictures(folder)
    text = report.summary(folder)
    report.write(folder / "README.md", text)
    print(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure geosoftmax side by side with its rivals.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="questions:\n" + "\n".join(f"  {name:14} {_asks(name)}" for name in QUESTIONS),
    )
    parser.add_argument(
        "names", nargs="*", metavar="name", type=_name,
        help="questions to answer (all), or 'summary' to rewrite the headline table alone",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="small sizes, few repeats: a minute")
    parser.add_argument(
        "--own", action="store_true", help="our own rows alone, without rivals: some minutes"
    )
    parser.add_argument(
        "--output", type=Path, metavar="DIR",
        help="where to write (benchmarks/results; results/benchmarks with --quick or --own)",
    )  # fmt: skip
    return parser


def _name(text: str) -> str:
    return text if text == "summary" else question(text)


def question(text: str) -> str:
    """Check the name of a question, for argparse."""
    if text not in QUESTIONS:
        raise argparse.ArgumentTypeError(f"no question {text!r}; there are {', '.join(QUESTIONS)}")
    return text


def _asks(name: str) -> str:
    """Return the first line of its docstring; importing it may need libraries of its rivals."""
    source = Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")
    doc = ast.get_docstring(ast.parse(source))
    return doc.splitlines()[0] if doc else ""


if __name__ == "__main__":
    main()
