"""On a GPU everything gives what it gives on the CPU. Run with ``pytest -m gpu``."""

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
    sinkhorn_potential,
    solve,
)

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
        potential = sinkhorn_potential(t, there)
        divergence = hausdorff_divergence(t, solution.alpha.double().to(dtype), there)
        parts = [alpha, loss, f.grad, potential, divergence, extrapolate(f, there)]
        results.append([p.detach().cpu() for p in parts])
    for here, there in zip(*results, strict=True):
        torch.testing.assert_close(there, here, atol=atol, rtol=atol)


def test_modules_move_with_their_cost():
    loss = nn.GeometricLogisticLoss(LineCost(5, p=2) / 2, learn_scale=True).cuda()
    value = loss(torch.zeros(3, 5, device="cuda"), torch.tensor([0, 1, 4], device="cuda"))
    value.backward()
    assert loss.cost.device.type == "cuda"
    assert loss.log_scale.grad is not None
