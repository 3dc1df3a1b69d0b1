"""Losses of heat maps: each can learn points, ignores missing ones, and is what its paper says."""

import numpy as np
import ot
import pytest
import torch
from scipy.spatial.distance import jensenshannon

from geosoftmax import geometric_softmax, point_target
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.keypoints.decoders import read_points
from geosoftmax_experiments.keypoints.heads import gaussian_target
from geosoftmax_experiments.keypoints.losses import LABELS, LOSSES, build_head, setting_name
from geosoftmax_experiments.keypoints.rivals import Wasserstein, jensen_shannon

SHAPE, PARTS = (12, 16), 2
POINTS = torch.tensor([[[3.3, 4.6], [8.5, 11.0]], [[5.0, 9.7], [torch.nan, torch.nan]]])
CASES = [(loss, setting) for loss, (_, settings) in LOSSES.items() for setting in settings]
IDS = [f"{loss}-{setting_name(setting)}" for loss, setting in CASES]


def head_of(loss, setting):
    torch.manual_seed(0)
    return build_head(loss, setting, SHAPE, PARTS)


def test_no_loss_has_more_than_six_settings_and_each_a_label():
    assert all(1 <= len(settings) <= 6 for _, settings in LOSSES.values())
    assert LABELS.keys() == LOSSES.keys()
    assert len(set(IDS)) == len(IDS)
    with pytest.raises(UserError, match="There is no loss 'hinge'"):
        build_head("hinge", {}, SHAPE, PARTS)


@pytest.mark.parametrize(("loss", "setting"), CASES, ids=IDS)
def test_gradients_are_finite_and_missing_points_have_none(loss, setting):
    head = head_of(loss, setting)
    maps = torch.randn(2, head.channels, *SHAPE, requires_grad=True)
    value = head.loss(maps, POINTS)
    value.backward()
    assert bool(torch.isfinite(value))
    assert bool(torch.isfinite(maps.grad).all())
    assert float(maps.grad[1, 1].abs().max()) == 0
    assert float(maps.grad[1, 0].abs().max()) > 0
    nobody = head.loss(maps, torch.full_like(POINTS, torch.nan))
    assert float(nobody.detach()) == 0


@pytest.mark.parametrize(("loss", "setting"), CASES, ids=IDS)
def test_every_head_reads_distributions(loss, setting):
    head = head_of(loss, setting)
    maps = torch.randn(2, head.channels, *SHAPE)
    with torch.no_grad():
        alpha = head.alpha(maps)
    sides = tuple(head.resolution * side for side in SHAPE)
    assert alpha.shape == (2, PARTS, *sides)
    assert float(alpha.min()) >= 0
    torch.testing.assert_close(alpha.sum((-2, -1)), torch.ones(2, PARTS))
    sure = head.likelihood(maps, alpha)
    assert sure.shape == (2, PARTS)
    assert bool(((sure >= 0) & (sure <= 1)).all())


@pytest.mark.parametrize("loss", LOSSES)
def test_free_maps_learn_their_points(loss):
    """The loss alone, without a network: what is read afterwards is the point, off the grid."""
    head = head_of(loss, LOSSES[loss][1][0])
    maps = torch.zeros(1, head.channels, *SHAPE, requires_grad=True)
    if loss == "simcc":
        maps = torch.randn(1, head.channels, *SHAPE).requires_grad_()
    optimiser = torch.optim.Adam([maps, *head.parameters()], lr=0.1 if loss != "simcc" else 0.01)
    for _ in range(200):
        optimiser.zero_grad()
        head.loss(maps, POINTS[:1]).backward()
        optimiser.step()
    with torch.no_grad():
        found = read_points(head.alpha(maps), head.resolution) | head.own_points(maps)
    errors = {name: float((value - POINTS[:1]).abs().max()) for name, value in found.items()}
    assert min(errors.values()) < 0.15, errors


def test_points_of_predictions_are_those_of_an_exact_solve():
    """On a sure map and on an unsure one, the tolerance of predictions moves no point."""
    head = build_head("geometric", LOSSES["geometric"][1][0], (24, 32), 2)
    rows, columns = torch.meshgrid(torch.arange(24.0), torch.arange(32.0), indexing="ij")
    peak = -torch.hypot(rows - 9.3, columns - 17.6)
    maps = torch.stack([6 + peak, (1 + peak).clamp(min=-3)])[None] + 0.2 * torch.randn(1, 2, 24, 32)
    exact = geometric_softmax(maps.double(), head.link.cost, tol=1e-10)
    found, expected = read_points(head.alpha(maps)), read_points(exact)
    for rule in ("local mean 3", "local mean 5", "median"):
        apart = (found[rule] - expected[rule]).abs().max()
        assert float(apart) < 0.01, rule


def test_gaussian_targets_have_their_mean_and_width():
    target, present = gaussian_target(POINTS, (60, 80), 1.5)
    assert present.tolist() == [[True, True], [True, False]]
    alpha = (target / target.sum((-2, -1), keepdim=True))[0, 1].numpy()
    rows, columns = np.indices(alpha.shape)
    assert (alpha * rows).sum() == pytest.approx(8.5, abs=1e-3)
    assert (alpha * (columns - 11.0) ** 2).sum() == pytest.approx(1.5**2, rel=1e-3)


def test_jensen_shannon_against_scipy():
    rng = np.random.default_rng(0)
    alpha, beta = rng.dirichlet(np.ones(30), 2)
    value = jensen_shannon(torch.from_numpy(alpha).log(), torch.from_numpy(beta))
    assert float(value) == pytest.approx(jensenshannon(alpha, beta) ** 2, rel=1e-6)


def by_pot(alpha, target, shape, p, epsilon):
    """The transport cost with its entropy relative to independence, by POT."""
    places = np.stack(np.indices(shape), -1).reshape(-1, 2)
    cost = (np.abs(places[:, None] - places) ** p).sum(-1).astype(float)
    alpha, target = alpha.numpy().ravel(), target.numpy().ravel()
    cost, target = cost[:, target > 0], target[target > 0]  # POT takes logarithms
    plan = ot.sinkhorn(alpha, target, cost, reg=epsilon, method="sinkhorn_log", numItermax=10_000)
    independent = alpha[:, None] * target + 1e-300
    return (plan * cost).sum() + epsilon * (plan * np.log(plan / independent + 1e-300)).sum()


@pytest.mark.parametrize("width", [0.0, 1.0])
@pytest.mark.parametrize("p", [1, 2])
def test_transport_against_pot(p, width):
    shape, point = (5, 6), torch.tensor([[[2.25, 3.5]]], dtype=torch.float64)
    head = Wasserstein(shape, 1, p=p, width=width, epsilon=1.0)
    maps = torch.randn(1, 1, *shape, dtype=torch.float64)
    target = gaussian_target(point, shape, width)[0] if width else point_target(point, shape).alpha
    target = target / target.sum()
    expected = by_pot(head.alpha(maps), target, shape, p, 1.0)
    assert float(head.loss(maps, point)) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("p", [1, 2])
def test_transport_to_a_pixel_is_the_expected_cost(p):
    shape, point = (5, 6), torch.tensor([[[2.0, 4.0]]], dtype=torch.float64)
    head = Wasserstein(shape, 1, p=p, epsilon=0.1)
    maps = torch.randn(1, 1, *shape, dtype=torch.float64)
    rows, columns = np.indices(shape)
    expected = (
        head.alpha(maps)[0, 0].numpy() * (np.abs(rows - 2) ** p + np.abs(columns - 4) ** p)
    ).sum()
    assert float(head.loss(maps, point)) == pytest.approx(expected, rel=1e-6)
