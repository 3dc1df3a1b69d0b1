"""``dim``: outputs that do not come last. The same as moving the axes by hand, and as in torch."""

import ast
import copy
import re

import pytest
import torch
from torch.func import grad, hessian, jacfwd, jacrev, vmap

import geosoftmax as gs
from geosoftmax import DenseCost, GridCost, LineCost, TreeCost, ZeroOneCost, nn, operators
from geosoftmax.operators import Options
from tests.conftest import TOLERANCES, assert_close, compiles
from tests.generators import randn

COSTS = {
    "zero-one": ZeroOneCost(4) * 1.5,
    "line": LineCost(5),
    "ordinal": LineCost(5, p=2) / 2,
    "tree": TreeCost([-1, 0, 0, 1, 1, 2], [9.0, 1.0, 0.5, 2.0, 0.3, 1.0], outputs="leaves"),
    "dense": DenseCost.from_points(randn(4, 2)),
    "grid": GridCost((3, 4), p=2) / 2,
    "large grid": GridCost((12, 11), p=1),
    "cube": GridCost((2, 3, 2), p=1),
}
every_cost = pytest.mark.parametrize("cost", COSTS.values(), ids=COSTS)

#: Signals in, a signal out; then signals in, one value for each sample. The last axes hold outputs.
SIGNAL = {
    "geometric_softmax": (gs.geometric_softmax, "f"),
    "extrapolate": (gs.extrapolate, "f"),
    "potential_softmax": (gs.potential_softmax, "f"),
    "smooth_scores": (gs.smooth_scores, "f"),
    "sinkhorn_potential": (gs.sinkhorn_potential, "a"),
    "c_transform": (gs.c_transform, "fa"),
}
PER_SAMPLE = {
    "geometric_logsumexp": (gs.geometric_logsumexp, "f"),
    "sinkhorn_negentropy": (gs.sinkhorn_negentropy, "a"),
    "hausdorff_divergence": (gs.hausdorff_divergence, "ab"),
    "geometric_logistic_loss": (
        lambda f, a, cost, **dim: gs.geometric_logistic_loss(f, a, cost, reduction="none", **dim),
        "fa",
    ),
    "potential_logistic_loss": (
        lambda f, a, cost, **dim: gs.potential_logistic_loss(f, a, cost, reduction="none", **dim),
        "fa",
    ),
}
ALL = SIGNAL | PER_SAMPLE
every_function = pytest.mark.parametrize("name", ALL)


def draw(cost, *batch, dtype=torch.float64):
    """Scores and two distributions by name, outputs last."""
    f, x, y = (randn(*batch, *cost.shape, seed=k) for k in range(3))
    a, b = (t.flatten(-len(cost.shape)).softmax(-1).reshape(f.shape) for t in (x, y))
    return {"f": f.to(dtype), "a": a.to(dtype), "b": b.to(dtype)}


def last(cost):
    return tuple(range(-len(cost.shape), 0))


def places(cost):
    """Where the outputs of a signal with two batch axes may lie, one of them in another order."""
    n = len(cost.shape)
    return {1: [0, 1, 2, -1, (1,)], 2: [(0, 1), (1, 2), (-2, -1), (2, 0), (3, 1)]}.get(
        n, [tuple(range(n)), (1, 2, 3), (3, 0, 2)]
    )


def to(signal, cost, dim):
    """Move outputs from the last axes to `dim`, by hand and in contiguous memory."""
    return signal.movedim(last(cost), dim if isinstance(dim, tuple) else (dim,)).contiguous()


def back(signal, cost, dim):
    return signal.movedim(dim if isinstance(dim, tuple) else (dim,), last(cost))


# ------------------------------------------------------------------ as moving by hand


@every_cost
@every_function
def test_dim_is_moving_the_axes_by_hand(name, cost):
    function, letters = ALL[name]
    signals = draw(cost, 2, 3)
    expected = function(*(signals[k] for k in letters), cost)
    for dim in places(cost):
        result = function(*(to(signals[k], cost, dim) for k in letters), cost, dim=dim)
        if name in SIGNAL:
            assert result.shape == to(signals["f"], cost, dim).shape
            result = back(result, cost, dim)
        assert_close(result, expected)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@every_function
