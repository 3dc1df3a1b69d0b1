"""Training: what is killed continues to the same bits, two processes agree with one."""

import json
import os
import resource
import shutil
import signal
import subprocess
from dataclasses import replace

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.accelerators import CUDAAccelerator
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from geosoftmax import GridCost, sinkhorn_negentropy
from geosoftmax_experiments.data.drawings import Drawings, as_distributions, load_drawings
from geosoftmax_experiments.errors import Terminated, UserError, raise_on_sigterm
from geosoftmax_experiments.vae.checkpoints import WEIGHTS, latest, load_weights
from geosoftmax_experiments.vae.layers import LAYERS, layer_of
from geosoftmax_experiments.vae.measures import MEASURES
from geosoftmax_experiments.vae.module import DrawingVAE, build_net
from geosoftmax_experiments.vae.settings import make_settings, read_settings, usual_weights
from geosoftmax_experiments.vae.training import _quiet, read_metrics, train
from tests.experiments.vae.runs import (
    HERE,
    THERE,
    USUAL,
    Failing,
    continues_after_a_failure,
    same_bits,
    settings,
    weights,
)
from tests.processes import PROGRAM

TRAIN = [*PROGRAM, "vae", "train"]
OPTIONS = [
    "--limit", "200", "--batch", "32", "--learning-rate", "0.001", "--accelerator", "cpu",
    "--save-seconds", "0",
]  # fmt: skip


@pytest.fixture(scope="module")
def digits():
    return load_drawings("digits", limit=200)


def test_the_learning_rate_falls_to_zero(digits, tmp_path):
    module = DrawingVAE(settings(digits, epochs=2), digits)
    seen = []

    class Rates(pl.Callback):
        def on_before_optimizer_step(self, trainer, pl_module, optimizer):
            seen.append(optimizer.param_groups[0]["lr"])

    with _quiet():
        trainer = pl.Trainer(
            max_epochs=2, accelerator="cpu", logger=False, callbacks=[Rates()],
            enable_progress_bar=False, enable_checkpointing=False, enable_model_summary=False,
            limit_val_batches=0,
        )  # fmt: skip
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


def test_a_gpu_may_be_there_where_training_is_on_a_cpu(digits, tmp_path, monkeypatch):
    monkeypatch.setattr(CUDAAccelerator, "is_available", staticmethod(lambda: True))
    with pytest.warns(UserWarning, match="GPU available but not used"):
        pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    train(settings(digits, epochs=1), digits, tmp_path / "run", HERE)  # warnings are errors


@pytest.mark.parametrize("loss", LAYERS)
def test_every_layer_learns(digits, tmp_path, loss):
    wanted = settings(digits, loss=loss, p=2.0, epochs=8, every=4, start="mean", weight=0.1,
                      decay=False)  # fmt: skip
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


