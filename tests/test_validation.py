"""Bad input of every kind is refused, in words that name the object and the remedy."""

import math
import re
import warnings

import numpy as np
import pytest
import torch

import geosoftmax as gs
from geosoftmax import DenseCost, GridCost, LineCost, TreeCost, ZeroOneCost
from geosoftmax.nn import GeometricLogisticLoss

LINE = LineCost(3)
GRID = GridCost((2, 3))
SCORES = torch.zeros(2, 3)
UNIFORM = torch.full((2, 3), 1 / 3)
INDEX = torch.tensor([0, 2])

SOLVING = [gs.geometric_softmax, gs.geometric_logsumexp, gs.extrapolate, gs.solve]
POTENTIAL = [gs.potential_softmax]
SINKHORN = [gs.sinkhorn_negentropy, gs.sinkhorn_potential]
UNARY = SOLVING + POTENTIAL + SINKHORN
NAMES = {f: "alpha" for f in SINKHORN} | {gs.potential_softmax: "logits"}

name = lambda value: getattr(value, "__name__", None)  # noqa: E731


def says(*words):
    """A pattern that asks for all the words, in this order."""
    return "(?s)" + ".*".join(re.escape(word) for word in words)


def with_value(value, everywhere=False):
    scores = torch.zeros(2, 3)
    scores[1] = value if everywhere else torch.tensor([0.0, value, 0.0])
    return scores


# ------------------------------------------------------------------ signals


@pytest.mark.parametrize("function", UNARY, ids=name)
@pytest.mark.parametrize(
    ("signal", "cost", "error", "words"),
    [
        ([0.0, 1.0, 2.0], LINE, TypeError, ["torch.Tensor", "list", "torch.as_tensor"]),
        (
            torch.zeros(3, dtype=torch.int64),
            LINE,
            TypeError,
            ["floating-point", "int64", ".float()"],
        ),
        (torch.zeros(3, dtype=torch.complex64), LINE, TypeError, ["floating-point", "complex64"]),
        (torch.zeros(2, 5), LINE, ValueError, ["(3,)", "LineCost(3", "(2, 5)", "5 classes"]),
        (
            torch.zeros(2, 3, 7),
            LINE,
            ValueError,
            ["(3,)", "(2, 3, 7)", "last dimension", "dim=1,", "the cost with 7 classes"],
        ),
        (torch.zeros(3, 3, 7), LINE, ValueError, ["(3, 3, 7)", "dim=1,"]),
        (torch.zeros(3, 7), LINE, ValueError, ["(3, 7)", "dim=0,", "7 classes"]),
        (
            torch.zeros(4, 2, 3, 7),
            GRID,
            ValueError,
            ["(2, 3)", "last 2 dimensions", "dim=(1, 2),", "shape (3, 7)"],
        ),
        (torch.zeros(()), LINE, ValueError, ["(3,)", "LineCost(3", "()"]),
        (torch.zeros(4, 6), GRID, ValueError, ["(2, 3)", "(4, 6)", "unflatten(-1, (2, 3))"]),
        (torch.zeros(3, 2), GRID, ValueError, ["(2, 3)", "(3, 2)", "shape (3, 2)"]),
        (torch.zeros(3, device="meta"), LINE, ValueError, ["meta", "cpu", "cost.to('meta')"]),
        (torch.zeros(3), LINE.to("meta"), ValueError, ["cpu", "meta", "cost.to('cpu')"]),
        (torch.zeros(3), LINE.matrix(), TypeError, ["cost", "Tensor", "DenseCost(C)"]),
    ],
    ids=[
        "list",
        "int",
        "complex",
        "classes",
        "classes-in-dimension-1",
        "classes-in-dimension-1-batch-of-as-many",
        "classes-first",
        "channels-last",
        "scalar",
        "flat",
        "sides",
        "meta",
        "meta-cost",
        "matrix",
    ],
)
def test_signals_must_fit_the_cost(function, signal, cost, error, words):
    name = NAMES.get(function, "scores")
    first = "" if isinstance(cost, torch.Tensor) else name
    with pytest.raises(error, match=says(first, *words)):
        function(signal, cost)


