"""Linear classifier with the sparsemax loss: the control for sparsity without geometry."""

from __future__ import annotations

from typing import Self

import entmax
import numpy as np
import torch
from scipy import optimize
from sklearn.base import BaseEstimator, ClassifierMixin

__all__ = ["SparsemaxClassifier", "sparsemax"]


def sparsemax(scores: np.ndarray) -> np.ndarray:
    """Return the Euclidean projection of each row on the simplex."""
    return entmax.sparsemax(torch.from_numpy(scores), dim=-1).numpy()


class SparsemaxClassifier(ClassifierMixin, BaseEstimator):
    """Minimises ``Σ_i ℓ(y_i, W x_i + b) + alpha/2 ‖W‖²``.

    ``ℓ(y, f) = ½ ‖e_y - f‖² - ½ ‖sparsemax(f) - f‖²``, with gradient ``sparsemax(f) - e_y``.
    """

    def __init__(self, alpha: float = 1.0, max_iter: int = 1000) -> None:
        self.alpha = alpha
        self.max_iter = max_iter

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        """Fit to samples."""
        self.classes_, target = np.unique(y, return_inverse=True)
        features, classes = X.shape[1], len(self.classes_)
        padded = np.hstack([X, np.ones((len(X), 1))])
        onehot = np.eye(classes)[target]

        def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
            W = flat.reshape(features + 1, classes)
            f = padded @ W
            p = sparsemax(f)
            value = 0.5 * (((onehot - f) ** 2).sum() - ((p - f) ** 2).sum())
            ridge = self.alpha * W[:features]
            slope = padded.T @ (p - onehot)
            slope[:features] += ridge
            return value + 0.5 * (ridge * W[:features]).sum(), slope.ravel()

        start = np.zeros((features + 1) * classes)
        options = {"maxiter": self.max_iter, "gtol": 1e-4 * len(X), "ftol": 1e-9}
        found = optimize.minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
        W = found.x.reshape(features + 1, classes)
        self.coef_, self.intercept_ = W[:features].T, W[features]
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Return the sparsemax of the scores."""
        return sparsemax(X @ self.coef_.T + self.intercept_)

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return the most probable class."""
        return self.classes_[self.predict_proba(X).argmax(1)]
