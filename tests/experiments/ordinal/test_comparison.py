"""A comparison as a run: what is killed continues, a cluster does the same, and nothing is lost."""

import json
import os
import resource
import signal
import subprocess
import time
from dataclasses import replace

import pandas as pd
import pytest
from rich.console import Console

from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.ordinal.comparison import Comparison, load_folds, refuse_older
from geosoftmax_experiments.runs import Backend
from tests.processes import (
    PROGRAM,
    accept_interrupts,
    kill_at_random,
    new_random,
    run_to_the_end,
)

OPTIONS = ["--source", "skordinal", "--sets", "balance-scale,LEV", "--models", "lr,pom,ridge"]
COMMAND = [*PROGRAM, "ordinal", "compare", *OPTIONS, "--folds", "3", "--quick"]
ASKED = ("skordinal", ("balance-scale", "LEV"), 3, ("lr", "pom", "ridge"))
UNITS = 2 * 3 * 3


def compared(source, sets, count, models, *, quick=True):
    return Comparison.of(source, load_folds(source, sets, count), models, 3, quick)


def run(comparison, folder, backend=None):
    with comparison.store(folder).opened() as store:
        return comparison.run(store, backend or Backend(jobs=1), Console(quiet=True))


def same_rows(one: pd.DataFrame, other: pd.DataFrame) -> None:
    keys = ["set", "fold", "model", "decision", "selected_by"]
    frames = [
        frame.drop(columns="seconds").sort_values(keys).reset_index(drop=True)
        for frame in (one, other)
    ]
    pd.testing.assert_frame_equal(*frames, check_exact=True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The rows of a run that nothing disturbed."""
    return run(compared(*ASKED), tmp_path_factory.mktemp("whole"))


def kill_until_done(whole, folder, kills):
    """Kill the command at random moments, in between let it go on, and compare what it wrote."""
    chance = new_random()
    command = [*COMMAND, "--jobs", "2", "-o", folder]
    for _ in range(kills):
        kill_at_random(command, chance, longest=15.0)
    (folder / "units").mkdir(exist_ok=True)
    (folder / "units" / ".part-left").write_text("[{")  # what a kill while it writes leaves
    done = {path: path.stat().st_mtime_ns for path in folder.glob("units/[!.]*.json")}
    run_to_the_end(command)
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in done.items())
    assert not list(folder.glob("units/.*"))
    same_rows(pd.read_parquet(folder / "rows.parquet"), whole)


@pytest.mark.slow  # with smaller units in test_runs.py
def test_a_run_that_is_killed_continues(whole, tmp_path):
    kill_until_done(whole, tmp_path, kills=1)


@pytest.mark.slow
def test_a_run_that_is_killed_often_continues(whole, tmp_path):
    for k in range(5):
        (tmp_path / str(k)).mkdir()
        kill_until_done(whole, tmp_path / str(k), kills=5)


@pytest.mark.slow  # with smaller units in test_runs.py
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
    assert f"of {10 * UNITS} are kept" in error
    assert "the same command continues" in error
    assert "Traceback" not in error


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="no limits of file sizes")
def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path):
    comparison = compared(*ASKED)
    first, second, *_ = comparison.units()
    with comparison.store(tmp_path).opened() as store:
        store.write(first.key, [{"kept": 1}])

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
    assert store.keys() == [first.key]
    assert second.key not in store


@pytest.mark.slow  # clusters are tested on small units in test_runs.py
def test_two_processes_and_a_cluster_give_the_same_rows(whole, tmp_path):
    from distributed import LocalCluster

    comparison = compared(*ASKED)
    same_rows(run(comparison, tmp_path / "local", Backend(jobs=2)), whole)
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
    ) as cluster:
        backend = Backend("dask", scheduler=cluster.scheduler_address)
        same_rows(run(comparison, tmp_path / "far", backend), whole)


def test_other_settings_are_refused(tmp_path):
    comparison = compared(*ASKED)
    with comparison.store(tmp_path).opened():
        pass
    changed = comparison.settings.data | {"LEV": "changed"}
    settings = replace(comparison.settings, data=changed)
    for other, message in (
        (compared(*ASKED[:2], 2, ASKED[3]), "folds 3, now 2.*--output"),
        (compared(*ASKED, quick=False), r"grids \(lr"),
        (replace(comparison, settings=settings), "settings: other data for LEV"),
    ):
        with (
            pytest.raises(UserError, match=f"made with other settings: .*{message}|{message}"),
            other.store(tmp_path).opened(),
        ):
            pass


def test_folders_of_the_first_version_are_refused(tmp_path):
    refuse_older(tmp_path)  # nothing there
    with compared(*ASKED).store(tmp_path).opened():
        refuse_older(tmp_path)
    settings = json.loads((tmp_path / "settings.json").read_text())
    (tmp_path / "settings.json").write_text(json.dumps(settings | {"format": 1}))
    with pytest.raises(UserError, match=r"made by an earlier geosoftmax.*--fresh"):
        refuse_older(tmp_path)


def test_damaged_results_are_named(tmp_path):
    comparison = compared(*ASKED)
    run(comparison, tmp_path)
    path = tmp_path / "units" / "LEV.1.lr.json"
    whole = path.read_text()
    for damaged in ("[{", whole.replace('"LEV"', '"ERA"'), whole.replace('"mode"', '"<b>"')):
        path.write_text(damaged)
        with pytest.raises(UserError, match=r"LEV.1.lr.json is damaged.*Remove it"):
            run(comparison, tmp_path)


def test_unknown_models_are_named():
    with pytest.raises(UserError, match="no model 'svm'"):
        compared("skordinal", ("LEV",), 1, ("svm",))
