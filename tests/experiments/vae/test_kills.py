"""`train` and `compare`, killed at random moments, end with the same bits; folders are locked."""

import itertools
import json
import os
import signal
import subprocess
import time

import pytest
from typer.testing import CliRunner

from geosoftmax_experiments.cli import app
from geosoftmax_experiments.vae.checkpoints import latest
from geosoftmax_experiments.vae.training import read_metrics
from tests.experiments.vae.runs import same_bits, weights
from tests.processes import (
    PROGRAM,
    accept_interrupts,
    kill_at_random,
    new_random,
    run_to_the_end,
)

COMMON = ["--limit", 200, "--batch", 32, "--learning-rate", 0.001, "--accelerator", "cpu"]
TRAIN = [
    *PROGRAM, "vae", "train", *COMMON, "--loss", "geometric", "--epochs", 30, "--every", 10,
    "--anneal", 0.9, "--save-seconds", 0, "-o",
]  # fmt: skip
COMPARE = [
    *PROGRAM, "vae", "compare", *COMMON, "--losses", "softmax,potential", "--weights", "1",
    "--epochs", 20, "--every", 10, "--jobs", 2, "-o",
]  # fmt: skip
#: Columns that differ from one run to the next.
CLOCKS = {"seconds", "own_seconds", "seconds_per_step"}


def without_clocks(rows):
    return [{key: value for key, value in row.items() if key not in CLOCKS} for row in rows]


def same_run(one, other):
    """Whether two folders of `train` hold the same weights, and measurements but for the clock."""
    rows = [without_clocks(read_metrics(run / "metrics.jsonl")) for run in (one, other)]
    return rows[0] == rows[1] and same_bits(weights(one), weights(other))


def same_comparison(one, other):
    """Whether two folders of `compare` hold the same runs and results but for the clock."""
    results = []
    for folder in (one, other):
        columns = json.loads((folder / "results.json").read_text())["rows"]
        results.append({key: values for key, values in columns.items() if key not in CLOCKS})
    units = [sorted(path.name for path in (folder / "units").iterdir()) for folder in (one, other)]
    runs = [sorted((folder / "runs").iterdir()) for folder in (one, other)]
    return (
        results[0] == results[1]
        and units[0] == units[1]
        and all(same_run(ours, theirs) for ours, theirs in zip(*runs, strict=True))
    )


def call(command):
    """Run a command in this process."""
    return CliRunner().invoke(app, [str(word) for word in command[len(PROGRAM) :]])


def timed(command):
    since = time.monotonic()
    run_to_the_end(command)
    return time.monotonic() - since


def kill_and_finish(command, chance, longest, shortest, most):
    """Kill a command up to `most` times, each time continuing it; return how often it was."""
    for kills in range(most):
        if kill_at_random(command, chance, longest, shortest=shortest).status == 0:
            return kills
    run_to_the_end(command)
    return most


def test_a_run_killed_at_a_random_moment_ends_with_the_same_bits(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    since = time.monotonic()
    assert call([*TRAIN, whole]).exit_code == 0
    seconds = time.monotonic() - since  # a process of its own takes 3 s more to start
    kill_at_random([*TRAIN, killed], new_random(), 3 + seconds, shortest=3.0)
    assert call([*TRAIN, killed]).exit_code == 0
    assert [row["epoch"] for row in read_metrics(killed / "metrics.jsonl")] == [10, 20, 30]
    assert same_run(whole, killed)
    assert list((whole / "tensorboard").glob("events*"))


@pytest.mark.slow  # comparisons are killed in test_runs.py, runs above
def test_a_comparison_killed_at_a_random_moment_ends_with_the_same_bits(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    since = time.monotonic()
    assert call([*COMPARE[:-1], "--jobs", 1, "-o", whole]).exit_code == 0
    seconds = time.monotonic() - since
    one_process = [*COMPARE[:-1], "--jobs", 1, "-o", killed]  # starting others takes longest
    kill_at_random(one_process, new_random(), 3 + seconds, shortest=3.0)
    run_to_the_end(one_process)
    assert same_comparison(whole, killed)


@pytest.mark.slow
@pytest.mark.parametrize("command", [TRAIN, COMPARE], ids=["train", "compare"])
def test_many_kills_change_nothing(tmp_path, command):
    whole, chance, kills = tmp_path / "whole", new_random(), 0
    seconds = timed([*command, whole])
    same = same_run if command is TRAIN else same_comparison
    for attempt in itertools.count():
        killed = tmp_path / f"killed-{attempt}"
        kills += kill_and_finish([*command, killed], chance, 0.6 * seconds, 0.0, 5)
        assert same(whole, killed)
        if kills >= 35:
            break


@pytest.mark.slow
def test_kills_of_two_processes_change_nothing(tmp_path):
    command = [*TRAIN[:-1], "--devices", 2, "--strategy", "ddp", "-o"]
    seconds = timed([*command, tmp_path / "whole"])
    killed = [*command, tmp_path / "killed"]
    kill_and_finish(killed, new_random(), 0.9 * seconds, 0.2 * seconds, 8)
    assert same_run(tmp_path / "whole", tmp_path / "killed")


def start(command):
    return subprocess.Popen(
        [str(word) for word in command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=accept_interrupts,
    )


def wait_until(happened):
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    "by", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM]
)
def test_a_run_is_alone_in_its_folder_and_says_what_is_kept(tmp_path, by):
    command = [*TRAIN[:-1], "--epochs", 100_000, "--every", 50_000, "-o", tmp_path]
    process = start(command)
    wait_until(lambda: latest(tmp_path) is not None)
    second = call(command)
    assert second.exit_code == 1
    assert f"{tmp_path} is in use by process {process.pid} on " in second.stderr
    assert ", since 20" in second.stderr
    assert second.stderr.count("\n") == 2
    process.send_signal(by)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 128 + by
    kept = f"Stopped: the last checkpoint is kept in {tmp_path}."
    assert errors.strip().splitlines() == [kept, "Hint: the same command continues."]


@pytest.mark.slow
def test_no_checkpoint_is_kept_where_there_is_none(tmp_path):
    command = [*TRAIN[:-1], "--save-seconds", 1000, "-o", tmp_path]
    command[command.index("--epochs") + 1] = command[command.index("--every") + 1] = 100_000
    process = start(command)
    wait_until(lambda: (tmp_path / "tensorboard").exists())
    process.terminate()
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGTERM, errors
    assert f"Stopped: no checkpoint is in {tmp_path} yet." in errors


@pytest.mark.slow  # with smaller units in test_runs.py
def test_a_comparison_that_is_stopped_says_what_is_kept(tmp_path):
    command = [*COMPARE[:-1], "--epochs", 50_000, "--every", 50_000, "-o", tmp_path]
    process = start(command)
    wait_until(lambda: len(list(tmp_path.glob("runs/*/run.json"))) == 2)
    second = call(command)
    assert f"{tmp_path} is in use by process {process.pid} on " in second.stderr
    process.terminate()
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGTERM
    assert f"Stopped: 0 of 2 are kept in {tmp_path}." in errors


def test_a_folder_that_cannot_be_written_to(tmp_path):
    if os.geteuid() == 0:  # whom permissions do not stop: a file lies in the way
        (tmp_path / "closed").write_text("")
    else:
        (tmp_path / "closed").mkdir(mode=0o555)
    for command in (TRAIN, COMPARE):
        failed = call([*command, tmp_path / "closed" / "run"])
        assert failed.exit_code == 1
        assert "Could not make the folder" in failed.stderr
        assert failed.stderr.count("\n") == 2
