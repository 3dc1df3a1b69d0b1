"""The cost contract for every cost, and what is particular to each."""

from typing import ClassVar

import numpy as np
import pytest
import torch

from geosoftmax import (
    DenseCost,
    GridCost,
    LineCost,
    TreeCost,
    ZeroOneCost,
    geometric_logsumexp,
    geometric_softmax,
    sinkhorn_potential,
    solve,
)
from tests.conftest import assert_close
from tests.contracts.cost import CostContract
from tests.generators import apply_dense, kernel, randn

UNEVEN = [-3.0, -2.5, 0.0, 0.125, 4.0, 4.5, 9.0]
# 0 is the root; nodes in no order: 3 is above 1, which is above 2.
PARENTS, LENGTHS = [-1, 3, 1, 0, 0, 4, 4], [9.0, 1.0, 0.5, 2.0, 0.25, 3.0, 1.5]
PATHS = [[0], [0, 3, 1], [0, 3, 1, 2], [0, 3], [0, 4], [0, 4, 5], [0, 4, 6]]


def line(positions, p):
    x = np.asarray(positions, dtype=float)
    return np.abs(x[:, None] - x[None, :]) ** p


def grid(shape, p, spacing=1.0):
    steps = np.broadcast_to(spacing, len(shape))
    sides = [np.arange(n) * s for n, s in zip(shape, steps, strict=True)]
    points = np.stack([x.ravel() for x in np.meshgrid(*sides, indexing="ij")], -1)
    return (np.abs(points[:, None] - points[None]) ** p).sum(-1)


def tree(nodes):
    """The length of what two paths from the root do not share."""
    length = lambda path: sum(LENGTHS[v] for v in path)  # noqa: E731
    return [[length(set(PATHS[a]) ^ set(PATHS[b])) for b in nodes] for a in nodes]


class TestZeroOneCost(CostContract):
    variants: ClassVar = {
        "one": (lambda: ZeroOneCost(1), lambda: np.zeros((1, 1))),
        "seven": (lambda: ZeroOneCost(7), lambda: 1 - np.eye(7)),
        "near": (lambda: ZeroOneCost(5) * 1e-3, lambda: 1e-3 * (1 - np.eye(5))),
        "far": (lambda: ZeroOneCost(5) * 1e3, lambda: 1e3 * (1 - np.eye(5))),
    }


class TestLineCost(CostContract):
    variants: ClassVar = {
        "one": (lambda: LineCost(1), lambda: np.zeros((1, 1))),
        "even": (lambda: LineCost(9), lambda: line(range(9), 1)),
        "uneven": (lambda: LineCost(UNEVEN), lambda: line(UNEVEN, 1)),
        "uneven-p0.5": (lambda: LineCost(UNEVEN, p=0.5), lambda: line(UNEVEN, 0.5)),
        "uneven-p1.5": (lambda: LineCost(UNEVEN, p=1.5), lambda: line(UNEVEN, 1.5)),
        "even-p2": (lambda: LineCost(9, p=2) / 2, lambda: line(range(9), 2) / 2),
        "single-precision": (
            lambda: LineCost(torch.tensor(UNEVEN, dtype=torch.float32), p=2),
            lambda: line(UNEVEN, 2),
        ),
        "scaled": (lambda: LineCost(UNEVEN) * 0.3, lambda: 0.3 * line(UNEVEN, 1)),
    }


class TestGridCost(CostContract):
    variants: ClassVar = {
        "1d-p1": (lambda: GridCost(6, p=1), lambda: grid((6,), 1)),
        "1d-p2": (lambda: GridCost((6,), p=2), lambda: grid((6,), 2)),
        "2d-p1": (lambda: GridCost((3, 5), p=1), lambda: grid((3, 5), 1)),
        "2d-p2": (lambda: GridCost((5, 2), p=2) / 2, lambda: grid((5, 2), 2) / 2),
        "2d-flat": (lambda: GridCost((1, 4)), lambda: grid((1, 4), 2)),
        "3d-p1": (lambda: GridCost((2, 3, 4), p=1), lambda: grid((2, 3, 4), 1)),
        "3d-p2-spacing": (
            lambda: GridCost((2, 4, 3), p=2, spacing=(0.9, 1.2, 2.0)),
            lambda: grid((2, 4, 3), 2, (0.9, 1.2, 2.0)),
        ),
        "2d-one-spacing": (
            lambda: GridCost((4, 3), p=1, spacing=0.5) * 2,
            lambda: 2 * grid((4, 3), 1, 0.5),
        ),
    }


