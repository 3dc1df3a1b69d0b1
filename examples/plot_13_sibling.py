"""
Without a solver
================

``potential_softmax`` needs two products and no iterations, and reaches every distribution but those
with exact zeros. A network gets a radius and learns to draw the ring, with either layer.
"""

import matplotlib.pyplot as plt
import torch

from geosoftmax import GridCost
from geosoftmax.nn import (
    GeometricLogisticLoss,
    GeometricSoftmax,
    PotentialLogisticLoss,
    PotentialSoftmax,
)

side = 16
grid = torch.arange(side) - (side - 1) / 2
distance = (grid[:, None] ** 2 + grid[None, :] ** 2).sqrt()


def ring(radius):
    ink = torch.clamp(1 - (distance - radius[:, None, None]).abs(), min=0)
    return ink / ink.sum((-1, -2), keepdim=True)


cost = GridCost((side, side), p=2) / 2
radii = torch.linspace(2, 7, 40)
shown = torch.tensor([2.6, 4.3, 6.4])
layers = {
    "geometric": (GeometricLogisticLoss(cost, tol=1e-3), GeometricSoftmax(cost)),
    "potential sibling": (PotentialLogisticLoss(cost), PotentialSoftmax(cost)),
}
figure, axes = plt.subplots(3, 3, figsize=(6, 6), layout="constrained")
for axis, truth in zip(axes[0], ring(shown), strict=True):
    axis.imshow(truth.numpy(), cmap="gray_r")
axes[0, 0].set_ylabel("truth")
for line, (name, (loss, link)) in zip(axes[1:], layers.items(), strict=True):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(1, 64), torch.nn.Tanh(), torch.nn.Linear(64, side * side)
    )
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(150):
        optimiser.zero_grad()
        value = loss(model(radii[:, None] - 4.5).reshape(-1, side, side), ring(radii))
        value.backward()
        optimiser.step()
    print(f"{name}: loss {value.item():.4f}")
    with torch.no_grad():
        drawn = link(model(shown[:, None] - 4.5).reshape(-1, side, side))
    for axis, picture in zip(line, drawn, strict=True):
        axis.imshow(picture.numpy(), cmap="gray_r")
    line[0].set_ylabel(name)
for axis in axes.flat:
    axis.set_xticks([])
    axis.set_yticks([])
plt.show()
