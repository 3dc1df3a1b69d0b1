"""What was counted: added batch by batch, saved as JSON, and shown as a page."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import table, write
from fuzz.run import Outcome

#: Failures that are kept with a program; the others are counted.
SHOWN = 20
#: Widths of the independent bounds that are told apart.
WIDTHS = (1e-18, 1e-15, 1e-12, 1e-9, 1e-6)


@dataclasses.dataclass
class Figures:
    """The figures of a run. A run that was stopped goes on with `batches`."""

    seed: int
    origin: dict[str, Any]
    batches: int = 0
    rows: int = 0
    seconds: float = 0.0
    #: Batches of which the library refused the cost, or a multiple of it, by kind.
    refused: Counter[str] = dataclasses.field(default_factory=Counter)
    #: Rows by what they are: kind of cost, solver, dtype, scores, start.
    by: dict[str, Counter[str]] = dataclasses.field(default_factory=dict)
    checked: Counter[str] = dataclasses.field(default_factory=Counter)
    #: Rows whose independent bounds lie closer than that.
    closer: Counter[str] = dataclasses.field(default_factory=Counter)
    #: Of float64 at default settings, by method: rows, rows that did not converge, largest gap.
    settled: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    #: Of matrices that are not definite: rows that needed it, and the largest excess.
    excused: int = 0
    largest_excess: float = 0.0
    failed: Counter[str] = dataclasses.field(default_factory=Counter)
    shown: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count a batch."""
        self.batches += 1
        self.refused[outcome.kind] += outcome.refused
        self.checked.update(outcome.checked)
        self.failed.update(failure.what for failure in outcome.failures)
        for failure in outcome.examples[: SHOWN - len(self.shown)]:
            text = outcome.snippet(failure)
            self.shown.append({"batch": outcome.batch, **failure._asdict(), "program": text})
        if outcome.problem is None or outcome.solution is None or outcome.known is None:
            return
        self._describe(outcome)
        problem, solution, known = outcome.problem, outcome.solution, outcome.known
        self.rows += problem.rows
        width = known.bounds.upper - known.bounds.lower
        for limit in WIDTHS:
            self.closer[f"{limit:g}"] += int((width <= limit).sum())
        over = (known.bounds.lower + known.bounds.peak) - solution.upper.flatten().numpy()
        over -= known.rounding + 2e-19 * np.abs(known.bounds.peak)
        self.excused += int((over > 0).sum()) if known.indefinite else 0
        if known.indefinite:
            self.largest_excess = max(self.largest_excess, float(over.max()))
        plain = problem.tol is None and problem.max_iter is None and problem.init is None
        if plain and "float64" in str(problem.scores.dtype):
            rows, late, gap = self.settled.get(solution.method, [0, 0, 0.0])
            late += int((~solution.converged).sum())
            gap = max(gap, float(solution.gap.max()))
            self.settled[solution.method] = [rows + problem.rows, late, gap]

    def _describe(self, outcome: Outcome) -> None:
        problem, solution = outcome.problem, outcome.solution
        assert problem is not None
        assert solution is not None
        solver = f"{solution.method} (chosen)" if problem.solver == "auto" else problem.solver
        for name, value in {
            "cost": outcome.kind,
            "solver": solver,
            "dtype of scores": str(problem.scores.dtype).removeprefix("torch."),
            "scores": problem.shape_of_scores,
            "warm start": problem.start,
        }.items():
            self.by.setdefault(name, Counter())[value] += problem.rows

    # ------------------------------------------------------- files

    def save(self, path: Path) -> None:
        """Write ``path.json`` and ``path.md``, each whole or not at all."""
        text = json.dumps(vars(self), indent=1, ensure_ascii=False)
        write(path.with_suffix(".json"), text + "\n")
        write(path.with_suffix(".md"), self.markdown())

    @staticmethod
    def load(path: Path, seed: int, origin: dict[str, Any]) -> Figures:
        """Go on with a run of the same seed at the same commit, or begin."""
        saved = path.with_suffix(".json")
        if saved.exists():
            found = json.loads(saved.read_text(encoding="utf-8"))
            same = all(found["origin"][k] == origin[k] for k in ("commit", "dirty"))
            if found["seed"] == seed and same and not origin["dirty"]:
                for name in ("refused", "checked", "closer", "failed"):
                    found[name] = Counter(found[name])
                found["by"] = {k: Counter(v) for k, v in found["by"].items()}
                return Figures(**(found | {"origin": origin}))
        return Figures(seed, origin)

    def markdown(self) -> str:
        """Return the page."""
        o = self.origin
        versions = ", ".join(f"{k} {v}" for k, v in o["versions"].items())
        dirty = " with uncommitted changes" if o["dirty"] else ""
        failed = sum(self.failed.values())
        parts = [
            "# Fuzzing: what was counted",
            f"`{o['command']}` on {o['date']}, commit `{o['commit'][:12]}`{dirty}; Python "
            f"{o['python']}, {versions}. {self.seconds:.0f} s on one core. "
            "How it is done, and what counts as false, is on [the page on reliability]"
            "(../reliability.md).",
            f"**{self.rows:,} rows in {self.batches:,} batches: {failed:,} "
            f"{'failure' if failed == 1 else 'failures'}.**",
            table([{"check": k, "rows": f"{v:,}"} for k, v in self.checked.items()])
            if self.checked
            else "",
        ]
        if self.failed:
            parts += ["## Failures", _counts("what", self.failed)]
            parts += [f"{f['detail']}\n\n```python\n{f['program']}\n```" for f in self.shown]
        share = [
            {"bounds closer than": k, "of rows": f"{v / max(self.rows, 1):.3%}"}
            for k, v in self.closer.items()
        ]
        settled = [
            {"method": k, "rows": f"{int(n):,}", "not converged": int(late), "largest gap": gap}
            for k, (n, late, gap) in sorted(self.settled.items())
        ]
        parts += [
            "## How sharp the check is",
            "How close the two bounds lie that the independent solver proves in long double: "
            "a false bracket that is off by more is found.",
            table(share) if share else "",
            f"Matrices that are slightly indefinite, within what `DenseCost` accepts: "
            f"{self.excused:,} rows had an upper end below the value, by at most "
            f"{self.largest_excess:.1e}; none by more than 2δ.",
            "## Gaps at default settings, in float64, without a warm start",
            "Also of costs that are as good as singular, and scores up to 1e6.",
            table(settled) if settled else "",
            "## What was drawn",
            *(_counts(name, counter) for name, counter in self.by.items()),
            "Costs, or multiples of one, that were refused (batches): "
            + ", ".join(f"{k} {v:,}" for k, v in sorted(self.refused.items()) if v)
            + ".",
        ]
        return "\n\n".join(part for part in parts if part) + "\n"


def _counts(name: str, counter: Counter[str]) -> str:
    return table([{name: k, "rows": f"{v:,}"} for k, v in sorted(counter.items())])
