"""Heat maps: what does a default prediction of a trained network take, and is it exact?"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

from benchmarks.harness import Bench, Rival
from benchmarks.report import Report, Section, Target
from geosoftmax import (
    ConvergenceWarning,
    GridCost,
    geometric_logistic_loss,
    geometric_softmax,
    smooth_scores,
    solve,
)

SIDE = 32
#: Steps of training, and maps in each.
STEPS, BATCH = 400, 16
#: The costs, by the name that the tables give them.
COSTS = {
    "p = 2, scale 1/4": GridCost((SIDE, SIDE), p=2) / 4,
    "p = 1, scale 1/4": GridCost((SIDE, SIDE), p=1) / 4,
    "p = 1, scale 1": GridCost((SIDE, SIDE), p=1),
}
#: What is asked of a default prediction: ms a map on one thread, and total variation to the exact.
MILLISECONDS, TOTAL_VARIATION = 1.0, 1e-3


def run(bench: Bench) -> Report:
    report = Report("Heat maps of a trained network")
    rows, steps = (8, 20) if bench.quick else (256, STEPS)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for name, cost in COSTS.items():
            bench.say(f"  {name}: training")
            scores = trained_scores(cost, rows, steps)
            found = _measure(bench, cost, scores)
            note = (
                f"{SIDE}×{SIDE}, a batch of {rows} held-out maps, float32 scores, one thread. Total"
                " variation is to the solution in float64 to a gap of 1e-12."
            )
            report.add(bench, Section(name, found, note))
            ours = found[0]
            where = f"heat maps, {name}"
            report.targets += [
                Target(f"{where}: default prediction", ours["ms/map"], MILLISECONDS, unit="ms/map"),
                Target(f"{where}: worst total variation", ours["worst TV"], TOTAL_VARIATION),
                Target(f"{where}: rows that warn", ours["rows that warn"], 0),
            ]
    finally:
        torch.set_num_threads(threads)
    return report


def _measure(bench: Bench, cost: GridCost, scores: Tensor) -> list[dict[str, object]]:
    count = len(scores)
    rivals = [
        Rival("geometric_softmax", lambda: geometric_softmax(scores, cost), count, compiles=True),
        Rival("softmax", lambda: scores.flatten(1).softmax(1), count),
    ]
    ours, softmax = bench.measure(rivals)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        solution, exact = solve(scores, cost), solve(scores.double(), cost, tol=1e-12)
    moved = (solution.alpha.double() - exact.alpha).flatten(1).abs().sum(1) / 2
    first: dict[str, object] = {
        "": ours.name,
        "ms/map": ours.per_sample * 1e3,
        "fastest": ours.fastest / count * 1e3,
        "worst gap": float(solution.gap.max()),
        "worst TV": float(moved.max()),
        "mean TV": float(moved.mean()),
        "rows that warn": int((~solution.converged).sum()),
        "support": float((exact.u > 0).flatten(1).sum(1).double().mean()),
        "gap of the exact": float(exact.gap.max()),
    }
    second = dict.fromkeys(first) | {
        "": softmax.name,
        "ms/map": softmax.per_sample * 1e3,
        "fastest": softmax.fastest / count * 1e3,
    }
    return [first, second]


# ------------------------------------------------------------------ the network


def trained_scores(cost: GridCost, rows: int, steps: int = STEPS, seed: int = 0) -> Tensor:
    """Train a small convolutional network, and return its smoothed scores on held-out maps."""
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(),
        nn.Conv2d(16, 16, 5, padding=2), nn.ReLU(),
        nn.Conv2d(16, 16, 5, padding=2), nn.ReLU(),
        nn.Conv2d(16, 1, 5, padding=2),
    )  # fmt: skip
    optimiser = torch.optim.Adam(net.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1e-2, total_steps=steps)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        images, target = draw(BATCH, generator)
        scores = smooth_scores(net(images)[:, 0], cost)
        loss = geometric_logistic_loss(scores, target, cost)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    with torch.no_grad():
        images, _ = draw(rows, torch.Generator().manual_seed(seed + 1))
        return smooth_scores(net(images)[:, 0], cost)


def draw(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Noisy images of one to three dots or strokes, and the distributions of their ink."""
    axis = torch.arange(SIDE, dtype=torch.float32)
    at = torch.linspace(0, 1, 24)
    ends = 4 + (SIDE - 9) * torch.rand(count, 3, 2, 2, generator=generator)
    stroke = torch.rand(count, 3, generator=generator) < 0.5
    shown = torch.arange(3) < torch.randint(1, 4, (count, 1), generator=generator)
    ends[:, :, 1] = torch.where(stroke[..., None], ends[:, :, 1], ends[:, :, 0])
    points = ends[:, :, 0, None] + (ends[:, :, 1] - ends[:, :, 0])[:, :, None] * at[:, None]
    near = torch.exp(-2 * (points[..., None, :] - axis[:, None]).square())  # …, point, pixel, axis
    ink = torch.einsum("nsti,nstj->nsij", near[..., 0], near[..., 1])
    ink = (ink / ink.amax((2, 3), keepdim=True) * shown[..., None, None]).sum(1)
    ink = torch.where(ink < 0.05, 0.0, ink)
    noise = torch.randn(count, 1, SIDE, SIDE, generator=generator)
    return ink[:, None] + 0.3 * noise, ink / ink.sum((1, 2), keepdim=True)
