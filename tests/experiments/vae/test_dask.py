"""A comparison on a real cluster of processes: a worker that is killed changes nothing."""

import os
import signal
import threading
import time

import pytest

from tests.experiments.vae.test_kills import COMPARE, call, same_comparison

distributed = pytest.importorskip("distributed")
# The scheduler's own: what it says of a worker that was killed.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture
def cluster():
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
    ) as cluster:
        yield cluster


def workers(cluster):
    with distributed.Client(cluster, set_as_default=False) as client:
        return sorted(client.run(os.getpid).values())


@pytest.mark.slow
def test_a_comparison_on_a_cluster_survives_the_death_of_a_worker(cluster, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    command = COMPARE[: COMPARE.index("--jobs")]
    assert call([*command, "--jobs", 1, "-o", here]).exit_code == 0
    before = workers(cluster)
    killed = []

    def kill():
        """Kill a worker as soon as a run has begun."""
        deadline = time.monotonic() + 60
        while not list(there.glob("runs/*/run.json")) and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(before[0], signal.SIGKILL)
        killed.append(before[0])

    killer = threading.Thread(target=kill)
    killer.start()
    address = ["--backend", "dask", "--scheduler", cluster.scheduler_address]
    result = call([*command, *address, "-o", there])
    killer.join()
    assert result.exit_code == 0, result.output
    assert killed
    assert set(killed).isdisjoint(workers(cluster))
    assert same_comparison(here, there)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--backend", "dask"], "--scheduler ADDRESS belong together"),
        (["--backend", "ray"], "no backend 'ray'"),
        (["--backend", "dask", "--scheduler", "tcp://127.0.0.1:9", "--jobs", 2], "--jobs is for"),
    ],
)
def test_options_of_clusters_are_checked(options, words, tmp_path):
    result = call([*COMPARE[: COMPARE.index("--jobs")], *options, "-o", tmp_path / "x"])
    assert result.exit_code == 1
    assert words in result.stderr
    assert not (tmp_path / "x").exists()
