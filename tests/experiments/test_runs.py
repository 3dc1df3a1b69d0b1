"""The engine of long work, with the smallest application: what CONTRIBUTING calls ten lines."""

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass

import numpy as np
import pytest
from rich.console import Console

from geosoftmax_experiments.errors import Stopped, UserError
from geosoftmax_experiments.options import BackendOptions
from geosoftmax_experiments.runs import Backend, Unit, run
from geosoftmax_experiments.store import ARRAY, Store, locked
from tests.processes import accept_interrupts

# ------------------------------------------------------------------ an application in ten lines


@dataclass(frozen=True)
class Power(Unit):
    """A number of the shared list, to a power."""

    place: int

    @property
    def key(self):
        return f"power-{self.place}"

    def work(self, shared):
        if shared.get("seconds"):
            time.sleep(shared["seconds"])
        return shared["numbers"][self.place] ** 2


def compute(folder, shared, backend=None, count=6, **options):
    with Store(folder, {"of": "squares"}).opened(fresh=options.pop("fresh", False)) as store:
        units = [Power(k) for k in range(count)]
        run(store, units, shared, backend or Backend(jobs=1), console(), doing="squares", **options)
        return [store.read(unit.key) for unit in units]


# ------------------------------------------------------------------ what the engine does for it

SHARED = {"numbers": [1, 2, 3, 4, 5, 6]}
SQUARES = [1, 4, 9, 16, 25, 36]


def console():
    return Console(quiet=True)


@pytest.mark.parametrize(
    "backend", [Backend(jobs=1), Backend(jobs=2), Backend(jobs=3, threads=True)], ids=repr
)
def test_every_unit_is_done_once(backend, tmp_path):
    assert compute(tmp_path, SHARED, backend) == SQUARES
    # What is done is not done again: other numbers would give other results.
    assert compute(tmp_path, {"numbers": [0] * 6}, backend) == SQUARES
    assert compute(tmp_path, {"numbers": [0] * 6}, backend, fresh=True) == [0] * 6


def test_a_unit_that_fails_says_which_and_keeps_the_others(tmp_path):
    with pytest.raises(TypeError) as failure:
        compute(tmp_path, {"numbers": [1, 2, "three", 4, 5, 6]})
    assert failure.value.__notes__ == ["in power-2"]
    assert Store(tmp_path, {}).keys() == ["power-0", "power-1"]
    assert compute(tmp_path, SHARED) == SQUARES


def test_an_interrupt_says_what_is_kept(tmp_path):
    def stop(unit):
        if unit.place == 3:
            raise KeyboardInterrupt

    with pytest.raises(Stopped, match=f"4 of 6 are kept in {tmp_path}"):
        compute(tmp_path, SHARED, then=stop)
    assert compute(tmp_path, SHARED) == SQUARES


def test_the_bar_counts_what_units_hold(tmp_path, capsys):
    with Store(tmp_path, {}).opened() as store:
        store.write("power-0", 1)
        units = [Power(0), Power(1)]
        run(store, units, SHARED, Backend(jobs=1), Console(width=100), doing="squares",
            amount=lambda unit: 10)  # fmt: skip
    said = capsys.readouterr().out
    assert "Continuing: 10 of 20 are done already." in said
    assert "20/20" in said


def test_results_carry_their_commit_and_folders_where_they_were_made(tmp_path, monkeypatch):
    compute(tmp_path, SHARED)
    store = Store(tmp_path, {})
    assert sum(store.commits(store.keys()).values()) == 6
    (made,) = ((tmp_path / "provenance.json").read_text().count('"commit"'),)
    assert made == 1
    compute(tmp_path, SHARED)  # nothing was missing, so nothing is added
    assert (tmp_path / "provenance.json").read_text().count('"commit"') == 1


# ------------------------------------------------------------------ folders


