"""
A convex loss
=============

Transport after a softmax is not convex in the scores; the geometric logistic loss is. Three ordered
classes, the target is the last one, and the scores move along a straight line.
"""

import matplotlib.pyplot as plt
import torch

from geosoftmax import LineCost, geometric_logistic_loss

t = torch.linspace(-6, 6, 301, dtype=torch.float64)
start = torch.tensor([2.0, 0.0, -1.0], dtype=torch.float64)
direction = torch.tensor([-0.3, -1.0, 1.0], dtype=torch.float64)
scores = start + t[:, None] * direction

target = torch.full((len(t),), 2)
geometric = geometric_logistic_loss(scores, target, LineCost(3), reduction="none")
# The transport cost from the softmax to a single class is the mean distance to it.
transport = torch.softmax(scores, -1) @ torch.tensor([2.0, 1.0, 0.0], dtype=torch.float64)
logistic = torch.nn.functional.cross_entropy(scores, target, reduction="none")

figure, axis = plt.subplots(figsize=(6.5, 3.2), layout="constrained")
axis.plot(t, geometric, color="#009e73", lw=2, label="geometric logistic: convex, knows distances")
axis.plot(t, transport, color="#d55e00", lw=2, label="transport after softmax: not convex")
axis.plot(t, logistic, color="#0072b2", ls="--", label="logistic: convex, knows none")
axis.set(xlabel="position along a line of scores", ylabel="loss", ylim=(-0.2, 8))
axis.legend()
plt.show()
curvature = geometric[2:] - 2 * geometric[1:-1] + geometric[:-2]
print(f"smallest second difference of the geometric loss: {curvature.min():.1e}")
