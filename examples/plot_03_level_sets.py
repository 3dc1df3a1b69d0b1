"""
Level sets and extrapolation
============================

The plane of the scores of three classes, up to what is added to all of them. In grey the level sets
of the geometric log-sum-exp; in green the region of full support, the Sinkhorn potentials; arrows
lead from scores ``f`` to their extrapolation ``f^E``. Both have the same geometric softmax.
"""

import matplotlib.pyplot as plt

from geosoftmax import LineCost, ZeroOneCost
from geosoftmax_experiments.figures.levels import draw_plane_of_three

figure, axes = plt.subplots(1, 3, figsize=(10, 3.4), layout="constrained")
draw_plane_of_three(axes[0], LineCost(3) * 2, "ordered classes")
draw_plane_of_three(axes[1], LineCost([0.0, 0.5, 2.0]) * 2, "1 and 2 near, 3 far")
draw_plane_of_three(axes[2], ZeroOneCost(3) * 2, "no geometry")
plt.show()
