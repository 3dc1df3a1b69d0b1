"""Times of a comparison: measured once, in turns, and shown in its report."""

import json

import pytest
from rich.console import Console

from geosoftmax_experiments.data.keypoints import load_project
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.keypoints.comparison import Comparison
from geosoftmax_experiments.keypoints.model import Recipe
from geosoftmax_experiments.keypoints.report import write_report
from geosoftmax_experiments.keypoints.timing import read_timing, time_losses
from geosoftmax_experiments.runs import Backend
from tests.experiments.keypoints.projects import write_project


@pytest.fixture
def comparison(tmp_path):
    write_project(tmp_path / "project", count=14)
    return Comparison(
        folder=tmp_path / "out",
        frames=load_project(str(tmp_path / "project")).frames((48, 64)),
        shape=(12, 16),
        recipe=Recipe(longest=16, width=4, steps=4, batch=4),
        losses=("geometric", "softmax"),
        kinds=("random",),
        sizes=(8,),
        splits=1,
        seeds=1,
        most_settings=1,
        device="cpu",
    )


def test_losses_are_timed_once_and_reported(comparison):
    console = Console(quiet=True)
    with comparison.store.opened() as store:
        comparison.run(store, Backend(jobs=1), console)
        results = comparison.results(store)
        assert read_timing(comparison.folder) == {}
        assert "## Times" not in write_report(comparison, store, results).read_text()
        time_losses(comparison, results.chosen, console, rounds=2, steps=2)
        path = comparison.folder / "timing.json"
        before = path.read_bytes()
        time_losses(comparison, results.chosen, console, rounds=2, steps=2)
        assert path.read_bytes() == before
        write_report(comparison, store, results)
        report = (comparison.folder / "report.md").read_text()
    timing = read_timing(comparison.folder)
    assert list(timing) == ["geometric", "softmax"]
    assert timing["geometric"]["setting"] == "p=1,scale=4"
    ratio = timing["geometric"]["step"] / timing["softmax"]["step"]
    (row,) = (
        line for line in report.splitlines() if f"| {ratio:.2f} |" in line and "points" in line
    )
    assert f"| {timing['geometric']['head 1']:.3f} |" in row
    rounds = json.loads(before)["rounds"]["softmax"]
    assert {name: len(values) for name, values in rounds.items()} == dict.fromkeys(
        ("step", "network 16", "head 16", "network 1", "head 1"), 2
    )
    path.write_text(json.dumps({"losses": {"softmax": {"setting": "", "step": -1}}}))
    with pytest.raises(UserError, match=r"timing\.json is damaged"):
        read_timing(comparison.folder)
    with comparison.store.opened(fresh=True):
        assert not path.exists()
