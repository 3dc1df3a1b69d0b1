"""Training steps: AdamW is torch's, and steps that are recorded train as steps one by one do."""

import copy
import math

import numpy as np
import pytest
import torch

from geosoftmax_experiments import replay
from geosoftmax_experiments.keypoints import steps
from geosoftmax_experiments.keypoints.augmentation import SHIFT, TURN, ZOOM, augment
from geosoftmax_experiments.keypoints.losses import LOSSES
from geosoftmax_experiments.keypoints.model import Recipe
from geosoftmax_experiments.keypoints.network import UNet
from geosoftmax_experiments.keypoints.steps import AdamW, one_cycle
from geosoftmax_experiments.keypoints.training import train
from tests.experiments.keypoints.projects import picture

CPU = torch.device("cpu")
RECIPE = Recipe(longest=16, width=4, steps=6, batch=5)


def discs(count=12):
    rng = np.random.default_rng(0)
    points = rng.uniform(8, (39, 55), (count, 2, 2))
    pictures = np.stack([picture(of_frame, rng=rng) for of_frame in points])
    points[1, 0] = np.nan
    return pictures, (points + 0.5) / 4 - 0.5, (12, 16)


def trained(loss, recipe=RECIPE, device=CPU, **options):
    setting = LOSSES[loss][1][-1]
    model = train(*discs(), loss, setting, recipe, seed=3, device=device, **options)
    return {name: value.cpu() for name, value in model.tensors().items()}


@pytest.fixture
def recorded(monkeypatch):
    """What became of each attempt to record a step."""
    found = []

    def spy(*arguments):
        found.append(replay.record(*arguments))
        return found[-1]

    monkeypatch.setattr(steps, "record", spy)
    return found


@pytest.fixture
def replayed_here(monkeypatch, recorded):
    """Replay on a CPU, where a graph is the step itself."""

    def warm_up(step, inputs):
        for _ in range(replay.WARM_UP):
            step(*inputs)
        return True

    def capture(step, inputs):
        outputs = (torch.zeros(()),)

        def again():
            outputs[0].copy_(step(*inputs)[0])

        return again, outputs

    monkeypatch.setattr(steps, "REPLAYING", ("cpu",))
    monkeypatch.setattr(replay, "_warm_up", warm_up)
    monkeypatch.setattr(replay, "_capture", capture)
    return recorded


