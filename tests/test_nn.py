"""The modules: drop-in use, states, moving, learning."""

import copy
import io
import pickle
import warnings

import pytest
import torch

from geosoftmax import (
    DenseCost,
    GridCost,
    LineCost,
    TreeCost,
    ZeroOneCost,
    functional,
    nn,
)
from geosoftmax.solvers import plans
from tests.conftest import compiles, needs_torch_2_7

COSTS = {
    "zero-one": ZeroOneCost(4) * 1.5,
    "line": LineCost([0.0, 1.0, 1.5, 3.0], p=2) / 2,
    "tree": TreeCost([-1, 0, 0, 1], [0.0, 1.0, 0.5, 2.0]),
    "grid": GridCost((2, 3), p=1, spacing=(1.0, 0.3)),
    "dense": DenseCost.from_points([[0.0, 0.0], [1.0, 0.3], [-0.4, 2.0], [1.0, 1.0]], p=1),
}
each_cost = pytest.mark.parametrize("cost", COSTS.values(), ids=COSTS.keys())

MODULES = [
    nn.GeometricSoftmax,
    nn.GeometricLogSumExp,
    nn.GeometricLogisticLoss,
    nn.PotentialSoftmax,
    nn.PotentialLogisticLoss,
    nn.HausdorffDivergence,
    nn.SmoothScores,
]
each_module = pytest.mark.parametrize("kind", MODULES)


def inputs(kind, cost, rows=3, dtype=torch.float64):
    scores, other = torch.randn(2, rows, *cost.shape, dtype=torch.float64)
    alpha, beta = (torch.softmax(x.flatten(1), -1).reshape(x.shape) for x in (scores, other))
    if kind is nn.HausdorffDivergence:
        return alpha.to(dtype), beta.to(dtype)
    if kind in (nn.GeometricLogisticLoss, nn.PotentialLogisticLoss):
        return scores.to(dtype), beta.to(dtype)
    return (scores.to(dtype),)


FUNCTION_OF = {
    nn.GeometricSoftmax: functional.geometric_softmax,
    nn.GeometricLogSumExp: functional.geometric_logsumexp,
    nn.GeometricLogisticLoss: functional.geometric_logistic_loss,
    nn.PotentialSoftmax: functional.potential_softmax,
    nn.PotentialLogisticLoss: functional.potential_logistic_loss,
    nn.HausdorffDivergence: lambda a, b, cost: functional.hausdorff_divergence(a, b, cost).mean(),
    nn.SmoothScores: functional.smooth_scores,
}


@each_module
@each_cost
def test_module_is_its_function(kind, cost):
    arguments = inputs(kind, cost)
    assert torch.equal(kind(cost)(*arguments), FUNCTION_OF[kind](*arguments, cost))


@each_module
def test_cost_must_be_a_cost(kind):
    with pytest.raises(TypeError, match="cost must be a geosoftmax Cost"):
        kind(torch.eye(3))


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize(
    "kind", [nn.GeometricLogisticLoss, nn.PotentialLogisticLoss, nn.HausdorffDivergence]
)
def test_reductions(kind, reduction):
    cost = COSTS["grid"]
    arguments = inputs(kind, cost)
    each = kind(cost, reduction="none")(*arguments)
    assert each.shape == (3,)
    expected = {"none": each, "sum": each.sum(), "mean": each.mean()}[reduction]
    torch.testing.assert_close(kind(cost, reduction=reduction)(*arguments), expected)
    with pytest.raises(ValueError, match="reduction must be one of"):
        kind(cost, reduction="average")


def test_symmetric_divergence():
    cost = COSTS["line"]
    a, b = inputs(nn.HausdorffDivergence, cost)
    module = nn.HausdorffDivergence(cost, symmetric=True, reduction="none")
    both = functional.hausdorff_divergence(a, b, cost) + functional.hausdorff_divergence(b, a, cost)
    torch.testing.assert_close(module(a, b), both / 2)


def test_solver_options_reach_the_solver():
    cost = GridCost((12, 11)) / 2
    scores = torch.randn(2, 12, 11, dtype=torch.float64)
    with pytest.warns(UserWarning, match=r"did not reach tol=0\.001"):
        nn.GeometricLogSumExp(cost, tol=1e-3, max_iter=1)(2 * scores)
    with pytest.raises(ValueError, match="tol must be a positive number"):
        nn.GeometricSoftmax(cost, tol=-1)


