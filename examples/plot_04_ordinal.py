"""
Ordinal regression
==================

A linear model with the geometric logistic loss on ordered classes, beside multinomial logistic
regression. The geometric probabilities are zero where a class is out of the question.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression

from geosoftmax.estimators import GeometricClassifier

rng = np.random.default_rng(0)
X = rng.uniform(-3, 3, size=(400, 1))
y = np.digitize(X[:, 0] + 0.7 * rng.normal(size=400), [-1.5, -0.5, 0.5, 1.5])

models = {
    "geometric, squared cost × 0.5": GeometricClassifier(cost="squared", scale=0.5, alpha=0.1),
    "logistic regression": LogisticRegression(C=10.0),
}
grid = np.linspace(-3, 3, 200)[:, None]
figure, axes = plt.subplots(1, 2, figsize=(9, 3), sharey=True, layout="constrained")
for axis, (name, model) in zip(axes, models.items(), strict=True):
    probabilities = model.fit(X, y).predict_proba(grid)
    axis.stackplot(
        grid[:, 0], probabilities.T, colors=plt.get_cmap("cividis")(np.linspace(0, 1, 5))
    )
    error = np.abs(model.predict(X) - y).mean()
    zeros = (probabilities < 1e-9).mean()
    axis.set_title(f"{name}\nmean absolute error {error:.3f}, zeros {zeros:.0%}", fontsize=10)
    axis.set_xlabel("feature")
axes[0].set_ylabel("probability of classes 1 … 5")
plt.show()