@pytest.mark.parametrize("function", SOLVING, ids=name)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("scores", "words"),
    [
        (with_value(math.nan), ["scores", "NaN", "1 of 2 rows", "-inf"]),
        (with_value(math.inf), ["scores", "+inf", "1 of 2 rows", "mask"]),
        (with_value(-math.inf, True), ["1 of 2 rows", "scores", "all -inf", "finite score"]),
    ],
    ids=["nan", "inf", "all-masked"],
)
def test_scores_must_be_numbers_or_masks(function, dtype, scores, words):
    with pytest.raises(ValueError, match=says(*words)):
        function(scores.to(dtype), LINE)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "bad", [with_value(math.nan), with_value(math.inf), with_value(-math.inf, True)]
)
def test_the_loss_refuses_bad_scores(dtype, bad):
    with pytest.raises(ValueError, match="scores"):
        gs.geometric_logistic_loss(bad.to(dtype), INDEX, LINE)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_logits_must_be_finite(value):
    for call in (
        lambda bad: gs.potential_softmax(bad, LINE),
        lambda bad: gs.potential_logistic_loss(bad, INDEX, LINE),
    ):
        with pytest.raises(ValueError, match=says("logits", "finite", "geometric_softmax")):
            call(with_value(value))


def test_the_layout_of_torch_is_put_right_as_the_message_says():
    scores, target = torch.zeros(2, 5, 7), INDEX[:, None].expand(2, 7)
    with pytest.raises(ValueError, match=re.escape("pass dim=1, or build")):
        GeometricLogisticLoss(LineCost(5))(scores, target)
    assert GeometricLogisticLoss(LineCost(5), dim=1)(scores, target).isfinite()


# ------------------------------------------------------------------ distributions

TAKES_DISTRIBUTION = {
    "sinkhorn_negentropy": (lambda a: gs.sinkhorn_negentropy(a, LINE), "alpha"),
    "sinkhorn_potential": (lambda a: gs.sinkhorn_potential(a, LINE), "alpha"),
    "hausdorff-alpha": (lambda a: gs.hausdorff_divergence(a, UNIFORM, LINE), "alpha"),
    "hausdorff-beta": (lambda a: gs.hausdorff_divergence(UNIFORM, a, LINE), "beta"),
    "c_transform": (lambda a: gs.c_transform(SCORES, a, LINE), "alpha"),
    "loss": (lambda a: gs.geometric_logistic_loss(SCORES, a, LINE), "target"),
    "potential-loss": (lambda a: gs.potential_logistic_loss(SCORES, a, LINE), "target"),
}


