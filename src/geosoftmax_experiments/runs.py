"""Long work, once for all applications: units that are done, stored and continued.

A run is a `Store` (a folder that belongs to its settings) and *units* with keys. `run` does those
that the store does not hold, on this machine or on a dask cluster, and writes each result when it
is there. Killed at any moment, the same command does the rest.

A new application is a subclass of `Unit`, its measures and its figures::

    @dataclass(frozen=True)
    class Fit(Unit):
        fold: int

        @property
        def key(self):
            return f"fold-{self.fold}"

        def work(self, shared):
            return measure(shared[self.fold])


    with Store(folder, asdict(settings)).opened() as store:
        run(store, [Fit(k) for k in range(30)], folds, Backend(), Console(), doing="fitting")
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import joblib
import torch
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text
from threadpoolctl import threadpool_limits

from geosoftmax_experiments.errors import Stopped, UserError
from geosoftmax_experiments.store import Store

__all__ = ["BACKENDS", "Backend", "Unit", "end_with", "one_thread", "progress_bar", "quiet", "run"]

BACKENDS = ("local", "dask")
Results = Generator[tuple[int, Any], None, None]
#: Seconds without a worker after which a cluster is given up.
PATIENCE = 60.0


class Unit(ABC):
    """What is computed, written and counted as one. Subclasses are frozen dataclasses."""

    @property
    @abstractmethod
    def key(self) -> str:
        """The name of its result, for a file."""

    @abstractmethod
    def work(self, shared: Any) -> Any:
        """Return the result. `shared` is what all units of the run need, such as the data."""


@dataclass(frozen=True)
class Backend:
    """Where units are done: by `jobs` workers of this machine, or by all workers of a scheduler.

    Workers of this machine are processes; with `threads` they are threads of this process, which
    start at once and share its memory. One worker is this process itself.
    """

    name: str = "local"
    jobs: int = -1
    scheduler: str | None = None
    threads: bool = False

    def __post_init__(self) -> None:
        if self.name not in BACKENDS:
            raise UserError(f"There is no backend {self.name!r}.", f"Take {' or '.join(BACKENDS)}.")
        if self.jobs == 0:
            raise UserError("--jobs 0 would do nothing.", "Give a number of workers, or -1.")
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

    def results(self, units: Sequence[Unit], shared: Any) -> Results:
        """Yield the place of each unit and its result, as they come. No worker outlives this."""
        if self.name == "dask":
            return _on_cluster(units, shared, str(self.scheduler))
        jobs = min(joblib.effective_n_jobs(self.jobs), len(units))
        if jobs == 1 or self.threads:
            return _in_this_process(units, shared, jobs)
        return _in_processes(units, shared, jobs)


def run(
    store: Store,
    units: Sequence[Unit],
    shared: Any,
    backend: Backend,
    console: Console,
    *,
    doing: str,
    amount: Callable[[Any], int] = lambda unit: 1,
    then: Callable[[Any], object] = lambda unit: None,
) -> None:
    """Do the units that are missing, and write each result as it comes.

    Parameters
    ----------
    store : Store
        Opened.
    units : sequence of Unit
    shared : object
        Given to every unit's `work`; it is sent once to each worker.
    backend : Backend
    console : Console
        Shows a bar with rate and time left.
    doing : str
        What the bar says.
    amount : callable
        How much a unit counts in the bar.
    then : callable
        Called with each unit when its result is written.
    """
    missing = [unit for unit in units if unit.key not in store]
    total = sum(map(amount, units))
    done = total - sum(map(amount, missing))
    if done:
        console.print(f"Continuing: {done} of {total} are done already.")
    if not missing:
        return
    store.record_provenance()
    results = backend.results(missing, shared)
    try:
        with contextlib.closing(results), progress_bar(console) as bar:
            task = bar.add_task(doing, total=total, completed=done)
            for place, result in results:
                unit = missing[place]
                store.write(unit.key, result)
                bar.advance(task, amount(unit))
                then(unit)
    except KeyboardInterrupt as error:
        done = sum(amount(unit) for unit in units if unit.key in store)
        raise Stopped(f"{done} of {total} are kept in {store.folder}", error) from None


def progress_bar(console: Console) -> Progress:
    """Return a bar that says what is done, how fast, and the time that passed and is left."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeElapsedColumn(),
        TextColumn("elapsed,"),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=console,
    )


class _Rate(ProgressColumn):
    """How many are done in a second, or a minute where that is less than one."""

    def render(self, task: Task) -> Text:
        """Return the text; empty before the rate is known."""
        speed = task.finished_speed or task.speed
        if not speed:
            return Text("")
        return Text(f"{speed:.1f}/s," if speed >= 1 else f"{60 * speed:.1f}/min,")


# ------------------------------------------------------------------ on this machine


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Keep linear algebra to one thread: workers share the cores among them."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(threads)


