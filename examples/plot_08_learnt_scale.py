"""
The scale of a cost, learnt
===========================

With distributions as targets, a module with ``learn_scale=True`` finds the scale that they were
made with.
"""

import matplotlib.pyplot as plt
import torch

from geosoftmax import LineCost, geometric_softmax
from geosoftmax.nn import GeometricLogisticLoss

torch.manual_seed(0)
scores = 2 * torch.randn(200, 7, dtype=torch.float64)

figure, axis = plt.subplots(figsize=(6.6, 3.2), layout="constrained")
for truth, colour in ((0.5, "#0072b2"), (2.0, "#009e73"), (5.0, "#d55e00")):
    targets = geometric_softmax(scores, LineCost(7) * truth)
    loss = GeometricLogisticLoss(LineCost(7), learn_scale=True)
    optimiser = torch.optim.Adam(loss.parameters(), lr=0.1)
    path = []
    for _ in range(80):
        path.append(loss.log_scale.exp().item())
        optimiser.zero_grad()
        loss(scores, targets).backward()
        optimiser.step()
    axis.plot(path, color=colour, label=f"made with {truth:g}")
    axis.axhline(truth, color=colour, ls=":", lw=1)
axis.set(xlabel="step", ylabel="learnt scale", yscale="log")
axis.set_yticks([0.5, 1, 2, 5], ["0.5", "1", "2", "5"])
axis.set_yticks([], minor=True)
figure.legend(loc="outside right upper", frameon=False)  # beside the curves
plt.show()
