"""On a GPU everything gives what it gives on the CPU. Run with ``pytest -m gpu``."""

import contextlib
import warnings

import pytest
import torch

from geosoftmax import (
    DenseCost,
    GridCost,
    LineCost,
    TreeCost,
    ZeroOneCost,
    extrapolate,
    geometric_logistic_loss,
    geometric_softmax,
    hausdorff_divergence,
    nn,
    potential_logistic_loss,
    sinkhorn_negentropy,
    sinkhorn_potential,
    solve,
)
from tests.conftest import compiles

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def costs():
    """One cost for each solver, of sizes on both sides of the table's limits."""
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(9, 3, generator=generator, dtype=torch.float64)
    return [
        ZeroOneCost(7),
        LineCost(11),
        LineCost(2000),
        LineCost(9, p=2) / 2,
        LineCost(100, p=1.5),
        DenseCost.from_points(points, p=1),
        DenseCost(torch.stack([LineCost(6).matrix() * k for k in range(1, 9)])),
        GridCost((5, 6)),
        GridCost((28, 28)) / 2,
        GridCost((5, 6, 7), p=1) / 2,
        TreeCost([-1, 0, 0, 1, 1, 2, 2, 6]),
        TreeCost.from_dict({"a": {"b": 1.0, "c": 2.0}, "d": ["x", "y", "z"]}),
    ]


def test_sums_over_groups():
    cost = TreeCost.from_dict({"a": {"b": 1.0, "c": ["x", "y"]}, "d": ["z", "w"]})
    alpha = torch.softmax(torch.randn(3, cost.size), -1)
    found = cost.cuda().group_sums(alpha.cuda())
    assert found.is_cuda
    torch.testing.assert_close(found.cpu(), cost.group_sums(alpha))


@pytest.mark.parametrize("cost", costs(), ids=repr)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_cuda_agrees_with_cpu(cost, dtype):
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(8, *cost.shape, generator=generator, dtype=dtype)
    target = torch.softmax(scores.flatten(1), -1).reshape(scores.shape)
    atol = 1e-6 if dtype == torch.float64 else 2e-4
    results = []
    for device in ("cpu", "cuda"):
        there = cost.to(device)
        f = scores.to(device, copy=True).requires_grad_()
        t = target.to(device)
        solution = solve(f.detach(), there)
        assert solution.converged.all()
        alpha = geometric_softmax(f, there)
        loss = geometric_logistic_loss(f, t, there)
        (alpha.square().sum() + loss).backward()
        solver_free = potential_logistic_loss(f, t, there)
        (slope,) = torch.autograd.grad(solver_free, f)
        potential = sinkhorn_potential(t, there)
        divergence = hausdorff_divergence(t, solution.alpha.double().to(dtype), there)
        parts = [alpha, loss, f.grad, potential, divergence, extrapolate(f, there)]
        parts += [solver_free, slope]
        results.append([p.detach().cpu() for p in parts])
    for here, there in zip(*results, strict=True):
        torch.testing.assert_close(there, here, atol=atol, rtol=atol)


def test_modules_move_with_their_cost():
    loss = nn.GeometricLogisticLoss(LineCost(5, p=2) / 2, learn_scale=True).cuda()
    target = torch.eye(5, device="cuda")[[0, 1, 4]]  # on a GPU, one-hot rows are not read
    value = loss(torch.zeros(3, 5, device="cuda"), target)
    value.backward()
    assert loss.cost.device.type == "cuda"
    assert loss.log_scale.grad is not None


# ------------------------------------------------------------------ no host synchronisation

