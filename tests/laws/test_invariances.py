"""Shifts, permutations, scales, masks: what must not change the answer, or how it must."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from geosoftmax import (
    DenseCost,
    GridCost,
    LineCost,
    extrapolate,
    geometric_logistic_loss,
    geometric_logsumexp,
    geometric_softmax,
    hausdorff_divergence,
    sinkhorn_negentropy,
    sinkhorn_potential,
)
from tests.laws.strategies import cost_and, distributions, law, signals
from tests.paper.examples import COSTS, assert_close, flat


def dense(cost):
    return DenseCost(cost.matrix())


def per_sample(values, cost):
    return values.reshape(-1, *[1] * len(cost.shape))


@law
@given(cost_and(signals, distributions), st.floats(-1e3, 1e3, width=16))
def test_shift(drawn, c):
    cost, f, alpha = drawn
    atol = 1e-10
    value = geometric_logsumexp(f, cost)
    assert_close(geometric_logsumexp(f + c, cost), value + c, atol=atol)
    assert_close(geometric_softmax(f + c, cost), geometric_softmax(f, cost), atol=atol)
    assert_close(extrapolate(f + c, cost), extrapolate(f, cost) + c, atol=atol)
    losses = [geometric_logistic_loss(g, alpha, cost, reduction="none") for g in (f, f + c)]
    assert_close(*losses, atol=atol)


@law
@given(cost_and(signals, distributions), st.randoms(use_true_random=False))
def test_permutation(drawn, random):
    """Renaming the outputs renames the answer."""
    cost, f, alpha = drawn
    order = list(range(cost.size))
    random.shuffle(order)
    plain, C = dense(cost), cost.matrix()
    renamed = DenseCost(C[order][:, order])
    f, alpha = flat(f, cost), flat(alpha, cost)
    for function in (geometric_softmax, extrapolate):
        moved = function(f[:, order], renamed)
        assert_close(moved, function(f, plain)[:, order], atol=1e-9)
    moved = sinkhorn_potential(alpha[:, order], renamed)
    assert_close(moved, sinkhorn_potential(alpha, plain)[:, order])
    moved = geometric_logsumexp(f[:, order], renamed)
    assert_close(moved, geometric_logsumexp(f, plain))


@law
@given(cost_and(signals, distributions), st.floats(0.0625, 16.0, width=16))
def test_scale(drawn, epsilon):
    """Ω_{C/ε}: dividing the cost is dividing its matrix, and conjugates follow."""
    cost, f, alpha = drawn
    scaled, by_matrix = cost / epsilon, DenseCost(cost.matrix() / epsilon)
    a = flat(alpha, cost)
    assert_close(sinkhorn_negentropy(alpha, scaled), sinkhorn_negentropy(a, by_matrix))
    value = geometric_logsumexp(f, scaled)
    assert_close(value, geometric_logsumexp(flat(f, cost), by_matrix))
    # ε Ω_{C/ε} and its conjugate f ↦ ε Ω*_{C/ε}(f/ε) meet in Fenchel–Young.
    conjugate = epsilon * geometric_logsumexp(f / epsilon, scaled)
    best = geometric_softmax(f / epsilon, scaled)
    reached = flat(best * f, cost).sum(-1) - epsilon * sinkhorn_negentropy(best, scaled)
    assert_close(reached, conjugate, atol=1e-8)


@law
@given(cost_and(signals, distributions))
def test_larger_costs_have_larger_entropy(drawn):
    """Ω falls and Ω* grows with the cost: ∂Ω/∂C = -½π ≤ 0."""
    cost, f, alpha = drawn
    values = [sinkhorn_negentropy(alpha, cost * c) for c in (0.3, 1.0, 4.0)]
    assert bool((torch.stack(values).diff(dim=0) <= 1e-12).all())
    values = [geometric_logsumexp(f, cost * c) for c in (0.3, 1.0, 4.0)]
    assert bool((torch.stack(values).diff(dim=0) >= -1e-12).all())


@law
@given(cost_and(signals), st.data())
def test_mask_is_removal(drawn, data):
    cost, f = drawn
    flags = st.lists(st.booleans(), min_size=cost.size, max_size=cost.size)
    keep = torch.tensor(data.draw(flags.filter(any)))
    masked = torch.where(keep.reshape(cost.shape), f, -torch.inf)
    C = cost.matrix()[keep][:, keep]
    part = DenseCost(C)
    alpha = flat(geometric_softmax(masked, cost), cost)
    assert bool((alpha[:, ~keep] == 0).all())
    assert_close(alpha[:, keep], geometric_softmax(flat(f, cost)[:, keep], part), atol=1e-9)
    value = geometric_logsumexp(flat(f, cost)[:, keep], part)
    assert_close(geometric_logsumexp(masked, cost), value)


@law
@given(cost_and(signals, distributions, distributions))
def test_structure_does_not_matter(drawn):
    """Every cost agrees with the dense cost of its matrix."""
    cost, f, alpha, beta = drawn
    plain = dense(cost)
    g, a, b = (flat(x, cost) for x in (f, alpha, beta))
    assert_close(flat(geometric_softmax(f, cost), cost), geometric_softmax(g, plain), atol=1e-9)
    assert_close(geometric_logsumexp(f, cost), geometric_logsumexp(g, plain))
    assert_close(flat(extrapolate(f, cost), cost), extrapolate(g, plain))
    assert_close(flat(sinkhorn_potential(alpha, cost), cost), sinkhorn_potential(a, plain))
    assert_close(hausdorff_divergence(alpha, beta, cost), hausdorff_divergence(a, b, plain))


gaps = st.lists(st.floats(0.015625, 5.0, width=16), min_size=1, max_size=8)


@law
@given(gaps, st.data())
def test_line_is_a_path_is_a_grid(steps, data):
    """|x - y| on a line is the distance along a path, and on an even grid."""
    from geosoftmax import TreeCost

    d = len(steps) + 1
    line = LineCost([0.0, *torch.tensor(steps).double().cumsum(0).tolist()])
    path = TreeCost(list(range(-1, d - 1)), [0.0, *steps])
    f = data.draw(signals(line))
    assert_close(line.matrix(), path.matrix(), atol=1e-12)
    assert_close(geometric_softmax(f, line), geometric_softmax(f, path), atol=1e-9)
    assert_close(geometric_logsumexp(f, line), geometric_logsumexp(f, path))
    even = LineCost(torch.arange(d, dtype=torch.float64) * steps[0])
    grid = GridCost((d,), p=1, spacing=steps[0])
    assert_close(geometric_softmax(f, even), geometric_softmax(f, grid), atol=1e-9)
    assert_close(geometric_logsumexp(f, even), geometric_logsumexp(f, grid))


@law
@given(st.data())
def test_reflection_of_a_line(data):
    cost = COSTS["line p=1"]
    f = data.draw(signals(cost))
    mirrored = LineCost(cost.positions[-1] - cost.positions.flip(0))
    assert_close(
        geometric_softmax(f.flip(-1), mirrored), geometric_softmax(f, cost).flip(-1), atol=1e-9
    )


@law
@given(cost_and(lambda cost: signals(cost, rows=4), lambda cost: distributions(cost, rows=4)))
def test_rows_are_independent(drawn):
    cost, f, alpha = drawn
    one_by_one = torch.stack([geometric_softmax(row, cost) for row in f])
    assert_close(geometric_softmax(f, cost), one_by_one, atol=1e-9)
    square = f.reshape(2, 2, *cost.shape)
    assert torch.equal(geometric_softmax(square, cost).reshape(f.shape), geometric_softmax(f, cost))
    values = torch.stack([sinkhorn_negentropy(row, cost) for row in alpha])
    assert_close(sinkhorn_negentropy(alpha, cost), values)
