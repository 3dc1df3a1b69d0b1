"""The networks: an encoder to means and log-variances, a decoder to scores.

``mlp``: two layers each, 400 hidden units, ReLU. ``dcgan``, for 64×64: the discriminator of
DCGAN as encoder, its generator as decoder.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from geosoftmax_experiments.errors import UserError

__all__ = ["VAE", "Code"]

HIDDEN = 400
WIDTHS = (64, 128, 256, 512)


class Code(NamedTuple):
    """A normal distribution for each drawing, of shape ``(batch, latent)``."""

    mean: Tensor
    log_variance: Tensor

    def rate(self) -> Tensor:
        """``KL(N(mean, variance) | N(0, 1))``, one value for each drawing."""
        inside = 1 + self.log_variance - self.mean.square() - self.log_variance.exp()
        return -inside.sum(-1) / 2

    def sample(self, noise: Tensor) -> Tensor:
        """Return codes, from standard normal noise."""
        return self.mean + torch.exp(self.log_variance / 2) * noise


class VAE(nn.Module):
    """Drawings to codes to scores.

    Parameters
    ----------
    architecture : {"mlp", "dcgan"}
    shape : (int, int)
    latent : int
    offset : Tensor, shape `shape`, optional
        Added to what the decoder outputs: where it starts.
    gain : float
        Scores are so many times what the decoder outputs: this moves them faster.
    """

    offset: Tensor

    def __init__(
        self,
        architecture: str,
        shape: tuple[int, int],
        latent: int,
        offset: Tensor | None = None,
        gain: float = 1.0,
    ) -> None:
        super().__init__()
        if architecture == "dcgan" and shape != (64, 64):
            raise UserError(
                f"The dcgan is for 64×64 drawings; these have {shape[0]}×{shape[1]}.",
                "Take --architecture mlp, or --size 64 where the data allow it.",
            )
        self.shape, self.gain = shape, gain
        build = _mlp if architecture == "mlp" else _dcgan
        self.encoder, self.decoder = build(shape, latent)
        self.register_buffer("offset", torch.zeros(shape) if offset is None else offset)

    def encode(self, alpha: Tensor) -> Code:
        """Return the codes of drawings, of shape ``(batch, h, w)``."""
        size = math.prod(self.shape)
        return Code(*self.encoder(size * alpha).chunk(2, -1))  # pixels of mean 1

    def decode(self, code: Tensor) -> Tensor:
        """Return the scores of codes, in float32."""
        return self.gain * self.decoder(code).reshape(-1, *self.shape).float() + self.offset

    def forward(self, alpha: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return scores, and mean and log-variance of the codes, in float32."""
        code = self.encode(alpha)
        return self.decode(code.sample(noise)), code.mean.float(), code.log_variance.float()


def _mlp(shape: tuple[int, int], latent: int) -> tuple[nn.Module, nn.Module]:
    size = math.prod(shape)
    encoder = nn.Sequential(
        nn.Flatten(), nn.Linear(size, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 2 * latent)
    )
    decoder = nn.Sequential(nn.Linear(latent, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, size))
    return encoder, decoder


def _dcgan(shape: tuple[int, int], latent: int) -> tuple[nn.Module, nn.Module]:
    down: list[nn.Module] = [nn.Unflatten(1, (1, shape[0]))]
    for a, b in itertools.pairwise((1, *WIDTHS)):
        down.append(nn.Conv2d(a, b, 4, 2, 1, bias=False))
        if a > 1:  # DCGAN normalises all layers but the first
            down.append(nn.BatchNorm2d(b))
        down.append(nn.LeakyReLU(0.2))
    down += [nn.Conv2d(WIDTHS[-1], 2 * latent, 4), nn.Flatten()]
    up: list[nn.Module] = [nn.Unflatten(1, (latent, 1, 1))]
    up.append(nn.ConvTranspose2d(latent, WIDTHS[-1], 4, bias=False))
    for a, b in itertools.pairwise(WIDTHS[::-1]):
        up += [nn.BatchNorm2d(a), nn.ReLU(), nn.ConvTranspose2d(a, b, 4, 2, 1, bias=False)]
    up += [nn.BatchNorm2d(WIDTHS[0]), nn.ReLU(), nn.ConvTranspose2d(WIDTHS[0], 1, 4, 2, 1)]
    # Convolutions are fastest with the channels last; the stubs of torch do not know that call.
    last: Any = {"memory_format": torch.channels_last}
    return nn.Sequential(*down).to(**last), nn.Sequential(*up).to(**last)
