"""A score and a cost as a problem that is searched: grids, refined maxima, brackets of the value.

``h ≥ b`` holds for ``ρμ`` with ``ρ = max b/h``, and for ``μ + ετ`` with ``ε = max (b - h)`` and any
cover ``τ`` with ``Kτ ≥ 1``. Both give upper bounds; the smaller one counts. The cover is spread
evenly over the grid.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import NamedTuple

import torch
from torch import Tensor

from geosoftmax.continuous._oracle import (
    difference_jet,
    envelope,
    ratio_jet,
    refine,
)
from geosoftmax.continuous._problem import Problem
from geosoftmax.continuous._views import KernelView, kernel_view
from geosoftmax.continuous.search import Found
from geosoftmax.continuous.sliding import Damping
from geosoftmax.continuous.spikes import Spikes, compact, local_maxima, merge, peaks
from geosoftmax.costs import DenseCost
from geosoftmax.functional import solve as solve_on_points
from geosoftmax.solvers.solution import ConvergenceWarning, has_converged

#: Points merge where ``1 - K`` is below this; it halves in each round, so that no round undoes
#: the last for ever, down to where ``K`` on the points would be singular. Maxima that are found
#: from two starts are the same below the last value.
MERGED, INSEPARABLE, SAME = 0.05, 1e-12, 1e-3
#: Steps of sliding at most, and the share of the longest below which they are rounding.
SLIDES, SETTLED = 40, 1e-12
DAMPING = Damping(1e-4, 1e-15, 1e8)
#: Maxima are added that gain at least this share of the largest one.
WORTH = 0.01
#: Local maxima that are followed up in each round.
STARTS = 16
#: Methods that solve for the weights look at ``b - h``; the others at ``b/h``.
DIRECT = ("sliding", "corrective")


class Grid(NamedTuple):
    """A grid, and the scores of the samples on it."""

    side: int
    points: Tensor
    f: Tensor

    @classmethod
    def of(cls, problem: Problem, side: int) -> Grid:
        """Return the grid with so many points along each side."""
        points = problem.domain.grid(side)
        return cls(side, points, problem.on(points))


class Maxima(NamedTuple):
    """Refined local maxima ``(rows, k, dim)``, what they gain, and the worst that was seen."""

    points: Tensor
    gain: Tensor
    ratio: Tensor
    worst: Tensor

    def joined(self, rows: Tensor, other: Maxima) -> Maxima:
        """Return these, and in some rows others too."""
        size = other.gain.shape[1]
        points = self.points[:, :1].repeat(1, size, 1).index_copy(0, rows, other.points)
        nothing = torch.full_like(self.gain[:, :1], -torch.inf).repeat(1, size)
        return Maxima(
            torch.cat([self.points, points], 1),
            torch.cat([self.gain, nothing.index_copy(0, rows, other.gain)], 1),
            self.ratio.index_copy(0, rows, torch.maximum(self.ratio[rows], other.ratio)),
            self.worst.index_copy(0, rows, torch.maximum(self.worst[rows], other.worst)),
        )


@dataclasses.dataclass(frozen=True)
class KernelSearch:
    """A problem as the methods search it, on a grid and on one that is twice as fine."""

    problem: Problem
    method: str
    tol: float
    coarse: Grid
    fine: Grid
    cover: Tensor  # its weight at each point of the grid
    energy: Tensor  # of the cover
    steps: int = SLIDES
    settled: float = SETTLED
    damping: Damping = DAMPING

    @classmethod
    def of(cls, problem: Problem, method: str, tol: float) -> KernelSearch:
        """Prepare the grids."""
        coarse, fine = (Grid.of(problem, n) for n in (problem.side, 2 * problem.side - 1))
        points = coarse.points
        reached = envelope(problem.cost, points, points[None], torch.ones_like(points[None, :, 0]))
        cover = 1 / reached.min()
        return cls(problem, method, tol, coarse, fine, cover, reached.sum() * cover**2)

    @property
    def reach(self) -> Tensor:
        """The longest step."""
        return 2 * self.problem.spacing

    def view(self, state: Spikes) -> KernelView:
        """Return the joint objective of points and weights."""
        return kernel_view(self.problem, state)

    def clip(self, points: Tensor) -> Tensor:
        """Return the nearest points of the box."""
        return self.problem.domain.clip(points)

    def take(self, rows: Tensor) -> KernelSearch:
        """Return the problem of some samples."""
        coarse, fine = (one._replace(f=one.f[rows]) for one in (self.coarse, self.fine))
        return dataclasses.replace(self, problem=self.problem.take(rows), coarse=coarse, fine=fine)

    def start(self) -> Spikes:
        """Return the best single spike of the grid."""
        points = self.coarse.points[self.coarse.f.argmax(-1)][:, None]
        level = points[:, 0, :0]
        return Spikes(points, self.unit(points, level), level)

    def unit(self, points: Tensor, level: Tensor) -> Tensor:
        """Return the weights of spikes whose probability is 1."""
        return torch.exp(-self.problem.values(points) / 2)

    def show(self, state: Spikes) -> Tensor:
        """Return ``h`` on the grid."""
        return envelope(self.problem.cost, self.coarse.points, state.points, state.u)

    def look(self, state: Spikes, shown: Tensor, last: bool) -> Found:
        """Return maxima that are worth adding, and the bracket.

        Samples that are done as far as the grid shows, and all at the end, are seen on the finer
        one too.
        """
        lower, factor = value(self.problem, state)
        state, h = rescaled(state, factor), shown * factor[:, None]
        seen = self._maxima(self.coarse, state, h)
        upper = self._upper(lower, h, seen)
        done = has_converged(lower, upper, self.tol)
        rows = (done | last).nonzero()[:, 0]
        if len(rows):
            seen = seen.joined(rows, self.take(rows).look_closer(state.take(rows)))
            upper = self._upper(lower, h, seen)
            done = has_converged(lower, upper, self.tol)
        points, gain = seen.points, seen.gain
        if self.method in DIRECT:
            worth = gain > (WORTH * seen.worst.clamp_min(self.tol))[:, None]
            found = Spikes(points, torch.where(worth, gain, 0.0), state.level)
            distinct = merge(found, self._closer(points, SAME))
            points, gain = distinct.points, distinct.u
        return Found(points, gain, done, torch.stack([lower, upper, seen.worst], -1))

    def look_closer(self, state: Spikes) -> Maxima:
        """Return what the finer grid shows."""
        h = envelope(self.problem.cost, self.fine.points, state.points, state.u)
        return self._maxima(self.fine, state, h)

    def near(self, state: Spikes, turn: int) -> Tensor:
        """Return who nearly meets."""
        return self._closer(state.points, max(MERGED * 0.5**turn, INSEPARABLE))

    def weigh(self, state: Spikes) -> Spikes:
        """Solve for the weights, exactly. Points that nothing tells apart are one."""
        problem = self.problem
        state = compact(merge(state, self._closer(state.points, INSEPARABLE)))
        f = problem.values(state.points)
        f = torch.where(state.u > 0, f, -torch.inf)
        dense = DenseCost(problem.cost.matrix(state.points, state.points).detach(), validate=False)
        with warnings.catch_warnings():  # the certificate off the grid says what was reached
            warnings.simplefilter("ignore", ConvergenceWarning)
            solved = solve_on_points(f, dense, tol=1e-12)
        scale = torch.exp(f.amax(-1, keepdim=True) / 2)
        return compact(Spikes(state.points, solved.u * scale, state.level))

    def _closer(self, points: Tensor, distance: float) -> Tensor:
        return 1 - self.problem.cost.kernel(points, points) < distance

    def _maxima(self, grid: Grid, state: Spikes, h: Tensor) -> Maxima:
        """Return the refined maxima of ``b - h`` or ``b/h``, and the worst that was seen."""
        problem = self.problem
        ratio, worst = _uncovered(grid.f, h)
        direct = self.method in DIRECT
        values = (worst if direct else ratio).reshape(-1, *[grid.side] * problem.domain.dim)
        start = grid.points[peaks(values, local_maxima(values, 1), STARTS)[0]]
        if self.method == "corrective":  # without sliding, maxima lie next to its points, too near
            start = torch.cat([start, state.points], 1)  # for a grid to show them
        jet = difference_jet if direct else ratio_jet
        points, gain = refine(
            lambda x: jet(problem, x, state.points, state.u),
            start,
            problem.domain,
            problem.domain.width / (grid.side - 1),
        )
        h = (problem.cost.kernel(points, state.points) * state.u[:, None, :]).sum(-1)
        more_ratio, more_worst = _uncovered(problem.values(points), h)
        return Maxima(
            points,
            gain,
            torch.maximum(ratio.amax(-1), more_ratio.amax(-1)),
            torch.maximum(worst.amax(-1), more_worst.amax(-1)),
        )

    def _upper(self, lower: Tensor, h: Tensor, seen: Maxima) -> Tensor:
        """Return the upper bound of ``g-LSE - peak``, where ``⟨b,u⟩ = uᵀKu``."""
        excess = seen.worst.clamp_min(0)
        energy = torch.exp(lower) + 2 * excess * self.cover * h.sum(-1)
        energy = energy + excess.square() * self.energy
        return torch.minimum(lower + 2 * seen.ratio.clamp_min(0), torch.log(energy))


def _uncovered(f: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``log(b/h)`` and ``b - h``."""
    return f / 2 - torch.log(h.clamp_min(1e-300)), torch.exp(f / 2) - h


def value(problem: Problem, state: Spikes) -> tuple[Tensor, Tensor]:
    """Return ``log(⟨b,u⟩² / uᵀKu)`` and ``⟨b,u⟩ / uᵀKu``."""
    b = torch.exp(problem.values(state.points) / 2)
    inner = torch.where(state.u > 0, b * state.u, 0.0).sum(-1)
    h = (problem.cost.kernel(state.points, state.points) @ state.u[..., None])[..., 0]
    energy = (state.u * h).sum(-1)
    return 2 * torch.log(inner) - torch.log(energy), inner / energy


def rescaled(state: Spikes, factor: Tensor) -> Spikes:
    """Return a multiple: with the second part of `value` the best one, ``⟨b,u⟩ = uᵀKu``."""
    return Spikes(state.points, state.u * factor[:, None], state.level)
