"""Frames that are turned, shifted, scaled and lit at random, with their points."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from geosoftmax_experiments.replay import constant

__all__ = ["augment", "draw_moves"]

#: The most that frames are turned (degrees), scaled (as a logarithm), and shifted (as a share).
TURN, ZOOM, SHIFT = 30.0, 0.2, 0.06
#: The deviation of the noise, and the most by which contrast changes (as a logarithm).
NOISE, CONTRAST = 0.02, 0.3


def draw_moves(count: int, generator: torch.Generator) -> Tensor:
    """Return the five numbers, from -1 to 1, that say how each of so many frames is changed.

    They are drawn on the CPU, so that a seed moves frames alike on all devices.
    """
    return 2 * torch.rand(5, count, generator=generator) - 1


def augment(
    frames: Tensor, points: Tensor, shape: tuple[int, int], moves: Tensor, grain: Tensor
) -> tuple[Tensor, Tensor]:
    """Return changed frames, and where their points are then.

    Nothing is random here, and nothing is copied from the host: steps can be recorded.

    Parameters
    ----------
    frames : Tensor, shape (n, H, W)
        From 0 to 1.
    points : Tensor, shape (n, parts, 2)
        (row, column) in index units of a grid of `shape` over the frames; NaN is missing.
    shape : tuple of int
    moves : Tensor, shape (5, n)
        What `draw_moves` returns, on the device of the frames.
    grain : Tensor, shape (n, H, W)
        The noise on pixels, with deviation 1.

    Returns
    -------
    frames, points : Tensor
        Points that leave the grid are missing.
    """
    n, height, width = frames.shape
    turn, zoom, right, down, contrast = moves.unbind()
    angle, factor = math.radians(TURN) * turn, torch.exp(ZOOM * zoom)
    # A place (x, y) of the new frame, in pixels from its centre, shows place `matrix @ (x, y) +
    # shift` of the old one.
    cos, sin = factor * torch.cos(angle), factor * torch.sin(angle)
    matrix = torch.stack([torch.stack([cos, -sin], -1), torch.stack([sin, cos], -1)], -2)
    half = constant([width / 2, height / 2], frames)
    shift = SHIFT * torch.stack([right, down], -1) * 2 * half
    normal = torch.cat([matrix * half / half[:, None], (shift / half)[..., None]], -1)
    places = affine_grid(normal, [n, 1, height, width], align_corners=False)
    mode = {"mode": "bilinear", "padding_mode": "reflection", "align_corners": False}
    seen = grid_sample(frames[:, None], places, **mode)[:, 0]
    gain = torch.exp(CONTRAST * contrast)[:, None, None]
    return gain * seen + NOISE * grain, _moved(points, (cos, sin), shift, half, shape)


def _moved(
    points: Tensor,
    turn: tuple[Tensor, Tensor],
    shift: Tensor,
    half: Tensor,
    shape: tuple[int, int],
) -> Tensor:
    sides = constant(shape, points)
    stride = 2 * half.flip(0) / sides
    old = ((points + 0.5) * stride - half.flip(0)).flip(-1)  # (x, y) from the centre, in pixels
    x, y = (old - shift[:, None]).unbind(-1)
    cos, sin = (value[:, None] for value in turn)
    # The inverse of `matrix`; `torch.linalg.solve` would wait for the GPU.
    determinant = cos**2 + sin**2
    new = torch.stack([cos * y - sin * x, cos * x + sin * y], -1) / determinant[..., None]
    moved = (new + half.flip(0)) / stride - 0.5
    inside = ((moved >= -0.5) & (moved <= sides - 0.5)).all(-1, keepdim=True)
    clamped = torch.minimum(moved.clamp(min=0), sides - 1)
    return torch.where(inside, clamped, torch.nan)
