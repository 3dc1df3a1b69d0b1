"""Decisions: the least expected value of a measure, ties, and what is refused."""

import networkx
import numpy as np
import pytest
import torch
from scipy import ndimage, stats

from geosoftmax import DenseCost, GridCost, LineCost, TreeCost, ZeroOneCost, decide
from tests.conftest import compiles
from tests.generators import randn

RULES = ("mode", "median", "mean", "cost")
UNEVEN = [-3.0, 0.0, 0.5, 4.0, 4.1, 9.0]
TREE = {"animal": {"cat": 2.0, "dog": ["beagle", "poodle"]}, "vehicle": ["taxi", "jeep"]}
COSTS = {
    "line": LineCost(6) * 3.0,
    "squares": LineCost(6, p=2) / 7,
    "uneven": LineCost(UNEVEN, p=1),
    "uneven squares": LineCost(UNEVEN, p=2),
    "uneven power": LineCost(UNEVEN, p=1.5),
    "plane": GridCost((4, 5), p=2, spacing=(1.0, 3.0)) / 2,
    "manhattan": GridCost((4, 5), p=1),
    "space": GridCost((2, 3, 4), p=1, spacing=(1.0, 0.5, 2.0)),
    "tree": TreeCost.from_dict(TREE) / 2,
    "inner nodes": TreeCost([-1, 0, 0, 1, 1, 2], [0.0, 1.0, 2.0, 0.5, 0.25, 4.0]),
    "points": DenseCost.from_points(randn(7, 2), p=1),
    "embeddings": DenseCost.from_embeddings(randn(7, 3)),
    "zero-one": ZeroOneCost(9) * 0.1,
}
ON_LINES = [name for name in COSTS if name not in ("tree", "inner nodes", "points", "embeddings")]
ON_LINES.remove("zero-one")


def distributions(cost, *batch, seed=0, sparse=0.3):
    """Distributions with many zeros, as the geometric softmax makes them."""
    rng = np.random.default_rng(seed)
    flat = rng.dirichlet(np.full(cost.size, sparse), batch)
    return torch.from_numpy(flat).reshape(*batch, *cost.shape)


def places_of(cost):
    """The coordinates of the outputs of a line or a grid, of shape (d, axes)."""
    axes = [axis.positions.numpy() for axis in cost.factors]
    return np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(cost.size, -1)


def measure(cost, rule):
    """What each rule minimises the expectation of, as a matrix."""
    if rule == "cost":
        return cost.matrix().numpy()
    if rule == "mode":
        return 1 - np.eye(cost.size)
    places = places_of(cost)
    apart = np.abs(places[:, None] - places)
    return (apart if rule == "median" else apart**2).sum(-1)


def every_rule():
    return [
        (name, rule)
        for name in COSTS
        for rule in RULES
        if rule in ("mode", "cost") or name in ON_LINES
    ]


@pytest.mark.parametrize(("name", "rule"), every_rule())
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_least_expected_value_of_the_measure(name, rule, dtype):
    cost = COSTS[name]
    alpha = distributions(cost, 3, 40).to(dtype)
    chosen = decide(alpha, cost, rule)
    assert chosen.shape == (3, 40)
    assert chosen.dtype == torch.int64
    expected = alpha.double().reshape(3, 40, -1).numpy() @ measure(cost, rule)
    np.testing.assert_array_equal(chosen, expected.argmin(-1))


def test_a_line_has_the_median_and_the_mean_of_scipy():
    cost = LineCost(UNEVEN)
    alpha = distributions(cost, 50)
    for row in alpha:
        law = stats.rv_discrete(values=(range(6), row.numpy()))
        assert int(decide(row, cost, "median")) == law.median()
        middle = row.numpy() @ UNEVEN
        assert int(decide(row, cost, "mean")) == np.abs(np.array(UNEVEN) - middle).argmin()


def test_a_grid_has_the_centre_of_mass_and_marginal_medians():
    cost = GridCost((5, 8), p=1)
    alpha = distributions(cost, 30, sparse=0.05)
    mean, median = decide(alpha, cost, "mean"), decide(alpha, cost, "median")
    for k, row in enumerate(alpha.numpy()):
        assert np.unravel_index(int(mean[k]), (5, 8)) == tuple(np.rint(ndimage.center_of_mass(row)))
        marginals = (row.sum(1), row.sum(0))
        medians = tuple(
            int(stats.rv_discrete(values=(range(len(m)), m)).median()) for m in marginals
        )
        assert np.unravel_index(int(median[k]), (5, 8)) == medians
    assert torch.equal(decide(alpha, cost), median)  # what the Manhattan distance asks for
    assert torch.equal(decide(alpha, GridCost((5, 8), p=2)), mean)


