"""Compare the output layers: runs for each loss, weight and seed, and all else the same.

The folder holds ``settings.json``, ``timing.json``, a folder of its own for each run in ``runs/``
and, once that is complete, its measurements in ``units/``, with the commit that made them. A
comparison that is stopped continues where it was, also in the middle of a run. Asked for other
losses, weights or seeds, it does the runs that are new, and compares them with those it has.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import statistics
import subprocess
from collections import Counter
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
from joblib import Parallel, delayed, parallel_config
from rich.console import Console
from threadpoolctl import threadpool_limits

from geosoftmax import __version__
from geosoftmax_experiments import files
from geosoftmax_experiments.claims import claim
from geosoftmax_experiments.data.drawings import Drawings
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.progress import progress_bar
from geosoftmax_experiments.vae.checkpoints import forget_state
from geosoftmax_experiments.vae.frontier import Rows
from geosoftmax_experiments.vae.layers import LAYERS
from geosoftmax_experiments.vae.measures import MEASURES
from geosoftmax_experiments.vae.settings import RunSettings
from geosoftmax_experiments.vae.training import Machine, read_metrics, time_steps, train

__all__ = ["Comparison", "Unit", "default_jobs", "provenance", "run", "timed_steps"]

#: What every row of a run has.
MEASURED = ("epoch", "step", "seconds", *MEASURES)
PACKAGES = ("torch", "pytorch-lightning", "numpy")
#: Runs that share a GPU: one alone leaves it idle between its small kernels.
GPU_JOBS = 4
#: Rounds in which steps are timed, and the steps of each: at most, and at least. Hosts of GPUs,
#: which bound small networks, are slow for a second or two at times: many short rounds.
ROUNDS = {"cuda": 15, "cpu": 5}
TIMED = {"cuda": 200, "cpu": 20}
FEWEST = 5


class Unit(NamedTuple):
    """A run."""

    loss: str
    weight: float
    seed: int

    @property
    def name(self) -> str:
        """The name of its folder and file."""
        return f"{self.loss}.w{self.weight:g}.s{self.seed}"

    @classmethod
    def named(cls, name: str) -> Unit:
        """Return the run of a name."""
        found = re.fullmatch(r"(.+)\.w(\d+\.?\d*(?:e[+-]?\d+)?)\.s(\d+)", name)
        if not found or found[1] not in LAYERS:
            raise UserError(f"There is no run {name!r}.", "Remove its file from units/.")
        return cls(found[1], float(found[2]), int(found[3]))


@dataclass(frozen=True)
class Comparison:
    """What is asked for: `common` is shared by all runs; its loss, weight and seed are replaced.

    What is compared is that, and the runs that the folder has besides.
    """

    folder: Path
    common: RunSettings
    losses: tuple[str, ...]
    weights: tuple[float, ...]
    seeds: int

    def __post_init__(self) -> None:
        for name in ("losses", "weights"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise UserError(f"One of the {name} comes twice.", "Name each once.")
        if self.seeds < 1:
            raise UserError(f"--seeds is {self.seeds}.", "Give at least 1.")
        for unit in self.units():
            self.settings(unit)  # each is checked before any work is done

    def units(self) -> list[Unit]:
        """Return the runs asked for, seed by seed, so that a part of the work covers all losses."""
        return [
            Unit(loss, weight, seed)
            for seed in range(self.seeds)
            for weight in self.weights
            for loss in self.losses
        ]

    def all_units(self) -> list[Unit]:
        """Return the runs that are compared, those that the folder has besides among them.

        Their order does not depend on what is asked for.
        """
        asked = {unit.name: unit for unit in self.units()}
        names = (path.stem for path in (self.folder / "units").glob("[!.]*.json"))
        found = [*asked.values(), *(Unit.named(name) for name in names if name not in asked)]
        place = list(LAYERS).index
        return sorted(found, key=lambda unit: (unit.seed, unit.weight, place(unit.loss)))

    def all_losses(self) -> list[str]:
        """Return the losses that are compared."""
        found = {unit.loss for unit in self.all_units()}
        return [loss for loss in LAYERS if loss in found]

    def settings(self, unit: Unit) -> RunSettings:
        """Return the settings of a run."""
        return replace(self.common, loss=unit.loss, weight=unit.weight, seed=unit.seed)

    def words(self) -> dict[str, Any]:
        """Return what the results depend on, for a JSON file."""
        common = asdict(self.common)
        for name in ("loss", "weight", "seed"):
            del common[name]
        units = self.all_units()
        return {
            "common": common,
            "losses": self.all_losses(),
            "weights": sorted({unit.weight for unit in units}),
            "seeds": len({unit.seed for unit in units}),
            "versions": _versions(),
        }

    def claim(self) -> None:
        """Make the folder this comparison's own; see that the runs in it are whole."""
        files.make_folder(self.folder / "units")
        for folder in (self.folder, self.folder / "units"):
            files.remove_partial(folder)
        occupied = any((self.folder / "units").iterdir())
        words = self.words()
        shared = {**words["common"], "versions": words["versions"]}
        claim(self.folder / "settings.json", shared, holds_results=occupied)
        self._done()

    def forget(self) -> None:
        """Remove the results that the folder holds, of whatever settings."""
        if (self.folder / "settings.json").exists():
            for name in ("units", "runs"):
                shutil.rmtree(self.folder / name, ignore_errors=True)
            for name in ("settings.json", "timing.json"):
                (self.folder / name).unlink(missing_ok=True)

    def run_folder(self, unit: Unit) -> Path:
        """Return the folder of a run."""
        return self.folder / "runs" / unit.name

    def missing(self) -> list[Unit]:
        """Return the runs asked for that are not complete."""
        return [unit for unit in self.units() if not self._path(unit).exists()]

    def write(self, unit: Unit, rows: list[dict[str, Any]]) -> None:
        """Keep the measurements of a run."""
        words = {"commit": _commit(), "rows": rows}
        files.write_text(self._path(unit), json.dumps(words))

    def timing(self) -> dict[str, float]:
        """Return the seconds of a step with each loss."""
        return self._timed()["seconds_per_step"]

    def is_timed(self) -> bool:
        """Whether the steps of all losses were timed."""
        path = self.folder / "timing.json"
        return path.exists() and set(self.all_losses()) <= set(self.timing())

    def rounds(self) -> dict[str, list[float]]:
        """Return the seconds of a step in each round of timing, of which `timing` is the median."""
        return self._timed().get("rounds", {})  # older comparisons have none

    def measured_on(self) -> dict[str, Any]:
        """Return where the steps were timed."""
        return self._timed()["on"]

    def commits(self) -> dict[str, int]:
        """Return how many runs each commit has made: a comparison may be continued by another."""
        return Counter(found["commit"] or "unknown" for _, found in self._done())

    def records(self) -> list[dict[str, Any]]:
        """Return all measurements.

        Seconds are steps times the seconds of a step, measured alone; those that the run itself
        took, perhaps beside others, are `own_seconds`.
        """
        timing = self.timing()
        return [
            {
                **unit._asdict(),
                **row,
                "own_seconds": row["seconds"],
                "seconds": row["step"] * timing[unit.loss],
            }
            for unit, found in self._done()
            for row in found["rows"]
        ]

    def rows(self) -> Rows:
        """Return all measurements as a table."""
        return pd.DataFrame(self.records())

    def _timed(self) -> dict[str, Any]:
        path = self.folder / "timing.json"
        found = _read(path)
        try:
            seconds = found["seconds_per_step"].values()
            every = [
                *seconds,
                *(s for several in found.get("rounds", {}).values() for s in several),
            ]
            whole = all(s > 0 for s in every) and "torch" in found["on"]["versions"]
        except (AttributeError, KeyError, TypeError):
            whole = False
        if not whole:
            raise _damaged(path)
        return found

    def _done(self) -> list[tuple[Unit, dict[str, Any]]]:
        units = (unit for unit in self.all_units() if self._path(unit).exists())
        return [(unit, _read_run(self._path(unit), self.common.epochs)) for unit in units]

    def _path(self, unit: Unit) -> Path:
        return self.folder / "units" / f"{unit.name}.json"