def test_a_folder_belongs_to_its_settings(tmp_path):
    compute(tmp_path, SHARED)
    with (
        pytest.raises(UserError, match="made with other settings: of squares, now cubes"),
        Store(tmp_path, {"of": "cubes"}).opened(),
    ):
        pass
    (tmp_path / "settings.json").unlink()
    with (
        pytest.raises(UserError, match="holds results, but no settings"),
        Store(tmp_path, {"of": "squares"}).opened(),
    ):
        pass


@pytest.mark.parametrize("text", ["", "[", '{"rows": ', "[" * 100_000])
def test_a_damaged_result_is_named(text, tmp_path):
    compute(tmp_path, SHARED)
    (tmp_path / "units" / "power-3.json").write_text(text)
    with pytest.raises(UserError, match=r"power-3\.json is damaged"):
        compute(tmp_path, SHARED)


def test_a_result_that_fails_its_check_is_damaged(tmp_path):
    with Store(tmp_path, {}, ARRAY).opened() as store:
        store.write("one", np.ones((2, 3)))
        assert store.read("one", lambda rows: rows.shape[1] == 3).sum() == 6
        with pytest.raises(UserError, match=r"one\.npy is damaged"):
            store.read("one", lambda rows: rows.shape[1] == 4)


def test_results_of_the_first_versions_are_read(tmp_path):
    """They were rows alone, without the commit."""
    with Store(tmp_path, {}).opened() as store:
        (tmp_path / "units" / "old.json").write_text('[{"mae": 0.5}]')
        assert store.read("old") == [{"mae": 0.5}]
        assert store.commits(["old"]) == {"unknown": 1}


HOLD = """
import sys, time
from pathlib import Path
from geosoftmax_experiments.store import locked
with locked(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(60)
"""


def test_a_second_start_says_who_is_there_and_goes_on_when_that_one_is_dead(tmp_path):
    (tmp_path / "units").mkdir()
    begun = tmp_path / "units" / ".part-begun"
    begun.write_text("[{")  # what the other one is writing
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(UserError) as refusal:
            compute(tmp_path, SHARED)
        assert f"is in use by process {holder.pid} on {os.uname().nodename}, since 20" in str(
            refusal.value
        )
        assert begun.exists()
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    assert compute(tmp_path, SHARED) == SQUARES
    assert not begun.exists()


