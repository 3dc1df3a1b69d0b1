"""Run a comparison: the units that are not done yet, on this machine or on a dask cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from joblib import Parallel, delayed, parallel_config
from rich.console import Console

from geosoftmax_experiments.data.ordinal import PUBLISHED_FOLDS, Fold, load_fold, set_names
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.ordinal.models import MODELS
from geosoftmax_experiments.ordinal.selection import measure_fold, one_thread
from geosoftmax_experiments.ordinal.store import Settings, Store, Unit, package_versions
from geosoftmax_experiments.progress import progress_bar

__all__ = ["BACKENDS", "Backend", "make_settings", "run"]

BACKENDS = ("local", "dask")

#: What ``--quick`` does: every set and model, but few folds and coarse grids.
QUICK_FOLDS = 1
QUICK_ALPHAS = (100.0, 10.0, 1.0)
QUICK_SCALES = (0.5, 2.0)


@dataclass(frozen=True)
class Backend:
    """Where the work is done: `jobs` processes of this machine, or all workers of a scheduler."""

    name: str = "local"
    jobs: int = -1
    scheduler: str | None = None

    def __post_init__(self) -> None:
        if self.name not in BACKENDS:
            raise UserError(f"There is no backend {self.name!r}.", f"Take {' or '.join(BACKENDS)}.")
        if self.jobs == 0:
            raise UserError("--jobs 0 would do nothing.", "Give a number of processes, or -1.")
        if self.name == "dask" and self.jobs != -1:
            raise UserError(
                "--jobs is for the local backend: a cluster uses all its workers.",
                "Leave it out with --backend dask.",
            )
        if (self.name == "dask") != (self.scheduler is not None):
            raise UserError(
                "--backend dask and --scheduler ADDRESS belong together.",
                "As in: --backend dask --scheduler tcp://127.0.0.1:8786",
            )

    @contextlib.contextmanager
    def connected(self) -> Iterator[int]:
        """Let joblib use this backend; yield its number of jobs."""
        if self.name == "local":
            with parallel_config("loky", inner_max_num_threads=1):
                yield self.jobs
            return
        from distributed import Client

        try:
            client = Client(self.scheduler, timeout="5s")
        except (OSError, ValueError) as error:
            raise UserError(
                f"No dask scheduler answers at {self.scheduler}: {error}",
                "Start one with `dask scheduler`, and workers with `dask worker ADDRESS`.",
            ) from None
        with client:
            if not client.ncores():
                raise UserError(
                    f"The dask scheduler at {self.scheduler} has no workers.",
                    f"Start some with `dask worker {self.scheduler}`.",
                )
            with parallel_config("dask", wait_for_workers_timeout=30):
                yield self.jobs


def make_settings(
    source: str,
    sets: tuple[str, ...] | None = None,
    folds: int | None = None,
    models: tuple[str, ...] | None = None,
    *,
    inner: int = 3,
    quick: bool = False,
) -> tuple[Settings, dict[tuple[str, int], Fold]]:
    """Return the settings of a run, and the folds it needs, read and checked."""
    names = sets or tuple(set_names(source))
    chosen = models or tuple(MODELS)
    for asked in (names, chosen):
        if len(set(asked)) < len(asked):
            raise UserError(f"A name comes twice in {','.join(asked)}.", "Name each once.")
    for model in chosen:
        if model not in MODELS:
            raise UserError(f"There is no model {model!r}.", f"Take some of {', '.join(MODELS)}.")
    count = folds or (QUICK_FOLDS if quick else PUBLISHED_FOLDS)
    loaded = {(name, k): load_fold(source, name, k) for name in names for k in range(count)}
    grids = {model: _grid(model, quick) for model in chosen}
    data = {name: "".join(loaded[name, k].digest()[:4] for k in range(count)) for name in names}
    settings = Settings(source, names, count, chosen, inner, grids, data, package_versions())
    return settings, loaded


def run(
    store: Store, folds: dict[tuple[str, int], Fold], backend: Backend, console: Console
) -> None:
    """Do what is missing, writing each unit as it comes, with a bar that tells the time left."""
    grids, inner = store.settings.grids, store.settings.inner
    missing = store.missing()
    done = len(store.settings.units()) - len(missing)
    if done:
        console.print(f"Continuing: {done} of {done + len(missing)} units are done already.")
    if not missing:
        return
    calls = (
        delayed(_work)(unit, folds[unit.name, unit.fold], grids[unit.model], inner)
        for unit in missing
    )
    with backend.connected() as jobs, progress_bar(console) as bar:
        task = bar.add_task("comparing", total=done + len(missing), completed=done)
        size: Any = 1  # joblib takes numbers too, though its annotation does not say so
        parallel: Any = Parallel(jobs, batch_size=size, return_as="generator_unordered")
        for unit, rows in parallel(calls):
            store.write(unit, rows)
            bar.advance(task)


def _work(
    unit: Unit, fold: Fold, grid: dict[str, list[float]], inner: int
) -> tuple[Unit, list[dict[str, Any]]]:
    """Do a unit on one thread: workers share the cores among them."""
    candidates = {name: tuple(values) for name, values in grid.items()}
    try:
        with one_thread():
            return unit, measure_fold(replace(MODELS[unit.model], **candidates), fold, inner)
    except Exception as error:
        error.add_note(f"in {unit}")
        raise


def _grid(name: str, quick: bool) -> dict[str, list[float]]:
    model = MODELS[name]
    few = {"alphas": QUICK_ALPHAS, "scales": QUICK_SCALES}
    given = {"alphas": model.alphas, "scales": model.scales}
    return {
        key: [one for one in values if not quick or one in few[key]]
        for key, values in given.items()
    }
