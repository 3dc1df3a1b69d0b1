r"""Sliding: positions, counts and background of all frames move together, downhill.

The loss of a frame is ``½ Σ_pixels w (frame - model)² + λ Σ_j a_j``, and perhaps a term that draws
counts to their mean. With displacements measured as
``a_j x_j``, column ``j`` of the Jacobian is ``φ(· - x_j)`` or a derivative of it: a product of a
profile down and one across, so that ``J v`` and ``Jᵀ image`` are products of small matrices, with
weights or without. Levenberg–Marquardt steps are solved by a few conjugate-gradient iterations:
no matrix of all pairs of emitters is formed, and nothing waits for the device.
"""

from __future__ import annotations

import torch
from torch import Tensor

from geosoftmax_experiments.superres.brightness import Pull
from geosoftmax_experiments.superres.measures import Emitters
from geosoftmax_experiments.superres.psf import Psf

__all__ = ["slide"]

#: Damping of the steps at the start, and its bounds.
DAMPING, LEAST, MOST = 1e-3, 1e-9, 1e9
#: Conjugate-gradient iterations in a step. More solve the linear system better, but they follow
#: it where it describes the loss badly: 20 and 40 need more steps.
INNER = 10
#: Longest step of an emitter, in pixels.
REACH = 0.5
#: A step keeps at least this share of the counts of each emitter.
KEPT = 0.1
#: Below every product of interest, and its inverse is finite in float32.
TINY = 1e-30


def slide(
    frames: Tensor,
    state: Emitters,
    psf: Psf,
    penalty: float,
    *,
    steps: int,
    weights: Tensor | None = None,
    pull: Pull | None = None,
) -> Emitters:
    """Return emitters that explain the frames better.

    `weights` are those of the pixels; `pull` draws counts to their mean.
    """
    corner = frames.new_tensor([frames.shape[2], frames.shape[1]])
    damping = torch.full_like(state.background, DAMPING)[:, None]
    now = _View(frames, state, psf, penalty, weights, pull)
    for _ in range(steps):
        counts, x, y, background = now.step(damping).split([*[state.counts.shape[1]] * 3, 1], -1)
        alive = state.counts > 0
        shift = torch.stack([x, y], -1) / torch.where(alive, state.counts, 1.0)[..., None]
        shift = torch.where(alive[..., None], shift.clamp(-REACH, REACH), 0.0)
        trial = Emitters(
            torch.minimum((state.points + shift).clamp_min(0), corner),
            torch.where(alive, torch.maximum(state.counts + counts, KEPT * state.counts), 0.0),
            state.background + background[:, 0],
        )
        there = _View(frames, trial, psf, penalty, weights, pull)
        better = there.loss < now.loss
        state = Emitters(
            torch.where(better[:, None, None], trial.points, state.points),
            torch.where(better[:, None], trial.counts, state.counts),
            torch.where(better, trial.background, state.background),
        )
        now = now.replaced(there, better)
        damping = torch.where(better[:, None], damping / 10, damping * 10).clamp(LEAST, MOST)
    return state


class _View:
    """The frames as the emitters explain them: residual, loss, and products with the Jacobian."""

    def __init__(
        self,
        frames: Tensor,
        state: Emitters,
        psf: Psf,
        penalty: float,
        weights: Tensor | None = None,
        pull: Pull | None = None,
    ) -> None:
        self.weights, self.n = weights, state.counts.shape[1]
        self.free = (state.counts > 0).to(frames.dtype)
        across, across_slope = psf.profiles(state.points[..., 0], frames.shape[2])
        down, down_slope = psf.profiles(state.points[..., 1], frames.shape[1])
        self.across = across * self.free[..., None]
        self.across_slope = across_slope * self.free[..., None]
        self.down = torch.cat([down, down_slope], 1)
        image = (down * state.counts[..., None]).mT @ self.across
        residual = frames - image - state.background[:, None, None]
        self.residual = self._weighted(residual)
        self.loss = (residual * self.residual).sum((1, 2), dtype=torch.float64) / 2
        self.loss = self.loss + penalty * state.counts.sum(-1, dtype=torch.float64)
        self.price = penalty * self.free  # of a count more
        self.stiffness = None if pull is None else pull.weight * self.free
        if self.stiffness is not None and pull is not None:
            excess = state.counts - pull.mean
            self.price = self.price + self.stiffness * excess
            energy = self.stiffness * excess.square()
            self.loss = self.loss + energy.sum(-1, dtype=torch.float64) / 2

    def replaced(self, other: _View, where: Tensor) -> _View:
        """Return this view, but `other` in the frames that `where` marks."""
        names = ["free", "across", "across_slope", "down", "residual", "loss", "price"]
        if self.stiffness is not None:
            names.append("stiffness")
        for name in names:
            mine, theirs = getattr(self, name), getattr(other, name)
            mask = where.reshape(-1, *[1] * (mine.dim() - 1))
            setattr(other, name, torch.where(mask, theirs, mine))
        return other

    def step(self, damping: Tensor) -> Tensor:
        """Solve ``(JᵀWJ + damping · diagonal) step = -slope`` approximately."""
        rest = self.backward(self.residual)
        rest[:, : self.n] -= self.price
        diagonal = self._diagonal()
        extra = damping * diagonal
        if self.stiffness is not None:
            extra[:, : self.n] += self.stiffness
        scale = diagonal + extra
        step = torch.zeros_like(rest)
        direction = scaled = rest / scale
        size = (rest * scaled).sum(-1, keepdim=True)
        for _ in range(INNER):
            image = self._weighted(self.forward(direction))
            bent = self.backward(image) + extra * direction
            length = size / (direction * bent).sum(-1, keepdim=True).clamp_min(TINY)
            step = step + length * direction
            rest = rest - length * bent
            scaled = rest / scale
            last, size = size, (rest * scaled).sum(-1, keepdim=True)
            direction = scaled + size / last.clamp_min(TINY) * direction
        return step

    def forward(self, v: Tensor) -> Tensor:
        """``J v``, for counts, counts · x and counts · y of all emitters, and the background."""
        counts, x, y, level = v.split([self.n, self.n, self.n, 1], -1)
        straight = counts[..., None] * self.across + x[..., None] * self.across_slope
        tilted = y[..., None] * self.across
        return self.down.mT @ torch.cat([straight, tilted], 1) + level[..., None]

    def backward(self, image: Tensor) -> Tensor:
        """``Jᵀ image``."""
        straight, tilted = (self.down @ image).split(self.n, 1)
        return torch.cat(
            [
                (straight * self.across).sum(-1),
                (straight * self.across_slope).sum(-1),
                (tilted * self.across).sum(-1),
                image.sum((1, 2))[:, None],
            ],
            1,
        )

    def _diagonal(self) -> Tensor:
        """The diagonal of ``JᵀWJ``, 1 for padding."""
        across, slope = self.across.square(), self.across_slope.square()
        ones = torch.ones_like(self.residual) if self.weights is None else self.weights
        straight, tilted = (self.down.square() @ ones).split(self.n, 1)
        parts = [
            (straight * across).sum(-1),
            (straight * slope).sum(-1),
            (tilted * across).sum(-1),
            ones.sum((1, 2))[:, None],
        ]
        diagonal = torch.cat(parts, 1)
        return torch.where(diagonal > 0, diagonal, 1.0)

    def _weighted(self, image: Tensor) -> Tensor:
        return image if self.weights is None else image * self.weights
