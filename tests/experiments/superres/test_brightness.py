"""Emitters that are alike: learnt where they stand alone, used where they overlap."""

import dataclasses

import numpy as np
import pytest
import torch

from geosoftmax_experiments.superres.brightness import Brightness, Pull, learn, split
from geosoftmax_experiments.superres.frames import FrameProblem
from geosoftmax_experiments.superres.localisation import choose_settings, find_emitters
from geosoftmax_experiments.superres.matching import compare
from geosoftmax_experiments.superres.measures import Emitters, model
from geosoftmax_experiments.superres.psf import Gaussian
from tests.experiments.superres import scenes

PSF = Gaussian(1.1)


def crowd(spread, frames=4, count=50, side=40):
    """Noisy frames of emitters anywhere, their counts log-normal, and where they are."""
    generator = torch.Generator().manual_seed(1)
    points = side * torch.rand(frames, count, 2, generator=generator)
    counts = 3000 * torch.exp(spread * torch.randn(frames, count, generator=generator))
    light = model(
        Emitters(points, counts, torch.full((frames,), 20.0)), torch.zeros(frames, side, side), PSF
    )
    stack = torch.poisson(light, generator=generator).double().numpy()
    number = torch.arange(1, frames + 1)[:, None, None].expand(frames, count, 1)
    return stack, torch.cat([number, 100 * points], -1).flatten(0, 1).double().numpy()


def test_alike_emitters_are_found_where_they_overlap():
    stack, truth = crowd(0.05)
    settings = choose_settings(stack, PSF)
    assert settings.brightness is not None
    assert settings.brightness.mean == pytest.approx(3000, rel=0.05)
    agreement = []
    for one in (settings, dataclasses.replace(settings, brightness=None)):
        rows = find_emitters(stack, one, method="sliding", pixel=100.0)
        agreement.append(compare(rows[:, 1:4], truth, 100.0))
    alike, free = agreement
    assert alike.jaccard > free.jaccard + 0.03
    assert alike.jaccard > 0.95
    assert alike.rmse < free.rmse


def test_emitters_that_differ_are_left_as_they_are():
    stack, _ = crowd(0.5)
    assert choose_settings(stack, PSF).brightness is None
    assert choose_settings(stack, PSF, alike=True).brightness is not None
    assert choose_settings(crowd(0.05)[0], PSF, alike=False).brightness is None


def test_those_that_stand_alone_are_learnt_from():
    """Neighbours, padding and a few outliers do not count."""
    grid = 5.0 * torch.cartesian_prod(torch.arange(6.0), torch.arange(6.0))
    points = torch.cat([grid, grid[:3] + 1, torch.zeros(2, 2)])[None]
    counts = torch.full((1, 41), 100.0)
    counts[0, 3:36:2] = 104.0
    counts[0, 35] = 200.0
    counts[0, 36:39], counts[0, 39:] = 1000.0, 0.0
    found = learn(Emitters(points, counts, torch.zeros(1)), PSF)
    assert found is not None
    assert 100 <= found.mean <= 104
    assert found.spread < 7
    assert learn(Emitters(points[:, :20], counts[:, :20], torch.zeros(1)), PSF) is None


@pytest.mark.slow
def test_dim_emitters_are_learnt_from_too():
    """100 to 200 photons, of which only the brightest stand far out of the noise."""
    frames, _ = scenes.crowd(6, 30, 100, 200)
    for threshold in (None, 190 * scenes.GAIN):
        known = choose_settings(
            frames, PSF, base=scenes.BASE, alike=True, threshold=threshold
        ).brightness
        assert known is not None
        assert known.mean / scenes.GAIN == pytest.approx(150, rel=0.1)
        assert 20 < known.spread / scenes.GAIN < 55
        low, high = known.interval
        assert known.number > 60
        assert low / scenes.GAIN < 150 < high / scenes.GAIN
        assert (high - low) / 2 == pytest.approx(
            1.96 * 1.2533 * known.spread / np.sqrt(known.number)
        )


@pytest.mark.parametrize("angle", [0.0, 0.6, 1.57, 2.5])
def test_heavy_emitters_split_along_their_axis(angle):
    axis = torch.tensor([np.cos(angle), np.sin(angle)], dtype=torch.float64)
    centre = torch.tensor([10.2, 9.7], dtype=torch.float64)
    zero = torch.zeros(1, dtype=torch.float64)
    pair = torch.stack([centre - 0.5 * axis, centre + 0.5 * axis])[None]
    frames = model(Emitters(pair, torch.full((1, 2), 50.0).double(), zero), zeros(20), PSF)
    one = Emitters(centre[None, None], torch.full((1, 1), 100.0).double(), zero)
    two = split(frames, frames - model(one, frames, PSF), one, PSF, Brightness(50.0, 5.0))
    assert two.counts.tolist() == [[50.0, 50.0]]
    along = two.points[0, 1] - two.points[0, 0]
    assert abs(float(along @ axis)) == pytest.approx(float(along.norm()), rel=1e-2)
    kept = split(frames, frames, one, PSF, Brightness(100.0, 5.0))
    assert kept.counts.tolist() == [[100.0]]


def zeros(side):
    return torch.zeros(1, side, side, dtype=torch.float64)


def test_pull_against_finite_differences():
    state = Emitters(
        torch.tensor([[[5.0, 5.5], [7.0, 6.0]]]).double(),
        torch.tensor([[120.0, 80.0]]).double(),
        torch.tensor([3.0]).double(),
    )
    frames = 1.1 * model(state, zeros(12), PSF)
    pull = Pull(100.0, torch.tensor([[0.01]]).double())
    problem = FrameProblem(frames, PSF, 0.2, pull=pull)
    view = problem.view(state.spikes())
    slope = (view.backward(view.residual)[:, :2] - view.price)[0]
    for j in range(2):
        moved = state.counts.clone()
        moved[0, j] += 1e-4
        there = Emitters(state.points, moved, state.background)
        loss = problem.view(there.spikes()).objective
        assert float(view.objective - loss) / 1e-4 == pytest.approx(
            float(slope[j]), rel=1e-4, abs=1e-6
        )
