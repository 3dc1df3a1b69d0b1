"""The width of the point-spread function, from the frames themselves."""

import numpy as np
import pytest
import tifffile
import torch

from geosoftmax_experiments.superres.psf import Gaussian
from geosoftmax_experiments.superres.width import Width, measure_width
from tests.experiments.superres.scenes import BASE, GAIN, PIXEL, crowd
from tests.experiments.superres.test_commands import call


def frames_of(psf, number, low, high, frames=12, seed=0):
    stack, _ = crowd(frames, number, low, high, psf=psf, seed=seed)
    return torch.from_numpy(stack).float()


@pytest.mark.parametrize(
    ("psf", "number", "photons"),
    [
        (Gaussian(1.3), 20, 1000),
        (Gaussian(0.8), 20, 1000),
        pytest.param(Gaussian(2.0), 15, 3000, marks=pytest.mark.slow),
        (Gaussian(1.3), 20, 200),
        pytest.param(Gaussian(1.3), 90, 1000, marks=pytest.mark.slow),
    ],
    ids=["usual", "narrow", "wide", "dim", "crowded"],
)
def test_width_is_measured(psf, number, photons):
    found = measure_width(frames_of(psf, number, photons, 2 * photons), BASE)
    assert found is not None
    assert found.psf.sigma == pytest.approx(psf.sigma, rel=0.03)
    assert abs(found.sigma - psf.sigma) < 4 * found.error + 0.01 * psf.sigma
    assert not found.differs(psf)
    assert found.differs(Gaussian(1.2 * psf.sigma))
    assert found.differs(Gaussian(psf.sigma / 1.2))


@pytest.mark.parametrize("sampled", [False, True])
def test_bright_and_narrow_emitters_tell_how_pixels_see(sampled):
    found = measure_width(frames_of(Gaussian(0.6, sampled), 20, 20000, 40000), BASE)
    assert found is not None
    assert found.sampled is sampled
    assert found.sigma == pytest.approx(0.6, rel=0.01)


def test_sampling_widens_what_pixels_show():
    assert not Width(1.1, 0.001, 100, True).differs(Gaussian((1.21 - 1 / 12) ** 0.5))
    assert Width(1.1, 0.001, 100, None).differs(Gaussian(1.0, sampled=True))
    assert Width(1.1, 0.001, 100, True).sigma_if(sampled=True) == pytest.approx(1.1)
    assert Width(1.1, 0.001, 100, None).sigma_if(sampled=False) == pytest.approx(1.1)


def test_too_few_tell_nothing():
    assert measure_width(frames_of(Gaussian(1.1), 0, 1, 1, frames=2), BASE) is None
    assert measure_width(torch.full((1, 24, 24), 100.0), 0.0) is None


COMMON = ["--pixel", f"{PIXEL:g}nm", "--gain", GAIN, "--base", BASE, "--method", "maxima"]


MISFIT = "--psf {} does not fit the frames. Emitters that stand alone are 13"


@pytest.mark.parametrize(
    ("psf", "says"),
    [
        ("auto", "The point-spread function is 13"),
        ("100nm", MISFIT),
        pytest.param("160nm", MISFIT, marks=pytest.mark.slow),
        pytest.param("130nm", "aved ", marks=pytest.mark.slow),
    ],
    ids=["measured", "too narrow", "too wide", "right"],
)
def test_the_command_measures_and_warns(psf, says, tmp_path):
    stack, _ = crowd(4, 25, 1000, 1500, psf=Gaussian(1.3))
    path = tmp_path / "stack.tif"
    tifffile.imwrite(path, stack.round().astype(np.uint16), photometric="minisblack")
    result = call("localize", path, *COMMON, "--psf", psf, "-o", tmp_path / "out.csv")
    assert result.exit_code == 0, result.output
    said = result.output.replace("\n", " ")
    assert says.format(psf) in said
    assert ("does not fit" in said) == (says == MISFIT)


def test_the_command_says_why_it_cannot_measure(tmp_path):
    path = tmp_path / "stack.tif"
    tifffile.imwrite(path, np.full((2, 32, 32), 100, np.uint16), photometric="minisblack")
    refused = call(
        "localize", path, *COMMON, "--psf", "auto", "--sampled", "-o", tmp_path / "a.csv"
    )
    assert "--psf auto measures what pixels see" in refused.output.replace("\n", " ")
    few = call("localize", path, "--pixel", "100nm", "--psf", "auto", "-o", tmp_path / "b.csv")
    assert few.exit_code == 1
    assert "too few emitters that stand alone" in few.output.replace("\n", " ")
