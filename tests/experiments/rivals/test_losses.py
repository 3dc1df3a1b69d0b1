"""Each loss against its closed form, another package, and finite differences."""

import coral_pytorch.dataset
import coral_pytorch.losses
import entmax
import numpy as np
import ot
import pytest
import torch
from scipy import stats
from skordinal.metrics import ranked_probability_score as skordinal_score
from torch.nn import functional as F

from geosoftmax import DenseCost, LineCost, TreeCost, ZeroOneCost
from geosoftmax_experiments.rivals import (
    entropies,
    margins,
    ordinal,
    soft_labels,
    transport,
)
from geosoftmax_experiments.rivals.table import RIVALS, line

TREE = TreeCost.from_dict(
    {"pets": {"cats": ["lion", "cat"], "dog": None}, "wheels": ["bus", "van"]}
)
PLACES = [0.0, 1.0, 1.5, 4.0, 4.2]


@pytest.fixture
def scores():
    return torch.randn(7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def labels():
    return torch.tensor([0, 1, 2, 3, 4, 2, 0])


@pytest.fixture
def alpha():
    draw = np.random.default_rng(1).dirichlet(np.ones(5), size=7)
    draw[0] = [0, 0.5, 0, 0.5, 0]
    return torch.from_numpy(draw)


def close(found, expected):
    torch.testing.assert_close(found, torch.as_tensor(expected, dtype=found.dtype))


def test_cross_entropy_and_smoothing_are_those_of_torch(scores, labels, alpha):
    close(
        entropies.cross_entropy(scores, labels), F.cross_entropy(scores, labels, reduction="none")
    )
    close(entropies.cross_entropy(scores, alpha), F.cross_entropy(scores, alpha, reduction="none"))
    smooth = F.cross_entropy(scores, labels, reduction="none", label_smoothing=0.2)
    close(soft_labels.label_smoothing(scores, labels, 0.2), smooth)


def test_sparse_losses_are_those_of_entmax(scores, labels):
    close(entropies.sparsemax_loss(scores, labels), entmax.sparsemax_loss(scores, labels))
    close(entropies.entmax15_loss(scores, labels), entmax.entmax15_loss(scores, labels))


@pytest.mark.parametrize("loss", [entropies.sparsemax_loss, entropies.entmax15_loss])
def test_sparse_losses_of_distributions_vanish_where_the_link_returns_them(loss, scores):
    link = entmax.sparsemax if loss is entropies.sparsemax_loss else entmax.entmax15
    target = link(scores, dim=-1)
    assert loss(scores, target).abs().max() < 1e-7  # entmax bisects in its own way
    assert loss(scores + torch.randn_like(scores), target).min() > -1e-7


def test_margins_one_by_one(scores, labels):
    C = LineCost(5, p=2).matrix()
    hinge = margins.cost_augmented_hinge(scores, labels, LineCost(5, p=2))
    soft = margins.softmax_margin(scores, labels, LineCost(5, p=2))
    pairs = margins.pairwise_hinge(scores, labels, LineCost(5, p=2))
    for k, y in enumerate(labels.tolist()):
        f = scores[k]
        close(hinge[k], max(C[y, i] + f[i] - f[y] for i in range(5)))
        close(soft[k], float(torch.log(sum(torch.exp(C[y, i] + f[i] - f[y]) for i in range(5)))))
        close(pairs[k], sum(C[y, i] * max(0.0, 1 + f[i] - f[y]) for i in range(5)))


@pytest.mark.parametrize(
    "cost", [LineCost(PLACES) * 0.7, TREE * 2, ZeroOneCost(5) * 3], ids=["line", "tree", "equal"]
)
def test_transport_is_exact_on_lines_and_trees(cost, alpha):
    beta = alpha.flip(0)
    C = cost.matrix().numpy()
    exact = [ot.emd2(a.numpy(), b.numpy(), C) for a, b in zip(alpha, beta, strict=True)]
    close(transport.wasserstein(alpha, beta, cost), exact)


def test_transport_on_a_line_is_that_of_scipy(alpha):
    beta = alpha.flip(0)
    exact = [
        stats.wasserstein_distance(PLACES, PLACES, a, b) for a, b in zip(alpha, beta, strict=True)
    ]
    close(transport.wasserstein(alpha, beta, LineCost(PLACES)), exact)


def test_sinkhorn_is_that_of_pot_and_tends_to_the_exact_distance(alpha):
    cost, epsilon = LineCost(5, p=2), 0.3
    alpha, beta = alpha[1:], alpha.flip(0)[:-1]
    C = cost.matrix().numpy()
    found = transport.sinkhorn_distance(alpha, beta, cost, epsilon)
    for k, (a, b) in enumerate(zip(alpha.numpy(), beta.numpy(), strict=True)):
        plan = ot.sinkhorn(a, b, C, epsilon, stopThr=1e-13, numItermax=100_000)
        divergence = (plan * np.log(plan / np.outer(a, b))).sum()
        assert float(found[k]) == pytest.approx((plan * C).sum() + epsilon * divergence, abs=1e-6)
    exact = [ot.emd2(a, b, C) for a, b in zip(alpha.numpy(), beta.numpy(), strict=True)]
    near = transport.wasserstein(alpha, beta, cost, epsilon=0.004)
    np.testing.assert_allclose(near.numpy(), exact, atol=0.1, rtol=0.02)


def test_sinkhorn_says_that_it_has_not_converged(alpha):
    with pytest.raises(RuntimeError, match="raise epsilon or max_iter"):
        transport.sinkhorn_distance(alpha, alpha.flip(0), LineCost(5, p=2), 0.01, max_iter=3)


@pytest.mark.parametrize("cost", [LineCost(5, p=2), LineCost(PLACES), TREE])
def test_transport_of_labels_is_the_expected_cost(cost, scores, labels):
    found = transport.wasserstein_softmax(scores, labels, cost)
    p = torch.softmax(scores, -1)
    close(found, (cost.matrix()[labels] * p).sum(-1))
    if cost.structure is not None:
        close(found, transport.wasserstein_softmax(scores, F.one_hot(labels).double(), cost))


def test_cumulative_scores_agree_with_each_other_and_with_others(scores, labels, alpha):
    p = torch.softmax(scores, -1)
    rps = transport.ranked_probability_score(p, labels)
    assert float(rps.mean()) == pytest.approx(skordinal_score(labels.numpy(), p.numpy()))
    close(transport.squared_emd_softmax(scores, labels), rps)
    close(transport.energy_softmax(scores, labels, LineCost(5)), 2 * rps)
    beta = alpha.flip(0)
    theirs = [
        stats.energy_distance(PLACES, PLACES, a, b) ** 2 for a, b in zip(alpha, beta, strict=True)
    ]
    close(transport.energy_distance(alpha, beta, LineCost(PLACES)), theirs)
    means = (alpha - beta) @ torch.arange(5.0, dtype=torch.float64)
    close(transport.energy_distance(alpha, beta, LineCost(5, p=2)), 2 * means**2)


def test_coral_and_corn_are_those_of_their_authors(scores, labels):
    logits = scores[:, :4]
    levels = coral_pytorch.dataset.levels_from_labelbatch(labels, 5, dtype=torch.float64)
    theirs = coral_pytorch.losses.coral_loss(logits, levels, reduction=None)
    close(ordinal.coral(logits, labels), theirs)
    asked = sum(min(int(y), 3) + 1 for y in labels)
    ours = ordinal.corn(logits, labels).sum() / asked
    close(ours, coral_pytorch.losses.corn_loss(logits, labels, 5))
    found = RIVALS["corn"].bind(line(5), 1.0).decide(logits)
    assert found.tolist() == coral_pytorch.dataset.corn_label_from_logits(logits).tolist()
    falling = logits.sort(-1, descending=True).values
    found = RIVALS["coral"].bind(line(5), 1.0).decide(falling)
    expected = coral_pytorch.dataset.proba_to_label(torch.sigmoid(falling))
    assert found.tolist() == expected.tolist()


def test_corn_is_the_log_likelihood_of_stick_breaking(scores, labels):
    """Each class breaks off its share of what is left: dlordinal's layer, with cross-entropy."""
    logits = scores[:, :4]
    stay = torch.sigmoid(-logits)  # P(y = k | y >= k)
    left = torch.cumprod(torch.sigmoid(logits), -1)
    one = torch.ones(len(logits), 1, dtype=logits.dtype)
    beta = torch.cat([stay, one], -1) * torch.cat([one, left], -1)
    close(ordinal.corn_link(logits), beta)
    close(ordinal.corn(logits, labels), -beta[torch.arange(7), labels].log())


def test_soft_labels_are_those_of_their_distributions():
    places = np.arange(5)
    expected = [stats.binom.pmf(places, 4, q) for q in np.linspace(0.1, 0.9, 5)]
    close(soft_labels.binomial_labels(5), np.array(expected))
    weights = np.exp(-(np.abs(places[:, None] - places) ** 2) / 0.7)
    close(soft_labels.soft_labels(LineCost(5, p=2), 0.7), weights / weights.sum(1, keepdims=True))


def test_distance_weighted_is_its_sum_and_stays_finite(scores, labels):
    p = torch.softmax(scores, -1)
    weights = (torch.arange(5) - labels[:, None]).abs() ** 2
    close(ordinal.distance_weighted(scores, labels, 2.0), -(weights * torch.log1p(-p)).sum(-1))
    far = torch.tensor([[200.0, 0.0, 0.0]], dtype=torch.float64)
    assert float(ordinal.distance_weighted(far, torch.tensor([2]))) == pytest.approx(400, abs=2)


@pytest.mark.parametrize("name", RIVALS)
def test_gradients_are_those_of_finite_differences(name, scores, labels):
    rival = RIVALS[name]
    bound = rival.bind(line(5), rival.values[0])
    f = scores[:, : rival.outputs(5)].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda f: bound.loss(f, labels), f)