@pytest.mark.parametrize(("call", "name"), TAKES_DISTRIBUTION.values(), ids=TAKES_DISTRIBUTION)
@pytest.mark.parametrize(
    ("row", "words"),
    [
        ([0.5, 0.5, 0.5], ["sum to 1", "1.5", "Divide"]),
        ([0.0, 0.0, 0.0], ["sum to 1", "leave it out"]),
        ([1.2, -0.2, 0.0], ["negative", "-0.2", "clamp"]),
        ([math.nan, 0.5, 0.5], ["must be a distribution", "NaN"]),
        ([math.inf, 0.0, 0.0], ["must be a distribution", "infinite"]),
    ],
    ids=["too-much", "nothing", "negative", "nan", "inf"],
)
def test_distributions_must_be_distributions(call, name, row, words):
    with pytest.raises(ValueError, match=says(name, *words)):
        call(torch.tensor([[0.2, 0.3, 0.5], row]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_distributions_may_be_as_inexact_as_their_dtype(dtype):
    alpha = torch.full((2, 50), 1 / 50).to(dtype)
    assert float((alpha.double().sum(-1) - 1).abs().max()) > 1e-4
    line = LineCost(50)
    gs.sinkhorn_potential(alpha, line)
    gs.hausdorff_divergence(alpha, alpha, line)
    gs.c_transform(alpha, alpha, line)
    gs.geometric_logistic_loss(torch.zeros(2, 50, dtype=dtype), alpha, line)


def test_pairs_must_have_one_shape():
    for call, words in (
        (lambda: gs.hausdorff_divergence(UNIFORM, UNIFORM[0], LINE), ["beta", "alpha"]),
        (lambda: gs.c_transform(SCORES, UNIFORM[0], LINE), ["alpha", "f"]),
        (lambda: gs.solve(SCORES, LINE, init=SCORES[0]), ["init", "scores"]),
        (lambda: gs.geometric_logistic_loss(SCORES, UNIFORM[0], LINE), ["target", "scores"]),
    ):
        with pytest.raises(ValueError, match=says(words[0], "(2, 3)", words[1], "(3,)")):
            call()


def test_a_transform_needs_finite_values_where_there_is_mass():
    for value in (math.nan, -math.inf):
        with pytest.raises(ValueError, match=says("f", "alpha")):
            gs.c_transform(with_value(value), UNIFORM, LINE)


# ------------------------------------------------------------------ class indices

LOSSES = [gs.geometric_logistic_loss, gs.potential_logistic_loss]


@pytest.mark.parametrize("loss", LOSSES, ids=name)
@pytest.mark.parametrize(
    ("target", "error", "words"),
    [
        (torch.tensor([0, 3]), ValueError, ["class indices", "0…2", "0…3"]),
        (torch.tensor([-1, 0]), ValueError, ["class indices", "0…2", "-1…0"]),
        (torch.tensor([0]), ValueError, ["(2,)", "(1,)"]),
        (torch.tensor([[0], [1]]), ValueError, ["(2,)", "(2, 1)", "squeeze(-1)"]),
        (torch.eye(2, 3, dtype=torch.int64), ValueError, ["(2,)", "(2, 3)", "target.float()"]),
        (torch.tensor([True, False]), TypeError, ["class indices", "bool"]),
        ([0, 1], TypeError, ["target", "torch.Tensor", "list", "torch.as_tensor(target)"]),
        (INDEX.numpy(), TypeError, ["target", "ndarray", "torch.as_tensor(target)"]),
        (torch.zeros(2, dtype=torch.int64, device="meta"), ValueError, ["target", "meta", "cpu"]),
    ],
    ids=["high", "low", "short", "deep", "one-hot", "bool", "list", "array", "meta"],
)
def test_class_indices_must_count_outputs(loss, target, error, words):
    with pytest.raises(error, match=says(*words)):
        loss(SCORES, target, LINE)


@pytest.mark.parametrize("loss", LOSSES, ids=name)
@pytest.mark.parametrize(
    ("scores", "target", "cost", "words"),
    [
        (SCORES, INDEX.double(), LINE, ["(2,)", "integers", "pass target.long()", "(2, 3)"]),
        (SCORES, INDEX[:, None].float(), LINE, ["(2, 1)", "(2,)", "target.squeeze(-1).long()"]),
        (SCORES[0], torch.ones(1), LINE, ["(1,)", "integers", "target.squeeze(-1).long()"]),
        (torch.zeros(4, 2, 3), torch.ones(4, 1), GRID, ["(4, 1)", "target.squeeze(-1).long()"]),
    ],
    ids=["batch", "column", "single", "grid"],
)
def test_floating_class_indices_are_recognised(loss, scores, target, cost, words):
    with pytest.raises(ValueError, match=says(*words)) as raised:
        loss(scores, target, cost)
    assert "Build the cost" not in str(raised.value)


@pytest.mark.parametrize("loss", LOSSES, ids=name)
def test_distributions_of_another_shape_are_compared_with_the_scores(loss):
    """The scores fit the cost already: another cost is no remedy."""
    with pytest.raises(ValueError, match=says("target", "(2, 3), as scores", "(2, 4)")) as raised:
        loss(SCORES, torch.full((2, 4), 0.25), LINE)
    assert "Build the cost" not in str(raised.value)


def test_small_unsigned_indices_are_not_mistaken_for_the_ignored_one():
    scores = torch.zeros(1, 200, dtype=torch.float64)
    scores[0, 0] = 5.0  # 156 is -100 in eight bits
    short, long = (
        gs.geometric_logistic_loss(scores, torch.tensor([156], dtype=dtype), LineCost(200))
        for dtype in (torch.uint8, torch.int64)
    )
    assert short == long > 0


# ------------------------------------------------------------------ options


@pytest.mark.parametrize("function", SOLVING, ids=name)
@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"tol": 0.0}, ValueError, ["tol", "positive", "0.0"]),
        ({"tol": -1e-3}, ValueError, ["tol", "positive"]),
        ({"tol": math.nan}, ValueError, ["tol", "nan"]),
        ({"tol": "1e-3"}, ValueError, ["tol", "'1e-3'"]),
        ({"max_iter": 0}, ValueError, ["max_iter", "at least 1"]),
        ({"max_iter": 1.5}, TypeError, ["max_iter", "integer", "1.5"]),
        ({"max_iter": True}, TypeError, ["max_iter", "integer"]),
        ({"method": "newton"}, ValueError, ["method", "'auto'", "hull", "'newton'"]),
        ({"method": None}, ValueError, ["method", "'auto'", "None"]),
    ],
    ids=str,
)
def test_options_must_make_sense(function, options, error, words):
    with pytest.raises(error, match=says(*words)):
        function(SCORES, LINE, **options)


