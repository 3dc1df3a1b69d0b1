"""
A divergence that sees distance
===============================

Two blobs on a line; one of them moves away. Kullback–Leibler explodes as supports part, total
variation stops seeing anything; the Hausdorff divergence grows with the distance.
"""

import matplotlib.pyplot as plt
import torch

from geosoftmax import LineCost, hausdorff_divergence

x = torch.arange(80, dtype=torch.float64)


def blob(centre):
    density = torch.clamp(1 - ((x - centre) / 6) ** 2, min=0)
    return density / density.sum()


still = blob(20.0)
shifts = torch.arange(0, 50)
moved = torch.stack([blob(20.0 + float(shift)) for shift in shifts])
divergence = hausdorff_divergence(still.expand_as(moved), moved, LineCost(80) / 4)
variation = (moved - still).abs().sum(-1) / 2
kl = torch.where(still > 0, still * (still / moved).log(), 0.0).sum(-1)

figure, axes = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
axes[0].fill_between(x, still, color="#0072b2", alpha=0.6)
for shift in (10, 30):
    axes[0].fill_between(x, moved[shift], color="#d55e00", alpha=0.4)
axes[0].set(xlabel="position", title="one stays, one moves")
axes[1].plot(shifts, divergence, color="#009e73", lw=2, label="Hausdorff")
axes[1].plot(shifts, variation, color="#0072b2", label="total variation")
axes[1].plot(shifts, kl, "o", color="#d55e00", ms=4, label="Kullback–Leibler (then infinite)")
axes[1].set(xlabel="shift", title="divergence")
axes[1].legend()
plt.show()
