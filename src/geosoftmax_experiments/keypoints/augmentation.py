"""Frames that are turned, shifted, scaled and lit at random, with their points."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

__all__ = ["augment"]

#: The most that frames are turned (degrees), scaled (as a logarithm), and shifted (as a share).
TURN, ZOOM, SHIFT = 30.0, 0.2, 0.06
#: The deviation of the noise, and the most by which contrast changes (as a logarithm).
NOISE, CONTRAST = 0.02, 0.3


def augment(
    frames: Tensor,
    points: Tensor,
    shape: tuple[int, int],
    generator: torch.Generator,
    noise: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """Return changed frames, and where their points are then.

    Parameters
    ----------
    frames : Tensor, shape (n, H, W)
        From 0 to 1.
    points : Tensor, shape (n, parts, 2)
        (row, column) in index units of a grid of `shape` over the frames; NaN is missing.
    shape : tuple of int
    generator : torch.Generator
        On the CPU, so that a seed moves frames alike on all devices.
    noise : torch.Generator
        Of the noise on pixels, on the device of the frames: there are many.

    Returns
    -------
    frames, points : Tensor
        Points that leave the grid are missing.
    """
    n, height, width = frames.shape
    turn, zoom, right, down, contrast = (
        (2 * torch.rand(5, n, generator=generator) - 1).to(frames.device).unbind()
    )
    angle, factor = math.radians(TURN) * turn, torch.exp(ZOOM * zoom)
    # A place (x, y) of the new frame, in pixels from its centre, shows place `matrix @ (x, y) +
    # shift` of the old one.
    cos, sin = factor * torch.cos(angle), factor * torch.sin(angle)
    matrix = torch.stack([torch.stack([cos, -sin], -1), torch.stack([sin, cos], -1)], -2)
    half = torch.tensor([width / 2, height / 2], device=frames.device)
    shift = SHIFT * torch.stack([right, down], -1) * 2 * half
    normal = torch.cat([matrix * half / half[:, None], (shift / half)[..., None]], -1)
    places = affine_grid(normal, [n, 1, height, width], align_corners=False)
    mode = {"mode": "bilinear", "padding_mode": "reflection", "align_corners": False}
    seen = grid_sample(frames[:, None], places, **mode)[:, 0]
    gain = torch.exp(CONTRAST * contrast)[:, None, None]
    grain = torch.randn(seen.shape, generator=noise, device=frames.device)
    return gain * seen + NOISE * grain, _moved(points, matrix, shift, half, shape)


def _moved(
    points: Tensor, matrix: Tensor, shift: Tensor, half: Tensor, shape: tuple[int, int]
) -> Tensor:
    sides = torch.tensor(shape, dtype=points.dtype, device=points.device)
    stride = 2 * half.flip(0) / sides
    old = ((points + 0.5) * stride - half.flip(0)).flip(-1)  # (x, y) from the centre, in pixels
    new = torch.linalg.solve(matrix, (old - shift[:, None]).mT).mT
    moved = (new.flip(-1) + half.flip(0)) / stride - 0.5
    inside = ((moved >= -0.5) & (moved <= sides - 0.5)).all(-1, keepdim=True)
    clamped = torch.minimum(moved.clamp(min=0), sides - 1)
    return torch.where(inside, clamped, torch.nan)
