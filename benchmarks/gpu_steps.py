"""Training steps on a GPU: what does the loss add to those of VAEs and of a ResNet-50?"""

from __future__ import annotations

import functools
import itertools
import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.gpu import GAP, TREES, dense_cost, need_cuda, wall_time
from benchmarks.grid import load_drawings
from benchmarks.harness import Bench
from benchmarks.report import Report, Section, Target
from geosoftmax import Cost, GridCost, geometric_logistic_loss, smooth_scores

#: Turns that the ways to train take, and what networks end in.
ROUNDS = 9
LAYERS = ("softmax", "geometric", "smoothed")


def run(bench: Bench) -> Report:
    need_cuda()
    report = Report("Training steps on a GPU")
    rows, seconds = [], {}
    for name, limit, layers, build in (
        ("MLP VAE 28×28, batch 512", 1.10, LAYERS, _mlp_vae),
        ("DCGAN VAE 64×64, batch 128", 1.05, LAYERS, _dcgan_vae),
        ("ResNet-50 224×224, batch 256, dense cost of 1,000 classes", 1.05, LAYERS[:2],
         _resnet_dense),
        *((f"ResNet-50 224×224, batch 256, {tree}", 1.10 if "100,000" in tree else 1.05,
           LAYERS[:2], functools.partial(_resnet_tree, tree)) for tree in TREES),
    ):  # fmt: skip
        layers = [layer for layer in layers if layer != "softmax" or not bench.own]
        eager = {layer: build(layer) for layer in layers}
        ways = {"eager": eager}
        if "VAE" in name:
            ways["captured"] = {layer: captured(step) for layer, step in eager.items()}
        for way, steps in ways.items():
            times = {layer: [] for layer in layers}
            for _ in range(ROUNDS):  # interleaved
                for layer, step in steps.items():
                    times[layer].append(wall_time(step))
            took = {layer: statistics.median(found) for layer, found in times.items()}
            row: dict[str, Any] = {"": f"{name}, {way}"}
            row |= {f"{layer}, ms": took.get(layer) for layer in LAYERS}
            seconds |= {f"{name}, {way}: {layer}": ms / 1e3 for layer, ms in took.items()}
            if not bench.own and (name.startswith("MLP"), way) == (True, "eager"):
                added = took["geometric"] - took["softmax"]
                target = "GPU, what the loss adds to an eager MLP VAE step"
                report.targets.append(Target(target, added, 0.11, unit="ms"))
            if not bench.own:
                ratios = {layer: took[layer] / took["softmax"] for layer in layers}
                row |= {f"{layer} ÷ softmax": ratios.get(layer) for layer in LAYERS[1:]}
                report.targets.append(
                    Target(f"GPU, {name}, {way}", ratios["geometric"], limit, unit="×")
                )
            rows.append(row)
        del eager, ways
        torch.cuda.empty_cache()
    note = (
        f"Gap {GAP:g}. Smoothed: scores go through `smooth_scores` first. "
        "Networks go on learning their batch while they are timed."
    )
    report.add(bench, Section("Training steps: geometric ÷ softmax", rows, note, seconds))
    return report


def _mlp_vae(layer: str) -> Callable[[], None]:
    torch.manual_seed(0)
    drawings = load_drawings(28, 512)[0].float().cuda()
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(784, 400), nn.ReLU(), nn.Linear(400, 200))
    decoder = nn.Sequential(nn.Linear(100, 400), nn.ReLU(), nn.Linear(400, 784))
    return _vae_step(encoder, decoder, drawings, layer)


def _dcgan_vae(layer: str) -> Callable[[], None]:
    torch.manual_seed(0)
    drawings = load_drawings(64, 128)[0].float().cuda()
    widths = (64, 128, 256, 512)
    down: list[nn.Module] = [nn.Unflatten(1, (1, 64))]
    for a, b in itertools.pairwise((1, *widths)):
        down += [nn.Conv2d(a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b), nn.LeakyReLU(0.2)]
    down += [nn.Conv2d(512, 512, 4, 1, 0), nn.Flatten()]
    up: list[nn.Module] = [nn.Unflatten(1, (256, 1, 1)), nn.ConvTranspose2d(256, 512, 4, 1, 0)]
    for a, b in itertools.pairwise(widths[::-1]):
        up += [nn.BatchNorm2d(a), nn.ReLU(), nn.ConvTranspose2d(a, b, 4, 2, 1, bias=False)]
    up += [nn.BatchNorm2d(64), nn.ReLU(), nn.ConvTranspose2d(64, 1, 4, 2, 1)]
    return _vae_step(nn.Sequential(*down), nn.Sequential(*up), drawings, layer)


def _vae_step(
    encoder: nn.Module, decoder: nn.Module, drawings: Tensor, layer: str
) -> Callable[[], None]:
    shape = tuple(drawings.shape[1:])
    cost = (GridCost(shape, p=2) / 2).to("cuda")
    model = nn.ModuleList([encoder, decoder]).cuda()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, capturable=True, fused=True)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        mean, log_variance = encoder(drawings).chunk(2, -1)
        code = mean + torch.exp(log_variance / 2) * torch.randn_like(mean)
        scores = decoder(code).reshape(drawings.shape)
        if layer == "smoothed":
            scores = smooth_scores(scores, cost)
        if layer != "softmax":
            loss = geometric_logistic_loss(scores, drawings, cost, tol=GAP)
        else:
            log_probabilities = F.log_softmax(scores.flatten(1), 1)
            loss = F.kl_div(log_probabilities, drawings.flatten(1), reduction="batchmean")
        rate = -(1 + log_variance - mean.square() - log_variance.exp()).sum(-1).mean() / 2
        (loss * drawings[0].numel() + rate).backward()
        optimizer.step()

    return step


def _resnet_dense(layer: str) -> Callable[[], None]:
    return _resnet_step(dense_cost(), layer)


def _resnet_tree(tree: str, layer: str) -> Callable[[], None]:
    return _resnet_step(TREES[tree](), layer)


def _resnet_step(cost: Cost, layer: str) -> Callable[[], None]:
    cost = cost.to("cuda")
    model = _resnet50(cost.size).cuda().to(memory_format=torch.channels_last)  # pyright: ignore
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    images = torch.randn(256, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.arange(256, device="cuda")

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            scores = model(images).float()
            if layer == "geometric":
                loss = geometric_logistic_loss(scores, labels, cost, tol=GAP)
            else:
                loss = F.cross_entropy(scores, labels)
        loss.backward()
        optimizer.step()

    return step


class _Bottleneck(nn.Module):
    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        out = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width),
            nn.ReLU(True), nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out),
        )  # fmt: skip
        self.side = nn.Sequential()
        if stride != 1 or inside != out:
            self.side = nn.Sequential(
                nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out)
            )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.side(x))


def _resnet50(classes: int) -> nn.Module:
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(True),
        nn.MaxPool2d(3, 2, 1),
    ]  # fmt: skip
    inside = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for k in range(blocks):
            layers.append(_Bottleneck(inside, width, stride if k == 0 else 1))
            inside = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, classes))


def captured(step: Callable[[], None]) -> Callable[[], None]:
    """Return the step as it is replayed from a CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay
