"""A measured point-spread function: splines, beads, tables, and what they are good for."""

import functools

import numpy as np
import pytest
import tifffile
import torch
from scipy.interpolate import BSpline
from scipy.special import erf

from geosoftmax.continuous.spikes import Spikes
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.superres.beads import measure_psf
from geosoftmax_experiments.superres.frames import FrameProblem
from geosoftmax_experiments.superres.localisation import choose_settings, find_emitters
from geosoftmax_experiments.superres.matching import compare
from geosoftmax_experiments.superres.measured import MeasuredPsf, basis, knots
from geosoftmax_experiments.superres.measures import Emitters, model
from geosoftmax_experiments.superres.precision import deviations
from geosoftmax_experiments.superres.psf import Gaussian
from geosoftmax_experiments.superres.tabulated import read_psf_table
from geosoftmax_experiments.superres.width import Width, explains_better
from tests.experiments.superres.scenes import BASE, GAIN, PIXEL, camera, crowd
from tests.experiments.superres.test_commands import call

DOUBLE = torch.float64


def spline(function, sigma, half):
    """The spline nearest to a function of offsets ``(y, x)`` that pixels show."""
    spacing, count = knots(sigma, half)
    fine = np.arange(-4 * count, 4 * count + 1) * spacing / 4
    inverse = np.linalg.pinv(basis(fine, spacing, count))
    return MeasuredPsf(inverse @ function(fine[:, None], fine) @ inverse.T, spacing)


def tilted(y, x):
    """Astigmatism along a diagonal: no product of a profile down and one across."""
    return np.exp(-((x + y) ** 2) / (4 * 1.5**2) - (x - y) ** 2 / (4 * 0.95**2))


def coma(y, x):
    """One flank is steeper than the other."""
    skew = np.clip(1 + 0.35 * ((x / 1.1) ** 3 - 3 * x / 1.1) / 2.4, 0, None)
    return np.exp(-(x**2 + y**2) / 2 / 1.1**2) * skew


def integrated(y, x, sigma=1.1):
    def along(z):
        z = z / sigma / 2**0.5
        edge = 0.5 / sigma / 2**0.5
        return (erf(z + edge) - erf(z - edge)) / 2

    return along(y) * along(x)


def image(psf, x=10.3, y=10.7, side=21):
    one = Emitters(torch.tensor([[[x, y]]]), torch.ones(1, 1), torch.zeros(1))
    return model(one, torch.zeros(1, side, side), psf)[0]


def test_the_basis_is_that_of_cubic_splines():
    offsets = np.linspace(-1.9, 1.9, 41)
    element = BSpline.basis_element(np.arange(-2.0, 3.0))
    for order in (0, 1, 2):
        expected = element.derivative(order)(offsets) if order else element(offsets)
        assert np.allclose(basis(2 * offsets, 2.0, 0, order)[:, 0], expected / 2.0**order)


def test_a_spline_of_a_gaussian_is_that_gaussian():
    psf = spline(integrated, 1.1, 6.0)
    assert psf.rank == 1
    assert psf.sigma == pytest.approx(1.1, rel=1e-3)
    assert psf.unlike < 1e-3
    assert psf.peak == pytest.approx(float(image(Gaussian(1.1), 10.5, 10.5).max()), rel=1e-3)
    wider = Gaussian((1.1**2 + 1 / 12) ** 0.5)  # what pixels show
    assert psf.energy == pytest.approx(wider.energy, rel=0.01)
    assert psf.bend == pytest.approx(wider.bend, rel=0.03)
    assert float((image(psf) - image(Gaussian(1.1))).abs().max()) < 1e-4


@pytest.mark.parametrize("function", [tilted, coma])
def test_profiles_derive_and_sum_to_one(function):
    psf = spline(function, 1.1, 6.0)
    centres, step = torch.tensor([8.3, 9.1, 0.2], dtype=DOUBLE), 1e-5
    for along in (psf.down, psf.across):
        slopes = (along(centres + step, 20)[0] - along(centres - step, 20)[0]) / (2 * step)
        torch.testing.assert_close(along(centres, 20)[1], slopes, rtol=0, atol=1e-8)
    assert float(image(psf).sum()) == pytest.approx(1, abs=2e-3)
    # Its middle is that of the Gaussian which is most alike.
    assert spline(lambda y, x: function(y, x + 0.4), 1.1, 6.0).middle[0] == pytest.approx(
        psf.middle[0] - 0.4, abs=5e-3
    )