def test_a_folder_can_be_locked_again_once_it_is_free(tmp_path):
    for _ in range(2):
        with locked(tmp_path), pytest.raises(UserError, match="is in use"), locked(tmp_path):
            pass


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_one_line(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(UserError, match="Could not"):
        compute(tmp_path, SHARED)


# ------------------------------------------------------------------ signals

PROGRAM = """
import sys
from pathlib import Path
from geosoftmax_experiments.errors import plain_errors, raise_on_sigterm
from geosoftmax_experiments.runs import Backend
from tests.experiments.test_runs import compute
import typer

app = typer.Typer()

@app.command()
def main(folder: Path, jobs: int):
    with plain_errors(), raise_on_sigterm():
        shared = {"numbers": list(range(200)), "seconds": 0.2}
        compute(folder, shared, Backend(jobs=jobs), count=200)

app()
"""


@pytest.mark.parametrize(
    ("number", "status", "jobs"),
    [
        (signal.SIGINT, 130, 2),
        (signal.SIGTERM, 143, 1),
        (signal.SIGKILL, -signal.SIGKILL, 2),
        pytest.param(signal.SIGINT, 130, 1, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, 143, 2, marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, -signal.SIGKILL, 1, marks=pytest.mark.slow),
    ],
)
def test_no_signal_loses_what_was_done_and_no_worker_stays(number, status, jobs, tmp_path):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([".", *sys.path])}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path), str(jobs)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=accept_interrupts,
    )
    deadline = time.monotonic() + 60
    while len(list(tmp_path.glob("units/[!.]*"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(number)
    # Workers hold the pipes: this returns only when the last of them has ended.
    _, error = process.communicate(timeout=10)
    assert process.returncode == status
    if number != signal.SIGKILL:
        kept = len(list(tmp_path.glob("units/[!.]*")))
        assert f"Stopped: {kept} of 200 are kept in {tmp_path}." in error
        assert "Hint: the same command continues." in error
    assert "Traceback" not in error
    numbers = {"numbers": list(range(200))}
    assert compute(tmp_path, numbers, count=200) == [k**2 for k in range(200)]


# ------------------------------------------------------------------ a cluster


@pytest.fixture(scope="module")
def cluster():
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        yield cluster


def test_a_cluster_gives_the_same_results(cluster, tmp_path):
    backend = Backend("dask", scheduler=cluster.scheduler_address)
    assert compute(tmp_path, SHARED, backend) == SQUARES


def test_what_a_dead_worker_was_doing_is_done_by_another(cluster, tmp_path):
    from distributed import Client

    backend = Backend("dask", scheduler=cluster.scheduler_address)
    killed = []

    def kill_one(unit):
        if not killed:
            with Client(cluster.scheduler_address) as client:
                killed.append(min(client.run(os.getpid).values()))
            os.kill(killed[0], signal.SIGKILL)

    shared = {"numbers": list(range(30)), "seconds": 0.05}
    expected = [k**2 for k in range(30)]
    assert compute(tmp_path, shared, backend, count=30, then=kill_one) == expected
    assert killed


@pytest.mark.slow  # what a worker was doing when it died: above
def test_a_scheduler_that_dies_is_one_line_and_nothing_is_lost(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1",
               "--port", str(port), "--no-dashboard"]  # fmt: skip
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--no-nanny",
              "--nthreads", "1", "--no-dashboard", "--death-timeout", "30",
              "--local-directory", str(tmp_path)]  # fmt: skip
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([".", *sys.path])}
    processes = [subprocess.Popen(line, env=environment, **quiet) for line in (command, worker)]
    try:
        backend = _wait_for_workers(address)

        seen = []

        def kill_the_scheduler(unit):
            seen.append(unit)  # units come in any order
            if len(seen) == 3:
                processes[0].kill()

        shared = {"numbers": list(range(30)), "seconds": 0.1}
        with pytest.raises(UserError, match=r"The dask scheduler at .* is gone"):
            compute(tmp_path / "run", shared, backend, count=30, then=kill_the_scheduler)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert 3 <= len(Store(tmp_path / "run", {}).keys()) < 30
    assert compute(tmp_path / "run", shared, count=30) == [k**2 for k in range(30)]


def _wait_for_workers(address):
    from distributed import Client

    with Client(address, timeout="30s") as client:
        client.wait_for_workers(1, timeout=30)
    return Backend("dask", scheduler=address)


def test_a_cluster_without_workers_or_scheduler_is_one_line(tmp_path):
    from distributed import LocalCluster

    with LocalCluster(n_workers=0, dashboard_address=":0") as empty:
        backend = Backend("dask", scheduler=empty.scheduler_address)
        with pytest.raises(UserError, match="has no workers"):
            compute(tmp_path, SHARED, backend)
    nowhere = Backend("dask", scheduler="tcp://127.0.0.1:1")
    with pytest.raises(UserError, match="No dask scheduler answers"):
        compute(tmp_path, SHARED, nowhere)


def test_backends_that_make_no_sense_are_refused():
    with pytest.raises(UserError, match="no backend 'cloud'"):
        Backend("cloud")
    with pytest.raises(UserError, match="--jobs 0"):
        Backend(jobs=0)
    with pytest.raises(UserError, match="belong together"):
        Backend("dask")
    with pytest.raises(UserError, match="belong together"):
        Backend("local", scheduler="tcp://here:1")
    with pytest.raises(UserError, match="uses all its workers"):
        Backend("dask", 2, "tcp://here:1")


def test_options_become_a_backend():
    assert BackendOptions().where() == Backend()
    assert BackendOptions().where(4, threads=True) == Backend(jobs=4, threads=True)
    assert BackendOptions(jobs=2).where(4) == Backend(jobs=2)
    there = BackendOptions(backend="dask", scheduler="tcp://here:1")
    assert there.where(4, threads=True) == Backend("dask", scheduler="tcp://here:1")
