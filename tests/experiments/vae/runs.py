"""Short runs, whole or failed, for tests of training."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.vae.checkpoints import WEIGHTS, latest
from geosoftmax_experiments.vae.layers import LAYERS
from geosoftmax_experiments.vae.settings import make_settings
from geosoftmax_experiments.vae.training import Machine, train

HERE = Machine(accelerator="cpu", save_seconds=0, talk=False)
THERE = replace(HERE, accelerator="gpu")
USUAL = {
    "loss": "softmax", "weight": 1.0, "seed": 0, "learning_rate": 1e-3, "precision": "32-true",
    "compile": False, "start": "zero", "on": "test", "limit": 200, "batch": 32, "epochs": 2,
}  # fmt: skip


def settings(digits, **changes):
    return make_settings(digits, **{**USUAL, **changes})


def weights(run):
    return load_file(latest(run) / WEIGHTS)


def same_bits(one, other):
    assert one.keys() == other.keys()
    return all(torch.equal(one[name], other[name]) for name in one)


class Failing:
    """A layer whose loss is no number from some step of the third epoch on: of five steps each."""

    def __init__(self, layer):
        self.layer, self.link, self.calls = layer, layer.link, torch.tensor(0)

    def loss(self, scores, alpha, cost):
        return self._failing(self.layer.loss, scores, alpha, cost)

    def objective(self, scores, alpha, cost):
        return self._failing(self.layer.objective, scores, alpha, cost)

    def _failing(self, function, scores, alpha, cost):
        if len(alpha) == 32:  # not the test drawings
            self.calls = self.calls.to(scores.device)
            self.calls += 1  # on the device: steps that are replayed count as well
        return function(scores, alpha, cost) * torch.where(self.calls > 13, torch.nan, 1.0)


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