def test_products_with_the_jacobian_are_those_of_all_profiles():
    psf = spline(tilted, 1.1, 6.0)
    assert psf.rank > 1
    generator = torch.Generator().manual_seed(0)
    points = 5 + 6 * torch.rand(2, 3, 2, generator=generator, dtype=DOUBLE)
    counts = torch.tensor([[900.0, 700.0, 0.0], [800.0, 600.0, 500.0]], dtype=DOUBLE)
    frames = torch.rand(2, 16, 17, generator=generator, dtype=DOUBLE)
    state = Spikes(points, counts, torch.ones(2, 1, dtype=DOUBLE))
    view = FrameProblem(frames, psf, 0.0).view(state)
    step = 1e-3 * torch.randn(2, 10, generator=generator, dtype=DOUBLE)
    u, x, y, level = step.split([3, 3, 3, 1], -1)
    size = torch.where(counts > 0, counts, 1.0)
    shift = torch.stack([x, y], -1) / size[..., None]
    alive = (counts > 0).to(DOUBLE)
    moved = Emitters(points + shift, counts + u * alive, (1 + level)[:, 0])
    change = model(moved, frames, psf) - model(Emitters.of(state), frames, psf)
    torch.testing.assert_close(view.forward(step), change, rtol=0, atol=1e-7)
    other = torch.randn(frames.shape, generator=generator, dtype=DOUBLE)
    torch.testing.assert_close(
        (view.forward(step) * other).sum((1, 2)), (step * view.backward(other)).sum(-1)
    )


def beads(psf, *, frames=4, side=80, seed=0):
    """Bright beads on a jittered lattice."""
    generator = torch.Generator().manual_seed(seed)
    lattice = 10 + 15 * torch.cartesian_prod(torch.arange(5.0), torch.arange(5.0))
    points = lattice + 3 * (torch.rand(frames, 25, 2, generator=generator) - 0.5)
    return camera(points, torch.full((frames, 25), 20000.0), psf=psf, side=side, seed=seed)[0]


@functools.cache
def of_beads(function):
    """The true function, and what two frames of beads show of it."""
    true = spline(function, 1.1, 6.0)
    return true, *measure_psf(torch.from_numpy(beads(true, frames=2)).float(), BASE)


@pytest.mark.parametrize("function", [pytest.param(tilted, marks=pytest.mark.slow), coma])
def test_beads_show_the_function(function):
    true, psf, number = of_beads(function)
    assert number > 30
    expected, gaussian = image(true), image(Gaussian(true.sigma))
    assert float((image(psf) - expected).norm() / expected.norm()) < 0.025
    assert float((gaussian - expected).norm() / expected.norm()) > 0.1
    assert psf.unlike == pytest.approx(true.unlike, abs=0.02)


@pytest.mark.slow
def test_emitters_are_found_better_with_it():
    """Than with the Gaussian that is most alike; about as well as with the true function."""
    true, psf, _ = of_beads(tilted)
    stack, truth = crowd(2, 30, 2000, 3000, psf=true, seed=1)
    scores = []
    for one in (psf, Gaussian(true.sigma), true):
        settings = choose_settings(stack, one, base=BASE, alike=False, threshold=500.0)
        rows = find_emitters(stack, settings, method="sliding", pixel=PIXEL, gain=GAIN)
        scores.append(compare(rows[:, 1:4], truth, 100.0))
    measured, gaussian, known = scores
    assert measured.jaccard > gaussian.jaccard + 0.1
    assert measured.rmse < 0.7 * gaussian.rmse
    assert measured.rmse < 1.3 * known.rmse
    assert measured.jaccard > known.jaccard - 0.03


def test_residuals_tell_whether_it_fits():
    true = spline(coma, 1.1, 6.0)
    frames = torch.from_numpy(beads(true, frames=1)).float()
    found = Width(true.sigma, 0.01, 25, None)
    assert not explains_better(frames, found, true, BASE)
    wide = spline(lambda y, x: coma(y / 1.4, x / 1.4), 1.5, 7.0)
    assert explains_better(frames, found, wide, BASE)


def test_it_is_known_by_its_file():
    psf = spline(coma, 1.1, 6.0)
    psf.source = "a file"
    assert psf.words() == {"sigma": round(psf.sigma, 2), "digest": "a file"}


def test_too_few_beads_are_refused():
    few = beads(Gaussian(1.3))[:1, :45, :45]
    with pytest.raises(UserError, match=r"too few beads|are needed"):
        measure_psf(torch.from_numpy(few).float(), BASE)


def plane(function, nodes):
    y, x = (one.ravel() for one in np.meshgrid(nodes, nodes, indexing="ij"))
    values = function(y / PIXEL, x / PIXEL)
    rows = "".join(f"{a:g},{b:g},{c:.6g}\n" for a, b, c in zip(x, y, values, strict=True))
    return "x [nm],y [nm],value\n" + rows


