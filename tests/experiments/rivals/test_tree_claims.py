"""What is said of the losses for trees, shown: convex, proper, consistent, sparse or not."""

import pytest
import torch

from geosoftmax import TreeCost, decide
from geosoftmax_experiments.rivals.trees import TREE_RIVALS

UNEVEN = TreeCost.from_dict(
    {"pets": {"cats": ["lion", "cat"], "dog": None}, "wheels": ["bus", "van"], "foot": None}
)
EVEN = TreeCost.from_dict({"pets": ["cat", "dog", "fish"], "wheels": ["bus", "van"]})

each = pytest.mark.parametrize("rival", TREE_RIVALS, ids=lambda rival: rival.label)


def draw(count, tree):
    generator = torch.Generator().manual_seed(0)
    shares = torch.rand(count, tree.size, dtype=torch.float64, generator=generator) ** 3 + 1e-3
    return shares / shares.sum(-1, keepdim=True)


def learnt(rival, p, tree):
    """Return what the link makes of the scores of least expected loss, for each distribution."""
    loss, link = rival.make(tree, rival.value)
    f = torch.zeros(len(p), rival.outputs(tree), dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [f], max_iter=4000, tolerance_grad=1e-9, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def risk():
        optimiser.zero_grad()
        labels = torch.arange(tree.size).expand(len(p), -1)
        every = f[:, None].expand(-1, tree.size, -1).reshape(-1, f.shape[-1])
        losses = loss(every, labels.reshape(-1)).reshape(p.shape)
        value = (p * losses).sum() + 1e-9 * (f**2).sum()  # of equal ones the smallest
        value.backward()
        return value

    optimiser.step(risk)
    found = link(f.detach()).clamp(min=0)
    return found / found.sum(-1, keepdim=True)


@each
def test_midpoints_show_no_loss_that_is_not_convex(rival):
    generator = torch.Generator().manual_seed(0)
    shape = 4000, rival.outputs(UNEVEN)
    one, other = (3 * torch.randn(shape, dtype=torch.float64, generator=generator) for _ in "ab")
    labels = torch.randint(UNEVEN.size, shape[:1], generator=generator)
    middle = (one + other) / 2
    loss, _ = rival.make(UNEVEN, rival.value)
    at = [loss(f, labels) for f in (one, middle, other)]
    assert rival.convex
    assert (at[1] - (at[0] + at[2]) / 2).max() < 1e-7


@each
def test_proper_losses_learn_the_distribution_and_others_decide_wrongly(rival):
    p = draw(200, UNEVEN)
    found = learnt(rival, p, UNEVEN)
    distance = (found - p).abs().sum(-1) / 2
    expected = UNEVEN.expected(p)
    chosen = expected.gather(-1, decide(found, UNEVEN)[:, None])[:, 0]
    worse = (chosen - expected.amin(-1)).max()
    if rival.proper:
        assert distance.max() < 2e-3
        assert worse < 5e-3
        assert rival.consistent == "every cost"
    else:
        assert distance.max() > 0.05
        assert worse > 0.05
        assert rival.consistent == "none in general"


def test_hxe_learns_the_distribution_where_siblings_have_one_height():
    (hxe,) = (rival for rival in TREE_RIVALS if rival.label == "HXE")
    p = draw(50, EVEN)
    assert ((learnt(hxe, p, EVEN) - p).abs().sum(-1) / 2).max() < 1e-3


@each
def test_links_with_exact_zeros(rival):
    f = 4 * torch.randn(
        100, rival.outputs(UNEVEN), dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    _, link = rival.make(UNEVEN, rival.value)
    assert bool((link(f) == 0).any()) == rival.sparse
