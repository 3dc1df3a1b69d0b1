"""Samples: distances of features against scipy and torchmetrics, the gap to the prior, mixtures."""

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm
from torch.distributions import MultivariateNormal, kl_divergence
from torchmetrics.image.kid import poly_mmd

from geosoftmax_experiments.data.drawings import as_distributions, load_drawings
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.vae.judge import (
    compare_features,
    covered,
    frechet,
    kernel_distance,
    open_judge,
    real_floor,
)
from geosoftmax_experiments.vae.models import Code
from geosoftmax_experiments.vae.pictures import open_run
from geosoftmax_experiments.vae.samples import fit_codes, judge_run, prior_gap
from geosoftmax_experiments.vae.training import train
from tests.experiments.vae.runs import HERE, settings


@pytest.fixture(scope="module")
def digits():
    return load_drawings("digits", limit=400)


@pytest.fixture(scope="module")
def judge(digits, tmp_path_factory):
    return open_judge(digits, tmp_path_factory.mktemp("judge") / "judge.safetensors")


def features(seed, shift=0.0):
    random = torch.Generator().manual_seed(seed)
    return torch.randn(60, 5, generator=random, dtype=torch.float64) * 1.5 + shift


def test_frechet_is_that_of_scipys_root():
    one, other = features(0), features(1, 0.5)
    s, t = (np.cov(x.T) for x in (one, other))
    wanted = (one - other).mean(0).square().sum() + np.trace(s + t - 2 * sqrtm(s @ t).real)
    assert frechet(one, other) == pytest.approx(float(wanted), rel=1e-8)
    assert frechet(one, one) == pytest.approx(0, abs=1e-6)


def test_the_kernel_distance_is_torchmetrics():
    one, other = features(0), features(1, 0.5)
    assert kernel_distance(one, other) == pytest.approx(float(poly_mmd(one, other)), rel=1e-8)


def test_precision_and_recall_by_hand():
    line = torch.arange(6.0, dtype=torch.float64)[:, None]
    near, far = line[:2] + 0.1, line[:2] + 100
    assert covered(line, near) == 1
    assert covered(line, far) == 0
    assert covered(line, torch.cat([near, far])) == 0.5
    found = compare_features(line, line.clone())
    assert (found["precision"], found["recall"]) == (1, 1)


def test_the_judge_learns_and_is_kept(digits, judge, tmp_path):
    floor = real_floor(judge, digits, "test")
    assert floor["error"] < 0.3  # of ten classes, from 320 digits
    path = tmp_path / "judge.safetensors"
    again = open_judge(digits, path)
    assert all(torch.equal(a, b) for a, b in zip(
        judge.state_dict().values(), again.state_dict().values(), strict=True))  # fmt: skip
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(UserError, match="is damaged"):
        open_judge(digits, path)


def test_the_judge_does_not_depend_on_the_number_of_threads(digits, judge, tmp_path):
    threads = torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            again = open_judge(digits, tmp_path / f"{count}.safetensors").state_dict()
            assert all(torch.equal(again[key], value) for key, value in judge.state_dict().items())
            assert torch.get_num_threads() == count
    finally:
        torch.set_num_threads(threads)


def test_without_classes_it_learns_turns(digits, tmp_path):
    own = np.save(tmp_path / "own.npy", digits.images.reshape(len(digits.images), -1))
    own = load_drawings(str(tmp_path / "own.npy"))
    judge = open_judge(own, tmp_path / "judge.safetensors")
    assert own.labels() is None
    rows = own.split().test
    _, said = judge.judge(as_distributions(own.tensor(rows)))
    assert float((said == 0).double().mean()) > 0.5  # upright, where one in four would be chance
    assert real_floor(judge, own, "test")["error"] is None


def test_the_gap_is_that_of_a_normal_distribution():
    random = torch.Generator().manual_seed(0)
    mean = torch.randn(5000, 3, generator=random) @ torch.randn(3, 3, generator=random) + 1
    code = Code(mean, torch.full((5000, 3), -1.0))
    covariance = torch.cov(mean.T.double(), correction=0) + np.exp(-1) * torch.eye(3)
    fitted = MultivariateNormal(mean.double().mean(0), covariance)
    wanted = kl_divergence(
        fitted, MultivariateNormal(torch.zeros(3).double(), torch.eye(3).double())
    )
    assert prior_gap(code) == pytest.approx(float(wanted), rel=1e-6)
    assert prior_gap(code) < float(code.rate().mean())  # the rate bounds it
    matched = Code(torch.zeros(10, 3), torch.zeros(10, 3))
    assert prior_gap(matched) == pytest.approx(0, abs=1e-9)


def test_codes_that_were_fitted_lie_where_those_of_drawings_do(digits, judge, tmp_path):
    wanted = settings(digits, limit=400, latent=4, epochs=12, weight=0.01, loss="potential")
    train(wanted, digits, tmp_path, HERE)
    run = open_run(tmp_path, digits)
    with torch.no_grad():
        codes = run.net.encode(as_distributions(digits.tensor(digits.split().train))).mean
    fitted = fit_codes(run, digits, 2000)
    assert torch.equal(fitted, fit_codes(run, digits, 2000))
    np.testing.assert_allclose(fitted.mean(0), codes.mean(0), atol=0.3)
    found = judge_run(run, digits, judge)
    assert found["prior_gap"] > 0
    assert found["fitted_frechet"] < found["prior_frechet"]