@pytest.mark.parametrize("target", [torch.tensor([0, 1]), torch.full((2, 3), 1 / 3)], ids=str)
def test_infinite_scores_of_a_loss_are_not_called_nan(target):
    scores = torch.tensor([[0.0, 1.0, 2.0], [0.0, math.inf, 1.0]])
    with pytest.raises(ValueError, match=r"\+inf in 1 of 2 rows"):
        gs.geometric_logistic_loss(scores, target, LINE)


@pytest.mark.parametrize(
    ("init", "error", "words"),
    [
        (-torch.ones(2, 3), ValueError, ["init", "non-negative", "Solution"]),
        (torch.full((2, 3), math.nan), ValueError, ["init", "finite"]),
        ([[0.0] * 3] * 2, TypeError, ["init", "torch.Tensor"]),
        (torch.ones(2, 4), ValueError, ["init", "(3,)"]),
    ],
    ids=["negative", "nan", "list", "shape"],
)
def test_warm_starts_must_be_weights(init, error, words):
    with pytest.raises(error, match=says(*words)):
        gs.solve(SCORES, LINE, init=init)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"reduction": "max"}, ValueError, ["reduction", "mean", "'max'"]),
        ({"reduction": None}, ValueError, ["reduction", "mean", "None"]),
        ({"label_smoothing": 1.5}, ValueError, ["label_smoothing", "1.5"]),
        ({"label_smoothing": math.nan}, ValueError, ["label_smoothing"]),
        ({"weight": torch.ones(4)}, ValueError, ["weight", "(3,)", "(4,)"]),
        ({"weight": [1.0, 1.0, 1.0]}, TypeError, ["weight", "Tensor", "list"]),
        ({"weight": torch.tensor([1.0, -1.0, 1.0])}, ValueError, ["weight", "at least 0"]),
        ({"weight": torch.tensor([1.0, math.inf, 1.0])}, ValueError, ["weight", "finite"]),
    ],
    ids=str,
)
def test_options_of_the_loss_must_make_sense(options, error, words):
    with pytest.raises(error, match=says(*words)):
        gs.geometric_logistic_loss(SCORES, INDEX, LINE, **options)


def test_the_reduction_of_the_potential_loss_must_be_known():
    for reduction in ("max", None):
        with pytest.raises(ValueError, match=says("reduction", "mean")):
            gs.potential_logistic_loss(SCORES, INDEX, LINE, reduction=reduction)


PETS = TreeCost.from_dict({"pets": ["cat", "dog"], "bus": None})


@pytest.mark.parametrize(
    ("options", "says_so"),
    [
        ({"ignore_index": None}, "ignore_index must be an integer; got None"),
        ({"ignore_index": 2.0}, "ignore_index must be an integer"),
        ({"label_smoothing": "a"}, "label_smoothing must be a number"),
    ],
)
def test_options_of_losses_of_another_type(options, says_so):
    with pytest.raises(TypeError, match=says_so):
        gs.geometric_logistic_loss(SCORES, INDEX, LINE, **options)


def test_numbers_of_numpy_are_numbers():
    assert GridCost(np.int64(5)).shape == (5,)
    assert LineCost(3, p=np.int64(1)).p == LineCost(3, p=np.float32(1)).p == 1
    loss = gs.geometric_logistic_loss(SCORES, INDEX, LINE, ignore_index=np.int64(-100))
    assert torch.equal(loss, gs.geometric_logistic_loss(SCORES, INDEX, LINE))


# ------------------------------------------------------------------ empty batches

COSTS = [
    ZeroOneCost(4),
    LineCost(4),
    LineCost(4, p=2),
    GridCost((2, 3)),
    GridCost((12, 11)),
    TreeCost([-1, 0, 0]),
    DenseCost(LineCost(4).matrix()),
]