def test_dim_keeps_dtypes(name, dtype):
    function, letters = ALL[name]
    cost = LineCost(5, p=2) / 2
    signals = draw(cost, 2, 3, dtype=dtype)
    expected = function(*(signals[k] for k in letters), cost)
    result = function(*(to(signals[k], cost, 1) for k in letters), cost, dim=1)
    assert result.dtype == dtype
    assert torch.equal(result.movedim(1, -1) if name in SIGNAL else result, expected)


def test_memory_of_any_layout_is_read():
    scores = randn(4, 6, 10)[:, ::2, ::2]
    for layout in (scores, scores.transpose(0, 2).contiguous().transpose(0, 2), scores.clone()):
        alpha = gs.geometric_softmax(layout, LineCost(3), dim=1)
        assert_close(alpha.movedim(1, -1), gs.geometric_softmax(scores.mT.clone(), LineCost(3)))


def test_no_samples_and_no_batch():
    assert gs.geometric_softmax(torch.zeros(0, 5, 3), LineCost(5), dim=1).shape == (0, 5, 3)
    assert gs.geometric_logsumexp(torch.zeros(2, 5, 0), LineCost(5), dim=-2).shape == (2, 0)
    scores = randn(3, 4)
    cost = GridCost((4, 3))
    alpha = gs.geometric_softmax(scores, cost, dim=(1, 0))
    assert torch.equal(alpha, gs.geometric_softmax(scores.T, cost).T)


def test_masks_stay_where_they_were():
    scores = randn(2, 5, 3)
    scores[:, 2, 1] = -torch.inf
    alpha = gs.geometric_softmax(scores, LineCost(5), dim=1)
    assert (alpha[:, 2, 1] == 0).all()
    assert_close(alpha.sum(1), torch.ones(2, 3, dtype=torch.float64))


def test_one_cost_for_each_sample():
    points = randn(3, 4, 2)
    cost = DenseCost(torch.cdist(points, points))
    scores = randn(2, 3, 4)
    alpha = gs.geometric_softmax(scores.movedim(-1, 0), cost, dim=0)
    assert torch.equal(alpha.movedim(0, -1), gs.geometric_softmax(scores, cost))


# ------------------------------------------------------------------ as in torch

FAR = ZeroOneCost(5) * 200  # softmax and cross-entropy are the limit of large costs
WEIGHT = torch.tensor([0.5, 1.0, 2.0, 0.0, 3.0], dtype=torch.float64)


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2, -3])
def test_softmax_and_logsumexp_of_torch(dim):
    scores = randn(5, 5, 5)
    assert_close(gs.geometric_softmax(scores, FAR, dim=dim), torch.softmax(scores, dim))
    assert_close(gs.geometric_logsumexp(scores, FAR, dim=dim), torch.logsumexp(scores, dim))


@pytest.mark.parametrize("shape", [(6, 5), (6, 5, 4), (2, 5, 5, 5)], ids=str)
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize(
    "options",
    [{}, {"weight": WEIGHT}, {"ignore_index": -100}, {"ignore_index": 1, "weight": WEIGHT}],
    ids=["plain", "weight", "ignore", "ignore and weight"],
)
def test_cross_entropy_with_the_classes_in_axis_1(shape, reduction, options):
    options = {"reduction": reduction, **options}
    scores = randn(*shape)
    target = torch.arange(scores[:, 0].numel()).reshape(scores[:, 0].shape) % 5
    target[0] = options.get("ignore_index", 0)
    ours = nn.GeometricLogisticLoss(FAR, dim=1, **options)
    results = []
    for loss in (ours, torch.nn.CrossEntropyLoss(**options)):
        f = scores.clone().requires_grad_()
        value = loss(f, target)
        value.sum().backward()
        results.append((value, f.grad))
    torch.testing.assert_close(results[0], results[1])


