"""What is said of each loss, shown: convex or not, proper or not, consistent or not.

The counter-examples to convexity and consistency are those that the paper's section 2 speaks of.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import optimize

import geosoftmax
from geosoftmax import LineCost, ZeroOneCost, geometric_logistic_loss, geometric_softmax
from geosoftmax_experiments.rivals import margins, transport
from geosoftmax_experiments.rivals.table import RIVALS, line

CLASSES = 4
P = torch.tensor([0.1, 0.45, 0.15, 0.3], dtype=torch.float64)


# ------------------------------------------------------------------ convex?


@pytest.mark.parametrize("name", RIVALS)
def test_midpoints_tell_which_losses_are_convex(name):
    rival = RIVALS[name]
    rng = torch.Generator().manual_seed(0)
    shape = 4000, rival.outputs(CLASSES)
    one, other = (3 * torch.randn(shape, dtype=torch.float64, generator=rng) for _ in range(2))
    labels = torch.randint(CLASSES, shape[:1], generator=rng)
    bound = rival.bind(line(CLASSES), rival.values[0])
    at = [bound.loss(f, labels) for f in (one, (one + other) / 2, other)]
    above = at[1] - (at[0] + at[2]) / 2  # of a convex function never positive
    if rival.convex:
        assert above.max() < 1e-7
    else:
        assert above.max() > 0.05


def test_wasserstein_of_a_softmax_is_not_convex():
    """Two classes: the loss is a sigmoid of the difference of the scores."""
    cost, label = ZeroOneCost(2), torch.tensor([0])
    start, end = (torch.tensor([[0.0, t]], dtype=torch.float64) for t in (0.0, 8.0))
    values = [
        float(transport.wasserstein_softmax(f, label, cost))
        for f in (start, (start + end) / 2, end)
    ]
    assert values == pytest.approx([0.5, 1 / (1 + np.exp(-4)), 1 / (1 + np.exp(-8))])
    assert values[1] > (values[0] + values[2]) / 2 + 0.2


def test_regularised_transport_of_a_softmax_is_not_convex_either():
    """The composite loss of the paper's section 2.3, with distributions as targets."""
    cost = LineCost(3, p=2)
    alpha = torch.tensor([[0.8, 0.1, 0.1]], dtype=torch.float64)
    start, end = (torch.tensor([[0.0, 0.0, t]], dtype=torch.float64) for t in (0.0, 8.0))
    values = [
        float(transport.sinkhorn_distance(alpha, torch.softmax(f, -1), cost, 1.0))
        for f in (start, (start + end) / 2, end)
    ]
    assert values[1] > (values[0] + values[2]) / 2 + 0.1


# ------------------------------------------------------------------ proper?


def minimiser(rival, p, cost):
    """Return the scores that minimise the expected loss of labels with distribution p."""
    labels, bound = torch.arange(len(p)), rival.bind(cost, rival.values[-1])

    def risk(flat):
        f = torch.tensor(flat, requires_grad=True)
        losses = bound.loss(f.expand(len(p), -1), labels)
        value = (p * losses).sum() + 1e-10 * (f**2).sum()  # of equal ones the smallest
        value.backward()
        return value.item(), f.grad.numpy()

    starts = np.random.default_rng(0).normal(size=(4, rival.outputs(len(p))))
    options = {"gtol": 1e-12, "ftol": 1e-15, "maxiter": 5000}
    found = [
        optimize.minimize(risk, start, jac=True, method="L-BFGS-B", options=options)
        for start in starts
    ]
    return torch.from_numpy(min(found, key=lambda one: one.fun).x)[None]


@pytest.mark.parametrize("name", [name for name, rival in RIVALS.items() if rival.link])
def test_links_of_proper_losses_return_the_distribution(name):
    rival, cost = RIVALS[name], line(CLASSES)
    f = minimiser(rival, P, cost)
    found = rival.bind(cost, rival.values[-1]).distributions(f)[0]
    distance = float((found - P).abs().sum() / 2)
    if rival.proper:
        assert distance < 1e-3
    else:
        assert distance > 0.02