# ------------------------------------------------------------------ instead of CrossEntropyLoss

FAR = ZeroOneCost(5) * 200  # the cross-entropy is the limit of large costs
WEIGHT = torch.tensor([0.5, 1.0, 2.0, 0.0, 3.0], dtype=torch.float64)


def swap(**options):
    """Both losses and gradients on the same scores and class indices."""
    scores = torch.randn(8, 5, dtype=torch.float64)
    target = torch.tensor([0, 1, 2, 3, 4, 0, 1, 2])
    if "ignore_index" in options:
        target[2] = target[5] = options["ignore_index"]
    results = []
    for loss in (nn.GeometricLogisticLoss(FAR, **options), torch.nn.CrossEntropyLoss(**options)):
        x = scores.clone().requires_grad_()
        value = loss(x, target)
        value.sum().backward()
        results.append((value.detach(), x.grad))
    return results


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize(
    "options",
    [{}, {"weight": WEIGHT}, {"ignore_index": -100}, {"ignore_index": 1, "weight": WEIGHT}],
    ids=["plain", "weight", "ignore", "ignore and weight"],
)
def test_one_line_swap(options, reduction):
    (ours, our_slope), (theirs, their_slope) = swap(reduction=reduction, **options)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(our_slope, their_slope)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_one_line_swap_with_label_smoothing(reduction):
    """The gradients agree; the value is less by the entropy of the target, so it can reach 0."""
    s = 0.1
    (ours, our_slope), (theirs, their_slope) = swap(reduction=reduction, label_smoothing=s)
    torch.testing.assert_close(our_slope, their_slope)
    smooth = torch.full((5,), s / 5, dtype=torch.float64)
    smooth[0] += 1 - s
    entropy = -(smooth * smooth.log()).sum()
    torch.testing.assert_close(ours, theirs - (8 * entropy if reduction == "sum" else entropy))


def test_distributions_as_target():
    scores, target = inputs(nn.GeometricLogisticLoss, FAR, rows=6)
    ours, theirs = nn.GeometricLogisticLoss(FAR), torch.nn.KLDivLoss(reduction="batchmean")
    expected = theirs(torch.log_softmax(scores, -1), target)
    torch.testing.assert_close(ours(scores, target), expected)


def test_weighted_mean_of_distributions():
    """A sample weighs Σ_y target_y weight_y."""
    scores, target = inputs(nn.GeometricLogisticLoss, FAR, rows=6)
    each = nn.GeometricLogisticLoss(FAR, reduction="none")(scores, target)
    weights = target @ WEIGHT
    expected = (each * weights).sum() / weights.sum()
    torch.testing.assert_close(
        nn.GeometricLogisticLoss(FAR, weight=WEIGHT)(scores, target), expected
    )


def test_ignored_samples_have_no_gradient():
    cost = COSTS["line"]
    scores = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    nn.GeometricLogisticLoss(cost, ignore_index=2)(scores, torch.tensor([0, 2, 1])).backward()
    assert bool((scores.grad[1] == 0).all())
    assert bool((scores.grad[[0, 2]] != 0).any())


def test_grid_targets_are_row_major():
    cost = COSTS["grid"]
    scores = torch.randn(6, 2, 3, dtype=torch.float64)
    by_index = nn.GeometricLogisticLoss(cost)(scores, torch.arange(6))
    one_hot = torch.eye(6, dtype=torch.float64).reshape(6, 2, 3)
    torch.testing.assert_close(by_index, nn.GeometricLogisticLoss(cost)(scores, one_hot))


@pytest.mark.parametrize("smoothing", [-0.1, 1.5])
def test_label_smoothing_is_checked(smoothing):
    with pytest.raises(ValueError, match="label_smoothing"):
        nn.GeometricLogisticLoss(FAR, label_smoothing=smoothing)


# ------------------------------------------------------------------ states


@each_module
@each_cost
def test_state_round_trip(kind, cost):
    """A module of another scale, loaded, is the saved one."""
    module, other = kind(cost, learn_scale=True), kind(cost * 3, learn_scale=True)
    with torch.no_grad():
        module.log_scale.fill_(0.3)
    state = module.state_dict()
    assert all(isinstance(value, torch.Tensor) for value in state.values())
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    arguments = inputs(kind, cost)
    assert not torch.allclose(module(*arguments), other(*arguments))
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(module(*arguments), other(*arguments))


