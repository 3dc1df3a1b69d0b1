"""How good predictions are: the three rows of the paper's Table 1, and five more measures.

The Hausdorff divergence of Table 1 is ``D(δ_y | β)`` with ``C = (ŷ-y)²/2``, where ``β`` is the
predicted distribution and ``δ_y`` the truth, averaged over the test samples: of the two arguments
that the paper's Prop. 4 gives it, the first is the target and the second the prediction. For a
model that predicts a class ``ŷ`` alone, ``β = δ_ŷ``, and it is ``(ŷ-y)²/2``. The paper's values are
some 2.3 times ours for every method, by a normalisation that it does not state: compare ratios.
They lie between what ``C = (ŷ-y)²`` and ``C = 2(ŷ-y)²`` give, so these are measured too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from sklearn.metrics import accuracy_score, cohen_kappa_score, log_loss, mean_absolute_error
from skordinal.metrics import average_mean_absolute_error, ranked_probability_score

from geosoftmax import LineCost, hausdorff_divergence
from geosoftmax_experiments.ordinal.decisions import Prediction
from geosoftmax_experiments.rivals.transport import ranked_probability_score as transport_score

__all__ = [
    "CRITERIA",
    "MEASURES",
    "Measure",
    "hausdorff",
    "hausdorff_values",
    "measure_labels",
    "measure_probabilities",
    "rps_values",
]


class Measure(NamedTuple):
    """A column of the results, and the criterion that parameters are chosen by for it."""

    label: str
    lower_is_better: bool
    criterion: str


MEASURES = {
    "hausdorff": Measure("Hausdorff divergence", True, "hausdorff"),
    "mae": Measure("MAE", True, "mae"),
    "accuracy": Measure("accuracy", False, "accuracy"),
    "kappa": Measure("quadratic kappa", False, "mae"),
    "amae": Measure("average MAE", True, "mae"),
    "rps": Measure("ranked probability score", True, "rps"),
    "log_loss": Measure("log-loss", True, "hausdorff"),
    "zero_share": Measure("share of p(true) = 0", True, "hausdorff"),
    "hausdorff_1": Measure("Hausdorff, C = (ŷ-y)²", True, "hausdorff"),
    "hausdorff_2": Measure("Hausdorff, C = 2(ŷ-y)²", True, "hausdorff"),
}


def hausdorff(y: np.ndarray, probabilities: np.ndarray, scale: float = 0.5) -> float:
    """Return the mean of ``D(δ_y | β)`` with ``C = scale (ŷ-y)²``."""
    return float(hausdorff_values(y, probabilities, scale).mean())


def hausdorff_values(y: np.ndarray, probabilities: np.ndarray, scale: float = 0.5) -> np.ndarray:
    """Return ``D(δ_y | β)`` of each sample."""
    classes = probabilities.shape[1]
    truth = torch.eye(classes, dtype=torch.float64)[torch.from_numpy(y)]
    beta = torch.from_numpy(Prediction(probabilities).distributions)
    return hausdorff_divergence(truth, beta, LineCost(classes, p=2) * scale).numpy()


def rps_values(y: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return the ranked probability score of each sample."""
    beta = torch.from_numpy(Prediction(probabilities).distributions)
    return transport_score(beta, torch.from_numpy(y)).numpy()


def measure_probabilities(y: np.ndarray, prediction: Prediction) -> dict[str, float]:
    """Return the measures of predicted distributions.

    Log-loss is scikit-learn's, which takes p(true) = 0 for the machine epsilon; how often that
    happened is printed beside it. It says nothing of a model that predicts a class alone (NaN).
    """
    p = prediction.distributions
    classes = p.shape[1]
    return {
        "hausdorff": hausdorff(y, p),
        "hausdorff_1": hausdorff(y, p, 1.0),
        "hausdorff_2": hausdorff(y, p, 2.0),
        "rps": float(ranked_probability_score(y, p)),
        "log_loss": float("nan" if prediction.point else log_loss(y, p, labels=range(classes))),
        "zero_share": float((p[np.arange(len(y)), y] == 0).mean()),
    }


def measure_labels(y: np.ndarray, chosen: np.ndarray, classes: int) -> dict[str, float]:
    """Return the measures of predicted classes."""
    labels = np.arange(classes)
    return {
        "mae": float(mean_absolute_error(y, chosen)),
        "accuracy": float(accuracy_score(y, chosen)),
        "kappa": float(cohen_kappa_score(y, chosen, labels=labels, weights="quadratic")),
        "amae": float(average_mean_absolute_error(y, chosen, labels=labels)),
    }


#: What candidates are judged by, on the inner folds: the three rows of Table 1, and a proper score
#: that no model minimises.
CRITERIA = ("mae", "accuracy", "hausdorff", "rps")
