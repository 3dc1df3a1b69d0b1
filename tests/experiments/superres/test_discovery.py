"""The threshold by a rate of false discoveries: what it allows is what comes."""

import pytest
import torch

from geosoftmax_experiments.superres.discovery import (
    LEAST,
    MOST,
    expected,
    least_threshold,
    redraw,
    unmatched,
)
from geosoftmax_experiments.superres.emitters import Settings
from geosoftmax_experiments.superres.localisation import choose_settings, find_emitters
from geosoftmax_experiments.superres.matching import compare
from geosoftmax_experiments.superres.measures import Emitters, model
from geosoftmax_experiments.superres.precision import measure_grain
from geosoftmax_experiments.superres.psf import Gaussian
from tests.experiments.superres.scenes import BASE, GAIN, PIXEL, crowd, filaments

PSF = Gaussian(1.1)


def agreement(frames, truth, settings):
    rows = find_emitters(frames, settings, method="sliding", pixel=PIXEL, gain=GAIN)
    return compare(rows[:, 1:4], truth, 100.0)


def test_dim_emitters_are_found():
    """100 to 200 photons on 20 a pixel: at eight deviations of the noise half of them are lost."""
    frames, truth = crowd(6, 30, 100, 200)
    settings = choose_settings(frames, PSF, base=BASE, alike=False)
    found = agreement(frames, truth, settings)
    assert found.jaccard > 0.75
    assert found.precision > 0.9
    assert settings.false is not None
    assert settings.false <= 0.05


@pytest.mark.slow
def test_the_rate_sets_precision_against_recall():
    frames, truth = filaments(3, 225)
    scores = [
        agreement(frames, truth, choose_settings(frames, PSF, base=BASE, alike=False, fdr=rate))
        for rate in (0.01, 0.2)
    ]
    strict, loose = scores
    assert strict.precision > loose.precision + 0.01
    assert strict.precision > 0.95
    assert loose.recall > strict.recall + 0.01


@pytest.mark.parametrize("number", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_noise_is_not_found(number):
    frames, truth = crowd(8, number, 300, 300, seed=number)
    found = agreement(frames, truth, choose_settings(frames, PSF, base=BASE, alike=False))
    assert found.spurious <= 1
    assert found.missed <= 1


def test_grain_is_the_gain_of_an_ideal_camera():
    frames, _ = crowd(4, 10, 500, 500, side=40)
    light = torch.from_numpy(frames)
    nothing = Emitters(torch.zeros(4, 1, 2), torch.zeros(4, 1), torch.full((4,), BASE + 20 * GAIN))
    dark = Emitters(*(one.double() for one in (nothing.points, nothing.counts, nothing.background)))
    settings = Settings(psf=PSF, threshold=100.0, base=BASE)
    clean = model(dark, light, PSF)
    noise = (GAIN * 20 * GAIN) ** 0.5 * torch.randn(
        light.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    grain = measure_grain(clean + noise, dark, PSF, BASE)
    assert grain.tolist() == pytest.approx([GAIN] * 4, rel=0.1)
    again = redraw(clean + noise, dark, settings)
    assert float((again - clean).var()) == pytest.approx(20 * GAIN**2, rel=0.1)


def test_each_emitter_has_one_partner():
    drawn = Emitters(torch.tensor([[[5.0, 5.0], [9.0, 9.0]]]), torch.ones(1, 2), torch.zeros(1))
    found = Emitters(
        torch.tensor([[[5.2, 5.0], [5.0, 5.1], [9.0, 8.0], [1.0, 1.0]]]),
        torch.tensor([[4.0, 3.0, 2.0, 0.0]]),
        torch.zeros(1),
    )
    assert unmatched(found, drawn, 1.1).tolist() == [[False, True, False, False]]
    assert unmatched(found, drawn, 0.5).tolist() == [[False, True, True, False]]


def test_the_least_threshold_that_is_allowed():
    settings = Settings(psf=PSF, threshold=LEAST * 10.0, noise=10.0)
    true = torch.full((100,), 500.0)
    false = torch.linspace(41.0, 80.0, 30)
    for rate in (0.02, 0.1, 0.5):
        counts, share = least_threshold(rate, torch.cat([true, false]), false, settings)
        number = int((false >= counts).sum())
        assert number / (100 + number) <= share + 1e-9
        assert share <= rate
        lower = counts - 1.3 * (MOST - LEAST) * 10 / 48
        if lower > LEAST * 10:
            assert (
                float(expected(torch.tensor([lower]).double(), false.double())) > 0.9 * rate * 100
            )
    assert least_threshold(0.05, true, false[:0], settings) == (40.0, 0.0)
    hopeless = torch.linspace(400.0, 500.0, 50)
    assert least_threshold(0.05, true, hopeless, settings).rate == 0.5
