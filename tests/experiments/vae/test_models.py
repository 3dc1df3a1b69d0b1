"""Networks, output layers and measures, against what they must be."""

import math

import numpy as np
import pytest
import torch

from geosoftmax import (
    ConvergenceWarning,
    GridCost,
    geometric_softmax,
    hausdorff_divergence,
    smooth_scores,
)
from geosoftmax_experiments.data.drawings import NAMES, as_distributions, load_drawings
from geosoftmax_experiments.vae.layers import LAYERS
from geosoftmax_experiments.vae.measures import Means, measure
from geosoftmax_experiments.vae.models import VAE, Code
from geosoftmax_experiments.vae.presets import LOSSES, PRESETS

COST = GridCost((8, 8), p=2) / 2


@pytest.fixture
def alpha():
    drawings = load_drawings("digits", limit=20)
    return as_distributions(drawings.tensor(drawings.rows)).double()


def test_the_help_names_every_layer_and_the_presets_every_set():
    assert tuple(LAYERS) == LOSSES
    assert PRESETS.keys() == NAMES.keys()


@pytest.mark.parametrize("name", LAYERS)
def test_layers_give_distributions_and_slopes(name, alpha):
    layer = LAYERS[name]
    scores = torch.randn(alpha.shape, dtype=torch.float64, requires_grad=True)
    beta = layer.link(scores, COST)
    torch.testing.assert_close(beta.sum((1, 2)), torch.ones(20).double(), rtol=1e-6, atol=0)
    assert (beta >= 0).all()
    loss = layer.loss(scores, alpha, COST)
    assert loss.shape == (20,)
    (slope,) = torch.autograd.grad(loss.sum(), scores)
    step = torch.randn_like(scores)
    ahead, behind = (
        layer.loss(scores.detach() + h * step, alpha, COST).sum() for h in (1e-5, -1e-5)
    )
    torch.testing.assert_close((slope * step).sum(), (ahead - behind) / 2e-5, rtol=1e-3, atol=1e-3)


def test_drawings_of_networks_that_know_nothing():
    """Their scores are nearly the same everywhere: a gap of 1e-6 is not reached, 1e-5 is."""
    cost = GridCost((64, 64), p=2) / 2
    torch.manual_seed(0)
    scores = smooth_scores(3e-3 * torch.randn(1, 64, 64), cost)
    with pytest.warns(ConvergenceWarning):
        geometric_softmax(scores, cost)
    beta = LAYERS["geometric"].link(scores, cost)  # does not warn: that would fail here
    torch.testing.assert_close(beta.sum((1, 2)), torch.ones(1))


@pytest.mark.parametrize("name", LAYERS)
def test_layers_start_where_they_are_told(name, alpha):
    mean = 0.9 * alpha.mean(0) + 0.1 / 64
    start = LAYERS[name].start(mean, COST)
    torch.testing.assert_close(LAYERS[name].link(start[None], COST)[0], mean, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("architecture", "shape", "latent"), [("mlp", (28, 28), 100), ("dcgan", (64, 64), 256)]
)
def test_networks_have_the_paper_s_shapes(architecture, shape, latent):
    net = VAE(architecture, shape, latent)
    alpha = torch.softmax(torch.randn(2, *shape).flatten(1), 1).reshape(2, *shape)
    net.eval()
    code = net.encode(alpha)
    assert code.mean.shape == code.log_variance.shape == (2, latent)
    assert net.decode(code.mean).shape == (2, *shape)
    if architecture == "mlp":
        sizes = [layer.weight.shape for layer in net.encoder if hasattr(layer, "weight")]
        assert sizes == [(400, 784), (200, 400)]
    scores, mean, _ = net(alpha, torch.zeros(2, latent))
    torch.testing.assert_close(scores, net.decode(mean))


def test_the_rate_is_that_of_torch():
    code = Code(torch.randn(5, 3), torch.randn(5, 3))
    one = torch.distributions.Normal(code.mean, torch.exp(code.log_variance / 2))
    other = torch.distributions.Normal(0.0, 1.0)
    wanted = torch.distributions.kl_divergence(one, other).sum(-1)
    torch.testing.assert_close(code.rate(), wanted)


def test_measures_by_hand(alpha):
    beta = alpha.roll(1, 0)
    beta[0] = 1 / 64
    found = measure(alpha, beta, COST)
    torch.testing.assert_close(found["hausdorff"], hausdorff_divergence(alpha, beta, COST))
    torch.testing.assert_close(found["hausdorff_reverse"], hausdorff_divergence(beta, alpha, COST))
    assert found["support"][0] == 64
    assert float(found["entropy"][0]) == pytest.approx(math.log(64))
    p = alpha[0][alpha[0] > 0].numpy()
    assert float(found["kl"][0]) == pytest.approx(float((p * np.log(p * 64)).sum()))
    assert bool(found["kl_finite"][0])
    assert not bool(found["kl_finite"][1])  # ink where the other has none
    assert found["true_support"][1] == (alpha[1] > 0).sum()
    means = Means()
    for part in (slice(0, 13), slice(13, 20)):
        means.add({name: value[part] for name, value in found.items()})
    reduced = means.reduce(torch.device("cpu"))
    assert reduced["hausdorff"] == pytest.approx(float(found["hausdorff"].mean()))
    finite = found["kl_finite"]
    assert reduced["kl"] == pytest.approx(float(found["kl"][finite].mean()))
    only = Means()
    only.add({name: value[1:2] for name, value in found.items()})
    assert only.reduce(torch.device("cpu"))["kl"] is None