def radial(function, nodes):
    rows = "".join(f"{r:g},{v:.6g}\n" for r, v in zip(nodes, function(nodes / PIXEL), strict=True))
    return "r [nm],value\n" + rows


def test_tables_are_read(tmp_path):
    path = tmp_path / "psf.csv"
    path.write_text(radial(lambda r: np.exp(-(r**2) / 2 / 1.2**2), np.arange(0, 800, 10.0)))
    found = read_psf_table(path, PIXEL, sampled=False)
    assert found.sigma == pytest.approx(1.2, rel=2e-3)
    assert float((image(found) - image(Gaussian(1.2))).abs().max()) < 2e-4
    seen = read_psf_table(path, PIXEL, sampled=True)
    assert float((image(seen) - image(Gaussian(1.2, sampled=True))).abs().max()) < 2e-4
    path.write_text(plane(tilted, np.arange(-600, 601, 25.0)))
    found = read_psf_table(path, PIXEL, sampled=True)
    assert found.rank > 1
    expected = image(spline(tilted, 1.1, 6.0))
    assert float((image(found) - expected).norm() / expected.norm()) < 0.01


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,b\n1,2\n", "has no column 'r [nm]'"),
        ("r [nm],value\n0,1\n10,1\n", "5 or more different r [nm]"),
        ("r [nm],value\n" + "0,1\n" * 9, "5 or more different r [nm]"),
        ("r [nm],value\n" + "".join(f"{r},0\n" for r in range(9)), "no point-spread function"),
        ("r [nm],value\n" + "".join(f"{r},1e300\n" for r in range(9)), "no point-spread function"),
        ("r [nm],value\n" + "".join(f"{r},{9 - r}\n" for r in range(9)), "check them and --pixel"),
        ("x [nm],y [nm],value\n" + "0,0,1\n" * 30, "one value for each pair"),
        ("r [nm],value\n0,1\n1,x\n", "misses a number"),
    ],
)
def test_bad_tables_are_refused(tmp_path, text, says):
    path = tmp_path / "psf.csv"
    path.write_text(text)
    with pytest.raises(UserError) as error:
        read_psf_table(path, PIXEL, sampled=True)
    assert says in str(error.value) + error.value.hint


def test_uncertainties_know_the_function():
    """Along its long axis an emitter is less sure."""
    narrow, wide = (
        spline(lambda y, x, s=s: np.exp(-(x**2 + y**2) / 2 / s**2), s, 6.0) for s in (1.1, 1.5)
    )
    state = Emitters(torch.tensor([[[20.2, 20.4]]]), torch.tensor([[1000.0]]), torch.zeros(1))
    variance = torch.full((1, 40, 40), 20.0)
    sure = [float(deviations(state, variance, psf)[0, 0]) for psf in (narrow, wide)]
    same = [float(deviations(state, variance, Gaussian(s, sampled=True))[0, 0]) for s in (1.1, 1.5)]
    assert sure == pytest.approx(same, rel=0.02)
    assert sure[0] < sure[1]


def test_the_command_reads_beads_and_tables(tmp_path):
    true = spline(coma, 1.1, 6.0)
    stack, _ = crowd(2, 20, 2000, 3000, psf=true)
    for name, frames in (("stack", stack), ("beads", beads(true, frames=1))):
        path = tmp_path / f"{name}.tif"
        tifffile.imwrite(path, frames.round().astype(np.uint16), photometric="minisblack")
    (tmp_path / "table.csv").write_text(plane(coma, np.arange(-600, 601, 25.0)))
    common = ["--pixel", f"{PIXEL:g}nm", "--gain", GAIN, "--base", BASE, "--threshold", 500]

    def run(psf, *options):
        out = tmp_path / f"{len(list(tmp_path.iterdir()))}.csv"
        result = call(
            "localize", tmp_path / "stack.tif", *common, "--any", "--psf", psf, *options, "-o", out
        )
        return result, result.output.replace("\n", " ")

    done, said = run(tmp_path / "beads.tif")
    assert done.exit_code == 0, said
    assert "beads, as wide as a Gaussian of 102 nm, which differs from it by 1" in said
    assert "does not fit" not in said
    done, said = run(tmp_path / "table.csv", "--sampled")
    assert done.exit_code == 0, said
    assert "as wide as a Gaussian of 10" in said
    for psf, options, says in (
        (tmp_path / "none.tif", (), "There is no file"),
        (tmp_path / "beads.tif", ("--sampled",), "measures what pixels see"),
        (tmp_path / "table.txt", (), "must be a positive length with its unit"),
    ):
        refused, said = run(psf, *options)
        assert refused.exit_code == 1
        assert says in said
