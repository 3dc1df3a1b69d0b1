"""`geosoftmax localize`, killed at random moments and on a cluster: the same bytes each time."""

import numpy as np
import pytest

from tests.experiments.superres.test_commands import UNITS, call, save
from tests.experiments.superres.test_emitters import scene
from tests.processes import PROGRAM, kill_at_random, new_random, run_to_the_end


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A stack of several batches, and its positions as a run without a stop writes them."""
    folder = tmp_path_factory.mktemp("localize")
    _, frames = scene(frames=120)
    repeated = np.repeat(frames.numpy(), 3, 0)
    save(folder / "stack.tif", repeated.astype(np.uint16))
    out = folder / "positions.csv"
    result = call("localize", folder / "stack.tif", *UNITS, "--threshold", 1000, "-o", out)
    assert result.exit_code == 0, result.output
    return folder / "stack.tif", out.read_bytes()


def kill_until_done(stack, expected, folder, kills, longest):
    chance = new_random()
    out = folder / "positions.csv"
    command = [*PROGRAM, "localize", stack, *UNITS, "--threshold", "1000", "-o", out]
    for _ in range(kills):
        kill_at_random(command, chance, longest)
    run_to_the_end(command)
    assert out.read_bytes() == expected
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["positions.csv", "positions.csv.json"]


@pytest.mark.slow  # a run that is stopped: test_commands.py
def test_localize_killed_once(finished, tmp_path):
    kill_until_done(*finished, tmp_path, kills=1, longest=8.0)


@pytest.mark.slow
def test_localize_killed_often(finished, tmp_path):
    for round_ in range(5):
        folder = tmp_path / str(round_)
        folder.mkdir()
        kill_until_done(*finished, folder, kills=5, longest=12.0)


@pytest.mark.slow
def test_a_cluster_writes_the_same_positions(finished, tmp_path):
    from distributed import LocalCluster

    stack, expected = finished
    out = tmp_path / "positions.csv"
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster:
        options = ["--backend", "dask", "--scheduler", cluster.scheduler_address]
        result = call("localize", stack, *UNITS, "--threshold", 1000, "-o", out, *options)
    assert result.exit_code == 0, result.output
    assert out.read_bytes() == expected