class TestTreeCost(CostContract):
    variants: ClassVar = {
        "root-alone": (lambda: TreeCost([-1]), lambda: np.zeros((1, 1))),
        "any-order": (lambda: TreeCost(PARENTS, LENGTHS), lambda: tree(range(7))),
        "leaves": (lambda: TreeCost(PARENTS, LENGTHS, outputs="leaves"), lambda: tree([2, 5, 6])),
        "chosen": (
            lambda: TreeCost(PARENTS, LENGTHS, outputs=[6, 0, 2, 1]) * 2,
            lambda: 2 * np.array(tree([6, 0, 2, 1])),
        ),
        "star": (
            lambda: TreeCost([-1, 0, 0, 0], 0.5, outputs="leaves"),
            lambda: 1 - np.eye(3),
        ),
        "chain": (lambda: TreeCost([1, 2, 3, -1], [1.0, 2.0, 0.5, 7.0]), lambda: CHAIN),
        "from-dict": (
            lambda: TreeCost.from_dict({"cat": 0.5, "wheels": {"car": None, "bus": 2.0}}),
            lambda: [[0, 2.5, 3.5], [2.5, 0, 3], [3.5, 3, 0]],
        ),
    }


CHAIN = line([0, 1, 3, 3.5], 1)


def points(batch=(), d=6, seed=0):
    X = randn(*batch, d, 2, seed=seed)
    return ((X[..., :, None, :] - X[..., None, :, :]) ** 2).sum(-1)


class TestDenseCost(CostContract):
    variants: ClassVar = {
        "one": (lambda: DenseCost([[0.0]]), lambda: [[0.0]]),
        "points": (lambda: DenseCost(points()), points),
        "single-precision": (lambda: DenseCost(points().float()), points),
        "array": (lambda: DenseCost(line(UNEVEN, 1)), lambda: line(UNEVEN, 1)),
        "per-sample": (lambda: DenseCost(points((3,))), lambda: points((3,))),
        "from-points-p1": (
            lambda: DenseCost.from_points(randn(6, 2), p=1),
            lambda: points().sqrt(),
        ),
        "from-points-1d": (
            lambda: DenseCost.from_points(UNEVEN, p=1.5),
            lambda: line(UNEVEN, 1.5),
        ),
        "from-embeddings": (
            lambda: DenseCost.from_embeddings(randn(5, 3)),
            lambda: 1 - torch.cosine_similarity(randn(5, 1, 3), randn(1, 5, 3), -1),
        ),
        "large": (lambda: DenseCost(line(range(70), 1)), lambda: line(range(70), 1)),
        "large-per-sample": (
            lambda: DenseCost(torch.stack([torch.tensor(line(range(70), 1))] * 2)),
            lambda: np.stack([line(range(70), 1)] * 2),
        ),
    }


# ------------------------------------------------------------------ particular


@pytest.mark.parametrize(
    "cost",
    [ZeroOneCost(3), LineCost(3), GridCost(3), TreeCost([-1, 0]), DenseCost([[0.0]])],
    ids=repr,
)
def test_repr_needs_no_values(cost):
    assert repr(cost.to("meta")).startswith(type(cost).__name__)


@pytest.mark.parametrize(
    ("positions", "text"),
    [
        (4, "LineCost(4, p=1)"),
        ([0, 1, 5, 30], "LineCost(4 at [0, 1, 5, 30], p=1)"),
        ([-1.0, 0.0, 1.5], "LineCost(3 at [-1, 0, 1.5], p=1)"),
        (torch.arange(9.0) ** 2, "LineCost(9 at [0, 1, 4, 9, 16, 25, …, 64], p=1)"),
    ],
    ids=["ranks", "uneven", "negative", "many"],
)
def test_repr_of_a_line_shows_positions_that_are_not_ranks(positions, text):
    assert repr(LineCost(positions)) == text
    assert repr(LineCost(positions) * 2) == f"{text} * 2"


@pytest.mark.parametrize("cost", [LineCost(5, p=2), LineCost([0, 1, 5, 30, 31], p=2), GridCost(5)])
def test_expected_costs_of_signals_that_sum_to_zero(cost):
    rows = [[0.0] * 5, [1.0, -2.0, 1.0, 0.0, 0.0], [1.0, -1.0, 0.0, 0.0, 1e-9]]
    alpha = torch.tensor(rows, dtype=torch.float64, requires_grad=True)
    expected = cost.expected(alpha)
    assert_close(expected, alpha @ cost.matrix())
    (slope,) = torch.autograd.grad(expected[:, 1].sum(), alpha)
    assert_close(slope, cost.matrix()[1].expand(3, 5))


@pytest.mark.parametrize(
    "cost",
    [ZeroOneCost(3), LineCost(3), GridCost((2, 3)), TreeCost([-1, 0]), DenseCost([[0.0]])],
    ids=repr,
)
def test_costs_are_cast_and_moved_as_tensors_are(cost):
    assert cost.float().dtype == torch.float32
    assert cost.float().double().dtype == torch.float64
    assert cost.double().cpu() is cost.double()
    if torch.cuda.is_available():
        assert cost.cuda().device == cost.cuda(0).device == torch.device("cuda", 0)
        assert cost.cuda().cpu().device.type == "cpu"


