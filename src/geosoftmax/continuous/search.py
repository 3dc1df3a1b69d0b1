r"""Frank–Wolfe methods off the grid, for any problem that knows where a measure lacks mass.

A `Searched` problem adds an oracle to what sliding needs: `look` returns the points where mass is
missing, and a certificate of how much that may matter. `search` is the loop of all methods. Samples
that are done leave it, so each costs its own rounds only. What a round does is a step:

- `sliding` adds what was found, moves points and weights together, and merges neighbours;
- `plain` moves towards the best point, by ``2/(t+2)``, as the paper does.

A kernel with a score function is one such problem, the frames of a camera are another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, Self

import torch
from torch import Tensor

from geosoftmax.continuous import sliding as moves
from geosoftmax.continuous.spikes import Spikes, compact, merge

__all__ = ["Found", "Searched", "Searching", "plain", "search", "settle", "sliding"]


class Found(NamedTuple):
    """What an oracle finds in all samples.

    Attributes
    ----------
    points : Tensor, shape (rows, k, dim)
        Where mass is missing.
    gain : Tensor, shape (rows, k)
        The weight that it begins with there; 0 where it is not worth it.
    done : Tensor, shape (rows,)
        Whether a sample is good enough.
    certificate : Tensor, shape (rows, c)
        Numbers of the problem's own that say how good.
    """

    points: Tensor
    gain: Tensor
    done: Tensor
    certificate: Tensor


class Searched(moves.Problem, Protocol):
    """A problem whose spikes are sought, not only moved."""

    @property
    def reach(self) -> Tensor:
        """The longest step of a point in each coordinate."""
        ...

    @property
    def steps(self) -> int:
        """How many steps points slide in a round, at most."""
        ...

    @property
    def settled(self) -> float | None:
        """The share of `reach` below which sliding stops; None to do all steps."""
        ...

    def take(self, rows: Tensor) -> Self:
        """Return the problem of some samples."""
        ...

    def show(self, state: Spikes) -> Tensor:
        """Return what the oracle sees of spikes, of shape (rows, ...): linear in the weights."""
        ...

    def look(self, state: Spikes, shown: Tensor, last: bool) -> Found:
        """Return where mass is missing, given what `show` returned; `last` if no round follows."""
        ...

    def weigh(self, state: Spikes) -> Spikes:
        """Return the spikes that are worth keeping, with better weights where that is cheap."""
        ...

    def near(self, state: Spikes, turn: int) -> Tensor:
        """Return which neighbours become one in this round, of shape (rows, n, n)."""
        ...

    def unit(self, points: Tensor, level: Tensor) -> Tensor:
        """Return the weight of a single spike at these points, for `plain`: the mass is fixed."""
        ...


#: From a problem, spikes, what they show, what was found, and the number of the round (from 1),
#: to better spikes and what they show.
Step = Callable[[Searched, Spikes, Tensor, Found, int], tuple[Spikes, Tensor]]


class Searching(NamedTuple):
    """What a search ends with; `history` has the certificates before each round and at the end."""

    spikes: Spikes
    certificate: Tensor
    rounds: Tensor
    history: list[Tensor]


def search(problem: Searched, state: Spikes, step: Step, rounds: int) -> Searching:
    """Repeat a step until all samples are done, or for so many `rounds`."""
    index = torch.arange(state.u.shape[0], device=state.u.device)
    every, taken, history = state, torch.zeros_like(index), []
    shown = problem.show(state)
    for turn in range(rounds + 1):
        found = problem.look(state, shown, turn == rounds)
        numbers = found.certificate
        history.append(history[-1].index_copy(0, index, numbers) if history else numbers)
        taken[index] = turn
        going = (~found.done).nonzero()[:, 0]
        if turn == rounds or not len(going):
            break
        if len(going) < len(index):
            problem, state, index = problem.take(going), state.take(going), index[going]
            shown, found = shown[going], Found(*(one[going] for one in found))
        state, shown = step(problem, state, shown, found, turn + 1)
        every = every.put(index, state)
    return Searching(compact(every), history[-1], taken, history)


def sliding(
    problem: Searched, state: Spikes, shown: Tensor, found: Found, turn: int
) -> tuple[Spikes, Tensor]:
    """Add all that was found; then points and weights settle."""
    state = settle(problem, problem.weigh(state.join(found.points, found.gain)), turn)
    return state, problem.show(state)


def settle(problem: Searched, state: Spikes, turn: int) -> Spikes:
    """Slide, merge neighbours, and drop what is not worth keeping."""
    state = moves.slide(
        problem, state, reach=problem.reach, steps=problem.steps, tol=problem.settled
    )
    return problem.weigh(merge(state, problem.near(state, turn)))


def plain(
    problem: Searched, state: Spikes, shown: Tensor, found: Found, turn: int
) -> tuple[Spikes, Tensor]:
    """Move towards a single spike at the best point, by ``2/(t+2)`` in round ``t``.

    Spikes at the start have the mass of a single one.
    """
    best = found.gain.argmax(-1)[:, None, None].expand(-1, 1, found.points.shape[-1])
    points = found.points.gather(1, best)
    single = Spikes(points, problem.unit(points, state.level), state.level)
    share = 2 / (turn + 2)
    moved = Spikes(state.points, (1 - share) * state.u, state.level)
    moved = moved.join(points, share * single.u)
    return moved, shown + share * (problem.show(single) - shown)
