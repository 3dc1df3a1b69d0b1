"""
The certificate
===============

Any iterate gives a bracket of the exact value. Here the solver is stopped early on purpose; the
bracket is wide, and true.
"""

import warnings

import matplotlib.pyplot as plt
import torch

from geosoftmax import ConvergenceWarning, GridCost, sinkhorn_potential, solve

drawing = torch.zeros(28, 28, dtype=torch.float64)
drawing[6:22, 8] = drawing[6:22, 19] = drawing[13, 8:20] = 1.0
cost = GridCost((28, 28), p=2) / 2
scores = sinkhorn_potential(drawing / drawing.sum(), cost)  # of which the value is exactly 0
scores = scores + 0.05 * torch.randn(28, 28, generator=torch.Generator().manual_seed(0))

exact = solve(scores, cost)
iterations = [1, 2, 5, 10, 20, 30, 40, 60, 80, 120]
brackets = []
with warnings.catch_warnings():
    warnings.simplefilter("ignore", ConvergenceWarning)  # that is the point
    for most in iterations:
        found = solve(scores, cost, tol=1e-4, max_iter=most, method="accelerated")
        brackets.append((float(found.lower), float(found.upper)))
        assert found.lower <= exact.upper
        assert exact.lower <= found.upper

figure, axis = plt.subplots(figsize=(6.5, 3.2), layout="constrained")
lower, upper = zip(*brackets, strict=True)
axis.fill_between(iterations, lower, upper, color="#56b4e9", alpha=0.5, label="certified bracket")
axis.axhline(float(exact.lower), color="black", lw=1, label=f"exact, gap {float(exact.gap):.0e}")
axis.set(xlabel="accelerated gradient steps", ylabel="geometric log-sum-exp", xscale="log")
axis.legend()
plt.show()