def run(
    comparison: Comparison, drawings: Drawings, machine: Machine, jobs: int, console: Console
) -> None:
    """Time the steps, then do the runs that are missing, several beside each other."""
    comparison.claim()
    if not comparison.is_timed():
        rounds = _time(comparison, drawings, machine, console)
        seconds = {loss: statistics.median(found) for loss, found in rounds.items()}
        words = {"seconds_per_step": seconds, "on": provenance(), "rounds": rounds}
        text = json.dumps(words, indent=1)
        files.write_text(comparison.folder / "timing.json", text)
    missing = comparison.missing()
    total = len(comparison.units())
    done = total - len(missing)
    if done:
        console.print(f"Continuing: {done} of {total} runs are done already.")
    if not missing:
        return
    work = delayed(_work)
    calls = (work(unit, comparison, drawings, machine) for unit in missing)
    with parallel_config("loky", inner_max_num_threads=1), progress_bar(console) as bar:
        task = bar.add_task("training", total=total, completed=done)
        parallel: Any = Parallel(jobs, batch_size=1, return_as="generator_unordered")  # type: ignore[arg-type]
        for unit, rows in parallel(calls):
            comparison.write(unit, rows)
            forget_state(comparison.run_folder(unit))
            bar.advance(task)


def default_jobs(machine: Machine, jobs: int | None) -> int:
    """Return how many runs go on at a time: as asked for, or as the machine bears."""
    if jobs == 0:
        raise UserError("--jobs 0 would do nothing.", "Give a number of processes, or -1.")
    if jobs is not None:
        return jobs
    return GPU_JOBS if torch.cuda.is_available() and machine.accelerator != "cpu" else -1


