"""
A network that predicts a score function
========================================

Its spikes lie on no grid. For an input ``t`` the answer is a distribution over the interval 0…1:
two spikes that move, cross and change their weights with ``t``. The network maps an input and a
point to a score: for each input it is a function of the points. It is trained with the continuous
geometric logistic loss, whose gradient needs that function at a few points only: its own spikes and
those of the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn

from geosoftmax.continuous import (
    Box,
    Measure,
    PowerCost,
    geometric_logistic_loss,
    geometric_softmax,
    hausdorff_divergence,
)

DOMAIN = Box(0, 1)
COST = PowerCost(p=2, scale=40)
#: Accuracy of a solve while training, and points along the grid from which it seeks spikes.
TRAINING = {"tol": 1e-2, "grid": 49}


class ScoreFunction(nn.Module):
    """``score(t, x)``: an input becomes weights of waves in ``x``."""

    frequencies: Tensor

    def __init__(self, waves: int = 8, width: int = 128) -> None:
        super().__init__()
        self.inside = nn.Sequential(
            nn.Linear(6, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()
        )
        self.sizes = nn.Linear(width, 2 * waves)
        self.register_buffer("frequencies", math.pi * torch.arange(1, waves + 1))
        self.double()

    def forward(self, t: Tensor) -> Callable[[Tensor], Tensor]:
        """Return the score functions of inputs ``(batch,)``."""
        angles = 2 * math.pi * t[:, None] * torch.arange(1, 4)
        sizes = self.sizes(self.inside(torch.cat([angles.sin(), angles.cos()], -1)))

        def score(x: Tensor) -> Tensor:
            phase = x * self.frequencies  # (…, points, waves)
            waves = torch.cat([phase.sin(), phase.cos()], -1)
            return (waves @ (10 * sizes)[..., None])[..., 0]

        return score


def answer(t: Tensor) -> Measure:
    """The distributions to learn."""
    angle = 2 * math.pi * t
    points = 0.5 + 0.35 * torch.stack([angle.sin(), (2 * angle).cos()], -1)
    first = 0.5 + 0.3 * angle.cos()
    return Measure(points[..., None], torch.stack([first, 1 - first], -1))


def train(steps: int = 180, batch: int = 64, seed: int = 0) -> tuple[ScoreFunction, list[float]]:
    """Return the network, and its loss before each step."""
    torch.manual_seed(seed)
    network = ScoreFunction()
    optimizer = torch.optim.Adam(network.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=steps)
    losses = []
    for _ in range(steps):
        t = torch.rand(batch, dtype=torch.float64)
        loss = geometric_logistic_loss(network(t), answer(t), DOMAIN, COST, **TRAINING)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
    return network, losses


def predict(network: ScoreFunction, t: Tensor) -> Measure:
    """Return the spikes of each input."""
    with torch.no_grad():
        return geometric_softmax(network(t), DOMAIN, COST, tol=1e-6)[0]


def show(measure: Measure, row: int) -> str:
    """Write the spikes of a row that weigh something, from left to right."""
    points, weights = measure.points[row, :, 0], measure.weights[row]
    spikes = sorted((float(x), float(w)) for x, w in zip(points, weights, strict=True) if w > 0.05)
    return "  ".join(f"{w:.2f} at {x:.3f}" for x, w in spikes)


def draw(t: Tensor, true: Measure, predicted: Measure) -> None:
    """Draw the spikes of each input; their size is their weight."""
    _, axis = plt.subplots(figsize=(7, 3.5), layout="constrained")
    for measure, style in (
        (true, {"color": "0.75", "label": "true"}),
        (predicted, {"facecolors": "none", "edgecolors": "C0", "label": "predicted"}),
    ):
        x = t[:, None].expand(measure.weights.shape)
        axis.scatter(x, measure.points[..., 0], s=120 * measure.weights, **style)
    axis.set(xlabel="input t", ylabel="position")
    axis.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)


def main() -> None:
    """Train, and show what became of it on new inputs."""
    network, losses = train()
    print(f"loss: {losses[0]:.2f} at first, {sum(losses[-10:]) / 10:.3f} at the end")
    t = torch.linspace(0, 0.95, 20, dtype=torch.float64)
    predicted, true = predict(network, t), answer(t)
    divergence = hausdorff_divergence(true, predicted, COST)
    print(f"Hausdorff divergence on new inputs: {float(divergence.mean()):.3f}")
    for row in range(0, 20, 4):
        print(f"t = {float(t[row]):.2f}   true {show(true, row)}   found {show(predicted, row)}")
    draw(t, true, predicted)
    plt.show()


if __name__ == "__main__":
    main()
