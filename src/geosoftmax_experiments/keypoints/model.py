"""A network with a head, and the recipe by which every network is trained."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from torch import Tensor, nn

from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.keypoints.heads import Head
from geosoftmax_experiments.keypoints.losses import Setting, build_head
from geosoftmax_experiments.keypoints.network import UNet

__all__ = ["Model", "Recipe"]


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

    def tensors(self) -> dict[str, Tensor]:
        """Return weights and running means by name; costs are made from the setting."""
        named = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        return {name: value for name, value in named.items() if ".link." not in name}
