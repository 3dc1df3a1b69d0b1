"""Trees with names: what may be written, the order of the classes, lengths, sums over groups."""

import copy
import io
import math
import pickle

import numpy as np
import pytest
import torch

from geosoftmax import Cost, TreeCost, geometric_softmax, nn
from tests.conftest import assert_close
from tests.generators import randn

TREE = {
    "animal": {"cat": ["tabby", "siamese"], "dog": ["beagle", "poodle"]},
    "vehicle": {"car": ["taxi", "jeep"], "bus": 3.0},
}
NAMES = ("tabby", "siamese", "beagle", "poodle", "taxi", "jeep", "bus")
SHUFFLED = ["jeep", "bus", "tabby", "poodle", "taxi", "siamese", "beagle"]
#: The leaves below each inner node, level by level.
GROUPS = {
    "animal": NAMES[:4],
    "vehicle": NAMES[4:],
    "cat": NAMES[:2],
    "dog": NAMES[2:4],
    "car": NAMES[4:6],
}


def test_names_of_a_taxonomy_follow_its_outputs():
    tree = TreeCost.from_dict({"pet": ["cat", "dog"], "car": 2.0}, lengths=0.5)
    assert tree.names == ("cat", "dog", "car")
    assert tree.matrix()[0].tolist() == [0, 1, 3]


def test_outputs_of_a_named_tree_are_its_names_only():
    tree = TreeCost.from_dict({"pet": ["cat", "dog"]}, outputs="nodes")
    assert tree.names == ("pet", "cat", "dog")


def test_the_order_of_the_classes_can_be_given():
    tree, ordered = TreeCost.from_dict(TREE), TreeCost.from_dict(TREE, order=SHUFFLED)
    assert ordered.names == tuple(SHUFFLED)
    assert [ordered.index(name) for name in SHUFFLED] == list(range(7))
    places = [NAMES.index(name) for name in SHUFFLED]
    assert torch.equal(ordered.matrix(), tree.matrix()[places][:, places])
    f = randn(3, 7)
    assert_close(geometric_softmax(f[:, places], ordered), geometric_softmax(f, tree)[:, places])


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_an_order_may_be_any_sequence(kind):
    cost = TreeCost.from_dict(TREE, order=kind(SHUFFLED))
    assert cost.names == tuple(SHUFFLED)
    assert {type(name) for name in cost.names} == {str}


def test_groups_that_are_outputs_have_a_place_in_the_order():
    cost = TreeCost.from_dict({"pet": ["cat", "dog"]}, outputs="nodes", order=["dog", "pet", "cat"])
    assert cost.names == ("dog", "pet", "cat")
    assert cost.matrix().tolist() == [[0, 1, 2], [1, 0, 1], [2, 1, 0]]


def test_lengths_of_edges_go_by_name():
    lengths = {"animal": 5.0, "cat": 2, "poodle": np.float32(0.25)}
    C = TreeCost.from_dict(TREE, lengths).matrix()
    tabby, siamese, beagle, poodle, taxi, _, bus = range(7)
    assert C[tabby, siamese] == 2
    assert C[beagle, poodle] == 1.25
    assert C[tabby, poodle] == 1 + 2 + 1 + 0.25
    assert C[tabby, taxi] == 1 + 2 + 5 + 1 + 1 + 1
    assert C[taxi, bus] == 1 + 1 + 3


@pytest.mark.parametrize("outputs", ["leaves", "nodes"])
def test_sums_over_groups(outputs):
    cost = TreeCost.from_dict(
        TREE, outputs=outputs, order=SHUFFLED if outputs == "leaves" else None
    )
    assert cost.groups == tuple(GROUPS)
    alpha = geometric_softmax(randn(2, 3, cost.size), cost)
    sums = cost.group_sums(alpha)
    assert sums.shape == (2, 3, 5)
    for k, (group, leaves) in enumerate(GROUPS.items()):
        below = set(leaves) | {inner for inner, own in GROUPS.items() if set(own) <= set(leaves)}
        members = [j for j, name in enumerate(cost.names) if name in below]
        assert_close(sums[..., k], alpha[..., members].sum(-1), msg=group)
        assert torch.equal(cost.group_sums(alpha, group), sums[..., k])


def test_sums_over_groups_are_differentiable():
    cost = TreeCost.from_dict(TREE)
    f = randn(3, 7).requires_grad_()
    assert torch.autograd.gradcheck(lambda f: cost.group_sums(torch.softmax(f, -1)), f)
    batched = torch.vmap(cost.group_sums)(f.detach())
    assert_close(batched, cost.group_sums(f.detach()))
    assert cost.group_sums(torch.full((7,), 1 / 7)).dtype == torch.float32


def test_a_group_and_a_class_may_share_a_name():
    cost = TreeCost.from_dict({"cat": ["cat", "lion"], "bus": None})
    assert cost.index("cat") == 0
    assert cost.groups == ("cat",)
    with pytest.raises(ValueError, match="which edge"):
        TreeCost.from_dict({"cat": ["cat", "lion"]}, {"cat": 2.0})