def test_a_tree_has_the_median_of_networkx():
    parents, lengths = [-1, 0, 0, 1, 1, 2, 3], [0.0, 1.0, 2.0, 0.5, 0.25, 4.0, 1.5]
    graph = networkx.Graph()
    for node, parent in enumerate(parents[1:], start=1):
        graph.add_edge(node, parent, weight=lengths[node])
    away = dict(networkx.all_pairs_dijkstra_path_length(graph))
    cost = TreeCost(parents, lengths)
    for row in distributions(cost, 30):
        expected = [sum(p * away[i][j] for j, p in enumerate(row.tolist())) for i in range(7)]
        assert int(decide(row, cost)) == np.argmin(expected)


def test_one_cost_for_each_sample():
    points = randn(4, 6, 2)
    cost = DenseCost(torch.stack([DenseCost.from_points(x, p=1).C for x in points]))
    alpha = distributions(LineCost(6), 4)
    apart = [
        int(decide(a, DenseCost.from_points(x, p=1))) for a, x in zip(alpha, points, strict=True)
    ]
    assert decide(alpha, cost).tolist() == apart


@pytest.mark.parametrize("rule", RULES)
def test_scales_do_not_matter(rule):
    for cost in (LineCost(UNEVEN, p=1.5), GridCost((4, 5), p=2)):
        alpha = distributions(cost, 20)
        for scale in (1e-9, 0.1, 1e9):
            assert torch.equal(decide(alpha, cost * scale, rule), decide(alpha, cost, rule))


# ------------------------------------------------------------------ ties


@pytest.mark.parametrize(
    ("alpha", "rule", "chosen"),
    [
        ([0.5, 0.0, 0.5], "mode", 0),
        ([0.5, 0.0, 0.5], "median", 0),
        ([0.0, 0.5, 0.5], "median", 1),
        ([0.0, 0.5, 0.5], "mean", 1),
        ([0.3, 0.1 + 0.2, 0.4 - 2e-16], "mode", 2),
        ([0.3, 0.1 + 0.2, 0.2, 0.2], "mode", 0),  # 0.1 + 0.2 is larger than 0.3 by rounding
        ([0.2, 0.2, 0.2, 0.2, 0.2], "cost", 2),
        ([0.1, 0.4 - 1e-15, 0.4, 0.1], "mode", 1),
        ([0.1, 0.4, 0.4 + 1e-15, 0.1], "cost", 1),
        ([0.1, 0.4 - 1e-9, 0.4 + 1e-9, 0.1], "mode", 2),  # no rounding
    ],
)
@pytest.mark.parametrize("p", [1, 1.5, 2])
def test_the_first_of_equals(alpha, rule, chosen, p):
    alpha = torch.tensor(alpha, dtype=torch.float64)
    assert int(decide(alpha, LineCost(len(alpha), p=p), rule)) == chosen


def test_ties_elsewhere():
    tree = TreeCost.from_dict({"pets": ["cat", "dog"], "wheels": ["bus", "van"]})
    assert int(decide(torch.full((4,), 0.25), tree)) == 0
    assert int(decide(torch.tensor([0.0, 0.3, 0.4, 0.3]), tree)) == 2
    assert int(decide(torch.tensor([0.1, 0.3, 0.3, 0.3]), tree)) == 2
    assert int(decide(torch.full((3, 4), 1 / 12), GridCost((3, 4)), "median")) == 5
    assert int(decide(torch.full((3, 4), 1 / 12), GridCost((3, 4)), "mode")) == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_neighbouring_numbers_are_equal(dtype):
    half = torch.tensor(0.5, dtype=dtype)
    less = torch.nextafter(half, half * 0)
    assert int(decide(torch.stack([less, half]), LineCost(2), "mode")) == 0
    fewer = torch.nextafter(less, half * 0)
    fewer = torch.nextafter(fewer, half * 0)
    assert int(decide(torch.stack([fewer, half]), LineCost(2), "mode")) == 1


