"""A problem of one's own that the library searches, and the loop of all methods."""

from dataclasses import dataclass, field, replace

import pytest
import torch

from geosoftmax.continuous import PowerCost
from geosoftmax.continuous._problem import Problem
from geosoftmax.continuous._search import KernelSearch
from geosoftmax.continuous.search import Found, plain, search, sliding
from geosoftmax.continuous.sliding import Damping
from geosoftmax.continuous.spikes import Spikes, compact
from tests.continuous.examples import unit_box, waves
from tests.continuous.test_sliding import Pull

DOUBLE = torch.float64


@dataclass(frozen=True)
class Beacons:
    """Some beacons at 1, 2, 3, … in each sample: one that has no spike is found in each round.

    Nearly so: it is seen a little to the right, and spikes slide to the nearest integer.
    """

    wanted: torch.Tensor
    looks: list = field(default_factory=list)
    reach: torch.Tensor = field(default_factory=lambda: torch.tensor(0.5, dtype=DOUBLE))
    steps: int = 20
    settled: float | None = None
    damping: Damping = Damping(1e-3, 1e-12, 1e6)  # noqa: RUF009 - a tuple

    def view(self, state):
        return Pull(state.points.round()).view(state)

    def clip(self, points):
        return points

    def take(self, rows):
        return replace(self, wanted=self.wanted[rows])

    def show(self, state):
        return (state.u > 0).sum(-1)

    def look(self, state, shown, last):
        self.looks.append((len(shown), last))
        lacking = self.wanted - shown
        points = (shown + 1.2).to(DOUBLE)[:, None, None]
        gain = (lacking > 0).to(DOUBLE)[:, None]
        return Found(points, gain, lacking == 0, lacking[:, None])

    def weigh(self, state):
        return compact(state)

    def near(self, state, turn):
        return torch.cdist(state.points, state.points) < 0.1

    def unit(self, points, level):
        return torch.ones_like(points[..., 0])


def nothing(rows):
    zeros = torch.zeros(rows, 1, dtype=DOUBLE)
    return Spikes(zeros[..., None], zeros, zeros + 5)


def test_samples_that_are_done_leave_the_search():
    problem = Beacons(torch.tensor([2, 0, 3]))
    result = search(problem, nothing(3), sliding, 10)
    assert result.rounds.tolist() == [2, 0, 3]
    assert problem.looks == [(3, False), (2, False), (2, False), (1, False)]
    assert not result.certificate.any()
    assert [row[:, 0].tolist() for row in result.history] == [
        [2, 0, 3],
        [1, 0, 2],
        [0, 0, 1],
        [0, 0, 0],
    ]
    for row, count in enumerate([2, 0, 3]):
        alive = result.spikes.u[row] > 0
        found = result.spikes.points[row, alive, 0].sort().values
        expected = torch.arange(1, count + 1, dtype=found.dtype)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def test_the_certificate_tells_what_is_missing_after_the_last_round():
    problem = Beacons(torch.tensor([2, 5]))
    result = search(problem, nothing(2), sliding, 3)
    assert result.certificate.tolist() == [[0], [2]]
    assert result.rounds.tolist() == [2, 3]
    assert problem.looks[-1] == (1, True)


@pytest.mark.parametrize("rounds", [1, 7])
def test_plain_keeps_the_mass_and_what_is_shown(rounds):
    problem = Problem(waves(3, 1), unit_box(1), PowerCost(scale=50.0), 65)
    searched = KernelSearch.of(problem, "plain", 1e-12)
    seen = []

    def watched(*arguments):
        seen.append(plain(*arguments))
        return seen[-1]

    search(searched, searched.start(), watched, rounds)
    state, shown = seen[-1]
    b = torch.exp(problem.values(state.points) / 2)
    torch.testing.assert_close((state.u * b).sum(-1), torch.ones(3, dtype=DOUBLE))
    torch.testing.assert_close(shown, searched.show(state))
    assert state.u.shape[1] == rounds + 1


def test_a_part_of_a_problem_has_the_values_of_its_samples():
    problem = Problem(waves(5, 2), unit_box(2), PowerCost(scale=20.0), 17)
    points = torch.rand(5, 4, 2, dtype=DOUBLE)
    part = problem.take(torch.tensor([4, 1, 0])).take(torch.tensor([2, 0]))
    rows = [0, 4]
    torch.testing.assert_close(part.values(points[rows]), problem.values(points)[rows])
    for mine, all_of_them in zip(part.jet(points[rows]), problem.jet(points), strict=True):
        torch.testing.assert_close(mine, all_of_them[rows])