def test_adamw_in_one_cycle_is_that_of_torch():
    torch.manual_seed(0)
    network, count, peak = UNet(2, 2), 40, 2e-3
    other = copy.deepcopy(network)
    mine, numbers = AdamW(network.parameters()), one_cycle(peak, count)
    theirs = torch.optim.AdamW(other.parameters(), lr=peak, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(theirs, peak, total_steps=count, pct_start=0.1)
    momenta = set()
    for of_step in numbers:
        for one, another in zip(network.parameters(), other.parameters(), strict=True):
            one.grad = torch.randn_like(one)
            another.grad = one.grad.clone()
        mine.step(torch.tensor(of_step))
        theirs.step()
        schedule.step()
        momenta.add(round(of_step[1], 3))
    assert min(momenta) < 0.86
    assert max(momenta) == 0.95
    for one, another in zip(network.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, another, rtol=1e-5, atol=1e-6)


def test_ten_steps_have_a_rise_of_one():
    """Torch divides by zero there."""
    numbers = list(one_cycle(2e-3, 10))
    assert [round(momentum, 3) for _, momentum, *_ in numbers][:: len(numbers) - 1] == [0.85, 0.95]
    assert np.isfinite(numbers).all()


@pytest.mark.parametrize("count", [1, 2, 7, 20, 300])
def test_one_cycle_is_that_of_torch(count):
    optimiser = torch.optim.AdamW([torch.zeros(1)], lr=2e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, 2e-3, total_steps=count, pct_start=0.1
    )
    for step, (decay, momentum, fresh, rate, root) in enumerate(one_cycle(2e-3, count), start=1):
        (group,) = optimiser.param_groups
        beta, other = group["betas"]
        assert decay == pytest.approx(1 - group["lr"] * 1e-3)
        assert (momentum, 1 - fresh) == pytest.approx((beta, beta))
        assert rate == pytest.approx(group["lr"] / (1 - beta**step))
        assert root == pytest.approx((1 - other**step) ** -0.5)
        optimiser.step()
        schedule.step()


def test_points_move_by_the_inverse_of_the_map_of_frames():
    """The closed form against a solver, in float64."""
    moves = 2 * torch.rand(5, 6, generator=torch.Generator().manual_seed(1)).double() - 1
    frames, points = torch.zeros(6, 48, 64).double(), torch.tensor([[[5.0, 7.0], [6.0, 8.0]]] * 6)
    _, moved = augment(frames, points.double(), (12, 16), moves, frames)
    turn, zoom, right, down, _ = moves
    half = torch.tensor([32.0, 24.0]).double()
    for k in range(6):
        angle, factor = math.radians(TURN) * turn[k], torch.exp(ZOOM * zoom[k])
        cos, sin = factor * torch.cos(angle), factor * torch.sin(angle)
        matrix = torch.stack([torch.stack([cos, -sin]), torch.stack([sin, cos])])
        shift = 2 * SHIFT * torch.stack([right[k], down[k]]) * half
        old = ((points[k].double() + 0.5) * 4).flip(-1) - half
        new = torch.linalg.solve(matrix, (old - shift).T).T + half
        torch.testing.assert_close(moved[k], new.flip(-1) / 4 - 0.5)


@pytest.mark.parametrize("loss", LOSSES)
def test_replayed_steps_train_alike(loss, replayed_here):
    one, other = trained(loss, replay=False), trained(loss, replay=True)
    assert [callable(found) for found in replayed_here] == [True]
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(other[name], value), name


def test_steps_that_cannot_be_recorded_are_done_one_by_one(monkeypatch, replayed_here):
    monkeypatch.setattr(replay, "_warm_up", lambda step, inputs: bool(step(*inputs)) and False)
    other = trained("softmax")
    assert replayed_here == [None]
    for name, value in trained("softmax", replay=False).items():
        assert torch.equal(other[name], value), name


def test_both_ways_do_the_same_step(monkeypatch, replayed_here):
    calls = []
    step = steps.Training._step

    def spy(self, *inputs):
        calls.append([value.shape for value in inputs])
        return step(self, *inputs)

    monkeypatch.setattr(steps.Training, "_step", spy)
    trained("softmax", replay=False)
    assert len(calls) == RECIPE.steps
    trained("softmax", replay=True)
    assert len(calls) == 2 * RECIPE.steps + replay.WARM_UP
    assert all(shapes == calls[0] for shapes in calls)


def test_blocks_of_steps_do_what_single_steps_do(monkeypatch):
    whole = trained("softmax")
    monkeypatch.setattr("geosoftmax_experiments.keypoints.training.REPORTED", 1)
    reported = []
    single = trained("softmax", then=lambda step, loss: reported.append((step, loss)))
    assert [step for step, _ in reported] == [1, 2, 3, 4, 5, 6]
    assert all(math.isfinite(loss) for _, loss in reported)
    for name, value in whole.items():
        assert torch.equal(single[name], value), name


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("loss", LOSSES)
def test_a_gpu_replays_what_it_would_do(loss, recorded, monkeypatch):
    monkeypatch.setattr(steps, "SEARCHED", False)  # other convolutions round otherwise
    monkeypatch.setattr("geosoftmax_experiments.keypoints.training.REPORTED", 1)
    losses = {False: [], True: []}
    for replayed, seen in losses.items():
        model = trained(
            loss,
            device=torch.device("cuda"),
            replay=replayed,
            then=lambda step, value, seen=seen: seen.append(value),
        )
    assert len(recorded) == 1
    assert callable(recorded[0])
    # Not the weights: Adam makes a whole step of a gradient that is rounding, and sums in another
    # order turn a fifth of them. Losses change by 1e-3 then, with another batch by 2e-2 or more.
    torch.testing.assert_close(losses[True], losses[False], rtol=4e-3, atol=0)
    counts = [name for name in model if name.endswith("num_batches_tracked")]
    assert counts
    assert all(int(model[name]) == RECIPE.steps for name in counts)