@pytest.mark.parametrize("cost", COSTS, ids=repr)
@pytest.mark.parametrize("batch", [(0,), (0, 3), (3, 0)])
def test_empty_batches_work(cost, batch):
    nothing = torch.zeros(*batch, *cost.shape)
    same = [
        gs.geometric_softmax(nothing, cost),
        gs.extrapolate(nothing, cost),
        gs.potential_softmax(nothing, cost),
        gs.sinkhorn_potential(nothing, cost),
        gs.c_transform(nothing, nothing, cost),
        gs.solve(nothing, cost).alpha,
        gs.solve(nothing, cost, init=nothing).u,
    ]
    assert all(result.shape == nothing.shape for result in same)
    index, last = torch.zeros(batch, dtype=torch.int64), tuple(range(-len(cost.shape), 0))
    one_each = [
        gs.geometric_logsumexp(nothing, cost),
        gs.sinkhorn_negentropy(nothing, cost),
        gs.hausdorff_divergence(nothing, nothing, cost),
        gs.hausdorff_divergence(nothing, nothing, cost, symmetric=True),
        gs.solve(nothing, cost).lower,
        gs.solve(nothing, cost).iterations,
    ]
    for loss in LOSSES:
        one_each += [loss(nothing, t, cost, dim=last, reduction="none") for t in (index, nothing)]
        assert loss(nothing, index, cost, dim=last, reduction="sum") == 0
    assert all(result.shape == batch for result in one_each)
    assert "0/0" in repr(gs.solve(nothing, cost))


# ------------------------------------------------------------------ cost matrices

GOOD = LineCost(4).matrix()


def changed(i, j, value, mirror=True):
    C = GOOD.clone()
    C[i, j] = value
    if mirror:
        C[j, i] = value
    return C


INDEFINITE = torch.tensor([[0.0, 0.1, 4.0], [0.1, 0.0, 0.1], [4.0, 0.1, 0.0]], dtype=torch.float64)
SMALLEST = float(torch.linalg.eigvalsh(torch.exp(-INDEFINITE / 2))[0])


@pytest.mark.parametrize(
    ("C", "words"),
    [
        (torch.zeros(2, 3), ["cost matrix", "square", "(2, 3)"]),
        (torch.zeros(3), ["cost matrix", "square", "(3,)"]),
        (torch.zeros(0, 0), ["cost matrix", "square", "(0, 0)"]),
        (changed(0, 1, math.nan), ["cost matrix", "NaN"]),
        (changed(0, 1, math.inf), ["cost matrix", "infinite", "large finite cost"]),
        (
            changed(0, 1, 1.5, mirror=False),
            ["not symmetric", "0.5", "(C + C.T) / 2", "repair", "argmin"],
        ),
        (changed(0, 1, -1.0), ["negative", "-1", "repair"]),
        (changed(2, 2, 0.25), ["diagonal", "0.25", "repair"]),
        (changed(2, 3, 0.0), ["outputs 2 and 3", "is 0", "Merge"]),
        (INDEFINITE, ["not positive definite", f"eigenvalue is {SMALLEST:.3g}", "repair"]),
        (torch.stack([GOOD[:3, :3], INDEFINITE]), ["not positive definite", f"{SMALLEST:.3g}"]),
    ],
    ids=[
        "shape",
        "vector",
        "empty",
        "nan",
        "inf",
        "asymmetric",
        "negative",
        "diagonal",
        "twins",
        "indefinite",
        "batch",
    ],
)
def test_cost_matrices_are_diagnosed(C, words):
    with pytest.raises(ValueError, match=says(*words)):
        DenseCost(C)


def test_matrices_must_be_numbers():
    for C in ("matrix", [["a"]], torch.zeros(2, 2, dtype=torch.complex64)):
        with pytest.raises(TypeError, match="cost matrix"):
            DenseCost(C)


def test_validation_can_be_switched_off_but_not_the_shape():
    assert torch.equal(DenseCost(INDEFINITE, validate=False).matrix(), INDEFINITE)
    with pytest.raises(ValueError, match="square"):
        DenseCost(torch.zeros(2, 3), validate=False)


def test_per_sample_costs_need_their_batch():
    cost = DenseCost(GOOD.expand(3, 4, 4))
    assert gs.geometric_softmax(torch.zeros(2, 3, 4), cost).shape == (2, 3, 4)
    for shape in ((4,), (2, 4), (3, 1, 4)):
        with pytest.raises(
            ValueError, match=says("one cost per sample", "(..., 3, 4)", str(shape))
        ):
            gs.geometric_softmax(torch.zeros(shape), cost)


