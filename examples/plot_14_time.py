"""
Linear time on a line
=====================

With the absolute value as cost the solution is a concave majorant: one scan, whatever the number of
classes. The certificate says how exact it is.
"""

import time

import matplotlib.pyplot as plt
import torch

from geosoftmax import LineCost, solve

sizes = [100, 1_000, 10_000, 100_000]
seconds, gaps = [], []
for d in sizes:
    cost = LineCost(d) / 10
    scores = torch.randn(8, d, generator=torch.Generator().manual_seed(0)).double().cumsum(-1) / 10
    solve(scores, cost)  # compiled once
    start = time.perf_counter()
    found = solve(scores, cost)
    seconds.append((time.perf_counter() - start) / 8)
    gaps.append(float(found.gap.max()))

figure, axis = plt.subplots(figsize=(5.5, 3.2), layout="constrained")
axis.loglog(sizes, [1e3 * s for s in seconds], "o-", color="#0072b2")
axis.set(xlabel="classes", ylabel="milliseconds a solve", title=f"largest gap {max(gaps):.0e}")
axis.grid(alpha=0.3)
plt.show()