def test_the_geometric_loss_is_fisher_consistent_for_the_divergence():
    """Prop. 5: at the least expected loss the divergence vanishes, also on the boundary."""
    cost = LineCost(4, p=2) / 2
    for p in ([0.1, 0.45, 0.15, 0.3], [0.6, 0.0, 0.4, 0.0], [0.0, 1.0, 0.0, 0.0]):
        p = torch.tensor([p], dtype=torch.float64)
        f = geosoftmax.sinkhorn_potential(p, cost)
        risk = geometric_logistic_loss(f, p, cost)
        link = geometric_softmax(f, cost)
        assert float(risk) < 1e-9
        assert float((link - p).abs().max()) < 1e-5
        divergence = geosoftmax.hausdorff_divergence(p, link / link.sum(-1, keepdim=True), cost)
        assert float(divergence) < 1e-9
        # any other scores are no better, and the loss bounds the divergence (Prop. 4)
        others = f + torch.randn(200, 4, dtype=torch.float64)
        links = geometric_softmax(others, cost)
        losses = geometric_logistic_loss(others, p.expand(200, -1), cost, reduction="none")
        bounded = geosoftmax.hausdorff_divergence(
            p.expand(200, -1), links / links.sum(-1, keepdim=True), cost
        )
        assert losses.min() > -1e-9
        assert (bounded - losses).max() < 1e-7


# ------------------------------------------------------------------ consistent?


def hinge_minimiser(p, C):
    """Return scores of least expected cost-augmented hinge loss, by linear programming."""
    d = len(p)
    # variables: f, then the loss of each label; f sums to 0
    rows = []
    bounds = []
    for y in range(d):
        for i in range(d):
            row = np.zeros(2 * d)
            row[i] += 1
            row[y] -= 1
            row[d + y] -= 1
            rows.append(row)
            bounds.append(-C[y, i])
    found = optimize.linprog(
        np.concatenate([np.zeros(d), p]),
        A_ub=np.array(rows), b_ub=np.array(bounds),
        A_eq=[np.concatenate([np.ones(d), np.zeros(d)])], b_eq=[0.0],
        bounds=[(None, None)] * (2 * d),
    )  # fmt: skip
    return found.x[:d], found.fun


def least_cost(p, C):
    return int((C @ p).argmin())


def test_the_cost_augmented_hinge_is_inconsistent_for_the_zero_one_cost():
    """Without a majority, the best scores are all equal: they do not tell the best class."""
    p, C = np.array([0.4, 0.3, 0.3]), 1 - np.eye(3)
    f, risk = hinge_minimiser(p, C)
    assert least_cost(p, C) == 0
    np.testing.assert_allclose(f, 0, atol=1e-9)
    # scores that do tell it have a larger risk
    told = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64).expand(3, -1)
    labels = torch.arange(3)
    larger = torch.from_numpy(p) @ margins.cost_augmented_hinge(told, labels, ZeroOneCost(3))
    assert float(larger) > risk + 0.1


def test_the_cost_augmented_hinge_is_inconsistent_for_the_squared_cost():
    """Its best scores name another class than the decision of least expected cost."""
    p, C = np.array([0.6, 0.0, 0.4]), LineCost(3, p=2).matrix().numpy()
    f, _ = hinge_minimiser(p, C)
    assert least_cost(p, C) == 1
    assert f.argmax() == 0
    assert f[0] > f[1] + 0.5


def test_the_cost_augmented_hinge_is_consistent_for_distances_on_a_line():
    """As Nowak-Vila, Bach and Rudi prove for some trees: no counter-example in 200."""
    C = LineCost(4).matrix().numpy()
    for p in np.random.default_rng(0).dirichlet(np.ones(4), size=200):
        f, _ = hinge_minimiser(p, C)
        expected = C @ p
        assert expected[f.argmax()] == pytest.approx(expected.min(), abs=1e-9)


def pairwise_minimiser(p, C):
    """Return scores of least expected pairwise hinge loss, by linear programming."""
    d = len(p)
    rows = []
    for y in range(d):
        for i in range(d):
            row = np.zeros(d + d * d)
            row[i] += 1
            row[y] -= 1
            row[d + y * d + i] -= 1
            rows.append(row)
    found = optimize.linprog(
        np.concatenate([np.zeros(d), (p[:, None] * C).ravel()]),
        A_ub=np.array(rows), b_ub=-np.ones(d * d),
        A_eq=[np.concatenate([np.ones(d), np.zeros(d * d)])], b_eq=[0.0],
        bounds=[(None, None)] * d + [(0, None)] * (d * d),
    )  # fmt: skip
    return found.x[:d]


def test_the_pairwise_hinge_is_inconsistent():
    p, C = np.array([0.36, 0.31, 0.33]), line(3).matrix().numpy()
    f = pairwise_minimiser(p, C)
    assert least_cost(p, C) == 1
    assert f.argmax() == 0
    assert f[0] > f[1] + 0.5