# ------------------------------------------------------------------ repair


def far_apart():
    """The indefinite block, and an output so far away that its kernel underflows."""
    C = torch.full((4, 4), 2000.0, dtype=torch.float64)
    C[:3, :3] = INDEFINITE
    C[3, 3] = 0
    return C


BROKEN = {
    "indefinite": lambda: INDEFINITE,
    "asymmetric": lambda: changed(0, 1, 3.0, mirror=False),
    "negative": lambda: changed(0, 1, -1.0),
    "diagonal": lambda: changed(2, 2, 0.25),
    "twins": lambda: changed(2, 3, 0.0),
    "noise": lambda: torch.rand(12, 12, dtype=torch.float64) * 5,
    "far": far_apart,
    "zero": lambda: torch.zeros(3, 3),
}


@pytest.mark.filterwarnings("ignore:repair changed")
@pytest.mark.parametrize("make", BROKEN.values(), ids=BROKEN)
def test_repaired_costs_are_usable_and_say_how_far_they_moved(make):
    C = make()
    cost, moved = DenseCost.repair(C)
    DenseCost(cost.matrix())
    K = torch.exp(-cost.matrix() / 2)
    assert float(torch.linalg.eigvalsh(K)[0]) >= 0.9e-6
    assert moved == pytest.approx(float((cost.matrix() - C.double()).abs().max()))
    assert moved > 0
    scores = torch.zeros(2, cost.size, dtype=torch.float64)
    assert (gs.solve(scores, cost).gap < 1e-9).all()


SIMILARITIES = torch.tensor([[1.0, 0.9, 0.1], [0.9, 1.0, 0.2], [0.1, 0.2, 1.0]])


@pytest.mark.parametrize("every_scale", [False, True])
@pytest.mark.parametrize(
    ("C", "words"),
    [
        (torch.ones(3, 3), ["by 1", "largest entry is 1", "diagonal", "similarities", "1 - S"]),
        (SIMILARITIES, ["by 1", "diagonal", "similarities"]),
        (torch.tensor([[0.0, -2.0], [-2.0, 0.0]]), ["by 2", "negative", "similarities"]),
    ],
    ids=["ones", "similarities", "negative"],
)
def test_a_repair_that_leaves_little_of_a_matrix_warns(C, words, every_scale):
    with pytest.warns(UserWarning, match=says("repair changed", *words)):
        DenseCost.repair(C, every_scale=every_scale)


