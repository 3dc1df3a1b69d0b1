"""Steps that are recorded and replayed: they train as steps one by one do."""

from dataclasses import replace

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from typer.testing import CliRunner

from geosoftmax_experiments import replay
from geosoftmax_experiments.cli import app
from geosoftmax_experiments.data.drawings import Drawings, load_drawings
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.vae import module, training
from geosoftmax_experiments.vae.layers import LAYERS
from geosoftmax_experiments.vae.module import DrawingVAE
from geosoftmax_experiments.vae.training import _quiet, read_metrics, train
from tests.experiments.vae.runs import (
    HERE,
    THERE,
    Failing,
    continues_after_a_failure,
    same_bits,
    settings,
    weights,
)


@pytest.fixture(scope="module")
def digits():
    return load_drawings("digits", limit=200)


@pytest.fixture
def recorded(monkeypatch):
    """What became of each attempt to record a step."""
    found = []

    def spy(*arguments):
        found.append(replay.record(*arguments))
        return found[-1]

    monkeypatch.setattr(module, "record", spy)
    return found


@pytest.fixture
def replayed_here(monkeypatch, recorded):
    """Replay on a CPU, where a graph is the step itself."""

    def warm_up(step, inputs):
        for _ in range(replay.WARM_UP):
            step(*inputs)
        return True

    monkeypatch.setattr(module, "REPLAYING", ("cpu",))
    monkeypatch.setattr(replay, "_warm_up", warm_up)
    monkeypatch.setattr(replay, "_capture", capture_here)
    return recorded


def capture_here(step, inputs):
    outputs = tuple(torch.zeros(()) for _ in range(2))

    def again():
        for place, value in zip(outputs, step(*inputs), strict=True):
            place.copy_(value)

    return again, outputs


def trained_both_ways(wanted, drawings, folder, machine):
    """Weights after steps one by one, weights after replayed steps."""
    for name, as_graph in (("one by one", False), ("replayed", True)):
        train(wanted, drawings, folder / name, replace(machine, replay=as_graph))
    return weights(folder / "one by one"), weights(folder / "replayed")


@pytest.mark.parametrize("loss", ["softmax", "smoothed"])
def test_replayed_steps_train_alike(digits, tmp_path, loss, replayed_here):
    one, other = trained_both_ways(settings(digits, loss=loss), digits, tmp_path, HERE)
    assert len(replayed_here) == 1
    assert one.keys() == other.keys()
    for name, value in one.items():
        torch.testing.assert_close(other[name], value, rtol=1e-4, atol=1e-6)
    ends = [read_metrics(folder / "metrics.jsonl")[-1] for folder in sorted(tmp_path.iterdir())]
    assert [row["step"] for row in ends] == [10, 10]
    assert ends[1]["hausdorff"] == pytest.approx(ends[0]["hausdorff"], rel=1e-4)


def test_replayed_steps_continue_to_the_same_bits(digits, tmp_path, monkeypatch, replayed_here):
    assert continues_after_a_failure(digits, tmp_path, "smoothed", HERE, monkeypatch)
    assert len(replayed_here) == 3


@pytest.mark.parametrize("first", [True, False])
def test_checkpoints_of_replayed_steps_and_others_are_the_same_kind(
    digits, tmp_path, monkeypatch, first, replayed_here
):
    wanted = settings(digits, epochs=4)
    with monkeypatch.context() as patch:
        patch.setitem(LAYERS, "softmax", Failing(LAYERS["softmax"]))
        with pytest.raises(UserError, match="not finite"):
            train(wanted, digits, tmp_path / "changed", replace(HERE, replay=first))
    train(wanted, digits, tmp_path / "changed", replace(HERE, replay=not first))
    train(wanted, digits, tmp_path / "whole", replace(HERE, replay=False))
    for name, value in weights(tmp_path / "whole").items():
        torch.testing.assert_close(weights(tmp_path / "changed")[name], value, rtol=1e-4, atol=1e-6)