# ------------------------------------------------------------------ multiples of a matrix

_X = torch.arange(3.0, dtype=torch.float64)
#: Usable as it is, and not times 0.1.
QUARTIC = (_X[:, None] - _X).abs() ** 4


def test_a_multiple_that_is_not_positive_definite_is_refused():
    cost = DenseCost(QUARTIC)
    assert (cost * 2).size == 3
    learnt = torch.tensor(0.1, requires_grad=True)
    own = DenseCost(QUARTIC.clone().requires_grad_())
    for scaled in (
        lambda: cost / 10,
        lambda: 0.1 * cost,
        lambda: cost * torch.tensor(0.1),
        lambda: cost * learnt,
        lambda: own / 10,
    ):
        with pytest.raises(ValueError, match="every_scale=True"):
            scaled()


@pytest.mark.parametrize(
    ("cost", "freely"),
    [
        (DenseCost(QUARTIC), False),
        (DenseCost.from_points(torch.randn(5, 2, dtype=torch.float64), p=1), True),
        (DenseCost.from_embeddings(torch.randn(5, 3, dtype=torch.float64)), True),
        (DenseCost(torch.stack([LineCost(3).matrix(), QUARTIC])), False),
        (LineCost(5, p=2), True),
        (TreeCost([-1, 0, 0]), True),
    ],
    ids=repr,
)
def test_costs_know_whether_all_multiples_are_usable(cost, freely):
    assert cost.scales_freely == freely


@pytest.mark.filterwarnings("ignore:repair changed")
@pytest.mark.parametrize("seed", range(20))
def test_repaired_for_every_scale(seed):
    generator = torch.Generator().manual_seed(seed)
    C = 5 * torch.rand(8, 8, generator=generator, dtype=torch.float64)
    cost, moved = DenseCost.repair(C, every_scale=True)
    assert cost.scales_freely
    assert moved == pytest.approx(float((cost.matrix() - C).abs().max()))
    for scale in (1e-3, 0.1, 1.0, 30.0):
        K = torch.exp(-(cost * scale).matrix() / 2)
        assert float(torch.linalg.eigvalsh(K)[0]) > 0


def test_repair_for_every_scale_leaves_distances_as_they_are():
    points = torch.randn(6, 2, dtype=torch.float64)
    C = torch.cdist(points, points)
    assert DenseCost.repair(C, every_scale=True).moved <= 1e-12
    same = torch.zeros(3, 3, dtype=torch.float64)  # three outputs in one place: kept apart a little
    assert DenseCost.repair(same, every_scale=True).moved < 1e-5


def test_repair_for_every_scale_is_the_nearest_one():
    """No matrix of squared distances nearby is nearer to what was given."""
    generator = torch.Generator().manual_seed(3)
    C = torch.rand(6, 6, generator=generator, dtype=torch.float64) * 4
    C = (C + C.mT) / 2 * (1 - torch.eye(6, dtype=torch.float64))
    cost, _ = DenseCost.repair(C, every_scale=True)
    distance = (cost.matrix() - C).norm()
    for _ in range(200):
        other = torch.randn(6, 5, generator=generator, dtype=torch.float64)
        other = torch.cdist(other, other).square()
        for t in (1e-3, 1e-2, 0.1):  # convex: towards any other one
            mixed = (1 - t) * cost.matrix() + t * other * torch.rand((), generator=generator)
            assert (mixed - C).norm() >= distance * (1 - 1e-4)


LONG = {
    "p1": lambda: LineCost(1500) * 0.01,
    "p1-uneven": lambda: LineCost(torch.rand(1500, dtype=torch.float64).cumsum(0)),
    "p2-convolved": lambda: LineCost(1500, p=2) / 2,
    "p2-blocked": lambda: LineCost(torch.rand(1500, dtype=torch.float64).cumsum(0), p=2),
    "p0.5-wide": lambda: LineCost(1500, p=0.5) / 3,
}


@pytest.mark.parametrize("make", LONG.values(), ids=LONG)
def test_long_lines_agree_with_their_matrix(make):
    cost = make()
    u = torch.rand(2, 1500, dtype=torch.float64)
    K = torch.exp(-cost.matrix() / 2)
    assert_close(cost.matvec(u), u @ K)
    assert_close(cost.log_matvec(u.log()), (u @ K).log())


@pytest.mark.parametrize(
    "cost",
    [
        LineCost([0.0, 0.1]),
        DenseCost([[0.0, 0.1], [0.1, 0.0]]),
        DenseCost.from_points([[0.0], [0.1]], p=1),
        TreeCost([-1, 0], 0.1),
        TreeCost([-1, 0], [0.0, 0.1]),
        GridCost(2, p=1, spacing=0.1),
        LineCost(2) * 0.1,
    ],
    ids=repr,
)
def test_python_numbers_keep_all_their_digits(cost):
    assert float(cost.matrix()[0, 1]) == 0.1


