"""Linear classifier with the sparsemax loss: the control for sparsity without geometry."""

from __future__ import annotations

import entmax
import numpy as np
import torch
from scipy import optimize

__all__ = ["fit_sparsemax", "sparsemax"]


def sparsemax(scores: np.ndarray) -> np.ndarray:
    """Return the Euclidean projection of each row on the simplex."""
    return entmax.sparsemax(torch.from_numpy(scores), dim=-1).numpy()


def fit_sparsemax(
    X: np.ndarray, y: np.ndarray, classes: int, alpha: float, max_iter: int = 1000
) -> tuple[np.ndarray, np.ndarray]:
    """Minimise ``Σ_i ℓ(y_i, W x_i + b) + alpha/2 ‖W‖²``; return W (classes, features) and b.

    ``ℓ(y, f) = ½ ‖e_y - f‖² - ½ ‖sparsemax(f) - f‖²``, with gradient ``sparsemax(f) - e_y``.
    """
    features = X.shape[1]
    padded = np.hstack([X, np.ones((len(X), 1))])
    onehot = np.eye(classes)[y]

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        W = flat.reshape(features + 1, classes)
        f = padded @ W
        p = sparsemax(f)
        value = 0.5 * (((onehot - f) ** 2).sum() - ((p - f) ** 2).sum())
        ridge = alpha * W[:features]
        slope = padded.T @ (p - onehot)
        slope[:features] += ridge
        return value + 0.5 * (ridge * W[:features]).sum(), slope.ravel()

    start = np.zeros((features + 1) * classes)
    options = {"maxiter": max_iter, "gtol": 1e-4 * len(X), "ftol": 1e-9}
    found = optimize.minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
    W = found.x.reshape(features + 1, classes)
    return W[:features].T, W[features]