def test_a_repair_of_a_matrix_far_from_distances_warns():
    C = torch.tensor([[0.0, 9.0, 0.0], [9.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    with pytest.warns(UserWarning, match=says("repair changed", "largest entry is 9", "distances")):
        DenseCost.repair(C)


def test_a_small_repair_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DenseCost.repair(INDEFINITE)
        DenseCost.repair(torch.zeros(3, 3))


def test_a_valid_cost_is_not_moved():
    for C in (GOOD, LineCost(5, p=2).matrix(), torch.rand(6, 1).double().cumsum(0)):
        C = C if C.shape[0] == C.shape[1] else (C - C.T).abs()
        cost, moved = DenseCost.repair(C)
        assert moved == 0
        assert torch.equal(cost.matrix(), C)


def test_repair_is_no_farther_than_shrinking_towards_the_identity():
    """A simple repair, mixing the kernel with the identity, bounds the distance to the nearest."""
    K = torch.exp(-INDEFINITE / 2)
    shift = (1e-6 - SMALLEST) / (1 - 1e-6)
    simple = (K + shift * torch.eye(3)) / (1 + shift)
    repaired = torch.exp(-DenseCost.repair(INDEFINITE).cost.matrix() / 2)
    assert (repaired - K).norm() <= (simple - K).norm()


def test_repair_refuses_what_has_no_nearest_cost():
    for C, words in (
        (torch.zeros(2, 3), ["square", "(2, 3)"]),
        (torch.zeros(2, 2, 2), ["square", "(2, 2, 2)"]),
        (changed(0, 1, math.nan), ["NaN"]),
        (changed(0, 1, math.inf), ["infinite"]),
    ):
        with pytest.raises(ValueError, match=says(*words)):
            DenseCost.repair(C)


# ------------------------------------------------------------------ other costs


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: LineCost(0), ValueError, ["classes", "at least 1"]),
        (lambda: LineCost(True), TypeError, ["classes", "integer"]),
        (lambda: LineCost(["poor", "good"]), TypeError, ["positions", "numbers", "poor"]),
        (lambda: LineCost([]), ValueError, ["positions", "non-empty"]),
        (lambda: LineCost([[0.0, 1.0]]), ValueError, ["positions", "vector", "(1, 2)"]),
        (lambda: LineCost([0.0, math.nan]), ValueError, ["positions", "NaN"]),
        (lambda: LineCost([0.0, math.inf]), ValueError, ["positions", "infinite"]),
        (lambda: LineCost([0.0, 2.0, 1.0]), ValueError, ["positions", "increasing", "Sort"]),
        (lambda: LineCost([0.0, 1.0, 1.0]), ValueError, ["positions", "increasing", "merge"]),
        (lambda: LineCost("abc"), TypeError, ["positions", "numbers"]),
        (lambda: LineCost(3, p=0), ValueError, ["p", "0 < p <= 2", "positive definite"]),
        (lambda: LineCost(3, p=2.5), ValueError, ["p", "0 < p <= 2", "2.5"]),
        (lambda: LineCost(3, p="2"), TypeError, ["p", "number"]),
        (lambda: ZeroOneCost(0), ValueError, ["d", "at least 1"]),
        (lambda: ZeroOneCost(2.0), TypeError, ["d", "integer", "2.0"]),
        (lambda: GridCost(()), ValueError, ["1, 2 or 3 dimensions"]),
        (lambda: GridCost((2, 2, 2, 2)), ValueError, ["1, 2 or 3 dimensions", "(2, 2, 2, 2)"]),
        (lambda: GridCost((2, 0)), ValueError, ["side", "at least 1"]),
        (lambda: GridCost((2, 2.5)), TypeError, ["side", "integer", "2.5"]),
        (lambda: GridCost((2, 2), p=1.5), ValueError, ["p", "(1, 2)", "1.5"]),
        (lambda: GridCost((2, 2), spacing=0.0), ValueError, ["spacing", "positive"]),
        (lambda: GridCost((2, 2), spacing=(1.0, -1.0)), ValueError, ["spacing", "positive"]),
        (lambda: GridCost((2, 2), spacing=math.nan), ValueError, ["spacing", "finite"]),
        (lambda: GridCost((2, 2), spacing="a"), TypeError, ["spacing", "'a'"]),
        (lambda: DenseCost(LineCost(3).matrix()) * 1e-200 * 1e-200, ValueError, ["same output"]),
        (lambda: DenseCost.repair(LineCost(3).matrix(), smallest=2), ValueError, ["smallest"]),
        (lambda: DenseCost.repair(LineCost(3).matrix(), max_iter=0), ValueError, ["max_iter"]),
        (lambda: gs.geometric_softmax(SCORES, LINE * 1e-200), ValueError, ["scale", "1e-100"]),
        (lambda: GridCost((2, 2), spacing=(1.0, 2.0, 3.0)), ValueError, ["spacing", "2 axes", "3"]),
        (lambda: DenseCost.from_points(torch.tensor(1.0)), ValueError, ["points", "(d, n)"]),
        (lambda: DenseCost.from_points([[0.0], [0.0]]), ValueError, ["outputs 0 and 1", "Merge"]),
        (lambda: DenseCost.from_points([[0.0], [1.0]], p=3), ValueError, ["p", "0 < p <= 2"]),
        (
            lambda: DenseCost.from_embeddings([[0.0, 0.0], [1.0, 0.0]]),
            ValueError,
            ["embedding", "zero"],
        ),
        (lambda: DenseCost.from_embeddings([1.0, 2.0]), ValueError, ["embeddings", "(d, n)"]),
    ],
)
def test_costs_refuse_what_has_no_geometry(make, error, words):
    with pytest.raises(error, match=says(*words)):
        make()


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: TreeCost([]), ValueError, ["parents", "non-empty"]),
        (lambda: TreeCost([[-1]]), ValueError, ["parents", "vector", "(1, 1)"]),
        (lambda: TreeCost([-1.0, 0.0]), TypeError, ["parents", "integers"]),
        (lambda: TreeCost(["root", "cat"]), TypeError, ["parents", "['root', 'cat']", "from_dict"]),
        (lambda: TreeCost([None, 0]), TypeError, ["parents", "[None, 0]", "from_dict"]),
        (lambda: PETS.index(["cat", "dog"]), TypeError, ["name", "['cat', 'dog']", "torch.tensor"]),
        (lambda: TreeCost([-1, -1, 0]), ValueError, ["one root", "2", "new root"]),
        (lambda: TreeCost([1, 0]), ValueError, ["one root", "0"]),
        (lambda: TreeCost([-1, 2, 1]), ValueError, ["cycle", "root"]),
        (lambda: TreeCost([-1, 1]), ValueError, ["cycle"]),
        (lambda: TreeCost([-1, 7]), ValueError, ["parents", "0…1", "-1"]),
        (lambda: TreeCost([-1, -2]), ValueError, ["parents", "0…1"]),
        (lambda: TreeCost([-1, 0], 0.0), ValueError, ["lengths", "above 1e-300", "the same"]),
        (lambda: TreeCost([-1, 0, 0], [1, 1, -2]), ValueError, ["lengths", "above"]),
        (lambda: TreeCost([-1, 0], 1e-310), ValueError, ["lengths", "above", "1e-300"]),
        (lambda: TreeCost([-1, 0], [1, math.nan]), ValueError, ["lengths"]),
        (lambda: TreeCost([-1, 0], [1, math.inf]), ValueError, ["lengths", "finite"]),
        (lambda: TreeCost([-1, 0], [1, 1, 1]), ValueError, ["lengths", "2 nodes", "(3,)"]),
        (lambda: TreeCost([-1, 0], outputs="roots"), ValueError, ["outputs", "leaves", "'roots'"]),
        (lambda: TreeCost([-1, 0], outputs=[0, 0]), ValueError, ["outputs", "distinct"]),
        (lambda: TreeCost([-1, 0], outputs=[2]), ValueError, ["outputs", "0…1"]),
        (lambda: TreeCost([-1, 0], outputs=[]), ValueError, ["outputs"]),
        (lambda: TreeCost.from_dict({}), ValueError, ["tree is empty"]),
        (lambda: TreeCost.from_dict({"pet": {"cat", "dog"}}), TypeError, ["'pet'", "names"]),
        (lambda: TreeCost.from_dict({"pet": ["cat", "cat"]}), ValueError, ["'cat'", "once"]),
        (
            lambda: TreeCost.from_dict({"pet": ["cat", "other"], "wild": ["other"]}),
            ValueError,
            ["'other'", "more than once", "pets/other"],
        ),
        (lambda: TreeCost.from_dict(["a"]), TypeError, ["mapping", "list"]),
        (lambda: TreeCost.from_dict({"a": "b"}), TypeError, ["'a'", "names", "'b'"]),
        (lambda: TreeCost.from_dict({"a": 0.0, "b": 1.0}), ValueError, ["lengths", "above"]),
    ],
)
def test_trees_must_be_trees(make, error, words):
    with pytest.raises(error, match=says(*words)):
        make()