def test_numbers_of_numpy_are_numbers():
    """As ``y.max() + 1`` and entries of grids of parameters are."""
    assert LineCost(np.int64(3)).shape == ZeroOneCost(np.int32(3)).shape == (3,)
    assert GridCost((np.int64(2), np.int64(3))).shape == (2, 3)
    for factor in (np.float64(2.0), np.float32(2.0), np.int64(2)):
        assert torch.equal((LineCost(3) * factor).matrix(), (LineCost(3) * 2).matrix())
        assert torch.equal((LineCost(3) / factor).matrix(), (LineCost(3) / 2).matrix())
    with pytest.raises(TypeError, match="multiplied by a number"):
        LineCost(3) * np.bool_(True)
    with pytest.raises(TypeError, match="must be an integer"):
        LineCost(True)


def test_small_asymmetries_are_averaged():
    C = line([0, 1, 3], 1)
    C[0, 1] += 2e-6
    assert torch.equal(DenseCost(C).matrix(), torch.tensor((C + C.T) / 2))


def test_points_and_embeddings_are_differentiable():
    X = randn(4, 2).requires_grad_()
    for cost in (DenseCost.from_points(X, p=1), DenseCost.from_embeddings(X)):
        (gradient,) = torch.autograd.grad(cost.matrix().square().sum(), X)
        assert torch.isfinite(gradient).all()
        assert gradient.abs().sum() > 0


def test_scale_is_exact_where_the_kernel_is_nearly_one():
    k, one_minus_k = (ZeroOneCost(2) * 1e-12).as_equal()
    assert float(one_minus_k) == pytest.approx(5e-13)
    assert k.float() == 1


def test_a_deep_tree_is_a_line():
    """A chain of 20,000 nodes has as many levels, and is the line with those distances."""
    n = 20_000
    chain = TreeCost(range(-1, n - 1))
    assert len(chain.levels) == n + 1
    scores = randn(1, n)
    assert_close(solve(scores, chain).alpha, solve(scores, LineCost(n)).alpha, atol=1e-9)
    weights, slopes = torch.linspace(-1, 1, n, dtype=torch.float64), []
    for cost in (chain, LineCost(n)):
        f = scores.clone().requires_grad_()
        (geometric_softmax(f, cost) * weights).sum().backward()
        slopes.append(f.grad)
    assert_close(*slopes, atol=1e-9)


@pytest.mark.parametrize("make", [DenseCost.from_points, LineCost], ids=["points", "line"])
def test_single_precision_geometry_is_used_with_all_digits(make):
    places = torch.linspace(0, 30, 20) + torch.rand(20)
    cost = make(places, p=2)
    alpha = torch.softmax(torch.randn(4, 20, dtype=torch.float64), -1)
    potential = sinkhorn_potential(alpha, cost)
    assert geometric_logsumexp(potential, cost).abs().max() <= 1e-12  # Ω*(∇Ω(α)) = 0


@pytest.mark.parametrize("d", [9, 3000])
def test_an_even_line_that_a_cast_made_uneven_is_taken_as_it_is(d):
    """Its neighbours are no longer at the distance of the first two."""
    line = LineCost(torch.arange(d, dtype=torch.float64) * (1 + 2**-24))
    assert line.even
    cast = line.float()
    uneven = LineCost(cast.positions.double())
    scores = 3 * randn(4, d)
    one, two = solve(scores, cast), solve(scores, uneven)
    assert (one.lower <= two.upper).all()
    assert (two.lower <= one.upper).all()
    squares = LineCost(cast.positions.double(), p=2)
    u = randn(2, d).abs()
    assert_close(LineCost(line.positions, p=2).float().matvec(u), squares.matvec(u))


@pytest.mark.parametrize("d", [10, 1500])
def test_lines_keep_the_digits_of_gaps_far_from_the_origin(d):
    """Distances of 1e-6 at a place of 1e4: the bracket is that of the matrix."""
    gaps = 10 ** (-7 + 3 * torch.rand(d, dtype=torch.float64))
    gaps[1] = 20.0
    cost = LineCost(gaps.cumsum(0)) * 1700
    scores = 0.01 * randn(3, d)
    scores[:, 0] = -1000  # else all lies there
    solution = solve(scores, cost)
    shifted = LineCost(cost.positions[1:] - cost.positions[1]) * 1700  # without the first: exact
    exact = solve(scores[:, 1:], shifted)
    assert (solution.lower <= exact.upper).all()
    assert (exact.lower <= solution.upper).all()
    assert_close(cost.matvec(scores.exp()), apply_dense(kernel(cost), scores.exp(), cost))