def _in_this_process(units: Sequence[Unit], shared: Any, jobs: int) -> Results:
    """Yield from threads; where that is stopped, they finish the units that they have begun."""
    with one_thread():
        if jobs == 1:
            yield from (_work(place, unit, shared) for place, unit in enumerate(units))
            return
        pool = ThreadPoolExecutor(jobs)
        try:
            calls = [pool.submit(_work, place, unit, shared) for place, unit in enumerate(units)]
            yield from (call.result() for call in as_completed(calls))
        finally:
            pool.shutdown(cancel_futures=True)


def _in_processes(units: Sequence[Unit], shared: Any, jobs: int) -> Results:
    """Yield from processes that end with this one, whatever ends it."""
    from joblib.externals.loky import get_reusable_executor

    with tempfile.TemporaryDirectory(prefix="geosoftmax-") as folder:
        path = Path(folder) / "shared"
        joblib.dump(shared, path)
        calls = (
            joblib.delayed(_work_in_process)(place, unit, path, os.getpid())
            for place, unit in enumerate(units)
        )
        with joblib.parallel_config("loky", inner_max_num_threads=1):
            try:
                size: Any = 1  # joblib takes numbers too, though its annotation does not say so
                yield from joblib.Parallel(jobs, batch_size=size, return_as="generator_unordered")(
                    calls
                )  # type: ignore[misc]
            finally:  # also where all is done: Python would wait for idle workers when it ends
                executor: Any = get_reusable_executor(reuse=True)  # type: ignore[arg-type]
                executor.shutdown(wait=True, kill_workers=True)


def _work(place: int, unit: Unit, shared: Any) -> tuple[int, Any]:
    torch.set_num_threads(1)  # of this thread
    try:
        return place, unit.work(shared)
    except Exception as error:
        error.add_note(f"in {unit.key}")
        raise


def _work_in_process(place: int, unit: Unit, path: Path, parent: int) -> tuple[int, Any]:
    end_with(parent)
    return _work(place, unit, _load(path))


@cache
def _load(path: Path) -> Any:
    return joblib.load(path)


@cache
def end_with(parent: int) -> None:
    """End this process when its parent has ended; leave SIGINT and SIGTERM to the parent."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=watch, daemon=True).start()


# ------------------------------------------------------------------ on a cluster


def _on_cluster(units: Sequence[Unit], shared: Any, address: str) -> Results:
    """Yield from the workers of a dask scheduler.

    What a worker that died was doing is done by another one. Where the scheduler is gone, or has
    had no worker for some time, that is an error: results that came before are kept.
    """
    import dask.config
    import distributed

    try:
        client = distributed.Client(address, timeout="5s", set_as_default=False)
    except (OSError, ValueError) as error:
        raise UserError(
            f"No dask scheduler answers at {address}: {error}",
            "Start one with `dask scheduler`, and workers with `dask worker ADDRESS`.",
        ) from None
    # Dask's log of lost connections: what matters of it is said below.
    silent = quiet(logging.CRITICAL + 1, "distributed", "distributed.client")
    with contextlib.closing(client), silent:
        if not client.ncores():
            raise UserError(
                f"The dask scheduler at {address} has no workers.",
                f"Start some with `dask worker {address}`.",
            )
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
            # A task, not scattered data: if its worker dies, the scheduler has it made again.
            data = client.submit(_same, shared, pure=False)
        waiting = {
            client.submit(_work, place, unit, data, pure=False) for place, unit in enumerate(units)
        }
        try:
            while waiting:
                finished = _finished(client, waiting)
                waiting -= finished
                for future in finished:
                    yield future.result()
        except distributed.CancelledError:
            raise UserError(
                f"The dask scheduler at {address} is gone.",
                "Start it and its workers again: the same command continues.",
            ) from None
        except distributed.KilledWorker as error:
            raise UserError(
                f"Several workers died with the same unit: {error}",
                "They may lack memory. The same command continues.",
            ) from None


def _finished(client: Any, waiting: set[Any]) -> set[Any]:
    """Wait until something is finished; return what is. Nothing for long is an error."""
    import distributed

    last_seen = time.monotonic()
    while True:
        with contextlib.suppress(distributed.TimeoutError), client.as_current():
            distributed.wait(waiting, timeout=1, return_when="FIRST_COMPLETED")
        finished = {future for future in waiting if future.done()}
        if finished:
            return finished
        if client.status != "running":
            raise distributed.CancelledError
        if client.scheduler_info(n_workers=1)["workers"]:
            last_seen = time.monotonic()
        elif time.monotonic() - last_seen > PATIENCE:
            raise UserError(
                f"The cluster has had no worker for {PATIENCE:.0f} s.",
                "Start some workers: the same command continues.",
            )


def _same(data: Any) -> Any:
    return data


@contextlib.contextmanager
def quiet(level: int, *names: str) -> Iterator[None]:
    """Let loggers of these names say nothing below a level."""
    before = {logger: logger.level for logger in map(logging.getLogger, names)}
    for logger in before:
        logger.setLevel(level)
    try:
        yield
    finally:
        for logger, old in before.items():
            logger.setLevel(old)
