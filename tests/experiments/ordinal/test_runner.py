"""Long work: what is killed continues, a cluster does the same, and nothing is lost."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pandas as pd
import pytest
from rich.console import Console

from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.ordinal.runner import Backend, make_settings, run
from geosoftmax_experiments.ordinal.store import Store
from tests.processes import accept_interrupts

PROGRAM = [sys.executable, "-c", "from geosoftmax_experiments.cli import app; app()"]
OPTIONS = ["--source", "skordinal", "--sets", "balance-scale,LEV", "--models", "lr,pom,ridge"]
COMMAND = [*PROGRAM, "ordinal", "compare", *OPTIONS, "--folds", "3", "--jobs", "1", "--quick"]
ASKED = ("skordinal", ("balance-scale", "LEV"), 3, ("lr", "pom", "ridge"))
UNITS = 2 * 3 * 3


def console():
    return Console(quiet=True)


def same_rows(one: pd.DataFrame, other: pd.DataFrame) -> None:
    keys = ["set", "fold", "model", "decision", "selected_by"]
    frames = [
        frame.drop(columns="seconds").sort_values(keys).reset_index(drop=True)
        for frame in (one, other)
    ]
    pd.testing.assert_frame_equal(*frames, rtol=1e-9)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The rows of a run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    settings, folds = make_settings(*ASKED, quick=True)
    store = Store(folder, settings)
    run(store, folds, Backend(jobs=1), console())
    return store


def test_a_run_that_is_killed_continues(whole, tmp_path):
    units = tmp_path / "units"
    process = subprocess.Popen([*COMMAND, "-o", str(tmp_path)], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while len(list(units.glob("[!.]*.json"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = {path: path.stat().st_mtime_ns for path in units.glob("[!.]*.json")}
    assert 3 <= len(done) < UNITS
    for path in done:
        assert json.loads(path.read_text())  # whole, each of them
    (units / ".part-left").write_text("[{")  # what a kill in the middle of writing leaves
    again = subprocess.run(
        [*COMMAND, "-o", str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert f"{len(done)} of {UNITS} units are done already" in again.stdout
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in done.items())
    assert not list(units.glob(".*"))
    same_rows(pd.read_parquet(tmp_path / "rows.parquet"), whole.rows())
    same_rows(pd.read_csv(tmp_path / "rows.csv"), whole.rows())


def test_an_interrupt_says_what_is_kept(tmp_path):
    process = subprocess.Popen(  # ten times the folds: it is not over when this test looks away
        [*COMMAND, "--folds", "30", "-o", str(tmp_path)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        preexec_fn=accept_interrupts,
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("units/[!.]*.json")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    error = process.communicate()[1]
    assert process.returncode == 130
    assert f"of {10 * UNITS} units are kept" in error
    assert "the same command continues" in error
    assert "Traceback" not in error


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="no limits of file sizes")
def test_a_full_disk_is_one_line_and_loses_nothing(whole, tmp_path):
    store = Store(tmp_path, whole.settings)
    first = whole.settings.units()[0]
    store.write(first, [{"kept": 1}])

    def limit():  # every file that grows beyond a few bytes fails, as on a full disk
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))

    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    failed = subprocess.run(
        [*COMMAND, "-o", str(tmp_path)],
        capture_output=True,
        text=True,
        preexec_fn=limit,
        env=environment,
    )
    assert failed.returncode == 1
    assert "Could not write" in failed.stderr
    assert "Hint:" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert [path.name for path in (tmp_path / "units").iterdir()] == ["balance-scale.0.lr.json"]
    assert store.missing() == whole.settings.units()[1:]


def test_two_processes_and_a_cluster_give_the_same_rows(whole, tmp_path):
    from distributed import LocalCluster

    settings, folds = make_settings(*ASKED, quick=True)
    local = Store(tmp_path / "local", settings)
    run(local, folds, Backend(jobs=2), console())
    same_rows(local.rows(), whole.rows())
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        far = Store(tmp_path / "far", settings)
        run(far, folds, Backend("dask", scheduler=cluster.scheduler_address), console())
    same_rows(far.rows(), whole.rows())


@pytest.mark.slow
def test_a_scheduler_that_does_not_answer_is_one_line(whole, tmp_path):
    with pytest.raises(UserError, match=r"No dask scheduler answers at tcp://127.0.0.1:9"):
        run(
            Store(tmp_path, whole.settings),
            {},
            Backend("dask", scheduler="tcp://127.0.0.1:9"),
            console(),
        )


def test_other_settings_are_refused(whole):
    other, _ = make_settings(*ASKED[:2], 2, ASKED[3], quick=True)
    with pytest.raises(UserError, match=r"made with other settings: folds 3, now 2.*--output"):
        Store(whole.folder, other)
    slow, _ = make_settings(*ASKED)
    with pytest.raises(UserError, match=r"grids \(lr"):
        Store(whole.folder, slow)
    data = whole.settings.data | {"LEV": "changed"}
    with pytest.raises(UserError, match="settings: other data for LEV"):
        Store(whole.folder, replace(whole.settings, data=data))


def test_damaged_results_are_named(whole, tmp_path):
    store = Store(tmp_path, whole.settings)
    path = tmp_path / "units" / "LEV.1.lr.json"
    path.write_text("[{")
    with pytest.raises(UserError, match=r"LEV.1.lr.json is damaged.*Remove it"):
        store.rows()
    (tmp_path / "settings.json").write_text("{")
    with pytest.raises(UserError, match=r"settings.json is damaged"):
        Store(tmp_path, whole.settings)
    (tmp_path / "settings.json").unlink()
    with pytest.raises(UserError, match=r"holds results, but no settings"):
        Store(tmp_path, whole.settings)


def test_backends_are_checked():
    with pytest.raises(UserError, match="no backend 'spark'"):
        Backend("spark")
    with pytest.raises(UserError, match="belong together"):
        Backend("dask")
    with pytest.raises(UserError, match="belong together"):
        Backend("local", scheduler="tcp://127.0.0.1:1")
    with pytest.raises(UserError, match="--jobs is for the local backend"):
        Backend("dask", jobs=2, scheduler="tcp://127.0.0.1:1")
    with pytest.raises(UserError, match="--jobs 0"):
        Backend(jobs=0)
    with pytest.raises(UserError, match="twice in lr,pom,lr"):
        make_settings("skordinal", models=("lr", "pom", "lr"))
    with pytest.raises(UserError, match="no model 'svm'"):
        make_settings("skordinal", models=("svm",))
