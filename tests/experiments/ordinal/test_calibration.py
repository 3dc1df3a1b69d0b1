"""The geometric loss bounds the Hausdorff divergence during training, and the gap closes."""

import pytest
from rich.console import Console

from geosoftmax_experiments.data.ordinal import load_fold
from geosoftmax_experiments.ordinal.calibration import SCORES, run, train
from tests.conftest import data_file

ROUNDING = 1e-12


def check(curves):
    for part in ("train", "validation"):
        gap = curves[f"{part} loss"] - curves[f"{part} divergence"]
        assert (gap >= -ROUNDING).all()
        assert (curves[f"{part} divergence"] >= -ROUNDING).all()
        assert gap.iloc[0] > 1e-3  # there is a gap to close


def test_bound_holds_at_every_step_and_the_picture_is_drawn(tmp_path):
    console = Console(record=True, width=100, quiet=False, file=(tmp_path / "out").open("w"))
    path = tmp_path / "calibration.png"
    curves = run(load_fold("skordinal", "balance-scale", 0), 40, 0, path, console)
    for scores in SCORES:
        part = curves[curves["scores"] == scores]
        assert part["step"].tolist() == list(range(41))
        check(part)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.with_suffix(".csv").exists()
    console.file.close()


@pytest.mark.data
def test_gap_closes_on_car_with_rich_scores():
    data_file("ordinal-regression", "car")
    curves = train(load_fold("survey", "car", 0), "MLP", 60, 0, Console(quiet=True))
    check(curves)
    last = curves.iloc[-1]
    assert last["train loss"] - last["train divergence"] < 1e-6
    assert last["train divergence"] < 0.01
