"""
Heat maps with several peaks and noise
======================================

Soft-argmax makes one point of two peaks; the geometric softmax marks both. With noise on each pixel
the cost matters. With p = 2 the kernel is a Gaussian, and undoing it amplifies noise: at a small
scale mass scatters around the peaks. A larger scale helps, and so does p = 1, which leaves the most
mass near the peaks.
"""

import matplotlib.pyplot as plt
import torch

from geosoftmax import GridCost, geometric_softmax, sinkhorn_potential

side = 24
rows, columns = torch.meshgrid(torch.arange(float(side)), torch.arange(float(side)), indexing="ij")
target = torch.zeros(side, side)
target[6, 7], target[16, 15] = 0.6, 0.4
noise = torch.randn(side, side, generator=torch.Generator().manual_seed(0))

# %%
# The scores are the distance field of two points, for each cost its own. The noise is 1 % of the
# range of the field, so a larger scale raises both.
costs = {
    "p = 2, scale 1/8": GridCost((side, side), p=2) / 8,
    "p = 2, scale 1": GridCost((side, side), p=2),
    "p = 1, scale 1": GridCost((side, side), p=1),
}
figure, axes = plt.subplots(2, 3, figsize=(8.6, 5.9), layout="constrained")
for column, (title, cost) in zip(axes.T, costs.items(), strict=True):
    field = sinkhorn_potential(target, cost)
    scores = field + 0.01 * (field.max() - field.min()) * noise
    alpha = geometric_softmax(scores, cost)
    soft = torch.softmax(scores.flatten(), 0).reshape(side, side)
    near = ((rows - 6).abs() + (columns - 7).abs() <= 2) | (
        (rows - 16).abs() + (columns - 15).abs() <= 2
    )
    column[0].imshow(scores.numpy(), cmap="cividis")
    column[0].set_title(title)
    column[1].imshow(alpha.sqrt().numpy(), cmap="gray_r")
    column[1].plot((soft * columns).sum(), (soft * rows).sum(), "x", color="#d55e00", ms=10)
    column[1].set_xlabel(
        f"{int((alpha > 1e-3).sum())} pixels above 0.001;\n{float(alpha[near].sum()):.0%} "
        "within 2 pixels of a peak"
    )
    for axis in column:
        axis.set_xticks([])
        axis.set_yticks([])
axes[0, 0].set_ylabel("scores")
axes[1, 0].set_ylabel("geometric softmax; × soft-argmax")
plt.show()
