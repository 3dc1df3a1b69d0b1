"""
Heat maps with several peaks and noise
======================================

Soft-argmax makes one point of two peaks. The geometric softmax keeps them apart; with noise on each
pixel a larger scale of the cost helps, or smoothing.
"""

import matplotlib.pyplot as plt
import torch
from scipy.ndimage import gaussian_filter

from geosoftmax import GridCost, geometric_softmax

side = 24
rows, columns = torch.meshgrid(torch.arange(float(side)), torch.arange(float(side)), indexing="ij")


def field(row, column):
    return -((rows - row) ** 2 + (columns - column) ** 2) / 8


clean = torch.maximum(field(6.0, 7.0), field(16.5, 15.5) - 0.4)
noisy = clean + 0.5 * torch.randn(side, side, generator=torch.Generator().manual_seed(0))
smooth = torch.from_numpy(gaussian_filter(noisy.numpy(), 1.0))

cases = {
    "clean, cost / 8": (clean, 1 / 8),
    "noisy, cost / 8": (noisy, 1 / 8),
    "noisy, cost × 1": (noisy, 1.0),
    "smoothed, cost / 8": (smooth, 1 / 8),
}
figure, axes = plt.subplots(2, 4, figsize=(11, 5.6), layout="constrained")
for column, (title, (scores, scale)) in zip(axes.T, cases.items(), strict=True):
    alpha = geometric_softmax(scores, GridCost((side, side), p=2) * scale)
    soft = torch.softmax(scores.flatten(), 0).reshape(side, side)
    column[0].imshow(scores.numpy(), cmap="cividis")
    column[0].set_title(title)
    column[1].imshow(alpha.sqrt().numpy(), cmap="gray_r")
    column[1].plot((soft * columns).sum(), (soft * rows).sum(), "x", color="#d55e00", ms=10)
    column[1].set_xlabel(f"{int((alpha > 1e-6).sum())} pixels")
    for axis in column:
        axis.set_xticks([])
        axis.set_yticks([])
axes[0, 0].set_ylabel("scores")
axes[1, 0].set_ylabel("geometric softmax; × soft-argmax")
plt.show()
