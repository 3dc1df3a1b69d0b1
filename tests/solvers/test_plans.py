"""Plans: made once, kept while a cost has its values, and gone when it goes."""

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest
import torch

from geosoftmax import (
    DenseCost,
    GridCost,
    LineCost,
    TreeCost,
    geometric_logsumexp,
    geometric_softmax,
    nn,
)
from geosoftmax.solvers import plans
from geosoftmax.solvers.plans import PlanCache
from tests.conftest import compiles


@pytest.fixture
def made(monkeypatch):
    """The keys of all plans that are made; tables that they share are not listed."""
    keys, get = [], PlanCache.get

    def spy(cache, cost, key, make):
        def noted():
            if key[0] != "tables":
                keys.append(key)
            return make()

        return get(cache, cost, key, noted)

    monkeypatch.setattr(PlanCache, "get", spy)
    return keys


def test_a_plan_is_made_once_for_a_cost_and_a_request(made):
    cost, scores = LineCost(5), torch.randn(3, 5)
    for _ in range(3):
        geometric_softmax(scores, cost)
    assert len(made) == 1
    geometric_softmax(scores.double(), cost)
    geometric_softmax(scores, cost, tol=1e-3)
    geometric_softmax(scores, cost, method="active_set")
    assert len(made) == 4
    geometric_softmax(scores, LineCost(5))  # another cost, though equal
    assert len(made) == 5


def test_plans_go_with_their_cost():
    cache = PlanCache()
    cost = GridCost((9, 9))
    table = torch.ones(3)
    cache.get(cost, "table", lambda: table)
    gone = weakref.ref(cost)
    assert len(cache._entries) == 1
    del cost
    gc.collect()
    assert gone() is None
    assert len(cache._entries) == 0


@pytest.mark.parametrize(
    "cost",
    [GridCost((12, 12)), LineCost(200, p=2), LineCost(5), DenseCost([[0.0, 1.0], [1.0, 0.0]])],
    ids=repr,
)
def test_no_plan_holds_its_cost(cost):
    cost = cost * 1.5
    geometric_softmax(torch.randn(2, *cost.shape, requires_grad=True), cost).sum().backward()
    gone = weakref.ref(cost)
    del cost
    gc.collect()
    assert gone() is None


def test_a_write_that_changes_values_is_seen(made):
    module, scores = nn.GeometricSoftmax(LineCost(5, p=2)), torch.randn(3, 5)
    before = module(scores)
    module.load_state_dict(nn.GeometricSoftmax(LineCost(5, p=2) / 4).state_dict())
    after = module(scores)
    assert not torch.allclose(before, after)
    torch.testing.assert_close(after, geometric_softmax(scores, LineCost(5, p=2) / 4))


def test_an_optimiser_step_is_seen():
    scale = torch.nn.Parameter(torch.ones(()))
    cost = LineCost(3).with_parameter(scale)
    scores = torch.randn(4, 3, dtype=torch.float64)
    optimiser = torch.optim.SGD([scale], lr=0.5)
    geometric_softmax(scores, cost).square().sum().backward()
    optimiser.step()
    assert scale.item() != 1
    expected = geometric_softmax(scores, LineCost(3) * scale.detach())
    torch.testing.assert_close(geometric_softmax(scores, cost).detach(), expected)


def test_a_write_that_changes_nothing_rebuilds_nothing(made):
    """As DistributedDataParallel does, which broadcasts buffers in each step."""
    module = nn.GeometricLogisticLoss(TreeCost([-1, 0, 0, 1, 1], outputs="leaves"))
    scores, target = torch.randn(3, 3), torch.tensor([0, 1, 2])
    module(scores, target)
    count, cost = len(made), module.cost
    for buffer in module.buffers():
        buffer.copy_(buffer.clone())
    module(scores, target)
    assert len(made) == count
    assert module.cost is cost


