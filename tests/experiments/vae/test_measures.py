"""Measures of reconstructions: against scipy, and by hand."""

from functools import partial

import numpy as np
import pytest
import torch
from scipy.ndimage import distance_transform_edt, gaussian_filter
from scipy.stats import energy_distance

from geosoftmax import GridCost
from geosoftmax_experiments.vae.measures import (
    INKED,
    MEASURES,
    chamfer,
    energy,
    measure,
    picture_errors,
)


def drawings(count, shape, seed=0):
    """Some strokes of ink, as distributions."""
    random = np.random.default_rng(seed)
    ink = gaussian_filter(random.random((count, *shape)) ** 8, (0, 1, 1))
    ink = np.where(ink > np.quantile(ink, 0.7, axis=(1, 2), keepdims=True), ink, 0)
    return torch.from_numpy(ink / ink.sum((1, 2), keepdims=True)).float()


def test_chamfer_is_that_of_distance_transforms(monkeypatch):
    one, other = drawings(7, (12, 9)) > 0, drawings(7, (12, 9), 1) > 0
    wanted = []
    for a, b in zip(one.numpy(), other.numpy(), strict=True):
        to_b, to_a = distance_transform_edt(~b), distance_transform_edt(~a)
        wanted.append((to_b[a].mean() + to_a[b].mean()) / 2)
    np.testing.assert_allclose(chamfer(one, other), wanted, rtol=1e-6)
    monkeypatch.setattr("geosoftmax_experiments.vae.measures.AT_ONCE", 3000)  # two at a time
    np.testing.assert_allclose(chamfer(one, other), wanted, rtol=1e-6)


def test_energy_on_a_line_is_scipys():
    alpha, beta = drawings(1, (1, 30)), drawings(1, (1, 30), 1)
    place = np.arange(30)
    wanted = energy_distance(place, place, alpha[0, 0].numpy(), beta[0, 0].numpy())
    np.testing.assert_allclose(energy(alpha, beta), [wanted], rtol=1e-4)


def similarity(x, y, sigma, edge):
    """SSIM with a Gaussian window, from its definition."""
    smooth = partial(gaussian_filter, sigma=sigma, radius=edge, mode="mirror")
    mx, my = smooth(x), smooth(y)
    vx, vy, cov = smooth(x * x) - mx**2, smooth(y * y) - my**2, smooth(x * y) - mx * my
    c1, c2 = 0.01**2, 0.03**2
    values = (2 * mx * my + c1) * (2 * cov + c2) / ((mx**2 + my**2 + c1) * (vx + vy + c2))
    return values.mean()


@pytest.mark.parametrize(("side", "sigma", "edge"), [(28, 1.5, 5), (8, 0.5, 2)])
def test_every_measure_is_what_it_says(side, sigma, edge):
    alpha, beta = drawings(4, (side, side)), drawings(4, (side, side), 1)
    found = measure(alpha, beta, GridCost((side, side), p=2) / 2)
    assert found.keys() | {"latent_kl", "reconstruction"} == MEASURES.keys()
    np.testing.assert_allclose(
        found["total_variation"], np.abs((alpha - beta).numpy()).sum((1, 2)) / 2, rtol=1e-5
    )
    for k in range(4):
        x, y = (z[k].double().numpy() / z[k].max().item() for z in (alpha, beta))
        assert found["mse"][k].item() == pytest.approx(((x - y) ** 2).mean(), rel=1e-4)
        assert 1 - found["dissimilarity"][k].item() == pytest.approx(
            similarity(x, y, sigma, edge), abs=1e-3
        )
    inked = [z / z.amax((1, 2), keepdim=True) >= INKED for z in (alpha, beta)]
    assert torch.equal(found["chamfer"], chamfer(*inked))


def test_the_same_drawing_is_at_distance_zero():
    alpha = drawings(3, (8, 8))
    found = measure(alpha, alpha.clone(), GridCost((8, 8), p=2) * 2)
    for name in ("total_variation", "mse", "chamfer", "energy"):
        assert (found[name] == 0).all()
    assert found["dissimilarity"].abs().max() < 1e-6


def test_pictures_by_two_rules_for_the_ink():
    alpha, beta = drawings(6, (28, 28)), drawings(6, (28, 28), 1)
    found = measure(alpha, beta, GridCost((28, 28)))
    wanted = [float(found[name].mean()) for name in ("mse", "dissimilarity")]
    assert picture_errors(alpha, beta, None) == pytest.approx(wanted, rel=1e-5)
    flat = (alpha > 0) / (alpha > 0).sum((1, 2), keepdim=True)
    spoilt = flat.clone()
    spoilt[:, 0, 0] += 0.1  # one pixel that is too dark makes the others pale by one rule alone
    pale, whole = (picture_errors(flat, spoilt, level)[0] for level in (None, 0.2))
    assert whole < 2 / 28**2 < pale