@pytest.mark.parametrize(
    ("name", "value", "p", "chosen"),
    [
        ("softmax-margin", 0.5, [0.45, 0.15, 0.4], 0),
        ("sord", 1.0, [0.46, 0.51, 0.03], 0),
        ("distance-weighted", 5.0, [0.16, 0.05, 0.79], 1),
    ],
)
def test_these_losses_are_inconsistent_for_the_absolute_cost(name, value, p, chosen):
    """With infinite data they decide for another class than that of least expected cost."""
    rival, p = replace(RIVALS[name], values=(value,)), torch.tensor(p, dtype=torch.float64)
    f = minimiser(rival, p, line(3))
    expected = line(3).matrix() @ p
    assert int(rival.bind(line(3), value).decide(f)[0]) == chosen
    assert float(expected[chosen]) > float(expected.min()) + 0.05


def learnt(bound, p):
    """Return scores of least expected loss for each row of p, found together from 0."""
    n, d = p.shape
    f = torch.zeros(n, bound.rival.outputs(d), dtype=torch.float64, requires_grad=True)
    labels = torch.arange(d).repeat(n)
    optimiser = torch.optim.LBFGS(
        [f], max_iter=2000, tolerance_grad=1e-9, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def risk():
        optimiser.zero_grad()
        losses = bound.loss(f.repeat_interleave(d, 0), labels).reshape(n, d)
        value = (p * losses).sum() + 1e-9 * (f**2).sum()  # of equal ones the smallest
        value.backward()
        return value

    optimiser.step(risk)
    return f.detach()


def regret(chosen, p, cost):
    """Return how much more a decision costs than the best one, at worst."""
    expected = p @ cost.matrix()
    return float((expected.gather(-1, chosen[:, None])[:, 0] - expected.amin(-1)).max())


DRAWS = torch.from_numpy(np.random.default_rng(1).dirichlet(np.ones(3), size=20))
COSTS = {"absolute": line(3), "squared": LineCost(3, p=2), "zero-one": ZeroOneCost(3)}
OWN = {"its own cost": "absolute", "zero-one cost": "zero-one"}


@pytest.mark.parametrize("name", [name for name, rival in RIVALS.items() if rival.proper])
def test_of_proper_losses_the_least_cost_decision_is_best_for_every_cost(name):
    rival = RIVALS[name]
    assert rival.consistent == "every cost"
    bound = rival.bind(line(3), rival.values[-1])
    found = bound.distributions(learnt(bound, DRAWS))
    for cost in COSTS.values():
        assert regret(geosoftmax.decide(found, cost, "cost"), DRAWS, cost) < 5e-3


@pytest.mark.parametrize("name", [name for name, r in RIVALS.items() if r.consistent in OWN])
def test_their_own_decision_is_best_for_one_cost_and_not_for_the_others(name):
    rival = RIVALS[name]
    bound = rival.bind(line(3), rival.values[-1])
    chosen = bound.decide(learnt(bound, DRAWS))
    best = OWN[rival.consistent]
    for kind, cost in COSTS.items():
        worse = regret(chosen, DRAWS, cost)
        assert worse < 1e-6 if kind == best else worse > 0.02


@pytest.mark.parametrize("scale", RIVALS["geometric"].values)
def test_the_largest_score_of_the_geometric_loss_is_best_for_none_of_these_costs(scale):
    """The paper's decision lies between the median (small scales) and the mode (large ones)."""
    p = torch.from_numpy(np.random.default_rng(1).dirichlet(np.ones(7), size=200))
    bound = RIVALS["geometric"].bind(line(7), scale)
    f = geosoftmax.sinkhorn_potential(p, bound.cost)  # the scores of least expected loss
    assert float((bound.distributions(f) - p).abs().max()) < 1e-6
    for cost in (line(7), LineCost(7, p=2), ZeroOneCost(7)):
        assert regret(bound.decide(f), p, cost) > 1e-3


# ------------------------------------------------------------------ sparse?


@pytest.mark.parametrize("name", [name for name, rival in RIVALS.items() if rival.link])
def test_links_with_exact_zeros(name):
    rival, generator = RIVALS[name], torch.Generator().manual_seed(0)
    f = 4 * torch.randn(100, rival.outputs(6), dtype=torch.float64, generator=generator)
    if rival.shared:  # shared weights and fitted offsets: P(y > k) falls with k
        f = f.sort(-1, descending=True).values
    bound = rival.bind(line(6), rival.values[0])
    assert bool((rival.link(f, bound.cost) == 0).any()) == rival.sparse
