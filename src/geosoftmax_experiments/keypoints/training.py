"""Train a network with a head, and predict with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor, nn

from geosoftmax import spread
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.keypoints.augmentation import augment
from geosoftmax_experiments.keypoints.decoders import read_points
from geosoftmax_experiments.keypoints.heads import Head
from geosoftmax_experiments.keypoints.losses import Setting, build_head
from geosoftmax_experiments.keypoints.network import UNet

__all__ = ["Model", "Prediction", "Recipe", "device_of", "predict", "train"]

#: Frames that are predicted at a time.
CHUNK = 16
#: The share of the steps in which the learning rate rises; then it falls along a cosine.
RISE = 0.1


@dataclass(frozen=True)
class Recipe:
    """How every network is trained, whatever its loss."""

    longest: int = 80
    width: int = 24
    steps: int = 2000
    batch: int = 16
    learning_rate: float = 2e-3

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value > 0:
                option = name.replace("_", "-")
                raise UserError(f"--{option} is {value}.", "Give a positive number.")
        if not 16 <= self.longest <= 1024:
            raise UserError(f"--longest is {self.longest}.", "Take 16 to 1024 pixels.")


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


class Model(nn.Module):
    """A network and its head."""

    def __init__(
        self, loss: str, setting: Setting, shape: tuple[int, int], parts: int, width: int
    ) -> None:
        super().__init__()
        self.head: Head = build_head(loss, setting, shape, parts)
        self.network = UNet(self.head.channels, width)
        self.shape = shape

    def forward(self, frames: Tensor) -> Tensor:
        """Return the maps of frames from 0 to 1."""
        return self.network(frames)


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
    then : callable
        Called with the number of the step and its loss, every hundred steps.
    """
    if np.isnan(points).all():
        raise UserError("No point of these frames is labelled.", "Label some.")
    generator = torch.Generator().manual_seed(seed)
    noise = torch.Generator(device).manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Model(loss, setting, shape, points.shape[1], recipe.width).to(device)
    frames = torch.from_numpy(pictures).to(device)
    places = torch.from_numpy(points).to(device, torch.float32)
    optimiser = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, recipe.learning_rate, total_steps=recipe.steps, pct_start=RISE
    )
    model.train()
    waiting = torch.empty(0, dtype=torch.int64)
    for step in range(recipe.steps):
        while len(waiting) < recipe.batch:
            waiting = torch.cat([waiting, torch.randperm(len(frames), generator=generator)])
        chosen, waiting = waiting[: recipe.batch].to(device), waiting[recipe.batch :]
        seen, moved = augment(frames[chosen] / 255, places[chosen], shape, generator, noise)
        value = model.head.loss(model(seen), moved)
        optimiser.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimiser.step()
        schedule.step()
        if (step + 1) % 100 == 0:
            then(step + 1, float(value.detach()))
    return model.eval()


@torch.no_grad()
def predict(model: Model, pictures: np.ndarray, device: torch.device) -> Prediction:
    """Predict the points of frames by every decoder, with how sure they are."""
    model.eval()
    model.head.alpha(model(torch.from_numpy(pictures[:1]).to(device) / 255))  # kernels compile
    parts: list[dict[str, np.ndarray]] = []
    seconds = {"network": 0.0, "head": 0.0}
    for first in range(0, len(pictures), CHUNK):
        frames = torch.from_numpy(pictures[first : first + CHUNK]).to(device) / 255
        start = _now(device)
        maps = model(frames)
        middle = _now(device)
        alpha = model.head.alpha(maps)
        end = _now(device)
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


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
