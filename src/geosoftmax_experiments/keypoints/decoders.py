"""Ways to read a point from a map: the same for all losses, whichever is chosen."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

from geosoftmax import locate

__all__ = ["DECODERS", "read_points"]

#: The deviation of the blur of DARK, in pixels, and how far it reaches.
BLUR, REACH = 1.0, 3
_TINY = 1e-10


def quarter(alpha: Tensor) -> Tensor:
    """Return the best pixel, a quarter of a pixel towards the larger neighbour along each axis."""
    pixel = locate(alpha, "mode")
    around = _around(alpha, pixel, 1)
    rows, columns = around[..., 2, 1] - around[..., 0, 1], around[..., 1, 2] - around[..., 1, 0]
    return _clamped(pixel + 0.25 * torch.stack([rows, columns], -1).sign(), alpha)


def dark(alpha: Tensor) -> Tensor:
    """Return the maximum of a second-order expansion of the log of the blurred map.

    As in Zhang et al. (2020), *Distribution-aware coordinate representation*. Where the expansion
    has no maximum within a pixel, the best pixel is returned.
    """
    smooth = _blurred(alpha)
    pixel = locate(smooth / smooth.sum((-2, -1), keepdim=True), "mode")
    log = torch.log(_around(smooth, pixel, 2) + _TINY)
    centre = log[..., 2, 2]
    slope = torch.stack([log[..., 3, 2] - log[..., 1, 2], log[..., 2, 3] - log[..., 2, 1]], -1) / 2
    rows = (log[..., 4, 2] - 2 * centre + log[..., 0, 2]) / 4
    columns = (log[..., 2, 4] - 2 * centre + log[..., 2, 0]) / 4
    mixed = (log[..., 3, 3] - log[..., 3, 1] - log[..., 1, 3] + log[..., 1, 1]) / 4
    determinant = rows * columns - mixed**2
    valid = (determinant > _TINY) & (rows < 0)
    inverse = torch.where(valid, 1 / torch.where(valid, determinant, 1.0), 0.0)[..., None]
    step = -inverse * torch.stack(
        [
            columns * slope[..., 0] - mixed * slope[..., 1],
            rows * slope[..., 1] - mixed * slope[..., 0],
        ],
        -1,
    )
    near = (step.abs() <= 1).all(-1, keepdim=True)
    return _clamped(pixel + torch.where(near, step, 0.0), alpha)


DECODERS: dict[str, Callable[[Tensor], Tensor]] = {
    "mode": lambda alpha: locate(alpha, "mode"),
    "quarter": quarter,
    "dark": dark,
    "local mean 3": lambda alpha: locate(alpha, window=3),
    "local mean 5": lambda alpha: locate(alpha, window=5),
    "local mean 9": lambda alpha: locate(alpha, window=min(9, *alpha.shape[-2:])),
    "mean": lambda alpha: locate(alpha, "mean"),
    "median": lambda alpha: locate(alpha, "median"),
}


def read_points(alpha: Tensor, resolution: int = 1) -> dict[str, Tensor]:
    """Return the points by every decoder, in index units of the maps."""
    return {name: (read(alpha) + 0.5) / resolution - 0.5 for name, read in DECODERS.items()}


def _around(maps: Tensor, pixel: Tensor, reach: int) -> Tensor:
    """Return the values around a pixel, of shape (*batch, 2 reach + 1, 2 reach + 1).

    What lies outside the map repeats its rim.
    """
    batch, (height, width) = maps.shape[:-2], maps.shape[-2:]
    steps = torch.arange(-reach, reach + 1, device=maps.device)
    rows = (pixel[..., 0].long()[..., None] + steps).clamp(0, height - 1)
    columns = (pixel[..., 1].long()[..., None] + steps).clamp(0, width - 1)
    index = rows[..., :, None] * width + columns[..., None, :]
    values = maps.flatten(-2).gather(-1, index.flatten(-2))
    return values.reshape(*batch, len(steps), len(steps))


def _blurred(maps: Tensor) -> Tensor:
    offsets = torch.arange(-REACH, REACH + 1, device=maps.device, dtype=maps.dtype)
    kernel = torch.softmax(-(offsets**2) / (2 * BLUR**2), 0)
    padded = pad(maps, (REACH,) * 4)
    rows = padded.unfold(-2, len(kernel), 1) @ kernel
    return rows.unfold(-1, len(kernel), 1) @ kernel


def _clamped(points: Tensor, alpha: Tensor) -> Tensor:
    height, width = alpha.shape[-2:]
    limits = torch.tensor([height - 1, width - 1], dtype=points.dtype, device=points.device)
    return torch.minimum(points.clamp(min=0), limits)