@pytest.mark.slow
def test_two_processes_agree_with_one(digits, tmp_path):
    options = ["--loss", "potential", "--epochs", "3", "--devices", "2", "--strategy", "ddp"]
    subprocess.run(
        [*TRAIN, *OPTIONS, *options, "-o", tmp_path / "two"],
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
    assert len(usual_weights(settings(load_drawings("digits")))) == 3  # those of the set


def test_the_cost_is_that_which_was_asked_for(digits):
    ours, paper, squared = (
        settings(digits, loss=loss, **cost)
        for loss, cost in (("smoothed", {}), ("paper", {}), ("smoothed", {"p": 2.0}))
    )
    assert (ours.p, squared.p, squared.scale) == (1, 2, 2.0)
    assert str(paper.cost) == str(squared.cost) == str(ours.paper_cost) == str(GridCost((8, 8)) * 2)
    assert str(ours.cost) == str(GridCost((8, 8), p=1) * ours.scale)


def test_runs_from_before_there_was_p_are_of_the_paper(digits, tmp_path):
    train(settings(digits, loss="smoothed", p=2.0, epochs=1), digits, tmp_path, HERE)
    path = tmp_path / "run.json"
    words = json.loads(path.read_text())
    for name in ("p", "smoothing", "split"):
        del words[name]
    path.write_text(json.dumps(words))
    found = read_settings(path)
    assert (found.p, found.smoothing, found.split) == (2, 1, 0)
    with pytest.raises(UserError, match="p None, now 1"):
        train(settings(digits, loss="smoothed", epochs=1), digits, tmp_path, HERE)


@pytest.mark.parametrize("loss", LAYERS)
def test_the_objective_is_the_loss_up_to_what_does_not_depend_on_scores(digits, loss):
    own = settings(digits, loss=loss, smoothing=2.0)
    layer, cost = layer_of(loss, 2.0), own.cost
    alpha = as_distributions(digits.tensor(digits.rows[:6]))
    gradients, values = [], []
    for function in (layer.loss, layer.objective):
        scores = torch.randn(6, 8, 8, generator=torch.Generator().manual_seed(1)).requires_grad_()
        values.append(function(scores, alpha, cost))
        gradients.append(torch.autograd.grad(values[-1].sum(), scores)[0])
    torch.testing.assert_close(*gradients, rtol=2e-2, atol=2e-3)  # each solved to its own gap
    expected = 0.0 if loss in ("softmax", "sigmoid", "softmax-smoothed") else (
        sinkhorn_negentropy(alpha, cost).float())  # fmt: skip
    torch.testing.assert_close(
        values[0] - values[1], torch.as_tensor(expected).expand(6), rtol=0, atol=2e-3
    )


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


@pytest.mark.parametrize("loss", LAYERS)
def test_a_run_that_failed_continues_to_the_same_bits(digits, tmp_path, loss, monkeypatch):
    assert continues_after_a_failure(digits, tmp_path, loss, HERE, monkeypatch)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("loss", LAYERS)
def test_a_gpu_continues_to_the_same_bits(digits, tmp_path, loss, monkeypatch):
    assert continues_after_a_failure(digits, tmp_path, loss, THERE, monkeypatch)


@pytest.mark.parametrize(("batch", "logged"), [(32, [4, 9]), (10, [9, 19, 29])])
def test_every_tenth_step_is_logged(digits, tmp_path, batch, logged):
    talking = replace(HERE, talk=True)
    train(settings(digits, batch=batch), digits, tmp_path, talking)  # of 160 drawings, two epochs
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    for name in ("train/loss", "train/latent_kl"):
        assert [event.step for event in events.Scalars(name)] == logged
        assert all(np.isfinite(event.value) for event in events.Scalars(name))


def test_the_step_is_named_and_the_epoch_before_it_kept(digits, tmp_path, monkeypatch):
    monkeypatch.setitem(LAYERS, "softmax", Failing(LAYERS["softmax"]))
    with pytest.raises(UserError, match=r"not finite at step \d+ \(epoch 3, softmax, weight 1\)"):
        train(settings(digits, epochs=4, every=4), digits, tmp_path, HERE)
    assert latest(tmp_path).name == "epoch-000002"
    assert all(torch.isfinite(value).all() for value in weights(tmp_path).values())


@pytest.mark.parametrize("loss", ["geometric", "potential"])
def test_the_cost_narrows(digits, loss):
    module = DrawingVAE(settings(digits, loss=loss, epochs=8, scale=2.0, anneal=0.5), digits)
    scales = [float(module.cost_at(epoch).scale) for epoch in range(8)]
    assert scales[0] == pytest.approx(0.2)  # a tenth of that asked for
    assert scales[4:] == [2.0] * 4
    assert np.all(np.diff(scales[:5]) > 0)
    plain = DrawingVAE(settings(digits, loss=loss, scale=2.0), digits)
    assert float(plain.cost_at(0).scale) == 2.0


@pytest.mark.slow
def test_a_full_disk_keeps_the_last_checkpoint(tmp_path):
    options = [*TRAIN, *OPTIONS, "--loss", "softmax", "--epochs", "3", "-o", str(tmp_path)]

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
    with pytest.raises(
        UserError,
        match=r"weights.safetensors is of another architecture: decoder.0.weight is floats",
    ):
        load_weights(lambda: build_net(replace(wanted, latent=7)), tmp_path)
    path, before = latest(tmp_path) / WEIGHTS, weights(tmp_path)
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(UserError, match=r"weights.safetensors is damaged") as damaged:
        load_weights(lambda: build_net(wanted), tmp_path)
    assert f"Remove {path.parent}, then train again" in damaged.value.hint
    shutil.rmtree(path.parent)
    train(wanted, digits, tmp_path, HERE)
    assert same_bits(before, weights(tmp_path))
    with pytest.raises(UserError, match="has no checkpoint"):
        load_weights(lambda: build_net(wanted), tmp_path / "none")
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
    # Names are those of the plain net.
    load_weights(lambda: build_net(settings(digits)), tmp_path / "1")


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


def test_a_signal_waits_for_the_next_batch(digits, tmp_path, monkeypatch):
    """In the middle of something else it may leave that in a state in which others wait for it."""
    step, seen = DrawingVAE.training_step, []

    def interrupted(self, *arguments):
        if not seen:
            try:
                os.kill(os.getpid(), signal.SIGTERM)
            except KeyboardInterrupt:
                pytest.fail("raised here")
        seen.append(arguments)
        return step(self, *arguments)

    monkeypatch.setattr(DrawingVAE, "training_step", interrupted)
    with raise_on_sigterm():
        handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        with pytest.raises(Terminated):
            train(settings(digits, epochs=3), digits, tmp_path, HERE)
        after = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        assert after == handlers
    assert len(seen) == 1


def test_a_second_signal_does_not_wait(digits, tmp_path, monkeypatch):
    step, reached = DrawingVAE.training_step, []

    def interrupted(self, *arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        reached.append("one")
        os.kill(os.getpid(), signal.SIGTERM)
        reached.append("two")
        return step(self, *arguments)

    monkeypatch.setattr(DrawingVAE, "training_step", interrupted)
    with raise_on_sigterm(), pytest.raises(Terminated):
        train(settings(digits, epochs=3), digits, tmp_path, HERE)
    assert reached == ["one"]
