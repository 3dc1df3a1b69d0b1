"""
An uneven scale
===============

Classes with positions: the number of children, ages, prices. Classes that are close act together;
one that is far keeps to itself.
"""

import matplotlib.pyplot as plt
import torch

from geosoftmax import LineCost, sinkhorn_potential

positions = torch.tensor([0.0, 1.0, 2.0, 3.0, 10.0])
certain = torch.eye(5, dtype=torch.float64)
figure, axes = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
for axis, cost, title in (
    (axes[0], LineCost(5), "evenly spaced"),
    (axes[1], LineCost(positions), "at 0, 1, 2, 3, 10"),
):
    # The field of a certain class is minus its cost to the others.
    fields = sinkhorn_potential(certain, cost)
    for k, colour in zip((1, 4), ("#0072b2", "#d55e00"), strict=True):
        axis.plot(
            cost.positions.numpy(),
            fields[k].numpy(),
            "o-",
            color=colour,
            label=f"certain of class {k + 1}",
        )
    axis.set_title(title)
    axis.set_xlabel("position")
axes[0].set_ylabel("distance field")
axes[0].legend()
plt.show()
