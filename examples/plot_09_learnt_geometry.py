"""
A geometry, learnt
==================

Twelve classes have hidden places on a circle. Only scores and the distributions that follow from
them are seen. Points in the plane, learnt through the cost, find the circle again.
"""

import math

import matplotlib.pyplot as plt
import torch

from geosoftmax import DenseCost, geometric_softmax
from geosoftmax.nn import GeometricLogisticLoss, LearntPoints

torch.manual_seed(0)
angle = torch.arange(12, dtype=torch.float64) * (2 * math.pi / 12)
hidden = 1.5 * torch.stack([angle.cos(), angle.sin()], -1)
scores = 2 * torch.randn(400, 12, dtype=torch.float64)
targets = geometric_softmax(scores, DenseCost.from_points(hidden, p=1))

start = 0.5 * torch.randn(12, 2, dtype=torch.float64)
places = LearntPoints(start, p=1)
loss = GeometricLogisticLoss(places)
optimiser = torch.optim.Adam(loss.parameters(), lr=0.05)
losses = []
for _ in range(300):
    optimiser.zero_grad()
    value = loss(scores, targets)
    value.backward()
    optimiser.step()
    losses.append(value.item())

figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
learnt = places.points.detach()
for axis, places, title in (
    (axes[0], start, "at the start"),
    (axes[1], learnt, "learnt, up to rotation"),
):
    axis.plot(*torch.cat([places, places[:1]]).T.numpy(), color="0.8")
    axis.scatter(*places.T.numpy(), c=range(12), cmap="twilight", edgecolor="black")
    axis.set_title(title)
    axis.set_aspect("equal")
axes[2].semilogy(losses, color="#0072b2")
axes[2].set(title="mean loss", xlabel="step")
plt.show()
error = (
    DenseCost.from_points(learnt, p=1).matrix() - DenseCost.from_points(hidden, p=1).matrix()
).abs()
print(f"largest error of a cost: {error.max():.3f}")