def test_a_flat_tree_has_no_groups():
    cost = TreeCost.from_dict({"a": None, "b": None})
    assert cost.groups == ()
    assert cost.group_sums(torch.ones(4, 2)).shape == (4, 0)


def through_a_file(cost):
    file = io.BytesIO()
    torch.save(cost, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize(
    "change",
    [
        lambda cost: pickle.loads(pickle.dumps(cost)),
        copy.deepcopy,
        through_a_file,
        lambda cost: cost * 2,
        lambda cost: cost / torch.tensor(3.0),
        lambda cost: cost.float(),
        lambda cost: cost.detach(),
        lambda cost: nn.GeometricSoftmax(cost).double().cost,
        lambda cost: nn.GeometricLogisticLoss(cost, learn_scale=True).cost,
        lambda cost: pickle.loads(pickle.dumps(nn.GeometricSoftmax(cost))).cost,
    ],
)
def test_names_groups_and_order_stay(change):
    cost = TreeCost.from_dict(TREE, {"animal": 2.0}, order=SHUFFLED)
    changed = change(cost)
    assert (changed.names, changed.groups) == (cost.names, cost.groups)
    assert changed.index("taxi") == 4
    alpha = torch.softmax(randn(2, 7), -1)
    assert torch.equal(changed.group_sums(alpha), cost.group_sums(alpha))
    C, D = cost.matrix(), changed.matrix().detach().to(torch.float64)
    assert_close(C / C.max(), D / D.max(), atol=1e-7)


@pytest.mark.parametrize("without", ["|names:", "|groups:"])
def test_states_from_before_names_were_kept_load(without):
    cost = TreeCost.from_dict({"pets": ["cat", "dog"], "wheels": ["bus", "van"]})
    module = nn.GeometricSoftmax(cost)
    state = module.state_dict()
    early = bytes(state["cost_signature"].tolist()).decode().partition(without)[0]
    state["cost_signature"] = torch.tensor(list(early.encode()), dtype=torch.uint8)
    module.load_state_dict(state)
    assert module.cost.names == cost.names


def test_states_load_where_names_and_order_are_the_same():
    cost = TreeCost.from_dict(TREE, order=SHUFFLED)
    state = nn.GeometricSoftmax(cost * 3).state_dict()
    module = nn.GeometricSoftmax(cost)
    module.load_state_dict(state)
    assert module.cost.names == tuple(SHUFFLED)
    assert torch.equal(module.cost.matrix(), 3 * cost.matrix())
    other = nn.GeometricSoftmax(TreeCost.from_dict(TREE))
    with pytest.raises(RuntimeError, match="another kind of cost"):
        other.load_state_dict(state)


@pytest.mark.parametrize(
    "other",
    [{"w": None, "g": ["x", "y"]}, {"h": ["x", "y"], "w": None}],
    ids=["nodes in another order", "groups of other names"],
)
def test_states_do_not_load_where_groups_differ(other):
    """Names of outputs and distances are the same, but `group_sums` would be those of others."""
    module = nn.GeometricSoftmax(TreeCost.from_dict({"g": ["x", "y"], "w": None}))
    saved = nn.GeometricSoftmax(TreeCost.from_dict(other, order=["x", "y", "w"]))
    assert torch.equal(saved.cost.matrix(), module.cost.matrix())
    with pytest.raises(RuntimeError, match="another kind of cost"):
        module.load_state_dict(saved.state_dict())


def test_a_rebuilt_cost_has_no_names():
    cost = TreeCost.from_dict(TREE)
    again = Cost.from_signature(cost.signature, cost.tensors)
    assert torch.equal(again.matrix(), cost.matrix())
    assert isinstance(again, TreeCost)
    with pytest.raises(ValueError, match="no names"):
        again.index("taxi")


def test_descriptions():
    assert repr(TreeCost([-1, 0, 0])) == "TreeCost(3 outputs)"
    short = TreeCost.from_dict({"pet": ["cat", "dog"], "bus": None}) * 2
    assert repr(short) == "TreeCost(3 outputs of 5 nodes: 'cat', 'dog', 'bus') * 2"
    long = TreeCost.from_dict(TREE)
    assert repr(long) == "TreeCost(7 outputs of 13 nodes: 'tabby', 'siamese', …, 'bus')"


# ------------------------------------------------------------------ mistakes


@pytest.mark.parametrize(
    ("tree", "options", "error", "words"),
    [
        ({"a": ["x", ["y", "z"]]}, {}, TypeError, r"'a'.*\['y', 'z'\].*without a name.*mappings"),
        ({"a": ["x", {"y": None}]}, {}, TypeError, "'a'.*without a name"),
        ({"a": []}, {}, ValueError, "'a' is empty.*None"),
        ({"a": {}, "b": None}, {}, ValueError, "'a' is empty"),
        ({"a": {"b": ()}}, {}, ValueError, "'b' is empty"),
        ({"a": [1, 2]}, {}, TypeError, "text.*1 .int. below 'a'.*'1'"),
        ({0: None, 1: None}, {}, TypeError, "text.*0 .int."),
        ({"a": [None]}, {}, TypeError, "text.*None"),
        ({"": None, "b": None}, {}, ValueError, "name is empty"),
        ({"a": True, "b": None}, {}, TypeError, "'a'.*length or None.*True"),
        ({"a": {"x": ["p"]}, "b": {"x": ["q"]}}, {}, ValueError, "'x'.*more than once.*groups"),
        ({"a": -1.0, "b": 1}, {}, ValueError, "'a'.*positive.*-1"),
        ({"a": math.nan, "b": 1}, {}, ValueError, "'a'.*finite.*nan"),
        (TREE, {"lengths": {"taxxi": 1.0}}, ValueError, "'taxxi'.*not in the tree.*'taxi'"),
        (TREE, {"lengths": {"zzz": 1.0}}, ValueError, r"'zzz', which is not in the tree\.$"),
        (TREE, {"lengths": {"taxi": 0.0}}, ValueError, "'taxi'.*positive.*0"),
        (TREE, {"lengths": {"animal": -2}}, ValueError, "'animal'.*positive.*-2"),
        (TREE, {"lengths": {"car": math.nan}}, ValueError, "'car'.*finite.*nan"),
        (TREE, {"lengths": {"car": "long"}}, TypeError, "'car'.*number.*str"),
        (TREE, {"lengths": {"bus": 2.0}}, ValueError, "'bus'.*3.*2.0.*remove"),
        (TREE, {"lengths": [1.0, 2.0]}, TypeError, "lengths.*number.*list.*mapping"),
        (TREE, {"lengths": -1}, ValueError, "lengths.*positive.*-1"),
        (TREE, {"lengths": math.inf}, ValueError, "lengths.*finite.*inf"),
        (TREE, {"lengths": True}, TypeError, "lengths.*number.*bool"),
        (TREE, {"outputs": SHUFFLED}, ValueError, "outputs.*'leaves'.*order="),
        (TREE, {"outputs": "roots"}, ValueError, "outputs.*'roots'"),
        (TREE, {"order": "taxi"}, TypeError, "order.*list.*str"),
        (TREE, {"order": set(SHUFFLED)}, TypeError, "order.*list.*set"),
        (TREE, {"order": 7}, TypeError, "order.*list.*int"),
        (TREE, {"order": range(7)}, TypeError, "order.*names.*0 .int."),
        (TREE, {"order": [*SHUFFLED[:-1], "beagel"]}, ValueError, "'beagel'.*no output.*'beagle'"),
        (TREE, {"order": [*SHUFFLED, "cat"]}, ValueError, "'cat'.*group"),
        (TREE, {"order": SHUFFLED[:-2]}, ValueError, "all 7.*lacks 'siamese', 'beagle'"),
        (TREE, {"order": [*SHUFFLED, "bus"]}, ValueError, "'bus' more than once"),
        (TREE, {"order": SHUFFLED, "outputs": "nodes"}, ValueError, "all 12.*lacks 'animal'"),
    ],
)
def test_mistakes_are_explained(tree, options, error, words):
    with pytest.raises(error, match=words):
        TreeCost.from_dict(tree, **options)


def test_unknown_names_and_wrong_signals_are_explained():
    cost = TreeCost.from_dict(TREE)
    with pytest.raises(ValueError, match="'taxxi'; did you mean 'taxi'"):
        cost.index("taxxi")
    with pytest.raises(ValueError, match=r"'cat' is a group.*group_sums"):
        cost.index("cat")
    with pytest.raises(ValueError, match="no group has the name 'catt'; did you mean 'cat'"):
        cost.group_sums(torch.ones(7), "catt")
    with pytest.raises(ValueError, match=r"'taxi' is an output, not a group.*index\('taxi'\)"):
        cost.group_sums(torch.ones(7), "taxi")
    with pytest.raises(ValueError, match=r"alpha must end with shape \(7,\)"):
        cost.group_sums(torch.ones(3, 5))
    with pytest.raises(TypeError, match=r"torch\.Tensor"):
        cost.group_sums([0.1] * 7)  # pyright: ignore[reportArgumentType]
    for call in (lambda tree: tree.index("a"), lambda tree: tree.group_sums(torch.ones(3))):
        with pytest.raises(ValueError, match=r"no names.*from_dict"):
            call(TreeCost([-1, 0, 0]))


@pytest.mark.parametrize("outputs", [["a"], [0.0, 1.0], [[0, 1]], [True, False], 1])
def test_outputs_by_number_are_integers(outputs):
    with pytest.raises(TypeError, match="outputs must be 'nodes', 'leaves' or a list of node"):
        TreeCost([-1, 0, 0], outputs=outputs)
