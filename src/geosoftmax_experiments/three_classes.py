"""Scores of three classes in a plane: for the figure of level sets, and for `geosoftmax play`."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from geosoftmax import Cost, sinkhorn_potential

__all__ = ["DIRECTIONS", "plane", "potentials_of_the_border"]

#: Directions of three classes in the plane of scores, which leaves out what is added to all.
DIRECTIONS = torch.tensor(
    [[-math.sqrt(3) / 2, -0.5], [0.0, 1.0], [math.sqrt(3) / 2, -0.5]], dtype=torch.float64
)


def plane(f: Tensor) -> Tensor:
    """Project scores of three classes on the plane that leaves out what is added to all."""
    return f.double() @ DIRECTIONS


def potentials_of_the_border(cost: Cost) -> Tensor:
    """Return the potentials of the distributions on the border of the simplex, once around."""
    t = torch.linspace(0, 1, 60, dtype=torch.float64)[:, None]
    corners = torch.eye(3, dtype=torch.float64)
    edges = [(1 - t) * corners[k] + t * corners[(k + 1) % 3] for k in range(3)]
    return sinkhorn_potential(torch.cat(edges), cost)
