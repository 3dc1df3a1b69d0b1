"""Training: what is killed continues to the same bits, two processes agree with one."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from safetensors.torch import load_file

from geosoftmax_experiments.data.drawings import Drawings, load_drawings
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.vae import module, replay, training
from geosoftmax_experiments.vae.checkpoints import WEIGHTS, latest, load_weights
from geosoftmax_experiments.vae.layers import LAYERS
from geosoftmax_experiments.vae.measures import MEASURES
from geosoftmax_experiments.vae.module import DrawingVAE, build_net
from geosoftmax_experiments.vae.settings import make_settings, read_settings, usual_weights
from geosoftmax_experiments.vae.training import Machine, _quiet, read_metrics, train

PROGRAM = [sys.executable, "-m", "geosoftmax_experiments", "vae", "train"]
OPTIONS = [
    "--limit", "200", "--batch", "32", "--learning-rate", "0.001", "--accelerator", "cpu",
    "--save-seconds", "0",
]  # fmt: skip
HERE = Machine(accelerator="cpu", save_seconds=0, talk=False)
THERE = replace(HERE, accelerator="gpu")
USUAL = {
    "loss": "softmax", "weight": 1.0, "seed": 0, "learning_rate": 1e-3, "precision": "32-true",
    "compile": False, "start": "zero", "on": "test", "limit": 200, "batch": 32, "epochs": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def digits():
    return load_drawings("digits", limit=200)


def settings(digits, **changes):
    return make_settings(digits, **{**USUAL, **changes})


def weights(run):
    return load_file(latest(run) / WEIGHTS)


def same_bits(one, other):
    assert one.keys() == other.keys()
    return all(torch.equal(one[name], other[name]) for name in one)


def test_the_learning_rate_falls_to_zero(digits, tmp_path):
    module = DrawingVAE(settings(digits, epochs=2), digits)
    seen = []

    class Rates(pl.Callback):
        def on_before_optimizer_step(self, trainer, pl_module, optimizer):
            seen.append(optimizer.param_groups[0]["lr"])

    trainer = pl.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, callbacks=[Rates()],
        enable_progress_bar=False, enable_checkpointing=False, enable_model_summary=False,
        limit_val_batches=0,
    )  # fmt: skip
    with _quiet():
        trainer.fit(module)
    assert len(seen) == 2 * module.steps
    assert seen[0] == module.settings.learning_rate
    assert seen[module.steps] == pytest.approx(seen[0] / 2)
    assert seen == sorted(seen, reverse=True)
    assert 0 < seen[-1] < 0.1 * seen[0]


def test_the_gain_multiplies_what_the_decoder_says(digits):
    nets = [build_net(settings(digits, gain=gain)) for gain in (1.0, 3.0)]
    code = torch.randn(2, nets[0].decoder[0].in_features)
    assert torch.allclose(nets[1].decode(code), 3 * nets[0].decode(code))


@pytest.mark.parametrize("loss", LAYERS)
def test_every_layer_learns(digits, tmp_path, loss):
    wanted = settings(digits, loss=loss, epochs=8, every=4, start="mean", weight=0.1, decay=False)
    rows = read_metrics(train(wanted, digits, tmp_path, HERE))
    assert [row["epoch"] for row in rows] == [4, 8]
    assert rows[1]["step"] == 8 * 5
    assert rows[1]["seconds"] > rows[0]["seconds"] > 0
    assert rows[1]["seconds_per_step"] > 0
    assert MEASURES.keys() <= rows[0].keys()
    assert rows[1]["reconstruction"] < rows[0]["reconstruction"]
    assert rows[1]["hausdorff"] < 0.2
    if loss == "potential":  # its loss is the divergence
        assert rows[1]["reconstruction"] == pytest.approx(rows[1]["hausdorff"], rel=1e-3)
    if loss == "softmax":
        assert rows[1]["reconstruction"] == pytest.approx(rows[1]["kl"], rel=1e-3)
        assert rows[1]["kl_finite"] == 1
    assert json.loads((tmp_path / "run.json").read_text())["loss"] == loss


def test_a_run_that_is_killed_ends_with_the_same_bits(tmp_path):
    options = [
        *OPTIONS,
        "--loss",
        "geometric",
        "--epochs",
        "60",
        "--every",
        "20",
        "--anneal",
        "0.9",
    ]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    quiet = {"stdout": subprocess.DEVNULL}
    subprocess.run([*PROGRAM, *options, "-o", whole], check=True, **quiet)
    process = subprocess.Popen([*PROGRAM, *options, "-o", killed], **quiet)
    deadline = time.monotonic() + 60
    while not list(killed.glob("checkpoints/epoch-*")) and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    stopped = latest(killed)
    assert stopped is not None
    assert stopped.name < "epoch-000060"
    assert not same_bits(weights(whole), weights(killed))
    subprocess.run([*PROGRAM, *options, "-o", killed], check=True, **quiet)
    assert same_bits(weights(whole), weights(killed))
    ours, theirs = (read_metrics(run / "metrics.jsonl") for run in (killed, whole))
    assert [row["epoch"] for row in ours] == [20, 40, 60]
    for row, other in zip(ours, theirs, strict=True):
        clock = ("seconds", "seconds_per_step")
        assert {k: row[k] for k in row if k not in clock} == {
            k: other[k] for k in other if k not in clock
        }
    assert list((whole / "tensorboard").glob("events*"))


@pytest.mark.slow
def test_two_processes_agree_with_one(digits, tmp_path):
    options = ["--loss", "potential", "--epochs", "3", "--devices", "2", "--strategy", "ddp"]
    subprocess.run(
        [*PROGRAM, *OPTIONS, *options, "-o", tmp_path / "two"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    train(settings(digits, loss="potential", epochs=3), digits, tmp_path / "one", HERE)
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    start = build_net(settings(digits)).state_dict()
    for name, value in one.items():
        # Adam divides by the size of the gradient: where that is rounding, a step may differ.
        torch.testing.assert_close(two[name], value, rtol=1e-3, atol=1e-4)
    assert max(float((one[name] - start[name]).abs().max()) for name in one) > 5e-3
    rows = [read_metrics(tmp_path / run / "metrics.jsonl")[-1] for run in ("one", "two")]
    for name in ("hausdorff", "hausdorff_reverse", "latent_kl", "support"):
        assert rows[1][name] == pytest.approx(rows[0][name], rel=1e-3)


def test_settings_that_lightning_refuses_claim_no_folder(digits, tmp_path):
    with pytest.raises(UserError, match="Lightning refuses"):
        train(settings(digits, precision="foo"), digits, tmp_path, HERE)
    train(settings(digits), digits, tmp_path, HERE)


def test_what_is_usual_depends_on_the_architecture():
    images = np.zeros((100, 64, 64), np.uint8)
    images[:, 0] = 255
    mine = Drawings("mine", images, np.arange(100))
    usual = {k: v for k, v in USUAL.items() if k != "learning_rate"}
    small, large = (make_settings(mine, **usual, architecture=a) for a in ("mlp", "dcgan"))
    assert (small.learning_rate, small.gain, small.latent) == (1e-3, 3.0, 100)
    assert (large.learning_rate, large.gain, large.latent) == (3e-4, 1.0, 256)
    assert usual_weights(small)[0] < 1 <= usual_weights(large)[0]
    assert len(usual_weights(settings(load_drawings("digits")))) == 5  # those of the set


def test_seeds_decide(digits, tmp_path):
    for folder, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(settings(digits, seed=seed), digits, tmp_path / folder, HERE)
    assert same_bits(weights(tmp_path / "a"), weights(tmp_path / "b"))
    assert not same_bits(weights(tmp_path / "a"), weights(tmp_path / "c"))
    first = [build_net(settings(digits, loss=loss)).state_dict() for loss in LAYERS]
    assert all(same_bits(first[0], other) for other in first)


def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_checkpoint(digits, tmp_path):
    wanted = settings(digits, learning_rate=1e30, epochs=4)
    with pytest.raises(UserError, match=r"not finite at step \d+ \(epoch 1, softmax.*learning"):
        train(wanted, digits, tmp_path, HERE)
    assert latest(tmp_path) is None


class Failing:
    """A layer whose loss is no number from some step of the third epoch on: of five steps each."""

    def __init__(self, layer):
        self.layer, self.link, self.calls = layer, layer.link, torch.tensor(0)

    def loss(self, scores, alpha, cost):
        if len(alpha) == 32:  # not the test drawings
            self.calls = self.calls.to(scores.device)
            self.calls += 1  # on the device: steps that are replayed count as well
        return self.layer.loss(scores, alpha, cost) * torch.where(self.calls > 13, torch.nan, 1.0)


def continues_after_a_failure(digits, folder, loss, machine, monkeypatch):
    """Whether a run that failed in its third epoch ends with the bits of one that did not."""
    wanted = settings(digits, loss=loss, epochs=4)
    train(wanted, digits, folder / "whole", machine)
    with monkeypatch.context() as patch:
        patch.setitem(LAYERS, loss, Failing(LAYERS[loss]))
        with pytest.raises(UserError, match="not finite"):
            train(wanted, digits, folder / "failed", machine)
    assert latest(folder / "failed").name == "epoch-000002"
    train(wanted, digits, folder / "failed", machine)
    return same_bits(weights(folder / "whole"), weights(folder / "failed"))


@pytest.mark.parametrize("loss", LAYERS)
def test_a_run_that_failed_continues_to_the_same_bits(digits, tmp_path, loss, monkeypatch):
    assert continues_after_a_failure(digits, tmp_path, loss, HERE, monkeypatch)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("loss", LAYERS)
def test_a_gpu_continues_to_the_same_bits(digits, tmp_path, loss, monkeypatch):
    assert continues_after_a_failure(digits, tmp_path, loss, THERE, monkeypatch)


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


def test_the_step_is_named_and_the_epoch_before_it_kept(digits, tmp_path, monkeypatch):
    monkeypatch.setitem(LAYERS, "softmax", Failing(LAYERS["softmax"]))
    with pytest.raises(UserError, match=r"not finite at step \d+ \(epoch 3, softmax, weight 1\)"):
        train(settings(digits, epochs=4, every=4), digits, tmp_path, HERE)
    assert latest(tmp_path).name == "epoch-000002"
    assert all(torch.isfinite(value).all() for value in weights(tmp_path).values())


@pytest.mark.parametrize("loss", ["geometric", "potential"])
def test_the_cost_narrows(digits, loss):
    module = DrawingVAE(settings(digits, loss=loss, epochs=8, anneal=0.5), digits)
    scales = [float(module.cost_at(epoch).scale) for epoch in range(8)]
    assert scales[0] == pytest.approx(0.2)  # a tenth of that of the digits
    assert scales[4:] == [2.0] * 4
    assert np.all(np.diff(scales[:5]) > 0)
    plain = DrawingVAE(settings(digits, loss=loss), digits)
    assert float(plain.cost_at(0).scale) == 2.0


@pytest.mark.slow
def test_a_full_disk_keeps_the_last_checkpoint(tmp_path):
    options = [*PROGRAM, *OPTIONS, "--loss", "softmax", "--epochs", "3", "-o", str(tmp_path)]

    def limit():  # every file that grows beyond some kilobytes fails, as on a full disk
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))

    failed = subprocess.run(
        options,
        capture_output=True,
        text=True,
        preexec_fn=limit,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert failed.returncode == 1
    assert "Could not write" in failed.stderr
    assert "Hint:" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert not list(tmp_path.glob("checkpoints/*"))


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(digits, tmp_path, monkeypatch):
    train(settings(digits), digits, tmp_path / "a", HERE)
    before = weights(tmp_path / "a")
    monkeypatch.setattr("os.fsync", _full)
    from geosoftmax_experiments.vae.checkpoints import FolderIO

    with pytest.raises(UserError, match=r"Could not write.*epoch-000009: .*No space"):
        FolderIO().save_checkpoint(
            {"state_dict": {"net.x": torch.zeros(2)}}, tmp_path / "a/checkpoints/epoch-000009"
        )
    assert same_bits(before, weights(tmp_path / "a"))
    assert [path.name for path in (tmp_path / "a/checkpoints").iterdir()] == ["epoch-000002"]


def _full(handle):
    raise OSError(28, "No space left on device")


def test_damaged_and_foreign_checkpoints_are_named(digits, tmp_path):
    wanted = settings(digits)
    train(wanted, digits, tmp_path, HERE)
    with pytest.raises(UserError, match=r"made with other settings: latent 100, now 7"):
        train(replace(wanted, latent=7), digits, tmp_path, HERE)
    with pytest.raises(UserError, match=r"made with other settings: other data\."):
        train(replace(wanted, digest="123"), digits, tmp_path, HERE)
    other = build_net(replace(wanted, latent=7))
    with pytest.raises(UserError, match=r"weights.safetensors is of another architecture: size"):
        load_weights(other, tmp_path)
    path, before = latest(tmp_path) / WEIGHTS, weights(tmp_path)
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(UserError, match=r"weights.safetensors is damaged") as damaged:
        load_weights(build_net(wanted), tmp_path)
    assert f"Remove {path.parent}, then train again" in damaged.value.hint
    shutil.rmtree(path.parent)
    train(wanted, digits, tmp_path, HERE)
    assert same_bits(before, weights(tmp_path))
    with pytest.raises(UserError, match="has no checkpoint"):
        load_weights(build_net(wanted), tmp_path / "none")
    assert read_settings(tmp_path / "run.json") == wanted
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(UserError, match=r"run.json is damaged"):
        read_settings(tmp_path / "run.json")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"loss": "l2"}, "no loss 'l2'.*softmax, geometric"),
        ({"weight": 0.0}, "--weight is 0.0"),
        ({"learning_rate": float("nan")}, "--learning-rate is nan"),
        ({"epochs": 0}, "--epochs is 0"),
        ({"epochs": 10, "every": 3}, "--every 3 does not divide --epochs 10"),
        ({"batch": 1000}, "has 160 drawings to train on, fewer than a batch of 1000"),
        ({"architecture": "unet"}, "no architecture 'unet'"),
        ({"anneal": 1.5}, "--anneal is 1.5"),
        ({"start": "far"}, "no start 'far'"),
        ({"on": "train"}, "no part 'train'"),
    ],
)
def test_settings_are_checked(digits, changes, words):
    with pytest.raises(UserError, match=words):
        settings(digits, **changes)


def test_the_machine_is_checked(digits, tmp_path):
    with pytest.raises(UserError, match="dcgan is for 64×64 drawings; these have 8×8"):
        train(settings(digits, architecture="dcgan"), digits, tmp_path / "a", HERE)
    for machine in (replace(HERE, strategy="far"), replace(HERE, accelerator="abacus")):
        with pytest.raises(UserError, match="Lightning refuses"):
            train(settings(digits), digits, tmp_path / "b", machine)
    with pytest.raises(UserError, match="Lightning refuses"):
        train(settings(digits, precision="7-bit"), digits, tmp_path / "c", HERE)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"precision": "bf16-mixed"}, {"compile": True}])
def test_mixed_precision_and_compilation_train_alike(digits, tmp_path, changes):
    rows = []
    for k, more in enumerate(({}, changes)):
        wanted = settings(digits, loss="geometric", epochs=6, every=6, **more)
        rows.append(read_metrics(train(wanted, digits, tmp_path / str(k), HERE))[-1])
    tolerance = 0.1 if "precision" in changes else 1e-3
    assert rows[1]["hausdorff"] == pytest.approx(rows[0]["hausdorff"], rel=tolerance)
    assert rows[1]["latent_kl"] == pytest.approx(rows[0]["latent_kl"], rel=tolerance)
    load_weights(build_net(settings(digits)), tmp_path / "1")  # names are those of the plain net


@pytest.mark.slow
def test_the_dcgan_trains(tmp_path):
    strokes = tmp_path / "lines.ndjson"
    lines = [
        json.dumps({"drawing": [[[0, 255], [k, 255 - k]], [[k, k], [0, 255]]]}) for k in range(60)
    ]
    strokes.write_text("\n".join(lines))
    drawings = load_drawings(str(strokes))
    wanted = make_settings(
        drawings,
        **{**USUAL, "limit": None, "batch": 16, "loss": "potential", "epochs": 12, "every": 6},
    )
    assert wanted.architecture == "dcgan"
    rows = read_metrics(train(wanted, drawings, tmp_path / "run", HERE))
    assert rows[-1]["reconstruction"] < rows[0]["reconstruction"]