def test_gradients_of_transport_between_distributions(scores, alpha):
    dense = DenseCost(LineCost(5, p=2).matrix() / 4)
    f = scores.clone().requires_grad_()
    for cost in (LineCost(PLACES), TREE):
        assert torch.autograd.gradcheck(
            lambda f, cost=cost: transport.wasserstein_softmax(f, alpha, cost), f
        )
    assert torch.autograd.gradcheck(
        lambda f: transport.wasserstein_softmax(f, alpha, dense, 0.1), f, atol=1e-4
    )


@pytest.mark.parametrize("name", RIVALS)
def test_links_are_distributions_and_decisions_are_labels(name, scores):
    rival = RIVALS[name]
    bound = rival.bind(line(5), rival.values[0])
    f = 3 * scores[:, : rival.outputs(5)]
    p = bound.distributions(f)
    assert (p is None) == (rival.link is None)
    if p is not None:
        assert p.shape == (7, 5)
        assert p.min() >= 0
        close(p.sum(-1), torch.ones(7))
    chosen = bound.decide(f)
    assert chosen.shape == (7,)
    assert 0 <= int(chosen.min()) <= int(chosen.max()) < 5


def test_bad_targets_are_refused(scores, labels, alpha):
    with pytest.raises(ValueError, match="labels must be 0 to 4; got 1 to 5"):
        entropies.cross_entropy(scores, torch.tensor([1, 2, 3, 4, 5, 1, 1]))
    with pytest.raises(ValueError, match=r"distributions of shape \(7, 5\)"):
        entropies.cross_entropy(scores, alpha[:, :4])
    with pytest.raises(ValueError, match="takes no distributions"):
        margins.softmax_margin(scores, alpha, LineCost(5))
    with pytest.raises(ValueError, match="tau must be positive"):
        soft_labels.sord(scores, labels, LineCost(5), 0.0)
    with pytest.raises(ValueError, match="below 1"):
        soft_labels.label_smoothing(scores, labels, 1.0)
