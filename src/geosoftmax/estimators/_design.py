"""The features as the optimiser sees them: centred, and rotated into their principal axes."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

#: Principal axes are computed only if there are at most this many samples or features; up to the
#: second number, without a check that features are correlated.
MOST_AXES, FEW_AXES = 1000, 300
#: Axes help if the mean square of the correlations' eigenvalues exceeds that of noise by this much;
#: it is estimated along this many random directions.
CORRELATED, PROBES = 1.5, 8
#: Columns whose deviations differ by a larger factor are not mixed: the smaller would lose digits.
WIDEST_SPREAD = 1e4


class Design:
    """Scores ``f = X W + c`` in coordinates ``V`` in which the features are uncorrelated.

    ``V`` has one row per axis and one column per class. Its last row is the intercept at the mean
    of the features. With many features, or columns of very different size, the axes are the
    features themselves. Dense samples are rotated once, and get a last column of ones for the
    intercept (of zeros if there is none). Axes along which no sample varies are dropped: the
    penalty keeps their weights at zero. Sparse samples are not rotated; the weights are.

    Attributes
    ----------
    variances : ndarray of shape (n_axes,)
    """

    def __init__(self, X: Any, weight: np.ndarray, fit_intercept: bool) -> None:
        """Take the samples, and weights that sum to one."""
        p = X.shape[1]
        self.fit_intercept = fit_intercept
        self.mean = np.asarray(weight @ X).ravel() if fit_intercept else np.zeros(p)
        self.axes: np.ndarray | None = None
        self.is_sparse = sparse.issparse(X)
        if self.is_sparse:
            self.X = X.astype(np.float64, copy=False)
            second = np.asarray(weight @ X.multiply(X)).ravel()
            self.variances = np.maximum(second - self.mean**2, 0.0)
        else:
            self.X = X - self.mean
            self.variances = weight @ (self.X * self.X)
        if self._can_turn() and (min(X.shape) <= FEW_AXES or self._is_correlated(weight)):
            self._turn(weight)
        if not self.is_sparse:
            ones = np.full((len(self.X), 1), float(fit_intercept))
            self.X = np.hstack([self.X, ones])

    def _can_turn(self) -> bool:
        varying = self.variances[self.variances > 0]
        if len(varying) == 0 or varying.max() > WIDEST_SPREAD**2 * varying.min():
            return False
        n, p = self.X.shape
        return (p if self.is_sparse else min(n, p)) <= MOST_AXES

    def _is_correlated(self, weight: np.ndarray) -> bool:
        """Say whether the eigenvalues of the correlations spread more than those of noise.

        With independent features the mean of their squares is about ``1 + p/n``. Without axes,
        fits of such features take about as many steps, and need no eigendecomposition.
        """
        varies = self.variances > 0
        scale = np.where(varies, 1 / np.sqrt(np.where(varies, self.variances, 1.0)), 0.0)[:, None]
        signs = np.random.default_rng(0).choice((-1.0, 1.0), size=(len(scale), PROBES))
        scaled = scale * signs
        projected = self.X @ scaled - (self.mean @ scaled if self.is_sparse else 0.0)
        products = scale * (self.X.T @ (weight[:, None] * projected))
        if self.is_sparse:
            products -= scale * np.outer(self.mean, weight @ projected)
        spread = float(np.mean(products**2)) * len(scale) / np.count_nonzero(varies)
        samples = 1 / float(weight @ weight)
        return bool(spread > CORRELATED + np.count_nonzero(varies) / samples)

    def _turn(self, weight: np.ndarray) -> None:
        n, p = self.X.shape
        if self.is_sparse:
            scaled = self.X.multiply(np.sqrt(weight)[:, None]).tocsr()
            second = (scaled.T @ scaled).toarray() - np.outer(self.mean, self.mean)
            variances, self.axes = np.linalg.eigh(second)
            self.variances = np.maximum(variances, 0.0)
            return
        scaled = self.X * np.sqrt(weight)[:, None]
        variances, axes = np.linalg.eigh(scaled.T @ scaled if p <= n else scaled @ scaled.T)
        kept = variances > max(n, p) * np.finfo(float).eps * variances[-1]
        self.variances, axes = variances[kept], axes[:, kept]
        self.axes = axes if p <= n else (scaled.T @ axes) / np.sqrt(self.variances)
        self.X = self.X @ self.axes

    def scores(self, V: np.ndarray) -> np.ndarray:
        """Return the scores of all samples."""
        if not self.is_sparse:
            return self.X @ V
        W = self._weights(V)
        return np.asarray(self.X @ W) + (V[-1] - self.mean @ W)

    def gradient(self, slope: np.ndarray) -> np.ndarray:
        """Return the gradient in V, given the gradient in the scores."""
        if not self.is_sparse:
            return self.X.T @ slope
        gradient = np.empty((len(self.variances) + 1, slope.shape[1]))
        gradient[-1] = slope.sum(0) if self.fit_intercept else 0.0
        features = self.X.T @ slope - np.outer(self.mean, gradient[-1])
        gradient[:-1] = features if self.axes is None else self.axes.T @ features
        return gradient

    def largest(self, gradient: np.ndarray) -> float:
        """Return the largest entry of the gradient with respect to coefficients and intercepts."""
        features = self._weights(gradient)
        if self.fit_intercept:
            features = features + self.mean[:, None] * gradient[-1]
        return float(max(np.abs(features).max(initial=0.0), np.abs(gradient[-1]).max()))

    def coefficients(self, V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return coefficients ``(n_classes, n_features)`` and intercepts."""
        W = self._weights(V)
        return np.ascontiguousarray(W.T), V[-1] - self.mean @ W

    def _weights(self, V: np.ndarray) -> np.ndarray:
        """Return the weights of the features: all rows but the last."""
        return V[:-1] if self.axes is None else self.axes @ V[:-1]