FUSED = {
    "plane": GridCost((28, 28)) / 2,
    "large plane": GridCost((70, 90)) / 2,
    "small": LineCost(9, p=2) / 2,
    "120 classes": DenseCost(LineCost(120, p=1.5).matrix() / 20),
    "300 classes": DenseCost(LineCost(300, p=1.5).matrix() / 20),
    "600 classes": DenseCost(LineCost(600, p=1.5).matrix() / 20),
    "line": LineCost(300),
    "tree": TreeCost([-1] + [(i - 1) // 4 for i in range(1, 200)], 0.5, outputs="leaves"),
    "zero-one": ZeroOneCost(50),
}
#: Those of which the derivatives of predictions are not waited for either.
REFINED = ("plane", "small", "120 classes", "line", "tree", "zero-one")
PLANES = ("plane", "large plane")


@pytest.fixture(params=FUSED, ids=str)
def fused(request):
    """A cost with fused kernels, scores with gradients, and distributions."""
    cost = FUSED[request.param].to("cuda")
    generator = torch.Generator().manual_seed(2)
    scores, raw = (torch.randn(6, *cost.shape, generator=generator).cuda() for _ in range(2))
    target = torch.softmax(raw.flatten(1), -1).reshape(raw.shape)
    return cost, scores.requires_grad_(), target


@contextlib.contextmanager
def no_synchronisation():
    """Fail where the host waits for the device."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        prototype = "Synchronization debug mode is a prototype feature"
        warnings.filterwarnings("ignore", prototype, UserWarning)
        try:
            torch.cuda.set_sync_debug_mode("error")
            yield
        finally:
            torch.cuda.set_sync_debug_mode(before)


def run_once(cost, scores, target, **options):
    loss = geometric_logistic_loss(scores, target, cost, tol=1e-3, **options)
    return loss, torch.autograd.grad(loss.sum(), scores)[0]


def labelled(cost, scores):
    return torch.arange(6, device="cuda") % cost.size


def test_no_synchronisation(fused, request):
    cost, scores, target = fused
    name = request.node.callspec.params["fused"]
    run_once(cost, scores, target)  # compiles, and factorises the cost once
    geometric_softmax(scores, cost).square().sum().backward()
    potential_logistic_loss(scores, target, cost).backward()
    torch.cuda.synchronize()
    with no_synchronisation():
        run_once(cost, scores, target)
        run_once(cost, scores, labelled(cost, scores))
        solve(scores.detach(), cost, tol=1e-3)
        geometric_softmax(scores.detach(), cost, tol=1e-4)
        geometric_softmax(scores.detach(), cost)
        if name == "plane":
            potential_logistic_loss(scores, target, cost).backward()
        if name in PLANES:
            sinkhorn_potential(target, cost)
            sinkhorn_negentropy(target.requires_grad_(), cost).sum().backward()
        if name in REFINED:
            geometric_softmax(scores, cost).square().sum().backward()


@compiles
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning")  # Inductor's advice
def test_modules_do_not_synchronise(fused):
    """They keep what is derived from their cost, also where a compiled graph calls them."""
    torch.compiler.reset()  # torch compiles one function at most eight times
    cost, scores, target = fused
    smooth, loss = nn.SmoothScores(cost), nn.GeometricLogisticLoss(cost, tol=1e-3)

    def step(scores, target):
        return loss(smooth(scores), target)

    steps = (step, torch.compile(step, fullgraph=True))
    for call in steps * 2:
        call(scores, target).backward()
    torch.cuda.synchronize()
    with no_synchronisation():
        for call in steps:
            call(scores, target).backward()


# Torch warns of the side stream, on which the test warms up.
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream:UserWarning")
def test_cuda_graphs_replay_it(fused):
    cost, scores, _ = fused
    target = labelled(cost, scores)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run_once(cost, scores, target)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss, slope = run_once(cost, scores, target)
    with torch.no_grad():
        scores.add_(torch.randn_like(scores))
    graph.replay()
    again, slope_again = run_once(cost, scores, target)
    torch.testing.assert_close(loss, again)
    torch.testing.assert_close(slope, slope_again)


def test_fused_losses_agree_with_the_cpu(fused):
    cost, scores, target = fused
    there, slope_there = run_once(cost, scores, target, reduction="none")
    here = scores.detach().cpu().double().requires_grad_()
    expected, slope = run_once(cost.to("cpu"), here, target.cpu().double(), reduction="none")
    torch.testing.assert_close(there.cpu().double(), expected, atol=2e-3, rtol=1e-3)
    # a gap of 1e-3 bounds the energy of the error, not the error itself
    assert (slope_there.cpu().double() - slope).flatten(1).abs().sum(1).max() <= 0.3


@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("layer", ["geometric", "potential"])
def test_second_derivatives_of_fused_losses(layer, reduction):
    cost = (GridCost((6, 7)) / 2).to("cuda")
    f = torch.randn(3, 6, 7, device="cuda", requires_grad=True)
    target = torch.softmax(torch.randn(3, 42, device="cuda"), -1).reshape(3, 6, 7)
    weight = torch.randn_like(f)

    def hessian_product(scores, distribution, there, **options):
        loss = {"geometric": geometric_logistic_loss, "potential": potential_logistic_loss}[layer]
        value = loss(scores, distribution, there, reduction=reduction, **options).sum()
        slope = torch.autograd.grad(value, scores, create_graph=True)[0]
        return torch.autograd.grad((slope * weight.to(slope)).sum(), scores)[0]

    options = {"tol": 1e-4} if layer == "geometric" else {}
    fused = hessian_product(f, target, cost, **options)
    here = f.detach().cpu().double().requires_grad_()
    exact = hessian_product(here, target.cpu().double(), cost.to("cpu"))
    torch.testing.assert_close(fused.cpu().double(), exact, atol=5e-2, rtol=5e-2)


def test_values_and_potentials_of_planes():
    """In float32 they come from one launch each; so does the gradient, and not the one after it."""
    cost = GridCost((9, 14), p=2) / 2
    alpha = torch.rand(4, 9, 14, dtype=torch.float64) ** 4
    alpha[1, :, 2:] = 0
    alpha /= alpha.sum((1, 2), keepdim=True)
    results = []
    for device, dtype in (("cpu", torch.float64), ("cuda", torch.float32)):
        there, a = cost.to(device), alpha.to(device, dtype).requires_grad_()
        value = sinkhorn_negentropy(a, there)
        (slope,) = torch.autograd.grad(value.sum(), a, create_graph=True)
        (curvature,) = torch.autograd.grad((slope * a.detach()).sum(), a)
        parts = value, slope, curvature, sinkhorn_potential(a.detach(), there)
        results.append([p.detach().cpu().double() for p in parts])
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


LARGE = {
    "tree": TreeCost([-1] + [(i - 1) // 40 for i in range(1, 20_000)], 0.5),
    "three dimensions": GridCost((16, 16, 16)) / 2,
}


@pytest.mark.parametrize("name", LARGE)
def test_class_indices_of_large_costs_are_not_waited_for(name):
    cost = LARGE[name]
    scores = 2 * torch.randn(5, *cost.shape, generator=torch.Generator().manual_seed(4))
    target = torch.arange(5) * 800
    there, f = cost.to("cuda"), scores.cuda().requires_grad_()
    run_once(there, f, target.cuda())  # compiles
    on_device = target.cuda()
    torch.cuda.synchronize()
    with no_synchronisation():
        loss, slope = run_once(there, f, on_device)
    here = scores.double().requires_grad_()
    expected, expected_slope = run_once(cost, here, target)
    exact = name == "tree"
    torch.testing.assert_close(
        loss.cpu().double(), expected, atol=1e-5 if exact else 1e-3, rtol=1e-5
    )
    wrong = (slope.cpu().double() - expected_slope).flatten(1).abs().sum(1)
    assert wrong.max() <= (1e-5 if exact else 0.1)


def test_classes_that_do_not_exist_show_as_nan():
    scores = torch.zeros(3, 7, device="cuda", requires_grad=True)
    target = torch.tensor([1, 7, -100], device="cuda")
    loss = geometric_logistic_loss(scores, target, LineCost(7).to("cuda"), reduction="none")
    assert loss.isnan().tolist() == [False, True, False]
    assert loss[2] == 0
    nothing = torch.full_like(target, -100)
    assert geometric_logistic_loss(scores, nothing, LineCost(7).to("cuda")).isnan()  # as in torch


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_and_autocast(dtype):
    cost = FUSED["plane"].to("cuda")
    scores = torch.randn(4, 28, 28, device="cuda", dtype=dtype, requires_grad=True)
    target = torch.softmax(torch.randn(4, 784, device="cuda"), -1).reshape(4, 28, 28)
    with torch.autocast("cuda", dtype):
        loss = geometric_logistic_loss(scores, target, cost, tol=1e-3)
    loss.backward()
    plain = geometric_logistic_loss(scores.detach().float(), target, cost, tol=1e-3)
    assert loss.dtype == torch.float32  # as torch's own losses
    assert scores.grad.dtype == dtype
    torch.testing.assert_close(loss, plain, atol=2e-2, rtol=2e-2)


@compiles
def test_compiled_without_a_break():
    cost = FUSED["plane"].to("cuda")
    scores = torch.randn(4, 28, 28, device="cuda", requires_grad=True)
    target = torch.softmax(torch.randn(4, 784, device="cuda"), -1).reshape(4, 28, 28)
    compiled = torch.compile(run_once_loss, fullgraph=True)
    loss = compiled(scores, target, cost)
    loss.backward()
    eager = run_once_loss(scores.detach(), target, cost)
    torch.testing.assert_close(loss.detach(), eager, atol=1e-4, rtol=1e-4)


def run_once_loss(scores, target, cost):
    return geometric_logistic_loss(scores, target, cost, tol=1e-3)


@pytest.mark.parametrize("cost", [c for c in costs() if not c.batch_shape], ids=repr)
def test_outputs_in_the_first_axes(cost):
    """``dim`` is moving the axes by hand: kernels read rows that are not contiguous."""
    n = len(cost.shape)
    cost, first, last = cost.to("cuda"), tuple(range(n)), tuple(range(-n, 0))
    f = torch.randn(*cost.shape, 4, 2, device="cuda", requires_grad=True)
    moved = f.detach().movedim(first, last).contiguous().requires_grad_()
    y = torch.randint(cost.size, (4, 2), device="cuda")
    t = torch.softmax(moved.detach().flatten(2), -1).reshape(moved.shape)
    t_first = t.movedim(last, first)
    alpha, by_hand = geometric_softmax(f, cost, dim=first), geometric_softmax(moved, cost)
    torch.testing.assert_close(alpha.movedim(first, last), by_hand)
    loss = geometric_logistic_loss(f, y, cost, dim=first)
    loss = loss + geometric_logistic_loss(f, t_first, cost, dim=first)
    expected = geometric_logistic_loss(moved, y, cost, dim=last)
    expected = expected + geometric_logistic_loss(moved, t, cost)
    torch.testing.assert_close(loss, expected)
    (loss + alpha.square().sum()).backward()
    (expected + by_hand.square().sum()).backward()
    torch.testing.assert_close(f.grad.movedim(first, last), moved.grad, atol=1e-4, rtol=1e-4)
    field = sinkhorn_potential(t_first, cost, dim=first).movedim(first, last)
    torch.testing.assert_close(field, sinkhorn_potential(t, cost))


def test_another_stream_and_strided_scores():
    cost = FUSED["plane"].to("cuda")
    wide = torch.randn(4, 28, 56, device="cuda")
    expected = geometric_softmax(wide[..., ::2].contiguous(), cost, tol=1e-3)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        found = geometric_softmax(wide[..., ::2], cost, tol=1e-3)
    side.synchronize()
    assert torch.equal(found, expected)


def test_predictions_are_right_on_exact_potentials():
    torch.manual_seed(3)
    cost = (GridCost((28, 28)) / 2).to("cuda")
    ink = (torch.rand(4, 28, 28, device="cuda", dtype=torch.float64) < 0.3).double()
    alpha = ink / ink.sum((1, 2), keepdim=True)
    scores = sinkhorn_potential(alpha, cost).float()
    found = geometric_softmax(scores, cost).double()
    exact = geometric_softmax(scores.double().cpu(), cost.to("cpu"))
    assert (found.cpu() - exact).abs().sum((1, 2)).max() / 2 <= 1e-3


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("size", [513, 600, 1024])
def test_predictions_of_many_outputs_are_right_and_not_waited_for(size, p):
    """Whole batches and single rows, which are solved to the same digits, in a CUDA graph too."""
    generator = torch.Generator().manual_seed(size)
    points = torch.randn(size, 3, generator=generator, dtype=torch.float64)
    cost = DenseCost.from_points(points, p=p)
    scores = 3 * torch.randn(70, size, generator=generator)
    there, f = cost.to("cuda"), scores.cuda()
    solve(f, there, tol=1e-6)  # compiles
    torch.cuda.synchronize()
    with no_synchronisation():
        found = solve(f, there, tol=1e-6)
        few = solve(f[64:], there, tol=1e-6)
    assert found.converged.all()
    exact = solve(scores[::10].double(), cost)
    total_variation = (found.alpha[::10].cpu().double() - exact.alpha).abs().sum(1) / 2
    assert total_variation.max() <= 1e-3
    assert (found.lower[::10].cpu() <= exact.upper).all()
    assert (exact.lower <= found.upper[::10].cpu()).all()
    torch.testing.assert_close(few.alpha, found.alpha[64:], atol=1e-4, rtol=1e-3)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        alpha = geometric_softmax(f, there)
    graph.replay()
    assert torch.equal(alpha, found.alpha)
