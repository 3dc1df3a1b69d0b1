"""
From a hard maximum to softmax
==============================

As the cost grows, the geometric softmax becomes the softmax; as it shrinks, outputs act together.
Seven ordered classes, one vector of scores, four scales of the cost.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

from geosoftmax import LineCost, geometric_softmax

scores = torch.tensor([0.0, 1.0, 1.6, 1.4, 1.5, 0.5, -0.5], dtype=torch.float64)
scales = [0.3, 1.0, 3.0, 30.0]

figure, axes = plt.subplots(1, 5, figsize=(11, 2.4), sharey=True, layout="constrained")
for axis, scale in zip(axes, scales, strict=False):
    axis.bar(
        np.arange(1, 8), geometric_softmax(scores, LineCost(7) * scale).numpy(), color="#009e73"
    )
    axis.set_title(f"cost × {scale:g}")
axes[-1].bar(np.arange(1, 8), torch.softmax(scores, 0).numpy(), color="#0072b2")
axes[-1].set_title("softmax")
axes[0].set_ylabel("probability")
plt.show()