def test_gradients_of_cross_entropy_with_smoothed_labels():
    scores, target = randn(3, 5, 4), torch.randint(5, (3, 4))
    options = {"label_smoothing": 0.2, "weight": torch.ones(5, dtype=torch.float64)}
    ours = nn.GeometricLogisticLoss(FAR, dim=1, **options)
    slopes = []
    for loss in (ours, torch.nn.CrossEntropyLoss(**options)):
        f = scores.clone().requires_grad_()
        loss(f, target).backward()
        slopes.append(f.grad)
    torch.testing.assert_close(*slopes)


def test_cross_entropy_of_probabilities_in_axis_1():
    scores, target = randn(2, 5, 3), torch.softmax(randn(2, 5, 3, seed=1), 1)
    ours = nn.GeometricLogisticLoss(FAR, dim=1)(scores, target)
    divergence = (target * (target.log() - torch.log_softmax(scores, 1))).sum(1)
    assert_close(ours, divergence.mean())


# ------------------------------------------------------------------ class indices

LOSSES = [gs.geometric_logistic_loss, gs.potential_logistic_loss]
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda f: f.__name__)


@every_loss
@every_cost
def test_class_indices_are_one_hot_targets(loss, cost):
    scores, index = randn(2, 3, *cost.shape), torch.randint(cost.size, (2, 3))
    one_hot = torch.nn.functional.one_hot(index, cost.size).double().reshape(scores.shape)
    expected = loss(scores, one_hot, cost, reduction="none")
    for dim in places(cost):
        moved = to(scores, cost, dim)
        for dtype in (torch.int64, torch.int32, torch.uint8):
            each = loss(moved, index.to(dtype), cost, reduction="none", dim=dim)
            assert_close(each, expected, atol=1e-8)
        assert_close(loss(moved, index, cost, dim=dim), expected.mean(), atol=1e-8)


@every_loss
def test_the_layout_of_torch_is_not_read_silently_with_the_last_axis(loss):
    """The issue: sizes agree, so nothing but `dim` tells which axis holds the classes."""
    scores, target = randn(2, 5, 5, 5), torch.randint(5, (2, 5, 5))
    with pytest.raises(ValueError, match="need dim") as raised:
        loss(scores, target, LineCost(5))
    text = str(raised.value)
    assert "dim=-1: target[i, j, k] belongs to scores[i, j, k, :]" in text
    assert "dim=1" in text
    assert "CrossEntropyLoss: target[i, j, k] belongs to scores[i, :, j, k]" in text
    as_torch = loss(scores, target, LineCost(5), dim=1, reduction="none")
    classes_last = loss(scores, target, LineCost(5), dim=-1, reduction="none")
    assert_close(as_torch[1, 2, 3], loss(scores[1, :, 2, 3], target[1, 2, 3], LineCost(5)))
    assert_close(classes_last[1, 2, 3], loss(scores[1, 2, 3], target[1, 2, 3], LineCost(5)))


@every_loss
def test_grids_are_asked_for_both_axes(loss):
    scores, target = randn(2, 2, 2, 2), torch.randint(4, (2, 2))
    with pytest.raises(ValueError, match="need dim") as raised:
        loss(scores, target, GridCost((2, 2)))
    assert "dim=(-2, -1): target[i, j] belongs to scores[i, j, :, :]" in str(raised.value)
    assert "dim=(1, 2)" in str(raised.value)
    assert "scores[i, :, :, j]" in str(raised.value)
    assert loss(scores, target, GridCost((2, 2)), dim=(-2, -1)).isfinite()


@every_loss
def test_axes_that_do_not_fit_are_not_suggested(loss):
    for cost, batch in (
        (GridCost((2, 3)), (2, 3)),
        (GridCost((5, 5)), (4, 3)),
        (LineCost(5), (2, 3)),
    ):
        scores, target = randn(*batch, *cost.shape), torch.zeros(batch, dtype=torch.int64)
        with pytest.raises(ValueError, match="need dim") as raised:
            loss(scores, target, cost)
        assert "CrossEntropyLoss" not in str(raised.value)
        suggested = re.findall(r"dim=([^:]+):", str(raised.value))
        assert len(suggested) == 1
        assert loss(scores, target, cost, dim=ast.literal_eval(suggested[0])).isfinite()


