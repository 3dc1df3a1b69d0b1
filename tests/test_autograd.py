"""Derivatives, ``torch.func``, ``torch.compile``, autocast, memory of the graph, determinism."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

from geosoftmax import (
    DenseCost,
    GridCost,
    LineCost,
    TreeCost,
    ZeroOneCost,
    autograd,
    c_transform,
    extrapolate,
    geometric_logistic_loss,
    geometric_logsumexp,
    geometric_softmax,
    hausdorff_divergence,
    nn,
    potential_logistic_loss,
    potential_softmax,
    sinkhorn_negentropy,
    sinkhorn_potential,
    smooth_scores,
)
from geosoftmax.operators import Options
from tests.conftest import compiles, needs_torch_2_7
from tests.generators import randn

F64 = torch.float64
C = DenseCost.from_points(torch.randn(4, 3, dtype=F64, generator=torch.manual_seed(1)), p=1).C

COSTS = {
    "zero-one": ZeroOneCost(4),
    "line p=1": LineCost([0.0, 1.0, 1.5, 3.0]),
    "line p=2": LineCost(4, p=2) / 2,
    "tree": TreeCost([-1, 0, 0, 1, 1], [0.0, 1.0, 0.5, 2.0, 1.0]),
    "leaves": TreeCost.from_dict({"a": {"b": 1.0, "c": 2.0}, "d": ["x", "y"]}),
    "grid": GridCost((2, 3), p=2) / 2,
    "dense": DenseCost(C),
    "per sample": DenseCost(torch.stack([C, 2 * C])),
    "large grid": GridCost((12, 11), p=2) / 2,
}
FEW = ("line p=1", "grid", "dense")

each = pytest.mark.parametrize("name", COSTS)
few = pytest.mark.parametrize(
    "name", [n if n in FEW else pytest.param(n, marks=pytest.mark.slow) for n in COSTS]
)


def draw(cost, rows=2, seed=0):
    """Scores and two distributions without zeros."""
    generator = torch.Generator().manual_seed(seed)
    x, y, z = torch.randn(3, rows, *cost.shape, dtype=F64, generator=generator)
    return x, *(torch.softmax(t.flatten(1), -1).reshape(t.shape) for t in (y, z))


def to_simplex(x, cost):
    return torch.softmax(x.flatten(-len(cost.shape)), -1).reshape(x.shape)


# Each public function of scores f, distributions α and β.
FUNCTIONS = {
    "softmax": lambda f, a, b, cost: geometric_softmax(f, cost),
    "logsumexp": lambda f, a, b, cost: geometric_logsumexp(f, cost),
    "extrapolate": lambda f, a, b, cost: extrapolate(f, cost),
    "loss": lambda f, a, b, cost: geometric_logistic_loss(f, a, cost),
    "potential softmax": lambda f, a, b, cost: potential_softmax(f, cost),
    "potential loss": lambda f, a, b, cost: potential_logistic_loss(f, a, cost),
    "negentropy": lambda f, a, b, cost: sinkhorn_negentropy(a, cost),
    "potential": lambda f, a, b, cost: sinkhorn_potential(a, cost),
    "divergence": lambda f, a, b, cost: hausdorff_divergence(a, b, cost),
    "symmetric": lambda f, a, b, cost: hausdorff_divergence(a, b, cost, symmetric=True),
    "c-transform": lambda f, a, b, cost: c_transform(f, a, cost),
}
functions = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())


# ------------------------------------------------------------------ gradcheck


def check(function, inputs, *, second=False, fast=False):
    inputs = tuple(x.clone().requires_grad_() for x in inputs)
    assert gradcheck(function, inputs, check_forward_ad=True, fast_mode=fast)
    if second:
        assert gradgradcheck(function, inputs, fast_mode=fast)


@functions
@few
def test_first_derivatives(name, function):
    """In scores, both distributions and the scale, in reverse and forward mode."""
    cost = COSTS[name]
    scale = torch.tensor(1.3, dtype=F64)
    fast = cost.size > 20
    check(lambda f, a, b, s: function(f, a, b, cost * s), (*draw(cost), scale), fast=fast)


@pytest.mark.parametrize("key", ["logsumexp", "loss", "softmax", "potential", "divergence"])
@few
def test_second_derivatives(name, key):
    cost, function = COSTS[name], FUNCTIONS[key]
    inputs = (*draw(cost, seed=3), torch.tensor(1.3, dtype=F64))

    def of_all(f, a, b, s):
        return function(f, a, b, cost * s)

    check(of_all, inputs, second=True, fast=cost.size > 20 or key not in ("logsumexp", "loss"))


@functions
def test_derivatives_in_a_dense_cost(function):
    """The matrix is a leaf; gradcheck perturbs one entry at a time, also on the diagonal."""
    f, a, b = draw(COSTS["dense"], seed=5)
    check(lambda C, f: function(f, a, b, DenseCost(C)), (C, f))


def test_second_derivatives_in_a_dense_cost():
    f, a, _ = draw(COSTS["dense"], seed=5)
    check(lambda C, f: geometric_logsumexp(f, DenseCost(C)), (C, f), second=True, fast=True)
    check(lambda C, f: geometric_logistic_loss(f, a, DenseCost(C)), (C, f), second=True, fast=True)


def test_derivative_in_points_and_embeddings():
    f = draw(COSTS["dense"])[0]
    X = torch.randn(4, 2, dtype=F64)
    check(lambda X: geometric_softmax(f, DenseCost.from_points(X, p=1)), (X,))
    check(lambda E: geometric_logsumexp(f, DenseCost.from_embeddings(E)), (X,))


@few
def test_formulas(name):
    """∂gLSE/∂f = α;  ∂α/∂f = ½(D_b K_SS⁻¹ D_b / Z + D_α) - ααᵀ on S, zero elsewhere."""
    cost = COSTS[name]
    if cost.batch_shape:
        pytest.skip("one matrix per sample")
    f = 2 * draw(cost)[0][0]
    alpha = geometric_softmax(f, cost)
    assert torch.allclose(grad(lambda x: geometric_logsumexp(x, cost))(f), alpha)
    a = alpha.flatten()
    inside = a > 0
    K = torch.exp(-cost.matrix() / 2)[inside][:, inside]
    b = torch.exp(f.flatten() / 2)[inside]
    Z = torch.exp(geometric_logsumexp(f, cost))
    expected = torch.zeros(cost.size, cost.size, dtype=F64)
    block = (b[:, None] * torch.linalg.inv(K) * b / Z + torch.diag(a[inside])) / 2
    expected[inside.nonzero(), inside.nonzero()[:, 0]] = block - torch.outer(a[inside], a[inside])
    jacobian = jacrev(lambda x: geometric_softmax(x, cost))(f).reshape(expected.shape)
    assert torch.allclose(jacobian, expected, atol=1e-9)


def test_gradient_of_the_conjugate_in_the_cost():
    """∂gLSE/∂C_ij = ½ u_i K_ij u_j / Z."""
    cost = COSTS["dense"]
    f = draw(cost)[0][0]
    slope = grad(lambda M: geometric_logsumexp(f, DenseCost(M)))(C)
    K = torch.exp(-C / 2)
    Z = torch.exp(geometric_logsumexp(f, cost))
    u = geometric_softmax(f, cost) * Z * torch.exp(-f / 2)
    assert torch.allclose(slope, u[:, None] * K * u / Z / 2)


@each
def test_gradient_of_the_loss_is_prediction_less_target(name):
    cost = COSTS[name]
    f, a, _ = draw(cost)
    f.requires_grad_()
    geometric_logistic_loss(f, a, cost, reduction="sum").backward()
    assert torch.allclose(f.grad, geometric_softmax(f.detach(), cost) - a, atol=1e-9)


def test_masked_scores_have_no_gradient():
    cost = COSTS["grid"]
    f = draw(cost)[0]
    f[:, 0, 1] = -torch.inf
    f.requires_grad_()
    loss = geometric_logsumexp(f, cost).sum() + geometric_softmax(f, cost).square().sum()
    (slope,) = torch.autograd.grad(loss, f)
    assert bool(torch.isfinite(slope).all())
    assert bool((slope[:, 0, 1] == 0).all())


# ------------------------------------------------------------------ torch.func


@few
def test_vmap(name):
    cost = COSTS[name]
    if cost.batch_shape:
        pytest.skip("one matrix per sample")
    f, a, b = draw(cost, rows=4)
    for function in FUNCTIONS.values():
        # `loss` is a mean: compare one sample at a time
        together = vmap(lambda f, a, b, fn=function: fn(f, a, b, cost))(f, a, b)
        alone = torch.stack([function(*sample, cost) for sample in zip(f, a, b, strict=True)])
        assert torch.allclose(together, alone, atol=1e-9)


@few
def test_vmap_over_the_scale(name):
    cost = COSTS[name]
    f, a, _ = draw(cost)
    scales = torch.tensor([0.5, 2.0], dtype=F64)
    for function in (
        lambda s: geometric_logsumexp(f, cost * s),
        lambda s: geometric_softmax(f, cost * s),
        lambda s: sinkhorn_potential(a, cost * s),
    ):
        together = vmap(function)(scales)
        assert torch.allclose(together, torch.stack([function(s) for s in scales]), atol=1e-9)
    slope = grad(lambda s: geometric_logsumexp(f, cost * s).sum())
    slopes = vmap(slope)(scales)
    assert torch.allclose(slopes, torch.stack([slope(s) for s in scales]))
    assert bool((slopes >= 0).all())  # larger costs, larger log-sum-exp


@few
def test_jacobians(name):
    cost = COSTS[name]
    if cost.batch_shape:
        pytest.skip("one matrix per sample")
    f, a, _ = (x[0] for x in draw(cost))

    def softmax(x):
        return geometric_softmax(x, cost)

    expected = torch.autograd.functional.jacobian(softmax, f)
    assert torch.allclose(jacrev(softmax)(f), expected)
    assert torch.allclose(jacfwd(softmax)(f), expected)
    assert torch.allclose(hessian(lambda x: geometric_logsumexp(x, cost))(f), expected)
    potential = jacrev(lambda x: sinkhorn_potential(x, cost))(a)
    assert torch.allclose(hessian(lambda x: sinkhorn_negentropy(x, cost))(a), potential)
    direction = torch.randn_like(f)
    _, pushed = jvp(softmax, (f,), (direction,))
    assert torch.allclose(pushed, (expected * direction).flatten(f.dim()).sum(-1))


@few
def test_gradient_per_sample(name):
    cost = COSTS[name]
    if cost.batch_shape:
        pytest.skip("one matrix per sample")
    f, a, _ = draw(cost, rows=3)
    per_sample = vmap(grad(lambda f, a: geometric_logistic_loss(f, a, cost)))(f, a)
    assert torch.allclose(per_sample, geometric_softmax(f, cost) - a, atol=1e-9)


# ------------------------------------------------------------------ torch.compile

# dynamo makes a torch.autograd.Function of its own, which torch warns about


def compiled_like_eager(function, *inputs, dynamic=None):
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    results = []
    for call in (compiled, function):
        arguments = [x.clone().requires_grad_() for x in inputs]
        outputs = call(*arguments)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        total = sum((torch.cos(out) * (k + 1)).sum() for k, out in enumerate(outputs))
        total.backward()
        slopes = [x.grad for x in arguments if x.grad is not None]
        results.append([*(out.detach() for out in outputs), *slopes])
    for ours, expected in zip(*results, strict=True):
        assert torch.allclose(ours, expected, atol=1e-9)


CORE = ("softmax", "logsumexp", "loss")


@compiles
@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("dense", tuple(FUNCTIONS)),
        pytest.param("line p=1", (*CORE, "negentropy", "potential"), marks=pytest.mark.slow),
        pytest.param("grid", CORE, marks=pytest.mark.slow),
    ],
)
def test_compile(name, keys):
    """Several public functions in one graph, forward and backward."""
    cost = COSTS[name]

    def all_of(f, x, y):
        a, b = to_simplex(x, cost), to_simplex(y, cost)
        return tuple(FUNCTIONS[key](f, a, b, cost) for key in keys)

    f, a, b = draw(cost)
    compiled_like_eager(all_of, f, a.log(), b.log())


def alone(quick):
    """All costs; those but one are slow."""
    return pytest.mark.parametrize(
        "name", [n if n == quick else pytest.param(n, marks=pytest.mark.slow) for n in COSTS]
    )


@needs_torch_2_7
@compiles
@alone("dense")
def test_compile_a_learnt_scale(name):
    cost = COSTS[name]
    f, a, _ = draw(cost)
    scale = torch.tensor(1.3, dtype=F64)
    compiled_like_eager(lambda f, s: geometric_logistic_loss(f, a, cost * s), f, scale)


@needs_torch_2_7
@compiles
@alone("line p=1")
def test_compile_with_symbols_from_the_start(name):
    """``dynamic=True`` makes a symbol of each number in a cost that a function has taken in."""
    cost = COSTS[name]
    f, a, _ = draw(cost)

    def losses(f, x):
        softened = geometric_softmax(smooth_scores(f, cost), cost)
        return softened, geometric_logistic_loss(f, to_simplex(x, cost), cost)

    compiled_like_eager(losses, f, a.log(), dynamic=True)


@pytest.mark.slow
@compiles
@functions
@each
def test_compile_one_by_one(name, function):
    cost = COSTS[name]

    def one(f, x, y):
        return function(f, to_simplex(x, cost), to_simplex(y, cost), cost)

    f, a, b = draw(cost)
    compiled_like_eager(one, f, a.log(), b.log())


@compiles
def test_compile_class_indices():
    cost = COSTS["line p=1"]
    y = torch.tensor([0, 3])
    weight = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=F64)

    def losses(f):
        return (
            geometric_logistic_loss(f, y, cost, weight=weight),
            geometric_logistic_loss(f, y, cost, label_smoothing=0.1, reduction="none"),
            potential_logistic_loss(f, y, cost),
        )

    compiled_like_eager(losses, draw(cost)[0])


# ------------------------------------------------------------------ the rest


@functions
def test_autocast_changes_nothing(function):
    cost = COSTS["line p=2"]
    inputs = [x.float() for x in draw(cost, rows=3)]
    expected = function(*inputs, cost)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = function(*inputs, cost)
    assert actual.dtype == expected.dtype == torch.float32
    assert torch.equal(actual, expected)


def test_autocast_of_a_layer_before():
    """bfloat16 scores come out of an autocast layer; the loss is computed in float32."""
    cost = LineCost(5, p=2) / 2
    layer = torch.nn.Linear(3, 5)
    x, y = torch.randn(4, 3), torch.tensor([0, 1, 2, 4])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = layer(x)
        loss = geometric_logistic_loss(scores, y, cost)
        alpha = geometric_softmax(scores, cost)
    assert scores.dtype == torch.bfloat16
    exact = geometric_logistic_loss(scores.float(), y, cost)
    assert loss.dtype == torch.float32  # as torch's own losses
    torch.testing.assert_close(loss, exact)
    assert alpha.dtype == torch.bfloat16
    torch.testing.assert_close(alpha.float().sum(-1), torch.ones(4), atol=2**-7, rtol=0)
    loss.backward()
    assert bool(torch.isfinite(layer.weight.grad).all())


@pytest.mark.parametrize("symmetric", [False, True])
def test_a_divergence_under_autocast_survives_a_gradient_scaler(symmetric):
    """The distributions of half scores are in half precision; their divergence is a loss."""
    scores = torch.tensor([[9.0, 0.0, 0.0], [0.0, 1.0, 2.0]], dtype=torch.float16)
    beta, cost = torch.tensor([[0.0, 0.0, 1.0], [0.2, 0.3, 0.5]], dtype=torch.float16), LineCost(3)
    with torch.autocast("cpu", dtype=torch.float16):
        alpha = geometric_softmax(scores, cost)
        value = hausdorff_divergence(alpha, beta, cost, symmetric=symmetric)
        reduced = nn.HausdorffDivergence(cost, symmetric=symmetric)(alpha, beta)
    assert alpha.dtype == torch.float16
    assert value.dtype == reduced.dtype == torch.float32
    assert bool(torch.isfinite(value * 65536).all())
    assert float(value.max()) > 1
    exact = hausdorff_divergence(alpha, beta, cost, symmetric=symmetric)
    assert exact.dtype == torch.float16  # as ever, where autocast is off
    torch.testing.assert_close(value, exact.float(), rtol=1e-3, atol=1e-3)


def saved_bytes(function):
    sizes = []

    def pack(tensor):
        sizes.append(tensor.numel() * tensor.element_size())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        function().sum()
    return len(sizes), sum(sizes)


@pytest.mark.filterwarnings("ignore::geosoftmax.ConvergenceWarning")
@pytest.mark.parametrize("key", ["softmax", "logsumexp", "loss"])
def test_memory_is_constant_in_the_iterations(key):
    cost = COSTS["large grid"]
    f = torch.randn(3, 12, 11, dtype=F64, requires_grad=True)
    y = torch.tensor([0, 40, 80])

    def call(max_iter, tol):
        options = {"max_iter": max_iter, "tol": tol, "method": "accelerated"}
        if key == "loss":
            return geometric_logistic_loss(f, y, cost, **options)
        return {"softmax": geometric_softmax, "logsumexp": geometric_logsumexp}[key](
            f, cost, **options
        )

    few_steps = saved_bytes(lambda: call(1, 1e-3))
    assert few_steps == saved_bytes(lambda: call(2000, 1e-9))
    assert few_steps[1] < 20 * f.numel() * f.element_size()


@functions
@each
def test_same_input_same_bits(name, function):
    cost = COSTS[name]
    inputs = draw(cost)
    results = []
    for _ in range(2):
        arguments = [x.clone().requires_grad_() for x in inputs]
        out = function(*arguments, cost)
        slopes = torch.autograd.grad(out.sum(), arguments, allow_unused=True)
        results.append((out, *(s for s in slopes if s is not None)))
    assert all(torch.equal(x, y) for x, y in zip(*results, strict=True))


def test_inputs_are_not_changed():
    cost = COSTS["grid"]
    inputs = draw(cost)
    before = [x.clone() for x in inputs]
    for function in FUNCTIONS.values():
        function(*inputs, cost)
    assert all(torch.equal(x, y) for x, y in zip(inputs, before, strict=True))


# ------------------------------------------------------------------ losses that a kernel has done


@pytest.mark.parametrize("share", [None, 0.25])
@pytest.mark.parametrize("layer", ["geometric", "potential"])
def test_a_loss_with_its_slope_has_all_derivatives(layer, share):
    """What a fused kernel found is put in by hand: the rule is the same on every device."""
    cost = GridCost((3, 4)) / 2
    f = randn(4, 3, 4, seed=1).requires_grad_()
    target = torch.softmax(randn(4, 12, seed=2), 1).reshape(f.shape)
    way, weight = randn(4, 3, 4, seed=3), randn(4, seed=4)
    plain = {"geometric": geometric_logistic_loss, "potential": potential_logistic_loss}[layer]
    expected = plain(f, target, cost, reduction="none")
    (slope,) = torch.autograd.grad(expected.sum(), f, retain_graph=True)
    part = 1.0 if share is None else share
    given = (f, target, part * expected.detach(), part * slope, cost, share)
    if layer == "geometric":
        found = autograd.fused_loss(*given, Options("loss", 1e-12, 1000, "active_set"))
    else:
        found = autograd.potential_loss(*given)
    values = [(weight * expected).sum(), (weight * found).sum()]
    if share is not None:
        values = [share * expected.sum(), found]
    first = [torch.autograd.grad(value, f, create_graph=True)[0] for value in values]
    second = [torch.autograd.grad((way * slope).sum(), f, retain_graph=True)[0] for slope in first]
    for theirs, ours in (values, first, second):
        torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-9)
    target.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(found.sum(), f)
