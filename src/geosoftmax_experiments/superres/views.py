"""The frames of a camera as some emitters explain them: loss, residual, products with the Jacobian.

The loss of a frame is ``½ Σ_pixels w (frame - model)² + λ Σ_j a_j``, and perhaps a term that draws
counts to their mean. With displacements measured as ``a_j x_j``, column ``j`` of the Jacobian is
``φ(· - x_j)`` or a derivative of it: a product of a profile down and one across, so that ``J v``
and ``Jᵀ image`` are products of small matrices, with weights or without. Steps are solved by a few
conjugate-gradient iterations: no matrix of all pairs of emitters is formed, and nothing waits for
the device.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from geosoftmax.continuous.sliding import Step, conjugate_gradients
from geosoftmax.continuous.spikes import Spikes

if TYPE_CHECKING:  # it makes views of itself
    from geosoftmax_experiments.superres.frames import FrameProblem

__all__ = ["INNER", "FrameView"]

#: Conjugate-gradient iterations in a step. More solve the linear system better, but they follow
#: it where it describes the loss badly: 20 and 40 need more steps.
INNER = 10


@dataclasses.dataclass(frozen=True)
class FrameView:
    """Residual and loss of the frames, and products with the Jacobian."""

    objective: Tensor
    residual: Tensor  # weighted
    free: Tensor
    down: Tensor  # profiles, then their slopes
    across: Tensor
    across_slope: Tensor
    price: Tensor  # of a count more
    stiffness: Tensor
    weights: Tensor | None
    rank: int = 1  # profiles of an emitter
    rounding: float = 0.0

    @classmethod
    def at(cls, problem: FrameProblem, state: Spikes) -> FrameView:
        """Look at the frames of a problem from some emitters."""
        frames, counts, pull = problem.frames, state.u, problem.pull
        free = (counts > 0).to(frames.dtype)
        psf = problem.psf
        across, across_slope = psf.across(state.points[..., 0], frames.shape[2])
        down, down_slope = (
            one.flatten(1, 2) for one in psf.down(state.points[..., 1], frames.shape[1])
        )
        across, across_slope = (
            (one * free[..., None, None]).flatten(1, 2) for one in (across, across_slope)
        )
        light = _repeated(counts, psf.rank)[..., None]
        residual = frames - (down * light).mT @ across - state.level[..., None]
        weighted = residual if problem.weights is None else residual * problem.weights
        loss = (residual * weighted).sum((1, 2), dtype=torch.float64) / 2
        loss = loss + problem.penalty * counts.sum(-1, dtype=torch.float64)
        price, stiffness = problem.penalty * free, torch.zeros_like(free)
        if pull is not None:
            stiffness = pull.weight * free
            excess = counts - pull.mean
            price = price + stiffness * excess
            loss = loss + (stiffness * excess.square()).sum(-1, dtype=torch.float64) / 2
        both = torch.cat([down, down_slope], 1)
        return cls(
            loss, weighted, free, both, across, across_slope, price, stiffness, problem.weights,
            psf.rank,
        )  # fmt: skip

    def where(self, mask: Tensor, other: FrameView) -> FrameView:
        """Return this view in the frames that `mask` marks, else `other`."""
        chosen = {}
        for name in ("objective", "residual", "free", "down", "across", "across_slope", "price",
                     "stiffness"):  # fmt: skip
            mine, theirs = getattr(self, name), getattr(other, name)
            chosen[name] = torch.where(mask.reshape(-1, *[1] * (mine.dim() - 1)), mine, theirs)
        return dataclasses.replace(self, **chosen)

    def step(self, damping: Tensor) -> Step:
        """Solve ``(JᵀWJ + damping · diagonal) step = -slope`` approximately."""
        n = self.free.shape[1]
        rest = self.backward(self.residual)
        rest[:, :n] -= self.price
        diagonal = self._diagonal()
        extra = damping[:, None] * diagonal
        extra[:, :n] += self.stiffness

        def product(v: Tensor) -> Tensor:
            image = self.forward(v)
            image = image if self.weights is None else image * self.weights
            return self.backward(image) + extra * v

        step = conjugate_gradients(product, rest, diagonal + extra, INNER)
        counts, x, y, level = step.split([n, n, n, 1], -1)
        return Step(counts, torch.stack([x, y], -1), level)

    def forward(self, v: Tensor) -> Tensor:
        """``J v``, for counts, counts · x and counts · y of all emitters, and the background."""
        *moved, level = v.split([*[self.free.shape[1]] * 3, 1], -1)
        counts, x, y = (_repeated(one, self.rank) for one in moved)
        straight = counts[..., None] * self.across + x[..., None] * self.across_slope
        tilted = y[..., None] * self.across
        return self.down.mT @ torch.cat([straight, tilted], 1) + level[..., None]

    def backward(self, image: Tensor) -> Tensor:
        """``Jᵀ image``."""
        straight, tilted = (self.down @ image).chunk(2, 1)
        return self._columns(straight, tilted, self.across, self.across_slope, image)

    def _diagonal(self) -> Tensor:
        """About the diagonal of ``JᵀWJ``, 1 for padding.

        Without what the profiles of one emitter share: they are orthogonal, but for the weights.
        """
        ones = torch.ones_like(self.residual) if self.weights is None else self.weights
        straight, tilted = (self.down.square() @ ones).chunk(2, 1)
        across, slope = self.across.square(), self.across_slope.square()
        diagonal = self._columns(straight, tilted, across, slope, ones)
        return torch.where(diagonal > 0, diagonal, 1.0)

    def _columns(
        self, straight: Tensor, tilted: Tensor, across: Tensor, slope: Tensor, image: Tensor
    ) -> Tensor:
        """Sum over the pixels of a row, for counts, x, y and the background."""
        parts = [straight * across, straight * slope, tilted * across]
        sums = [part.sum(-1) for part in parts]
        if self.rank > 1:
            sums = [one.unflatten(1, (-1, self.rank)).sum(-1) for one in sums]
        return torch.cat([*sums, image.sum((1, 2))[:, None]], 1)


def _repeated(values: Tensor, rank: int) -> Tensor:
    """Return values of emitters, ``(frames, n)``, once for each of their profiles."""
    return values if rank == 1 else values.repeat_interleave(rank, -1)
