"""Linear scores ``f = X W + c`` under any differentiable loss, all fitted by one optimiser.

The objective is ``Σ_i ℓ(y_i, f_i) + penalty/2 tr(Wᵀ M W)``, with ``M⁻¹`` a covariance of outputs:
the identity, or `shared_covariance`, under which near leaves of a tree have similar weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from scipy.optimize import minimize

from geosoftmax import TreeCost
from geosoftmax_experiments.taxonomy.features import Sample
from geosoftmax_experiments.taxonomy.losses import Loss

__all__ = ["ROUGHLY", "Linear", "fit_path", "shared_covariance"]

#: Relative decrease of the objective in a step at which fits end; and where settings are chosen.
DECREASE, ROUGHLY = 1e-7, 1e-5
#: Largest entry of the gradient of the mean objective at which they end.
GRADIENT = 1e-5
MOST_STEPS = 500
MEMORY = 20


class Linear:
    """Coefficients of shape (features + 1, outputs), the intercepts last."""

    def __init__(self, coefficients: np.ndarray) -> None:
        self.coefficients = coefficients

    def scores(self, X: np.ndarray) -> torch.Tensor:
        """Return scores of shape (samples, outputs)."""
        return torch.from_numpy(X @ self.coefficients[:-1] + self.coefficients[-1])


def shared_covariance(tree: TreeCost, decay: float) -> np.ndarray:
    """Return ``exp(-decay · distance)`` between leaves: what their weights have in common.

    It is the kernel ``exp(-C/2)`` of the cost ``2 decay · tree``. For a large decay leaves share
    nothing, and the penalty is the usual one.
    """
    return np.exp(-decay * tree.matrix().numpy())


def fit_path(
    loss: Loss,
    sample: Sample,
    penalties: Sequence[float],
    covariance: np.ndarray | None = None,
    decrease: float = DECREASE,
) -> Iterator[tuple[float, Linear]]:
    """Fit for each penalty, from the largest on, each fit from where the last one ended."""
    size = loss.outputs
    root = np.eye(size)
    if covariance is not None:
        values, axes = np.linalg.eigh(covariance)
        root = (axes * np.sqrt(np.maximum(values, 0))) @ axes.T
    V = np.zeros((sample.X.shape[1] + 1, size))
    for penalty in sorted(penalties, reverse=True):
        V = _fit(loss, sample, penalty, root, V, decrease)
        yield penalty, Linear(V @ root)


def _fit(
    loss: Loss,
    sample: Sample,
    penalty: float,
    root: np.ndarray,
    start: np.ndarray,
    decrease: float,
) -> np.ndarray:
    """Minimise over V, where the coefficients are ``V root``, in coordinates of equal curvature."""
    X, target = sample.X, torch.from_numpy(sample.y)
    weight = penalty / len(X)
    scale = np.sqrt(X.var(0) / root.shape[1] + weight)[:, None]

    def objective(point: np.ndarray) -> tuple[float, np.ndarray]:
        V = point.reshape(start.shape).copy()
        V[:-1] /= scale
        shared = V @ root
        scores = torch.from_numpy(X @ shared[:-1] + shared[-1]).requires_grad_()
        value = loss.mean(scores, target)
        (slope,) = torch.autograd.grad(value, scores)
        pulled = slope.numpy() @ root
        gradient = np.empty_like(V)
        gradient[:-1] = (X.T @ pulled + weight * V[:-1]) / scale
        gradient[-1] = pulled.sum(0)
        return value.item() + weight / 2 * float(np.sum(V[:-1] ** 2)), gradient.ravel()

    first = start.copy()
    first[:-1] *= scale
    options = {"maxiter": MOST_STEPS, "gtol": GRADIENT, "ftol": decrease, "maxcor": MEMORY}
    found = minimize(objective, first.ravel(), jac=True, method="L-BFGS-B", options=options)
    V = found.x.reshape(start.shape).copy()
    V[:-1] /= scale
    return V
