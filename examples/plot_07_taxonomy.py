"""
Better mistakes on a class tree
===============================

Data with a hierarchy: classes of one family lie close together. The logistic loss and the loss
along the tree, each with two decisions: the likeliest class, and the class of least expected cost.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

from geosoftmax import TreeCost, decide
from geosoftmax.estimators import GeometricClassifier

tree = TreeCost.from_dict({f"family {a}": [f"class {a}{b}" for b in range(4)] for a in range(4)})
names = np.array(tree.names)  # which sort as they are
lengths = tree.matrix().numpy()  # 2 within a family, 4 between families


def draw(seed, samples):
    """Return samples of 16 classes: clusters in clusters."""
    places = np.random.default_rng(seed)
    centres = np.repeat(places.normal(size=(4, 30)), 4, axis=0) + 0.5 * places.normal(size=(16, 30))
    y = places.integers(16, size=samples)
    return centres[y] + 1.5 * places.normal(size=(samples, 30)), y


models = {
    "logistic": LogisticRegression(C=0.1, max_iter=1000),
    "geometric": GeometricClassifier(cost=tree, scale=1.0, alpha=10.0),
}
results = {(name, rule): [] for name in models for rule in ("likeliest", "least cost")}
for seed in range(6):
    X, y = draw(seed, 1160)
    for name, model in models.items():
        probabilities = model.fit(X[:160], names[y[:160]]).predict_proba(X[160:])
        for rule, predicted in (
            ("likeliest", decide(torch.from_numpy(probabilities), tree, "mode").numpy()),
            ("least cost", decide(torch.from_numpy(probabilities), tree).numpy()),
        ):
            wrong = predicted != y[160:]
            results[name, rule].append((wrong.mean(), lengths[y[160:], predicted].mean()))
means = {key: np.mean(values, axis=0) for key, values in results.items()}
for (name, rule), (error, length) in means.items():
    print(f"{name}, {rule}: error {error:.3f}, mean length {length:.3f}")

# %%
# The decision makes mistakes shorter with either loss. On data like these, whose classes are
# Gaussian and for which logistic regression is the right model, the two losses are about equal.

figure, axes = plt.subplots(1, 2, figsize=(9, 3), sharey=True, layout="constrained")
for axis, k, title in ((axes[0], 0, "error"), (axes[1], 1, "mean path along the tree")):
    for line, (name, rule) in enumerate(results):
        runs = [run[k] for run in results[name, rule]]
        dots = axis.plot(runs, [line] * len(runs), "o", color="0.7", label="one draw of the data")
        mean = axis.plot(means[name, rule][k], line, "D", color="#d55e00", label="mean")
    axis.set_title(title)
    axis.grid(axis="x", color="0.93")
axes[0].set_yticks(range(len(means)), [f"{name}, {rule}" for name, rule in means])
axes[0].set_ylim(len(means) - 0.5, -0.5)
figure.legend(handles=[*dots, *mean], loc="outside lower center", ncols=2, frameon=False)
plt.show()