def test_steps_that_cannot_be_recorded_are_done_one_by_one(
    digits, tmp_path, monkeypatch, replayed_here
):
    def fail(step, inputs):
        raise RuntimeError("out of memory\nand more")

    train(settings(digits), digits, tmp_path / "recorded", HERE)
    monkeypatch.setattr(replay, "_capture", fail)
    with pytest.warns(UserWarning, match="Steps are not replayed, but done one by one: out of mem"):
        train(settings(digits), digits, tmp_path / "one by one", HERE)
    assert [callable(found) for found in replayed_here] == [True, False]
    one, other = weights(tmp_path / "recorded"), weights(tmp_path / "one by one")
    for name, value in one.items():
        torch.testing.assert_close(other[name], value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("options", [{"gradient_clip_val": 1.0}, {"accumulate_grad_batches": 2}])
def test_only_our_own_steps_are_replayed(digits, tmp_path, options, replayed_here):
    usual = {"max_epochs": 1, "accelerator": "cpu", "logger": False, "num_sanity_val_steps": 0,
             "enable_checkpointing": False, "enable_progress_bar": False,
             "default_root_dir": tmp_path}  # fmt: skip
    for others, recordings in ((options, 0), ({}, 1)):
        with _quiet():
            pl.Trainer(**usual, **others).fit(DrawingVAE(settings(digits), digits))
        assert len(replayed_here) == recordings


def test_the_recording_is_forgotten_with_a_run_that_fails(
    digits, tmp_path, monkeypatch, replayed_here
):
    made = []

    class Spied(DrawingVAE):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            made.append(self)

    monkeypatch.setattr(training, "DrawingVAE", Spied)
    monkeypatch.setitem(LAYERS, "softmax", Failing(LAYERS["softmax"]))
    with pytest.raises(UserError, match="not finite"):
        train(settings(digits, epochs=4), digits, tmp_path, HERE)
    assert len(replayed_here) == len(made) == 1
    assert made[0]._replayed is None


@pytest.mark.parametrize(("options", "recordings"), [([], 1), (["--no-replay"], 0)])
def test_the_command_replays_unless_told_not_to(tmp_path, options, recordings, replayed_here):
    few = ["--limit", "200", "--batch", "32", "--epochs", "1", "--accelerator", "cpu"]
    result = CliRunner().invoke(app, ["vae", "train", *few, *options, "-o", str(tmp_path / "run")])
    assert result.exit_code == 0, result.output
    assert len(replayed_here) == recordings


#: Rates that are the same in float32 as in float64.
EXACT = {"learning_rate": 2.0**-10, "decay": False}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("loss", LAYERS)
def test_a_gpu_replays_what_it_would_do(digits, tmp_path, loss, precision, recorded):
    wanted = settings(digits, loss=loss, precision=precision, **EXACT)
    assert same_bits(*trained_both_ways(wanted, digits, tmp_path, THERE))
    assert len(recorded) == 1
    assert callable(recorded[0])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_replays_statistics_of_batches(tmp_path, recorded):
    images = np.random.default_rng(0).integers(0, 255, (80, 64, 64), np.uint8)
    drawings = Drawings("noise", images, np.arange(80))
    wanted = settings(drawings, limit=None, architecture="dcgan", batch=16, **EXACT)
    one, other = trained_both_ways(wanted, drawings, tmp_path, THERE)
    assert callable(recorded[0])
    counts = [name for name in one if name.endswith("num_batches_tracked")]
    assert counts
    assert all(int(other[name]) == 8 for name in counts)
    for name, value in one.items():
        torch.testing.assert_close(other[name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_layer_that_waits_for_the_gpu_is_not_replayed(digits, tmp_path, monkeypatch, recorded):
    class Waiting(Failing):
        def loss(self, scores, alpha, cost):
            return self.layer.loss(scores, alpha, cost) * float(alpha.max() > 0)

    monkeypatch.setitem(LAYERS, "softmax", Waiting(LAYERS["softmax"]))
    wanted = settings(digits, **EXACT)
    assert same_bits(*trained_both_ways(wanted, digits, tmp_path, THERE))
    assert recorded == [None]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_continues_what_a_cpu_began(digits, tmp_path, monkeypatch, recorded):
    wanted = settings(digits, epochs=4)
    with monkeypatch.context() as patch:
        patch.setitem(LAYERS, "softmax", Failing(LAYERS["softmax"]))
        with pytest.raises(UserError, match="not finite"):
            train(wanted, digits, tmp_path / "changed", HERE)
    train(wanted, digits, tmp_path / "changed", THERE)
    assert callable(recorded[0])
    train(wanted, digits, tmp_path / "whole", HERE)
    ends = [read_metrics(tmp_path / name / "metrics.jsonl") for name in ("changed", "whole")]
    assert [[row["step"] for row in rows] for rows in ends] == [[5, 10, 15, 20]] * 2
    one, other = (rows[-1]["hausdorff"] for rows in ends)  # devices draw noise of their own
    assert one == pytest.approx(other, rel=0.05)
