r"""Sliding: points and weights of all samples move together, downhill.

A `Problem` off the grid is seen through its `View` of given spikes: the objective there, and the
step of a damped Newton or Gauss–Newton method. Displacements are measured as ``t_i = u_i x_i``. So
the same loop slides the spikes of a kernel and a score, whose Hessian is small enough to be formed,
and the emitters of camera frames, of which only products with the Jacobian are. Each sample has its
own damping, as Levenberg and Marquardt have it, and takes a step only where its objective falls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from geosoftmax.continuous.spikes import Spikes

__all__ = ["Damping", "Problem", "Step", "View", "conjugate_gradients", "slide"]

#: A step keeps at least this share of each weight: those that vanish are for others to drop.
KEPT = 0.1
#: Below every product of interest, and its inverse is finite in float32.
TINY = 1e-30


class Damping(NamedTuple):
    """The damping at the start, and the least and the most of it."""

    start: float
    least: float
    most: float


class Step(NamedTuple):
    """A step of all samples: in the weights, in ``t = u x``, and in the level.

    `usable` says in which samples it may be taken; None for all.
    """

    u: Tensor
    t: Tensor
    level: Tensor
    usable: Tensor | None = None


class View(Protocol):
    """A problem at given spikes."""

    @property
    def objective(self) -> Tensor:
        """What is minimised, of shape (rows,)."""
        ...

    @property
    def rounding(self) -> Tensor | float:
        """What may be wrong with the objective."""
        ...

    def step(self, damping: Tensor) -> Step:
        """Return the step of a method damped by ``damping``, of shape (rows,)."""
        ...

    def where(self, mask: Tensor, other: Any) -> View:
        """Return this view in the samples that `mask` marks, else `other`."""
        ...


class Problem(Protocol):
    """What is minimised over measures: an objective for each sample."""

    @property
    def damping(self) -> Damping:
        """The damping of the steps."""
        ...

    def view(self, state: Spikes) -> View:
        """Return the problem as it is at these spikes."""
        ...

    def clip(self, points: Tensor) -> Tensor:
        """Return the nearest points of the domain."""
        ...


def slide(
    problem: Problem, state: Spikes, *, reach: Tensor, steps: int, tol: float | None = None
) -> Spikes:
    """Return better spikes of all samples.

    Parameters
    ----------
    problem : Problem
    state : Spikes
        Weights of 0 are padding, and stay 0.
    reach : Tensor
        The longest step in each coordinate.
    steps : int
        How many, at most.
    tol : float, optional
        Stop early when no point has moved farther than this share of `reach`. Looking waits for
        the device.

    Returns
    -------
    Spikes
    """
    now = problem.view(state)
    start, least, most = problem.damping
    damping = torch.full_like(now.objective, start, dtype=state.u.dtype)
    for _ in range(steps):
        step = now.step(damping)
        alive = state.u > 0
        shift = step.t / torch.where(alive, state.u, 1.0)[..., None]
        shift = torch.where(alive[..., None], shift, 0.0)
        shift = torch.maximum(torch.minimum(shift, reach), -reach)
        trial = Spikes(
            problem.clip(state.points + shift),
            torch.where(alive, torch.maximum(state.u + step.u, KEPT * state.u), 0.0),
            state.level + step.level,
        )
        there = problem.view(trial)
        better = there.objective <= now.objective + now.rounding
        if step.usable is not None:
            better = better & step.usable
        far = (trial.points - state.points).abs() / reach
        state, now = trial.where(better, state), there.where(better, now)
        damping = torch.where(better, damping / 10, damping * 10).clamp(least, most)
        if tol is not None:
            settled = better & (far.flatten(1).amax(-1) < tol)
            if bool((settled | (damping >= most)).all()):
                break
    return state


def conjugate_gradients(
    product: Callable[[Tensor], Tensor], rest: Tensor, scale: Tensor, iterations: int
) -> Tensor:
    """Solve ``A step = rest`` approximately for each row, preconditioned by ``scale ≈ diag A``."""
    step = torch.zeros_like(rest)
    direction = scaled = rest / scale
    size = (rest * scaled).sum(-1, keepdim=True)
    for _ in range(iterations):
        bent = product(direction)
        length = size / (direction * bent).sum(-1, keepdim=True).clamp_min(TINY)
        step = step + length * direction
        rest = rest - length * bent
        scaled = rest / scale
        last, size = size, (rest * scaled).sum(-1, keepdim=True)
        direction = scaled + size / last.clamp_min(TINY) * direction
    return step
