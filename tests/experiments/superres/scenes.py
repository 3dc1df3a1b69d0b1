"""Simulated frames of a camera, with the positions of their emitters."""

import numpy as np
import torch

from geosoftmax_experiments.superres.measures import Emitters, model
from geosoftmax_experiments.superres.psf import Gaussian

#: What the camera counts without light, and for each photon; nanometres of a pixel.
BASE, GAIN, PIXEL = 100.0, 2.2, 100.0


def camera(points, photons, *, background=20.0, psf=None, side=64, seed=0, gain=GAIN):
    """Return noisy frames of emitters at `points`, and rows of frame, x and y in nm."""
    generator = torch.Generator().manual_seed(seed)
    count, number = photons.shape
    state = Emitters(points, photons, torch.full((count,), background))
    light = model(state, torch.zeros(count, side, side), psf or Gaussian(1.1))
    frames = (BASE + gain * torch.poisson(light, generator=generator)).double().numpy()
    place = np.repeat(np.arange(1, count + 1), number)[:, None]
    return frames, np.hstack([place, PIXEL * points.reshape(-1, 2).numpy()]).astype(float)


def crowd(frames, number, low, high, *, side=64, seed=0, **options):
    """Emitters anywhere, with a number of photons anywhere between two."""
    generator = torch.Generator().manual_seed(1000 + seed)
    points = side * torch.rand(frames, number, 2, generator=generator)
    photons = low + (high - low) * torch.rand(frames, number, generator=generator)
    return camera(points, photons, side=side, seed=seed, **options)


def filaments(frames, number, *, side=64, seed=0):
    """Emitters of all brightnesses on eight curved lines."""
    generator = torch.Generator().manual_seed(1000 + seed)
    line = torch.randint(0, 8, (frames, number), generator=generator)
    x = side * torch.rand(frames, number, generator=generator)
    y = side * (0.06 + 0.12 * line) + 3 * torch.sin(x / 9 + 1.3 * line)
    photons = 500 * torch.exp(0.7 * torch.randn(frames, number, generator=generator))
    return camera(torch.stack([x, y.clamp(0, side)], -1), photons, side=side, seed=seed)
