"""Compare the output layers: a run for each loss, weight and seed, and all else the same.

Besides what a `Store` has, the folder holds ``timing.json``, the weights of what judges samples
(``judge.safetensors``), and a folder for each run in ``runs/``.
A comparison that is stopped continues where it was, also in the middle of a run. Asked for other
losses, weights or seeds, it does the runs that are new, and compares them with those it has.
"""

from __future__ import annotations

import json
import re
import statistics
import threading
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from geosoftmax import __version__
from geosoftmax_experiments import files
from geosoftmax_experiments.data.drawings import Drawings
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.runs import Backend, Unit, one_thread, progress_bar, run
from geosoftmax_experiments.store import Store, provenance, versions
from geosoftmax_experiments.vae.checkpoints import forget_state
from geosoftmax_experiments.vae.judge import Judge
from geosoftmax_experiments.vae.layers import LAYERS
from geosoftmax_experiments.vae.measures import MEASURES
from geosoftmax_experiments.vae.pictures import open_run
from geosoftmax_experiments.vae.samples import JUDGED, judge_run
from geosoftmax_experiments.vae.settings import RunSettings
from geosoftmax_experiments.vae.training import Machine, read_metrics, time_steps, train

__all__ = ["JUDGE", "Comparison", "Run", "Shared", "do_runs", "time_losses", "timed_steps"]

#: What every row of a run has.
MEASURED = ("epoch", "step", "seconds", *MEASURES)
#: Rounds in which steps are timed, and the steps of each: at most, and at least. Hosts of GPUs,
#: which bound small networks, are slow for a second or two at times: many short rounds.
ROUNDS = {"cuda": 15, "cpu": 5}
TIMED = {"cuda": 200, "cpu": 10}
FEWEST = 5
#: The file of what judges samples.
JUDGE = "judge.safetensors"
#: Seconds to wait for a worker that is still training the same run: those of a cluster finish what
#: they are doing when their command is stopped.
PATIENCE = 3600.0
#: Training sets what belongs to the whole process: random numbers, algorithms, warnings.
_ONE_AT_A_TIME = threading.Lock()


class Shared(NamedTuple):
    """What all runs need."""

    comparison: Comparison
    drawings: Drawings
    machine: Machine
    judge: Judge