@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.1}, {"weight": WEIGHT}], ids=str)
def test_dim_is_asked_for_whatever_the_options(options):
    scores = randn(2, 5, 5)
    for dtype in (torch.int64, torch.int32):
        with pytest.raises(ValueError, match="need dim"):
            gs.geometric_logistic_loss(
                scores, torch.zeros(2, 5, dtype=dtype), LineCost(5), **options
            )


@every_loss
def test_dim_is_not_asked_for_where_there_is_no_choice(loss):
    cost = LineCost(5)
    assert loss(randn(5), torch.tensor(3), cost).isfinite()
    assert loss(randn(4, 5), torch.arange(4), cost).isfinite()
    assert loss(randn(2, 3, 5), randn(2, 3, 5).softmax(-1), cost).isfinite()


def test_warming_up_a_batch_of_costs():
    points = randn(2, 2, 3, 1)
    gs.warm_up(DenseCost(torch.cdist(points, points)))


# ------------------------------------------------------------------ solve


@every_cost
def test_a_solution_has_the_axes_of_the_scores(cost):
    scores = randn(2, 3, *cost.shape)
    expected = gs.solve(scores, cost)
    for dim in places(cost):
        found = gs.solve(to(scores, cost, dim), cost, dim=dim)
        assert found.alpha.shape == found.u.shape == to(scores, cost, dim).shape
        for name in ("alpha", "u"):
            assert torch.equal(back(getattr(found, name), cost, dim), getattr(expected, name))
        for name in ("lower", "upper", "iterations", "converged"):
            assert torch.equal(getattr(found, name), getattr(expected, name))
            assert getattr(found, name).shape == (2, 3)
        assert (found.tol, found.method) == (expected.tol, expected.method)


def test_warm_starts_have_the_axes_of_the_scores():
    cost = GridCost((12, 11), p=2) / 2
    scores = randn(12, 3, 11)
    first = gs.solve(scores, cost, dim=(0, 2))
    assert (first.iterations > 0).any()
    for init in (first, first.u):
        again = gs.solve(scores, cost, dim=(0, 2), init=init)
        assert (again.iterations == 0).all()
        assert_close(again.alpha, first.alpha, atol=1e-9)


# ------------------------------------------------------------------ derivatives and transforms

PLAIN = [*ALL, "index loss"]


def call(name, cost, dim):
    """A function of scores and two distributions with the outputs in `dim`."""
    if name == "index loss":
        index = torch.arange(6).reshape(2, 3) % cost.size
        return lambda f, a, b: gs.geometric_logistic_loss(f, index, cost, dim=dim)
    function, letters = ALL[name]
    return lambda f, a, b: function(*({"f": f, "a": a, "b": b}[k] for k in letters), cost, dim=dim)


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("key", ["ordinal", "grid"])
def test_gradients(name, key):
    cost = COSTS[key]
    dim = 1 if key == "ordinal" else (2, 1)
    signals = [to(s, cost, dim).requires_grad_() for s in draw(cost, 2, 3).values()]
    function = call(name, cost, dim)

    def of_logits(f, x, y):  # steps of finite differences stay on the simplex
        axes = (dim,) if isinstance(dim, int) else dim
        a, b = (t / t.sum(axes, keepdim=True) for t in (x, y))
        return function(f, a, b)

    assert torch.autograd.gradcheck(of_logits, signals, fast_mode=True, atol=1e-4)


def test_second_derivatives():
    f = randn(2, 3, 4).requires_grad_()
    assert torch.autograd.gradgradcheck(
        lambda f: gs.geometric_logsumexp(f, LineCost(3, p=2), dim=1), (f,), fast_mode=True
    )
    index = torch.tensor([[0, 1, 2, 0], [1, 1, 0, 2]])
    assert torch.autograd.gradgradcheck(
        lambda f: gs.geometric_logistic_loss(f, index, LineCost(3, p=2), dim=1),
        (f,),
        fast_mode=True,
    )