@pytest.mark.parametrize(
    ("factor", "error", "words"),
    [
        (0.0, ValueError, ["positive", "0"]),
        (-1.0, ValueError, ["positive", "-1", "positive definite"]),
        (math.inf, ValueError, ["finite", "inf"]),
        (math.nan, ValueError, ["finite", "nan"]),
        (torch.ones(2), ValueError, ["scalar", "(2,)"]),
        ("2", TypeError, ["number", "str"]),
        (True, TypeError, ["number", "bool"]),
    ],
    ids=str,
)
def test_costs_are_multiplied_by_positive_numbers(factor, error, words):
    for cost in (LINE, DenseCost(GOOD)):
        for scale in (lambda c: c * factor, lambda c: factor * c, lambda c: c / factor):
            with pytest.raises(error, match=says("cost", "multiplied")):
                scale(cost)
    with pytest.raises(error, match=says("cost", *words)):
        LINE * factor


def test_two_sides_of_a_grid_as_two_arguments_say_how_it_is_written():
    with pytest.raises(ValueError, match=r"GridCost\(\(32, 32\)\)"):
        GridCost(32, 32)


def test_complex_scores_are_not_told_to_drop_a_part():
    with pytest.raises(TypeError, match=r"got torch\.complex64\.$"):
        gs.geometric_softmax(torch.zeros(3, dtype=torch.complex64), LineCost(3))