@dataclass(frozen=True)
class Run(Unit):
    """A run of a comparison."""

    loss: str
    weight: float
    seed: int

    @property
    def key(self) -> str:
        """The name of its folder and file."""
        return f"{self.loss}.w{self.weight:g}.s{self.seed}"

    @classmethod
    def named(cls, key: str) -> Run:
        """Return the run of a name."""
        found = re.fullmatch(r"(.+)\.w(\d+\.?\d*(?:e[+-]?\d+)?)\.s(\d+)", key)
        if not found or found[1] not in LAYERS:
            raise UserError(f"There is no run {key!r}.", "Remove its file from units/.")
        return cls(found[1], float(found[2]), int(found[3]))

    def work(self, shared: Shared) -> list[dict[str, Any]]:
        """Train in its own folder; return what was measured, and judged at the end."""
        comparison, drawings, machine, judge = shared
        folder = comparison.run_folder(self)
        with _ONE_AT_A_TIME:
            path = train(comparison.settings(self), drawings, folder, machine, PATIENCE)
            run = open_run(folder, drawings, "cuda" if machine.on_gpu else "cpu")
            rows = read_metrics(path)
            rows[-1] |= judge_run(run, drawings, judge)
        return rows


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
        if self.seeds < 1:
            raise UserError(f"--seeds is {self.seeds}.", "Give at least 1.")
        for name in ("losses", "weights"):
            if not getattr(self, name):
                raise UserError(f"--{name} is empty.", "Name some, separated by commas.")
        for unit in self.units():
            self.settings(unit)  # each is checked before any work is done

    @property
    def store(self) -> Store:
        """The results of the folder."""
        packages = versions("torch", "pytorch-lightning", "numpy")
        settings = self._common() | {"versions": {"geosoftmax": __version__, **packages}}
        return Store(self.folder, settings, beside=("runs", "timing.json", JUDGE))

    def units(self) -> list[Run]:
        """Return the runs asked for, seed by seed, so that a part of the work covers all losses."""
        return [
            Run(loss, weight, seed)
            for seed in range(self.seeds)
            for weight in self.weights
            for loss in self.losses
        ]

    def all_units(self) -> list[Run]:
        """Return the runs that are compared, those that the folder has besides among them.

        Their order does not depend on what is asked for.
        """
        asked = {unit.key: unit for unit in self.units()}
        done = self.store.keys()
        found = [*asked.values(), *(Run.named(key) for key in done if key not in asked)]
        place = list(LAYERS).index
        return sorted(found, key=lambda unit: (unit.seed, unit.weight, place(unit.loss)))

    def all_losses(self) -> list[str]:
        """Return the losses that are compared."""
        found = {unit.loss for unit in self.all_units()}
        return [loss for loss in LAYERS if loss in found]

    def settings(self, unit: Run) -> RunSettings:
        """Return the settings of a run."""
        return replace(self.common, **asdict(unit))

    def run_folder(self, unit: Run) -> Path:
        """Return the folder of a run."""
        return self.folder / "runs" / unit.key

    def summary(self) -> dict[str, Any]:
        """Return what is compared, for a JSON file."""
        units = self.all_units()
        return {
            "common": self._common(),
            "losses": self.all_losses(),
            "weights": sorted({unit.weight for unit in units}),
            "seeds": len({unit.seed for unit in units}),
            "versions": self.store.settings["versions"],
        }

    def measured(self) -> dict[Run, list[dict[str, Any]]]:
        """Return what each run that is done has measured; one that is damaged is an error."""
        store = self.store
        return {
            unit: store.read(unit.key, self._is_whole)
            for unit in self.all_units()
            if unit.key in store
        }

    def commits(self) -> dict[str, int]:
        """Return how many runs each commit has made: a comparison may be continued by another."""
        return self.store.commits(unit.key for unit in self.measured())

    def records(self) -> list[dict[str, Any]]:
        """Return all measurements; what is judged at the end is None before.

        Seconds are steps times the seconds of a step, measured alone; those that the run itself
        took, perhaps beside others, are `own_seconds`.
        """
        timing = self.timing()["seconds_per_step"]
        return [
            {
                **asdict(unit),
                **dict.fromkeys(JUDGED),
                **row,
                "own_seconds": row["seconds"],
                "seconds": row["step"] * timing[unit.loss],
            }
            for unit, rows in self.measured().items()
            for row in rows
        ]

    def timing(self) -> dict[str, Any]:
        """Return what ``timing.json`` holds; nothing was timed where there is no such file.

        ``seconds_per_step`` for each loss, the median of its ``rounds`` (older comparisons have
        none), and ``on``, where they were timed.
        """
        path = self.folder / "timing.json"
        if not path.exists():
            return {"seconds_per_step": {}}
        try:
            found = files.read_json(path)
            rounds = (s for several in found.get("rounds", {}).values() for s in several)
            whole = all(s > 0 for s in (*found["seconds_per_step"].values(), *rounds))
            whole &= "torch" in found["on"]["versions"]
        except (AttributeError, KeyError, TypeError, ValueError, OSError):
            found, whole = {}, False
        if not whole:
            raise UserError(
                f"{path} is damaged.", "Remove it and run again: steps are timed anew, no more."
            )
        return found

    def _common(self) -> dict[str, Any]:
        common = asdict(self.common)
        return {k: v for k, v in common.items() if k not in ("loss", "weight", "seed")}

    def _is_whole(self, rows: Any) -> bool:
        complete = rows[-1]["epoch"] == self.common.epochs and not set(JUDGED) - rows[-1].keys()
        return complete and all(name in row for row in rows for name in MEASURED)


def time_losses(shared: Shared, console: Console) -> None:
    """Time the steps of all losses, in turns, unless that was done."""
    comparison, drawings, machine, _ = shared
    losses = comparison.all_losses()
    if set(losses) <= comparison.timing()["seconds_per_step"].keys():
        return
    count, steps = timed_steps(comparison.common, drawings, machine)
    rounds: dict[str, list[float]] = {loss: [] for loss in losses}
    with one_thread(), progress_bar(console) as bar:
        task = bar.add_task("timing steps", total=count * len(rounds))
        for _ in range(count):
            for loss, seconds in rounds.items():
                settings = comparison.settings(Run(loss, comparison.weights[0], 0))
                seconds.append(time_steps(settings, drawings, machine, steps))
                bar.advance(task)
    found = {
        "seconds_per_step": {loss: statistics.median(rounds[loss]) for loss in losses},
        "on": provenance(),
        "rounds": rounds,
    }
    files.write_text(comparison.folder / "timing.json", json.dumps(found, indent=1))


def do_runs(shared: Shared, backend: Backend, console: Console) -> None:
    """Do the runs that are missing; of those that are done, keep the weights alone."""
    comparison = shared.comparison
    run(
        comparison.store,
        comparison.units(),
        shared,
        backend,
        console,
        doing="training",
        then=lambda unit: forget_state(comparison.run_folder(unit)),
    )


def timed_steps(settings: RunSettings, drawings: Drawings, machine: Machine) -> tuple[int, int]:
    """Return the rounds of timing and the steps of each: together no more than a run has."""
    kind = "cuda" if machine.on_gpu else "cpu"
    run = settings.epochs * (len(drawings.split().train) // settings.batch)
    return ROUNDS[kind], min(TIMED[kind], max(FEWEST, run // ROUNDS[kind]))
