"""Uncertainties: the bound of Cramér and Rao, and errors that keep to it."""

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment

from geosoftmax_experiments.superres.brightness import Brightness
from geosoftmax_experiments.superres.companions import with_companions
from geosoftmax_experiments.superres.emitters import Settings
from geosoftmax_experiments.superres.localisation import choose_settings, find_emitters
from geosoftmax_experiments.superres.measures import Emitters
from geosoftmax_experiments.superres.positions import COLUMNS
from geosoftmax_experiments.superres.precision import _last_variance, deviations, variances
from geosoftmax_experiments.superres.psf import Gaussian
from tests.experiments.superres.scenes import BASE, GAIN, PIXEL, crowd

PSF = Gaussian(1.1)


def joint(state, variance, prior=0.0):
    """The deviations of the emitters of one frame, from the inverse of the whole matrix."""
    height, width = variance.shape[1:]
    count = state.counts.shape[1]
    across, across_slope = (one[:, 0] for one in PSF.across(state.points[0, :, 0], width))
    down, down_slope = (one[:, 0] for one in PSF.down(state.points[0, :, 1], height))
    pairs = ((down, across), (down, across_slope), (down_slope, across))
    J = torch.cat([(a[:, :, None] * b[:, None]).flatten(1) for a, b in pairs])
    J = torch.cat([J, J.new_ones(1, height * width)])
    information = (J / variance.flatten()) @ J.T
    information[range(count), range(count)] += prior
    spread = torch.linalg.inv(information).diagonal()
    return ((spread[count : 2 * count] + spread[2 * count : 3 * count]) / 2).sqrt() / state.counts


@pytest.mark.parametrize("known", [None, Brightness(1000.0, 50.0)])
def test_patches_tell_what_the_whole_matrix_does(known):
    generator = torch.Generator().manual_seed(0)
    lattice = 2 + 3.5 * torch.cartesian_prod(torch.arange(11.0), torch.arange(11.0))
    points = (lattice + 2.8 * (torch.rand(121, 2, generator=generator) - 0.5))[None].double()
    state = Emitters(points, torch.full((1, 121), 1000.0).double(), torch.tensor([20.0]).double())
    variance = 20 + 50 * torch.rand(1, 40, 40, generator=generator).double()
    found = deviations(state, variance, PSF, known)
    ratio = found / joint(state, variance, 0.0 if known is None else 1 / 50.0**2)
    assert float(ratio.log().abs().median()) < 0.02
    assert float(ratio.log().abs().max()) < 0.15
    alone = Emitters(state.points[:, :1], state.counts[:, :1], state.background)
    assert float(deviations(alone, variance, PSF)[0, 0]) < float(found[0, 0])


@pytest.mark.parametrize("apart", [0.0, 1e-3, 0.1])
def test_pairs_that_nearly_meet_are_somewhere_in_their_light(apart):
    """The bound of Cramér and Rao has no limit for them: it was micrometres."""
    points = torch.tensor([[[12.0, 12.0], [12.0 + apart, 12.0], [5.0, 5.0]]]).double()
    state = Emitters(points, torch.full((1, 3), 1000.0).double(), torch.tensor([20.0]).double())
    found = deviations(state, torch.full((1, 24, 24), 40.0).double(), PSF)
    assert bool((found[0, :2] <= PSF.sigma).all())
    assert bool((found[0, :2] > 4 * found[0, 2]).all())


def test_the_last_block_has_the_variances_and_none_where_there_is_no_inverse():
    root = torch.randn(5, 7, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    information = root @ root.mT
    wanted = torch.linalg.inv(information).diagonal(dim1=1, dim2=2)[:, -2:].mean(-1)
    information[3, 2, 2] = -1.0
    found = _last_variance(information)
    assert found[3] == torch.inf
    sound = [0, 1, 2, 4]
    torch.testing.assert_close(found[sound], wanted[sound])


def test_padding_has_none_and_noise_is_measured():
    empty = Emitters(torch.zeros(2, 1, 2), torch.zeros(2, 1), torch.full((2,), 100.0))
    generator = torch.Generator().manual_seed(0)
    frames = 100 + 30 * torch.randn(2, 50, 50, generator=generator)
    variance = variances(frames, empty, PSF, 20.0)
    assert float(variance.mean()) == pytest.approx(900, rel=0.05)
    assert bool(deviations(empty, variance, PSF).isnan().all())


def within(frames, truth, settings):
    """The shares of errors, of x and of y, that lie within one uncertainty and within two."""
    rows = find_emitters(frames, settings, method="sliding", pixel=PIXEL, gain=GAIN)
    errors = []
    for number in np.unique(truth[:, 0]):
        ours, true = (
            table[table[:, column] == number] for table, column in ((rows, 1), (truth, 0))
        )
        distance = np.linalg.norm(ours[:, None, 2:4] - true[None, :, 1:], axis=-1)
        one, other = linear_sum_assignment(np.minimum(distance, 250.0))
        near = distance[one, other] < 250
        error = ours[one[near], 2:4] - true[other[near], 1:]
        errors.append(error / ours[one[near], COLUMNS.index("uncertainty [nm]")][:, None])
    error = np.abs(np.concatenate(errors))
    return float((error < 1).mean()), float((error < 2).mean())


def test_errors_keep_to_the_uncertainty():
    frames, truth = crowd(8, 30, 800, 1200, seed=2)
    one, two = within(frames, truth, choose_settings(frames, PSF, base=BASE, alike=False))
    assert one == pytest.approx(0.683, abs=0.05)
    assert two == pytest.approx(0.954, abs=0.05)


def test_pairs_that_look_like_one_are_less_sure():
    """Those with the light of two, among many of one; the more of them, the wider."""
    generator = torch.Generator().manual_seed(0)
    counts = 1000 * torch.exp(0.1 * torch.randn(2, 100, generator=generator))
    counts[:, 0] = 2000.0
    points = 64 * torch.rand(2, 100, 2, generator=generator)
    state = Emitters(points, counts, torch.full((2,), 20.0))
    settings = Settings(psf=PSF, threshold=100.0)
    sure, grain = torch.full((2, 100), 0.07), torch.ones(2)
    found = with_companions(sure, torch.zeros(2, 64, 64), state, grain, settings)
    assert float(found[:, 0].min()) > 2 * 0.07
    assert float((found / sure)[:, 1:].median()) < 1.01
    assert bool((found >= sure - 1e-6).all())
    # Where few are around, pairs are rare.
    alone = with_companions(sure, torch.zeros(1).expand(2, 6400, 6400), state, grain, settings)
    assert bool((alone <= found + 1e-6).all())
    few = Emitters(points[:, :9], counts[:, :9], state.background)
    same = with_companions(sure[:, :9], torch.zeros(2, 64, 64), few, grain, settings)
    torch.testing.assert_close(same, sure[:, :9])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("frames", "number"),
    [(60, 20), (30, 41), (12, 123), (8, 246)],
    ids=["sparse", "usual", "dense", "crowded"],
)
@pytest.mark.parametrize("alike", [False, True])
def test_many_errors_keep_to_the_uncertainty(frames, number, alike):
    """At 0.5, 1, 3 and 6 emitters a square micrometre."""
    stack, truth = crowd(frames, number, 800, 1200, seed=number)
    one, two = within(stack, truth, choose_settings(stack, PSF, base=BASE, alike=alike))
    assert one == pytest.approx(0.683, abs=0.05)
    assert two == pytest.approx(0.954, abs=0.05)