def provenance() -> dict[str, Any]:
    """Return where numbers come from: device, packages, and the commit of a checkout."""
    cuda = torch.cuda.is_available()
    return {
        "device": torch.cuda.get_device_name() if cuda else platform.processor() or "CPU",
        "system": platform.platform(),
        "threads": torch.get_num_threads(),
        "versions": _versions(),
        "commit": _commit(),
    }


def timed_steps(settings: RunSettings, drawings: Drawings, machine: Machine) -> tuple[int, int]:
    """Return the rounds of timing and the steps of each: together no more than a run has."""
    kind = "cuda" if torch.cuda.is_available() and machine.accelerator != "cpu" else "cpu"
    run = settings.epochs * (len(drawings.split().train) // settings.batch)
    return ROUNDS[kind], min(TIMED[kind], max(FEWEST, run // ROUNDS[kind]))


def _time(
    comparison: Comparison, drawings: Drawings, machine: Machine, console: Console
) -> dict[str, list[float]]:
    """Time the losses in turns; return the seconds of a step in each round."""
    rounds, steps = timed_steps(comparison.common, drawings, machine)
    found: dict[str, list[float]] = {loss: [] for loss in comparison.all_losses()}
    with threadpool_limits(1), progress_bar(console) as bar:
        task = bar.add_task("timing steps", total=rounds * len(found))
        for _ in range(rounds):
            for loss, seconds in found.items():
                settings = comparison.settings(Unit(loss, comparison.weights[0], 0))
                seconds.append(time_steps(settings, drawings, machine, steps))
                bar.advance(task)
    return found


def _work(
    unit: Unit, comparison: Comparison, drawings: Drawings, machine: Machine
) -> tuple[Unit, list[dict[str, Any]]]:
    """Do a run on one thread: workers share the cores among them."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            folder = comparison.run_folder(unit)
            path = train(comparison.settings(unit), drawings, folder, machine)
            return unit, read_metrics(path)
    except Exception as error:
        error.add_note(f"in {unit}")
        raise
    finally:
        torch.set_num_threads(threads)


def _read(path: Path) -> Any:
    try:
        return files.read_json(path)
    except (ValueError, OSError):
        raise _damaged(path) from None


def _read_run(path: Path, epochs: int) -> dict[str, Any]:
    """Read what a run measured; at first the commit was not written down."""
    found = _read(path)
    try:
        run = {"commit": None, "rows": found} if isinstance(found, list) else dict(found)
        complete = run["rows"][-1]["epoch"] == epochs and "commit" in run
        complete &= all(name in row for row in run["rows"] for name in MEASURED)
    except (KeyError, IndexError, TypeError, ValueError):
        complete = False
    if not complete:
        raise _damaged(path)
    return run


def _damaged(path: Path) -> UserError:
    return UserError(f"{path} is damaged.", "Remove it and run again: it alone is done anew.")


def _versions() -> dict[str, str]:
    return {"geosoftmax": __version__, **{name: version(name) for name in PACKAGES}}


def _commit() -> str | None:
    """Return the commit of the checkout this file lies in; with a plus where it was changed.

    A copy without its history says in ``GEOSOFTMAX_COMMIT`` which commit it is.
    """
    if told := os.environ.get("GEOSOFTMAX_COMMIT"):
        return told
    here = Path(__file__).parent
    try:
        git = ["git", "-C", str(here)]
        head = subprocess.run(
            [*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
        )
        changed = subprocess.run(
            [*git, "status", "--porcelain", "--", str(here.parents[1])],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "")