def test_torch_func():
    cost = LineCost(4, p=2) / 2
    f = randn(4, 2)
    jacobian = jacrev(lambda x: gs.geometric_softmax(x, cost, dim=0))(f)
    assert_close(jacfwd(lambda x: gs.geometric_softmax(x, cost, dim=0))(f), jacobian)
    total = hessian(lambda x: gs.geometric_logsumexp(x, cost, dim=0).sum())(f)
    assert_close(total, jacobian)
    batch, index = randn(6, 4, 2), torch.randint(4, (6, 2))
    alpha = vmap(lambda x: gs.geometric_softmax(x, cost, dim=0))(batch)
    assert_close(alpha, gs.geometric_softmax(batch, cost, dim=1))
    from_last = vmap(lambda x: gs.geometric_softmax(x, cost, dim=1), in_dims=2, out_dims=2)(batch)
    assert_close(from_last, alpha)
    slope = vmap(grad(lambda x, y: gs.geometric_logistic_loss(x, y, cost, dim=0)))(batch, index)
    one_hot = torch.nn.functional.one_hot(index, 4).mT
    assert_close(slope, (alpha - one_hot) / 2, atol=1e-8)


def compiled_like_eager(names, key, dim, dynamic=None):
    """One graph of some functions, forward and backward."""
    cost = COSTS[key]
    axes = dim if isinstance(dim, tuple) else (dim,)

    def all_of(f, x, y):
        a, b = (t / t.sum(axes, keepdim=True) for t in (x, y))
        return tuple(call(k, cost, dim)(f, a, b) for k in names)

    torch._dynamo.reset()
    compiled = torch.compile(all_of, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    results = []
    for function in (all_of, compiled):
        inputs = [to(s, cost, dim).requires_grad_() for s in draw(cost, 2, 3).values()]
        outputs = function(*inputs)
        sum((k + 1) * torch.cos(x).sum() for k, x in enumerate(outputs)).backward()
        results.append([*outputs, *(x.grad for x in inputs if x.grad is not None)])
    for ours, expected in zip(*results, strict=True):
        assert_close(ours, expected, atol=1e-8)


@compiles
@pytest.mark.parametrize("dynamic", [None, True])
def test_compile(dynamic):
    compiled_like_eager(["geometric_softmax", "index loss"], "line", 1, dynamic)


@pytest.mark.slow
@compiles
@pytest.mark.parametrize(("key", "dim"), [("ordinal", 0), ("grid", (2, 1))])
def test_compile_every_function(key, dim):
    compiled_like_eager(PLAIN, key, dim)


@every_cost
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_solves_return_the_strides_that_graphs_are_promised(cost, dtype):
    """Whatever the memory of the scores, results are contiguous."""
    n = len(cost.shape)
    signals = draw(cost, 2, 3, dtype=dtype)
    f, a = (
        to(signals[k], cost, tuple(range(n))).movedim(tuple(range(n)), last(cost)) for k in "fa"
    )
    assert not f.is_contiguous()
    assert all(
        x.is_contiguous() for x in operators.solve(f, cost, Options("value", 1e-4, 99, "auto"))
    )
    assert operators.sinkhorn(a.double(), cost, "alpha", 1e-4, single=True).is_contiguous()


@compiles
def test_a_compiled_module_asks_for_dim_too():
    torch._dynamo.reset()
    loss = torch.compile(nn.GeometricLogisticLoss(LineCost(5)), backend="aot_eager")
    with pytest.raises(Exception, match="need dim"):
        loss(randn(2, 5, 5), torch.zeros(2, 5, dtype=torch.int64))


@pytest.mark.parametrize("name", PLAIN)
def test_autocast(name):
    cost = LineCost(5, p=2) / 2
    signals = [to(s, cost, 1).float() for s in draw(cost, 2, 3).values()]
    expected = call(name, cost, 1)(*signals)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = call(name, cost, 1)(*signals)
        half = call(name, cost, 1)(signals[0].bfloat16(), *signals[1:])
    assert result.dtype == torch.float32
    assert torch.equal(result, expected)
    if "loss" in name:
        assert half.dtype == torch.float32


# ------------------------------------------------------------------ modules

MODULES = {
    nn.GeometricSoftmax: "f",
    nn.GeometricLogSumExp: "f",
    nn.GeometricLogisticLoss: "fa",
    nn.PotentialSoftmax: "f",
    nn.PotentialLogisticLoss: "fa",
    nn.HausdorffDivergence: "ab",
    nn.SmoothScores: "f",
}
every_module = pytest.mark.parametrize("kind", MODULES)


@every_module
@pytest.mark.parametrize("key", ["ordinal", "grid"])
def test_modules(kind, key):
    cost = COSTS[key]
    dim = 1 if key == "ordinal" else (1, 2)
    signals = draw(cost, 2, 3)
    expected = kind(cost)(*(signals[k] for k in MODULES[kind]))
    result = kind(cost, dim=dim)(*(to(signals[k], cost, dim) for k in MODULES[kind]))
    assert_close(back(result, cost, dim) if result.dim() > 2 else result, expected)


@every_module
def test_repr_and_copies_of_modules_tell_dim(kind):
    module = kind(GridCost((2, 3)), dim=[1, 2])
    assert repr(module).startswith(f"{kind.__name__}(GridCost((2, 3)")
    assert ", dim=(1, 2)" in repr(module)
    assert "dim" not in repr(kind(LineCost(5)))
    assert copy.deepcopy(module).dim == (1, 2)


@every_module
def test_states_and_pickles_from_before_dim(kind):
    module, other = kind(LineCost(5)), kind(LineCost(5), dim=1)
    state = module.state_dict()
    assert not [key for key in state if "dim" in key]
    other.load_state_dict(state)
    assert other.dim == 1
    old = copy.deepcopy(module)
    del old.__dict__["dim"]  # as a module that was pickled whole has none
    arguments = [draw(LineCost(5), 3)[k] for k in MODULES[kind]]
    assert torch.equal(old(*arguments), module(*arguments))
    assert repr(old) == repr(module)


# ------------------------------------------------------------------ what is refused

GRID = GridCost((2, 3))
LINE = LineCost(5)
BAD = [
    (LINE, (2, 5, 4), True, TypeError, ["dim", "integer", "True"]),
    (LINE, (2, 5, 4), 1.0, TypeError, ["dim", "integer", "1.0"]),
    (LINE, (2, 5, 4), "1", TypeError, ["dim", "integer", "'1'"]),
    (LINE, (2, 5, 4), (False,), TypeError, ["dim", "integer", "False"]),
    (LINE, (2, 5, 4), (1, 2), ValueError, ["dim", "one axis", "LineCost(5", "dim=1", "(1, 2)"]),
    (LINE, (2, 5, 4), (), ValueError, ["dim", "one axis", "()"]),
    (GRID, (4, 2, 3), 1, ValueError, ["dim", "2 axes", "GridCost((2, 3)", "(-2, -1)", "dim=1"]),
    (GRID, (4, 2, 3), (1, 2, 0), ValueError, ["dim", "2 axes", "(1, 2, 0)"]),
    (LINE, (2, 5, 4), 3, ValueError, ["dim=3", "out of range", "(2, 5, 4)", "-3…2"]),
    (LINE, (2, 5, 4), -4, ValueError, ["dim=-4", "out of range", "(2, 5, 4)", "-3…2"]),
    (LINE, (), 0, ValueError, ["dim=0", "no axes"]),
    (GRID, (4, 2, 3), (1, 3), ValueError, ["3", "out of range", "-3…2"]),
    (GRID, (4, 2, 3), (1, 1), ValueError, ["dim=(1, 1)", "axis 1", "twice"]),
    (GRID, (4, 2, 3), (1, -2), ValueError, ["dim=(1, -2)", "axis 1", "twice"]),
    (LINE, (2, 5, 4), 2, ValueError, ["axis 2", "size 5", "LineCost(5", "4", "dim=1"]),
    (LINE, (2, 7, 4), 1, ValueError, ["axis 1", "size 5", "LineCost(5", "7", "7 classes"]),
    (GRID, (4, 2, 3, 7), (1, 3), ValueError, ["axis 3", "size 3", "GridCost((2, 3)", "(1, 2)"]),
    (GRID, (4, 3, 2), (1, 2), ValueError, ["axis 1", "size 2", "3", "shape (3, 2)"]),
]  # fmt: skip


@pytest.mark.parametrize(("cost", "shape", "dim", "error", "words"), BAD, ids=str)
@every_function
def test_bad_dims_are_refused(name, cost, shape, dim, error, words):
    function, letters = ALL[name]
    pattern = "(?s)" + ".*".join(map(re.escape, words))
    with pytest.raises(error, match=pattern):
        function(*[torch.zeros(shape)] * len(letters), cost, dim=dim)
    with pytest.raises(error, match=pattern):
        gs.solve(torch.zeros(shape), cost, dim=dim)


@every_module
@pytest.mark.parametrize(
    ("cost", "dim", "error"),
    [(LINE, True, TypeError), (LINE, (1, 2), ValueError), (GRID, 1, ValueError)],
    ids=str,
)
def test_modules_refuse_bad_dims_when_they_are_built(kind, cost, dim, error):
    with pytest.raises(error, match="dim must"):
        kind(cost, dim=dim)


@every_function
def test_what_is_no_signal_or_cost_is_still_told(name):
    function, letters = ALL[name]
    with pytest.raises(TypeError, match=r"must be a torch\.Tensor; got list"):
        function(*[[0.0] * 5] * len(letters), LINE, dim=0)
    with pytest.raises(TypeError, match="cost must be a geosoftmax Cost"):
        function(*[torch.zeros(5)] * len(letters), LINE.matrix(), dim=0)
    with pytest.raises(TypeError, match="must be a floating-point tensor"):
        function(*[torch.zeros(5, 2, dtype=torch.int64)] * len(letters), LINE, dim=0)


@every_loss
@pytest.mark.parametrize(
    ("target", "error", "words"),
    [
        (torch.zeros(2, 5, dtype=torch.int64), ValueError, ["(2, 4)", "without axis 1", "(2, 5)"]),
        (torch.zeros(2, dtype=torch.int64), ValueError, ["(2, 4)", "(2, 5, 4)", "(2,)"]),
        (torch.zeros(2, 4), ValueError, ["(2, 4)", "class indices", "target.long()"]),
        (torch.zeros(2, 4, 1), ValueError, ["(2, 4, 1)", "integers", "target.squeeze(-1).long()"]),
        (torch.zeros(2, 1, 4), ValueError, ["(2, 1, 4)", "integers", "target.squeeze(1).long()"]),
        (torch.full((2, 4, 5), 0.2), ValueError, ["target", "(2, 5, 4)", "(2, 4, 5)"]),
        (torch.full((2, 5, 4), 0.25), ValueError, ["target", "sum to 1", "dim"]),
        (torch.full((2, 4), 5), ValueError, ["class indices", "0…4", "5"]),
        (torch.zeros(2, 4, dtype=torch.bool), TypeError, ["class indices", "bool"]),
        ([[0] * 4] * 2, TypeError, ["target", "torch.Tensor", "list"]),
    ],
    ids=["shape", "short", "floating", "column", "one", "last", "sum", "high", "bool", "list"],
)  # fmt: skip
def test_targets_must_fit(loss, target, error, words):
    with pytest.raises(error, match="(?s)" + ".*".join(map(re.escape, words))):
        loss(torch.zeros(2, 5, 4), target, LINE, dim=1)


def test_other_signals_must_have_the_axes_of_the_first():
    scores, alpha = torch.zeros(2, 5, 4), torch.full((2, 5, 4), 0.2)
    for function in (
        lambda other: gs.hausdorff_divergence(alpha, other, LINE, dim=1),
        lambda other: gs.c_transform(scores, other, LINE, dim=1),
        lambda other: gs.solve(scores, LINE, init=other, dim=1),
    ):
        with pytest.raises(ValueError, match=r"shape \(2, 5, 4\), as \w+; got \(2, 4, 5\)"):
            function(alpha.mT)
    with pytest.raises(TypeError, match="init must be a torch"):
        gs.solve(scores, LINE, init=[0.0], dim=1)
