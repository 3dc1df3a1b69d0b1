"""Train a network with a head, and predict with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from geosoftmax import spread
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.keypoints.decoders import read_points
from geosoftmax_experiments.keypoints.losses import Setting
from geosoftmax_experiments.keypoints.model import Model, Recipe
from geosoftmax_experiments.keypoints.steps import Training

__all__ = ["Prediction", "device_of", "now", "predict", "train"]

#: Frames that are predicted at a time.
CHUNK = 16
#: Every so many steps the loss is reported.
REPORTED = 100


@dataclass(frozen=True)
class Prediction:
    """What a model says of frames, in index units of its maps; shapes begin with (n, parts).

    Attributes
    ----------
    points : dict of ndarray
        (row, column) by each decoder.
    spread, entropy, likelihood : ndarray
        The spread in pixels of the maps, Shannon's entropy in nats, and a number from 0 to 1.
    milliseconds : dict of float
        Of a frame: for the network, and for what its head makes of the maps.
    """

    points: dict[str, np.ndarray]
    spread: np.ndarray
    entropy: np.ndarray
    likelihood: np.ndarray
    milliseconds: dict[str, float]


def device_of(name: str) -> torch.device:
    """Return a device by its name; "auto" is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError):
        raise UserError(f"There is no device {name!r} here.", "Take auto, cpu or cuda.") from None
    return device


def train(
    pictures: np.ndarray,
    points: np.ndarray,
    shape: tuple[int, int],
    loss: str,
    setting: Setting,
    recipe: Recipe,
    *,
    seed: int,
    device: torch.device,
    replay: bool = True,
    then: Callable[[int, float], object] = lambda step, loss: None,
) -> Model:
    """Train a network on frames.

    Parameters
    ----------
    pictures : ndarray, shape (n, H, W), uint8
    points : ndarray, shape (n, parts, 2)
        In index units of maps of `shape`; NaN is missing.
    shape, loss, setting, recipe
    seed : int
        Weights, order and augmentation: the same for all losses.
    device : torch.device
    replay : bool
        Whether a GPU records a step once and replays it.
    then : callable
        Called with the number of the step and its loss, every hundred steps.
    """
    if np.isnan(points).all():
        raise UserError("No point of these frames is labelled.", "Label some.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Model(loss, setting, shape, points.shape[1], recipe.width).to(device)
    frames = torch.from_numpy(pictures).to(device)
    places = torch.from_numpy(points).to(device, torch.float32)
    training = Training(model, frames, places, recipe, seed, replay=replay)
    for first in range(0, recipe.steps, REPORTED):
        count = min(REPORTED, recipe.steps - first)
        value = training.advance(count)
        if count == REPORTED:
            then(first + count, float(value))
    return training.finish()


@torch.no_grad()
def predict(model: Model, pictures: np.ndarray, device: torch.device) -> Prediction:
    """Predict the points of frames by every decoder, with how sure they are."""
    model.eval()
    model.head.alpha(model(torch.from_numpy(pictures[:1]).to(device) / 255))  # kernels compile
    parts: list[dict[str, np.ndarray]] = []
    seconds = {"network": 0.0, "head": 0.0}
    for first in range(0, len(pictures), CHUNK):
        frames = torch.from_numpy(pictures[first : first + CHUNK]).to(device) / 255
        start = now(device)
        maps = model(frames)
        middle = now(device)
        alpha = model.head.alpha(maps)
        end = now(device)
        seconds = {
            "network": seconds["network"] + middle - start,
            "head": seconds["head"] + end - middle,
        }
        points = read_points(alpha, model.head.resolution) | model.head.own_points(maps)
        found = {f"points {name}": value for name, value in points.items()}
        found["spread"] = spread(alpha) / model.head.resolution
        found["entropy"] = torch.special.entr(alpha).sum((-2, -1))
        found["likelihood"] = model.head.likelihood(maps, alpha)
        parts.append({name: value.cpu().double().numpy() for name, value in found.items()})
    every = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return Prediction(
        {name[7:]: value for name, value in every.items() if name.startswith("points ")},
        every["spread"],
        every["entropy"],
        every["likelihood"],
        {name: 1000 * value / len(pictures) for name, value in seconds.items()},
    )


def now(device: torch.device) -> float:
    """Return the time in seconds at which a device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