def test_state_holds_no_shared_memory():
    """As safetensors demands: every tensor contiguous, with storage of its own."""
    for cost in COSTS.values():
        state = nn.GeometricLogisticLoss(cost, weight=torch.ones(cost.shape)).state_dict()
        assert all(value.is_contiguous() for value in state.values())
        places = [value.untyped_storage().data_ptr() for value in state.values()]
        assert len(set(places)) == len(places)


@pytest.mark.parametrize(
    "other",
    [ZeroOneCost(4), LineCost(4, p=1), LineCost(4, p=1.5), GridCost((4,)), DenseCost(FAR.matrix())],
    ids=repr,
)
def test_state_of_another_cost_is_refused(other):
    module = nn.GeometricSoftmax(LineCost(4, p=2))
    with pytest.raises(RuntimeError, match=r"another kind of cost|size mismatch"):
        module.load_state_dict(nn.GeometricSoftmax(other).state_dict())


def test_state_within_a_model():
    def model():
        return torch.nn.Sequential(torch.nn.Linear(3, 4), nn.GeometricSoftmax(COSTS["line"]))

    first, second = model(), model()
    second.load_state_dict(first.state_dict())
    x = torch.randn(2, 3)
    assert torch.equal(first(x), second(x))


@each_module
@each_cost
@pytest.mark.parametrize("how", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies(kind, cost, how):
    module = kind(cost, learn_scale=True)
    arguments = inputs(kind, cost)
    expected = module(*arguments)
    again = how(module)
    assert torch.equal(again(*arguments), expected)
    with torch.no_grad():
        again.log_scale.fill_(1.0)
    assert torch.equal(module(*arguments), expected)


def test_cost_is_a_copy():
    """Changing the matrix later does not change the module."""
    C = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    cost = DenseCost(C)
    module = nn.GeometricLogSumExp(cost)
    before = module(torch.zeros(2, dtype=torch.float64))
    cost.C.mul_(5)
    assert torch.equal(module(torch.zeros(2, dtype=torch.float64)), before)


# ------------------------------------------------------------------ what is derived from a cost


def test_what_is_derived_is_made_once():
    module = nn.GeometricLogisticLoss(GridCost((20, 20), p=2) / 2, tol=1e-3)
    arguments = inputs(nn.GeometricLogisticLoss, module.cost)
    module(*arguments)
    cost, plan = module.cost, plan_of(module.cost, "loss", 1e-3)
    module(*arguments)
    assert module.cost is cost
    assert plan_of(cost, "loss", 1e-3) is plan


def test_what_is_derived_follows_the_state():
    """Loading, casting and writing to a buffer make another cost."""
    cost = COSTS["dense"]
    module, scores = nn.GeometricSoftmax(cost), inputs(nn.GeometricSoftmax, cost)
    module(*scores)
    module.load_state_dict(nn.GeometricSoftmax(cost * 3).state_dict())
    assert torch.equal(module(*scores), functional.geometric_softmax(*scores, cost * 3))
    with torch.no_grad():
        module.cost_0.div_(6)
    half = functional.geometric_softmax(*scores, cost / 2)
    torch.testing.assert_close(module(*scores), half)
    module.float()
    assert module.cost.dtype == torch.float32


def test_operators_find_the_cost_by_its_tensors():
    """As compiled graphs call them: tensors alone, the same ones each time."""
    cost = GridCost((9, 8), p=2) / 2
    scores = torch.randn(2, 9, 8, dtype=torch.float64)
    tensors = [cost.handle, *cost.tensors]
    arguments = (tensors, cost.signature, 2, "value", 1e-9, 1000, "splitting", None)
    solve = torch.ops.geosoftmax.solve
    first = solve(scores, *arguments)
    plan = plan_of(cost, method="splitting")
    again = solve(scores, *arguments)
    assert plan_of(cost, method="splitting") is plan
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    cost.scale.mul_(2)  # what was derived from the scale is out of date, and not used
    double = GridCost((9, 8), p=2)
    changed = solve(scores, *arguments)[0]
    torch.testing.assert_close(changed, functional.geometric_softmax(scores, double))
    assert plan_of(cost, method="splitting") is not plan


def plan_of(cost, purpose="value", tol=1e-9, method="auto"):
    """The plan that the library keeps for values of a cost; an error if it has to make one."""

    def missing():
        raise AssertionError("no plan was kept")

    dtype = torch.float64
    return plans.PLANS.get(cost, (purpose, dtype, tol, method), missing)


# ------------------------------------------------------------------ moving


@each_module
@each_cost
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_keeps_the_geometry(kind, cost, dtype):
    arguments = inputs(kind, cost, dtype=dtype)
    module = kind(cost)
    expected = module(*arguments)
    moved = module.half() if dtype == torch.float16 else module.to(dtype)
    assert torch.equal(moved(*arguments), expected)
    assert torch.equal(moved.cost.matrix(), cost.matrix())


@each_module
@each_cost
def test_float_and_double(kind, cost):
    """Casting the module rounds the geometry at most to float32; results have the input's dtype."""
    arguments = inputs(kind, cost)
    exact = kind(cost)(*arguments)
    rounded = kind(cost).float().double()(*arguments)
    assert rounded.dtype == torch.float64
    torch.testing.assert_close(rounded, exact, rtol=1e-5, atol=1e-5)
    single = [x.float() for x in arguments]
    assert kind(cost).float()(*single).dtype == torch.float32


@each_cost
def test_moving_to_a_device(cost):
    moved = nn.GeometricSoftmax(cost, learn_scale=True).to("meta")
    assert {p.device.type for p in moved.parameters()} == {"meta"}
    assert {b.device.type for b in moved.buffers()} == {"meta"}
    assert moved.cost_0.device.type == "meta"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@each_module
@each_cost
def test_cuda(kind, cost):
    arguments = inputs(kind, cost)
    expected = kind(cost)(*arguments)
    actual = kind(cost).cuda()(*(x.cuda() for x in arguments))
    torch.testing.assert_close(actual.cpu(), expected)


def test_half_keeps_a_learnt_parameter():
    """The scale itself may be a Parameter: it stays one, and stays exact."""
    scale = torch.nn.Parameter(torch.tensor(1.2345678, dtype=torch.float64))
    module = nn.GeometricSoftmax(LineCost(3).with_parameter(scale)).half()
    assert [name for name, _ in module.named_parameters()] == ["cost_0"]
    assert "cost_0" not in dict(module.named_buffers())
    assert float(module.cost.parameter.detach()) == 1.2345678


# ------------------------------------------------------------------ learning


@each_module
@each_cost
def test_scale_is_learnt(kind, cost):
    module = kind(cost, learn_scale=True)
    arguments = inputs(kind, cost)
    # It starts at one. Prepared products may round differently from those that are differentiated.
    torch.testing.assert_close(module(*arguments), kind(cost)(*arguments), rtol=1e-13, atol=1e-15)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    weights = torch.arange(1.0, 1.0 + cost.size, dtype=torch.float64).reshape(cost.shape)
    value = module(*arguments)
    loss = (value * weights).sum() if value.dim() > 1 else value.sum()
    loss.backward()
    assert float(module.log_scale.grad.abs()) > 0
    optimiser.step()
    assert float(module.log_scale.detach()) != 0
    scale = float(module.log_scale.detach().exp())
    expected = FUNCTION_OF[kind](*arguments, cost * scale)
    torch.testing.assert_close(module(*arguments).detach(), expected, rtol=1e-6, atol=1e-6)


def test_learning_recovers_a_scale():
    """Potentials of one cost, fitted with another: the scale between them is found."""
    cost = LineCost(6)
    alpha = torch.softmax(torch.randn(20, 6, dtype=torch.float64), -1)
    scores = functional.sinkhorn_potential(alpha, cost * 2.0)
    module = nn.GeometricLogisticLoss(cost, learn_scale=True)
    softmax = nn.GeometricSoftmax(cost)
    softmax.log_scale = module.log_scale
    optimiser = torch.optim.LBFGS(module.parameters(), max_iter=60, line_search_fn="strong_wolfe")

    def closure():
        optimiser.zero_grad()
        error = (softmax(scores) - alpha).square().sum()
        error.backward()
        return error

    optimiser.step(closure)
    assert abs(float(module.log_scale.detach().exp()) - 2.0) < 1e-3


@pytest.mark.parametrize("loss_kind", [nn.GeometricLogisticLoss, nn.PotentialLogisticLoss])
@pytest.mark.parametrize("learn_scale", [False, True])
def test_training_lowers_the_loss(loss_kind, learn_scale):
    x = torch.randn(64, 2)
    y = (x[:, 0] * 1.5 + 2).round().clamp(0, 4).long()
    model = torch.nn.Linear(2, 5)
    loss = loss_kind(LineCost(5, p=2) / 2, learn_scale=learn_scale)
    optimiser = torch.optim.Adam([*model.parameters(), *loss.parameters()], lr=0.1)
    history = []
    # From classes a scale shrinks, which is warned of: tests/test_learnt.py.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the cost is learnt from class indices")
        for _ in range(40):
            optimiser.zero_grad()
            value = loss(model(x), y)
            value.backward()
            optimiser.step()
            history.append(float(value.detach()))
    assert history[-1] < 0.5 * history[0]


def test_parameters_are_only_the_scale():
    cost = COSTS["dense"]
    assert list(nn.GeometricSoftmax(cost).parameters()) == []
    names = [name for name, _ in nn.GeometricSoftmax(cost, learn_scale=True).named_parameters()]
    assert names == ["log_scale"]


# ------------------------------------------------------------------ the rest


@each_module
def test_repr(kind):
    text = repr(kind(LineCost(5, p=2) / 2, learn_scale=True))
    assert text == f"{kind.__name__}(LineCost(5, p=2) * 0.5, learn_scale=True)"
    assert repr(kind(ZeroOneCost(3))) == f"{kind.__name__}(ZeroOneCost(3))"


def test_scales_of_costs_with_unusable_multiples_are_not_learnt():
    x = torch.arange(3.0, dtype=torch.float64)
    cost = DenseCost((x[:, None] - x).abs() ** 4)
    nn.GeometricLogisticLoss(cost)
    with pytest.raises(ValueError, match="every_scale=True"):
        nn.GeometricLogisticLoss(cost, learn_scale=True)


def test_repr_of_a_loss_tells_its_options():
    loss = nn.GeometricLogisticLoss(ZeroOneCost(2), torch.tensor([1.0, 0.5]), 7, "sum", 0.25)
    options = "weight=[1.0, 0.5], ignore_index=7, reduction='sum', label_smoothing=0.25"
    assert repr(loss) == f"GeometricLogisticLoss(ZeroOneCost(2), {options})"
    many = nn.GeometricLogisticLoss(ZeroOneCost(20), torch.ones(20))
    assert repr(many).endswith("weight='tensor of shape (20,)')")


def test_repr_tells_what_is_not_the_default():
    line = LineCost(3)
    precise = nn.GeometricSoftmax(line, dim=1, tol=1e-6, max_iter=9)
    assert repr(precise) == "GeometricSoftmax(LineCost(3, p=1), dim=1, tol=1e-06, max_iter=9)"
    loss = nn.GeometricLogisticLoss(line, reduction="sum", tol=1e-3)
    assert repr(loss) == "GeometricLogisticLoss(LineCost(3, p=1), tol=0.001, reduction='sum')"
    loss = nn.PotentialLogisticLoss(line, "sum")
    assert repr(loss) == "PotentialLogisticLoss(LineCost(3, p=1), reduction='sum')"
    loss = nn.HausdorffDivergence(line, symmetric=True, reduction="none")
    assert repr(loss) == ("HausdorffDivergence(LineCost(3, p=1), reduction='none', symmetric=True)")


# dynamo makes a torch.autograd.Function of its own, which torch warns about


@compiles
@pytest.mark.parametrize("learn_scale", [False, pytest.param(True, marks=needs_torch_2_7)])
def test_compiled_inside_a_model(learn_scale):
    layer = nn.GeometricSoftmax(COSTS["line"], learn_scale=learn_scale)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), layer)
    x = torch.randn(2, 3)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    slopes = []
    for call in (model, compiled):
        model.zero_grad()
        call(x).square().sum().backward()
        slopes.append([p.grad.clone() for p in model.parameters()])
    torch.testing.assert_close(compiled(x), model(x))
    torch.testing.assert_close(slopes[0], slopes[1])


@compiles
def test_compiled_loss():
    loss = nn.GeometricLogisticLoss(COSTS["line"], weight=torch.ones(4), label_smoothing=0.1)
    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    scores, y = torch.randn(3, 4), torch.tensor([0, 3, 1])
    torch.testing.assert_close(compiled(scores, y), loss(scores, y))
