"""The network that all losses share: a small U-Net from grey frames to one map for each point."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, max_pool2d, pixel_unshuffle

__all__ = ["STRIDE", "UNet", "grid_of"]

#: Pixels of the input for each pixel of the maps, along each side.
STRIDE = 4
#: Sides of the maps are multiples of this: they are halved twice.
MULTIPLE = 4


def grid_of(size: tuple[int, int], longest: int) -> tuple[int, int]:
    """Return the shape of maps for frames of a size: the longer side has `longest` pixels."""
    scale = longest / max(size)
    height, width = (MULTIPLE * max(2, round(side * scale / MULTIPLE)) for side in size)
    return height, width


class UNet(nn.Module):
    """Frames of shape (n, 4h, 4w) to maps of shape (n, channels, h, w).

    Sixteen pixels of the input become channels of one pixel, so that nothing is lost before the
    first convolution. Two levels below, and dilated convolutions there, see most of the frame.
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.first = _block(STRIDE**2, width)
        self.second = _block(width, 2 * width)
        self.lowest = nn.Sequential(
            _block(2 * width, 4 * width), _block(4 * width, 4 * width, dilation=3)
        )
        self.up_second = _block(6 * width, 2 * width)
        self.up_first = _block(3 * width, width)
        self.last = nn.Conv2d(width, channels, 1)

    def forward(self, frames: Tensor) -> Tensor:
        """Return the maps of frames with any brightness and contrast."""
        mean = frames.mean((-2, -1), keepdim=True)
        deviation = frames.std((-2, -1), keepdim=True) + 1e-3
        first = self.first(pixel_unshuffle(((frames - mean) / deviation)[:, None], STRIDE))
        second = self.second(max_pool2d(first, 2))
        lowest = self.lowest(max_pool2d(second, 2))
        second = self.up_second(torch.cat([_twice(lowest), second], 1))
        return self.last(self.up_first(torch.cat([_twice(second), first], 1)))


def _twice(maps: Tensor) -> Tensor:
    return interpolate(maps, scale_factor=2, mode="bilinear", align_corners=False)


def _block(inputs: int, outputs: int, dilation: int = 1) -> nn.Sequential:
    def convolution(before: int) -> list[nn.Module]:
        layer = nn.Conv2d(before, outputs, 3, padding=dilation, dilation=dilation, bias=False)
        return [layer, nn.BatchNorm2d(outputs), nn.ReLU()]

    return nn.Sequential(*convolution(inputs), *convolution(outputs))
