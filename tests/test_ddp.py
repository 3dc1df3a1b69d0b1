"""DistributedDataParallel, as users train: the loss and its cost are inside the wrapped module."""

import contextlib
import sys

import pytest
import torch
from torch import distributed, multiprocessing
from torch.nn.parallel import DistributedDataParallel

from geosoftmax import LineCost, nn
from geosoftmax.solvers import registry
from tests.conftest import assert_close

pytestmark = [
    pytest.mark.skipif(
        not (distributed.is_available() and distributed.is_gloo_available()),
        reason="this torch has no gloo",
    ),
    pytest.mark.skipif(sys.platform == "win32", reason="file stores of gloo are for POSIX"),
]

CLASSES, FEATURES, SAMPLES, STEPS = 5, 3, 8, 2


class Model(torch.nn.Module):
    """A linear model that returns its loss."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(FEATURES, CLASSES, dtype=torch.float64)
        self.loss = nn.GeometricLogisticLoss(LineCost(CLASSES, p=2) / 2)

    def forward(self, x, target):
        return self.loss(self.linear(x), target)


def batches():
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        x = torch.randn(SAMPLES, FEATURES, dtype=torch.float64, generator=generator)
        yield x, torch.randint(CLASSES, (SAMPLES,), generator=generator)


def train(model, rank=0, world=1):
    """Return the loss of each step, and the weights in the end; a rank gets its equal share."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    for x, target in batches():
        optimizer.zero_grad()
        loss = model(x[rank::world], target[rank::world])
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    return torch.stack(losses), weights


@contextlib.contextmanager
def noted_plans():
    """Note the purposes of the plans that are made."""
    purposes, prepare = [], registry._prepare

    def noted(cost, purpose, *others):
        purposes.append(purpose)
        return prepare(cost, purpose, *others)

    registry._prepare = noted
    try:
        yield purposes
    finally:
        registry._prepare = prepare


def train_distributed(rank, world, folder):
    """Train as one of the ranks, and save what came of it."""
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world
    )
    try:
        train_in_group(rank, world, folder)
    finally:
        distributed.destroy_process_group()


def train_in_group(rank, world, folder):
    """Train the model; it ends here, before its process group does.

    Otherwise it would take the group along. It does so with Python's lock held, and waits for a
    thread of the group, which may be waiting for that lock: for ever, on a busy machine.
    """
    model = DistributedDataParallel(Model())
    assert model.broadcast_buffers
    assert list(model.module.loss.buffers()), "the cost is broadcast with the buffers"
    cost = model.module.loss.cost
    with noted_plans() as made:
        torch.save(train(model, rank, world), f"{folder}/{rank}.pt")
    assert model.module.loss.cost is cost
    assert made.count("loss") == 1, "a broadcast that changes nothing rebuilds nothing"


def assert_trained_as_alone(folder, world):
    """Each rank has the weights of one process with all samples; losses are the means of shares."""
    losses, weights = train(Model())
    found = [torch.load(f"{folder}/{rank}.pt", weights_only=True) for rank in range(world)]
    for its_losses, its_weights in found:
        assert torch.isfinite(its_losses).all()
        assert_close(its_weights, weights)
    mean = torch.stack([its_losses for its_losses, _ in found]).mean(0)
    assert_close(mean, losses)


def test_one_process_trains_as_without_ddp(tmp_path):
    train_distributed(0, 1, tmp_path)
    assert_trained_as_alone(tmp_path, 1)


@pytest.mark.slow
def test_two_processes_train_as_one_on_the_joined_batch(tmp_path):
    multiprocessing.spawn(train_distributed, (2, tmp_path), nprocs=2)
    assert_trained_as_alone(tmp_path, 2)
