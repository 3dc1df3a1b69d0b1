"""Decoders: what each finds of a peak between pixels; a network for one point or two."""

import numpy as np
import pytest
import torch

from geosoftmax import GridCost, geometric_logistic_loss, geometric_softmax, peaks, point_target
from geosoftmax_experiments.keypoints.decoders import DECODERS, read_points
from geosoftmax_experiments.keypoints.heads import gaussian_target
from geosoftmax_experiments.keypoints.network import UNet
from tests.experiments.keypoints.projects import picture

SHAPE = (20, 24)
POINTS = torch.tensor([[8.3, 11.8], [10.0, 10.0], [9.45, 13.5]], dtype=torch.float64)


def gaussians(width=1.2):
    target, _ = gaussian_target(POINTS, SHAPE, width)
    return target / target.sum((-2, -1), keepdim=True)


@pytest.mark.parametrize(
    ("decoder", "tolerance"),
    [("mode", 0.51), ("quarter", 0.3), ("dark", 1e-2), ("mean", 1e-3), ("median", 2e-2)],
)
def test_peaks_of_gaussians_are_found(decoder, tolerance):
    error = (DECODERS[decoder](gaussians()) - POINTS).abs().max()
    assert float(error) < tolerance


@pytest.mark.parametrize("decoder", DECODERS)
def test_decoders_move_with_the_map(decoder):
    alpha = gaussians()
    moved = alpha.roll((2, -3), (-2, -1))
    difference = DECODERS[decoder](moved) - DECODERS[decoder](alpha)
    torch.testing.assert_close(
        difference, torch.tensor([2.0, -3.0]).double().expand(3, 2), atol=2e-2, rtol=0
    )


@pytest.mark.parametrize("decoder", DECODERS)
def test_sparse_and_flat_maps_and_corners_give_finite_points(decoder):
    corner = torch.zeros(3, *SHAPE, dtype=torch.float64)
    corner[0, 0, 0] = corner[1, -1, -1] = 1.0
    corner[2] = 1 / corner[2].numel()
    found = DECODERS[decoder](corner)
    assert bool(torch.isfinite(found).all())
    torch.testing.assert_close(found[0], torch.zeros(2).double())
    torch.testing.assert_close(found[1], torch.tensor([19.0, 23.0]).double())


def test_finer_maps_are_read_in_pixels_of_the_coarse_ones():
    fine, _ = gaussian_target((POINTS + 0.5) * 2 - 0.5, (40, 48), 2.0)
    found = read_points(fine / fine.sum((-2, -1), keepdim=True), resolution=2)
    torch.testing.assert_close(found["mean"], POINTS, atol=1e-3, rtol=0)


# ------------------------------------------------------------------ two mice


def scenes(count, rng):
    """Pictures with one or two dark discs, well apart; their points, on a grid 4 times coarser."""
    pictures, places = [], []
    while len(pictures) < count:
        points = rng.uniform(8, 56, (2, 2))
        if np.linalg.norm(points[0] - points[1]) < 16:
            continue
        if rng.random() < 0.5:
            points[1] = np.nan
        discs = [p for point in points for p in (point, (np.nan, np.nan))]
        pictures.append(picture(discs, (64, 64), rng))
        places.append((points + 0.5) / 4 - 0.5)
    return torch.from_numpy(np.stack(pictures)) / 255, torch.tensor(np.stack(places))


@pytest.mark.slow
def test_a_network_says_how_many_mice_there_are():
    """One map, one or two points: the sparse distribution falls apart into as many patches."""
    rng = np.random.default_rng(0)
    cost, shape = GridCost((16, 16), p=1) * 2.0, (16, 16)
    frames, points = scenes(64, rng)
    target = point_target(points, shape).alpha.nanmean(1).float()
    torch.manual_seed(0)
    network = UNet(1, 8)
    optimiser = torch.optim.Adam(network.parameters(), lr=5e-3)
    for step in range(240):
        chosen = slice(16 * (step % 4), 16 * (step % 4) + 16)
        optimiser.zero_grad()
        loss = geometric_logistic_loss(
            network(frames[chosen])[:, 0], target[chosen], cost, tol=1e-3
        )
        loss.backward()
        optimiser.step()
    network.eval()
    new, true = scenes(40, rng)
    with torch.no_grad():
        predicted = geometric_softmax(network(new)[:, 0], cost)
    right, apart = 0, []
    for one, points in zip(predicted, true.numpy(), strict=True):
        there = points[~np.isnan(points).any(-1)]
        found = peaks(one, least=0.15).points.numpy()
        right += len(found) == len(there)
        apart += np.linalg.norm(found - there[:, None], axis=-1).min(1).tolist()
    assert right >= 34
    assert np.median(apart) < 0.5