@pytest.mark.parametrize("d", [1000, 100_000])
def test_many_outputs(d):
    """In linear time and memory; a tolerance in mass would make all of them equal."""
    alpha = torch.full((d,), 1.0)
    alpha[d // 3] = 2.0
    alpha /= alpha.sum()
    for cost in (LineCost(d), ZeroOneCost(d), TreeCost([-1] + [0] * (d - 1), outputs="nodes")):
        assert int(decide(alpha, cost, "mode")) == d // 3
    assert int(decide(alpha, ZeroOneCost(d))) == d // 3
    assert abs(int(decide(alpha, LineCost(d))) - d // 2) <= 1
    assert abs(int(decide(alpha, LineCost(d), "mean")) - d // 2) <= 1
    assert int(decide(alpha, TreeCost([-1] + [0] * (d - 1)))) == 0


def test_points_of_mass_are_found_whatever_the_range():
    cost = LineCost([0.0, 1.0, 1e9], p=2)
    for k in range(3):
        for rule in RULES:
            assert int(decide(torch.eye(3)[k], cost, rule)) == k


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("alpha", "cost", "rule", "words"),
    [
        ([0.5, float("nan"), 0.5], LineCost(3), "mode", "NaN"),
        ([0.5, float("inf"), 0.5], LineCost(3), "mode", "infinite"),
        ([0.5, 0.6, -0.1], LineCost(3), "median", "negative"),
        ([0.5, 0.6, 0.1], LineCost(3), "cost", "must sum to 1"),
        ([0.0, 0.0, 0.0], LineCost(3), "mean", "must sum to 1"),
        ([0.5, 0.5], LineCost(3), "mode", r"must end with shape \(3,\)"),
        ([0.5, 0.5], GridCost((1, 2)), "mode", r"must end with shape \(1, 2\)"),
        ([0.5, 0.5], LineCost(2), "argmax", "rule must be one of mode, median, mean, cost"),
        ([0.5, 0.5], ZeroOneCost(2), "median", "median is not defined for ZeroOneCost"),
        ([0.5, 0.5], DenseCost([[0.0, 1.0], [1.0, 0.0]]), "mean", "rule='cost'"),
        ([0.5, 0.5], TreeCost([-1, 0]), "median", "On a tree"),
    ],
)
def test_what_is_refused(alpha, cost, rule, words):
    with pytest.raises(ValueError, match=words):
        decide(torch.tensor(alpha), cost, rule)


def test_what_is_no_tensor_is_refused():
    with pytest.raises(TypeError, match=r"torch\.Tensor"):
        decide([0.5, 0.5], LineCost(2), "mode")
    with pytest.raises(TypeError, match="floating-point"):
        decide(torch.tensor([0, 1]), LineCost(2), "mode")
    with pytest.raises(TypeError, match="geosoftmax Cost"):
        decide(torch.tensor([0.5, 0.5]), torch.eye(2), "mode")


@compiles
@pytest.mark.parametrize(("name", "rule"), every_rule())
def test_transformed_calls_mark_what_they_cannot_check(name, rule):
    cost = COSTS[name]
    alpha = distributions(cost, 4)
    wrong = torch.stack([alpha[0] * torch.nan, alpha[1] * 2, alpha[2] - 1 / cost.size, alpha[3]])
    found = torch.vmap(lambda a: decide(a, cost, rule))(torch.cat([alpha, wrong])).tolist()
    assert found == [
        *decide(alpha, cost, rule).tolist(),
        -1,
        -1,
        -1,
        int(decide(alpha[3], cost, rule)),
    ]
    if (name, rule) in (("plane", "median"), ("tree", "cost")):
        torch._dynamo.reset()
        compiled = torch.compile(
            lambda a: decide(a, cost, rule), fullgraph=True, backend="aot_eager"
        )
        assert compiled(torch.cat([alpha, wrong])).tolist() == found


def test_no_rows_and_no_gradient():
    assert decide(torch.empty(0, 3), LineCost(3), "median").shape == (0,)
    assert decide(torch.empty(0, 2, 3), GridCost((2, 3))).shape == (0,)
    assert not decide(torch.eye(3, requires_grad=True), LineCost(3)).requires_grad


@pytest.mark.parametrize("rule", ["mode", "median", "mean", "cost"])
@pytest.mark.parametrize(("shape", "dim"), [((5,), (1,)), ((4, 3), (2, 0))])
def test_outputs_in_other_axes(rule, shape, dim):
    cost = LineCost(5) if len(shape) == 1 else GridCost(shape)
    alpha = torch.rand(2, 6, *shape, dtype=torch.float64)
    alpha /= alpha.flatten(2).sum(-1).reshape(2, 6, *[1] * len(shape))
    moved = alpha.movedim(tuple(range(-len(shape), 0)), dim)
    assert torch.equal(decide(moved, cost, rule, dim=dim), decide(alpha, cost, rule))
