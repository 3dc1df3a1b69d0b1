"""The results that are installed with the application: comparisons of auto-encoders of drawings.

Each is a folder with ``results.json`` and ``pictures.npz``, as ``geosoftmax vae compare`` wrote
them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.files import read_json
from geosoftmax_experiments.vae.layers import LAYERS
from geosoftmax_experiments.vae.pictures import read_pictures
from geosoftmax_experiments.vae.presets import PAPER_P

__all__ = ["STORED", "Stored", "has_ours", "read_stored"]

STORED = Path(__file__).parents[1] / "stored" / "drawings"
AGAIN = "It comes with geosoftmax: install the package again."
#: What the names of folders end in whose results have our cost, p = 1.
OURS = "-p1"
#: What is read of the rows.
COLUMNS = ["loss", "weight", "seed", "epoch", "seconds", "hausdorff", "latent_kl"]


@dataclass(frozen=True)
class Stored:
    """A comparison.

    Parameters
    ----------
    cost : str
        Of the output layers, in words.
    rows : DataFrame
        A row for each loss, weight, seed and measured epoch.
    weights : dict of float
        For each loss the weight that pictures show: of those that were tried, the one whose latent
        KL is nearest to that of softmax.
    drawings : ndarray, shape (count, h, w)
        Test drawings.
    reconstructions, samples : dict of ndarray, shape (count, h, w)
        For each loss: what became of the test drawings, and drawings of codes from the prior.
    """

    cost: str
    rows: Any
    weights: dict[str, float]
    drawings: np.ndarray
    reconstructions: dict[str, np.ndarray]
    samples: dict[str, np.ndarray]

    def rate(self, loss: str) -> float:
        """Return the latent KL, in nats, of the run that pictures show: the first seed."""
        rows = self.rows[(self.rows["loss"] == loss) & (self.rows["seed"] == 0)]
        own = rows[rows["weight"] == self.weights[loss]]
        return float(own.loc[own["epoch"].idxmax(), "latent_kl"])


def has_ours(name: str) -> bool:
    """Whether results with a cost that is not the paper's are stored for a set."""
    return (STORED / f"{name}{OURS}").exists()


def read_stored(name: str, paper: bool = False) -> Stored:
    """Read the comparison on a set: ``cats``, ``mnist`` or ``drawings``.

    Ours where there is one, unless the paper's cost is asked for.
    """
    folder = STORED / (f"{name}{OURS}" if has_ours(name) and not paper else name)
    path = folder / "results.json"
    with _whole(path):
        results = read_json(path)
        rows = pd.DataFrame(results["rows"])[COLUMNS]
        common = results["settings"]["common"]
        p = common.get("p", PAPER_P)  # results from before there was p
        cost = f"p = {p:g}, scale {common['scale']:g}{', as in the paper' * (p == PAPER_P)}"
        weights = {loss: float(weight) for loss, weight in results["pictures_at_weight"].items()}
        names = {loss: LAYERS[loss].label for loss in weights}
    path = folder / "pictures.npz"
    with _whole(path):
        # Labels are those of layers, and a second line that says the rate.
        shown = {
            picture: {label.split("\n")[0]: found.numpy() for label, found in lines.items()}
            for picture, lines in read_pictures(path).items()
        }
        reconstructions, samples = (
            {loss: shown[picture][names[loss]] for loss in weights}
            for picture in ("reconstructions", "samples")
        )
        drawings = shown["reconstructions"]["drawing"]
        return Stored(cost, rows, weights, drawings, reconstructions, samples)


@contextlib.contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Say that a file is missing or damaged, where reading it fails."""
    try:
        yield
    except FileNotFoundError:
        raise UserError(f"{path} is missing.", AGAIN) from None
    except Exception as error:  # whatever a damaged file makes of what reads it
        raise UserError(f"{path} is damaged.", AGAIN) from error