@pytest.mark.parametrize(
    ("cost", "tensor", "values", "says"),
    [
        (LineCost(4), "positions", [0, 3, 1, 2], "strictly increasing"),
        (LineCost(4), "positions", [0, 1, 1, 2], "strictly increasing"),
        (LineCost(4, p=2), "positions", [0, 1, torch.nan, 2], "finite"),
        (GridCost((4,), p=1), "spacing", [-1], "positive"),
        (TreeCost([-1, 0, 0, 1]), "lengths", [1, 1, 0, 1], "lengths must be"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_write_that_leaves_no_cost_is_refused(cost, tensor, values, says):
    scores = torch.randn(cost.shape)
    geometric_softmax(scores, cost)
    getattr(cost, tensor).copy_(torch.tensor(values))
    with pytest.raises(ValueError, match=says):
        geometric_softmax(scores, cost)


@pytest.mark.parametrize("p", [1, 1.5, 2])
def test_neighbours_that_a_cast_puts_at_one_place_are_solved(p):
    cost = LineCost([0.0, 1.0, 1.0 + 1e-12, 3.0], p=p).float()
    assert cost.positions.diff().tolist() == [1, 0, 2]
    value = geometric_logsumexp(torch.zeros(4), cost)
    expected = geometric_logsumexp(torch.zeros(3), LineCost([0.0, 1.0, 3.0], p=p))
    torch.testing.assert_close(value, expected)


@pytest.mark.parametrize("p", [1, 1.5, 2])
def test_positions_that_are_written_to_are_used(p):
    cost, places = LineCost(4, p=p), [0.0, 1.0, 5.0, 6.0]
    scores = torch.tensor([1.0, 0.2, 0.4, 0.1], dtype=torch.float64)
    geometric_softmax(scores, cost)
    cost.positions.copy_(torch.tensor(places))
    expected = geometric_softmax(scores, LineCost(places, p=p))
    torch.testing.assert_close(geometric_softmax(scores, cost), expected)


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_positions_are_copied(kind):
    places = kind([0.0, 1.0, 2.0, 3.0])
    cost = LineCost(places)
    places[3] = 9
    assert cost.positions.tolist() == [0, 1, 2, 3]


def test_costs_of_inference_mode_are_compared_by_value(made):
    with torch.inference_mode():
        cost = LineCost(4)
    scores = torch.randn(2, 4)
    for _ in range(2):
        geometric_softmax(scores, cost)
    assert len(made) == 1


@compiles
def test_a_compiled_graph_finds_the_plans_of_its_cost(made):
    cost, scores = GridCost((12, 12)) / 2, torch.randn(2, 12, 12)
    compiled = torch.compile(geometric_softmax, backend="aot_eager", fullgraph=True)
    compiled(scores, cost)
    count = len(made)
    assert count >= 1
    for _ in range(2):
        compiled(scores, cost)
    assert len(made) == count
    cost.scale.mul_(2)
    torch.testing.assert_close(
        compiled(scores, cost), geometric_softmax(scores, GridCost((12, 12)))
    )


@compiles
def test_a_compiled_module_finds_the_plans_of_its_cost(made):
    module, scores = nn.GeometricSoftmax(GridCost((12, 12)) / 2), torch.randn(2, 12, 12)
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    expected = module(scores)
    count = len(made)
    for _ in range(2):
        torch.testing.assert_close(compiled(scores), expected)
    assert len(made) == count


@pytest.mark.parametrize("again", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copied_module_keeps_its_plans(made, again):
    module, scores = nn.GeometricSoftmax(LineCost(5)), torch.randn(2, 5)
    other = again(module)
    for _ in range(2):
        other(scores)
    assert len(made) == 1


def test_a_module_knows_the_names_of_its_tree():
    cost = TreeCost.from_dict({"pets": ["cat", "dog"], "wheels": ["bus"]})
    module = nn.GeometricSoftmax(cost)
    assert module.cost.names == ("cat", "dog", "bus")
    assert module.double().cost.names == ("cat", "dog", "bus")
    assert (cost / 2).to(torch.float32).names == ("cat", "dog", "bus")


def test_the_library_has_one_cache():
    assert isinstance(plans.PLANS, PlanCache)
