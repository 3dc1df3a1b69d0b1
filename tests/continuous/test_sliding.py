"""Spikes of many samples, and a problem of one's own that the library slides."""

from dataclasses import dataclass

import pytest
import torch

from geosoftmax.continuous.sliding import Damping, Step, conjugate_gradients, slide
from geosoftmax.continuous.spikes import Spikes, compact, local_maxima, merge, peaks
from tests.generators import randn

DOUBLE = torch.float64


@dataclass(frozen=True)
class Pull:
    """A toy problem: each spike is pulled to its target, its weight to 2 and the level to 5.

    ``½ Σ_i (u_i² |x_i - target_i|² + (u_i - 2)²) + ½ (level - 5)²``.
    """

    target: torch.Tensor
    damping: Damping = Damping(1e-3, 1e-12, 1e6)  # noqa: RUF009 - a tuple

    def view(self, state):
        return PullView.at(self, state)

    def clip(self, points):
        return points.clamp(-1, 1)


@dataclass(frozen=True)
class PullView:
    objective: torch.Tensor
    parts: Step
    rounding: float = 0.0

    @classmethod
    def at(cls, problem, state):
        alive = (state.u > 0).to(state.u.dtype)
        t = state.u[..., None] * (state.points - problem.target)
        u, level = (state.u - 2) * alive, state.level - 5
        squares = t.square().sum((1, 2)) + u.square().sum(-1) + level.square().sum(-1)
        return cls(squares / 2, Step(u, t, level))

    def step(self, damping):
        size = 1 + damping[:, None]
        return Step(-self.parts.u / size, -self.parts.t / size[..., None], -self.parts.level / size)

    def where(self, mask, other):
        parts = zip(self.parts[:3], other.parts[:3], strict=True)
        chosen = [torch.where(mask.reshape(-1, *[1] * (a.dim() - 1)), a, b) for a, b in parts]
        return PullView(torch.where(mask, self.objective, other.objective), Step(*chosen))


@pytest.mark.parametrize("tol", [None, 1e-12])
def test_a_problem_of_ones_own_slides(tol):
    target = 0.5 * randn(3, 4, 2).clamp(-1.9, 1.9)
    u = torch.tensor([[1.0, 1, 3, 0]] * 3, dtype=DOUBLE)
    start = Spikes(torch.zeros(3, 4, 2, dtype=DOUBLE), u, torch.zeros(3, 1, dtype=DOUBLE))
    reach = torch.tensor([0.3, 0.2], dtype=DOUBLE)
    found = slide(Pull(target), start, reach=reach, steps=200, tol=tol)
    alive = u > 0
    torch.testing.assert_close(found.points[alive], target[alive], rtol=0, atol=1e-8)
    torch.testing.assert_close(found.u[alive], torch.full_like(found.u[alive], 2.0))
    torch.testing.assert_close(found.level, torch.full_like(found.level, 5.0))
    assert not found.u[~alive].any()  # padding stays padding
    assert not found.points[~alive].any()


def test_steps_are_no_longer_than_the_reach_and_stay_inside():
    target = torch.full((1, 1, 2), 3.0, dtype=DOUBLE)  # outside
    ones = torch.ones(1, 1, dtype=DOUBLE)
    start = Spikes.without_level(torch.zeros(1, 1, 2, dtype=DOUBLE), 2 * ones)
    reach = torch.tensor(0.25, dtype=DOUBLE)
    once = slide(Pull(target), start, reach=reach, steps=1)
    assert once.points.tolist() == [[[0.25, 0.25]]]
    assert slide(Pull(target), start, reach=reach, steps=50).points.tolist() == [[[1.0, 1.0]]]


def test_conjugate_gradients_solve_systems():
    root = randn(5, 6, 6)
    matrix = root @ root.mT + torch.eye(6, dtype=DOUBLE)
    right = randn(5, 6)
    diagonal = matrix.diagonal(dim1=-2, dim2=-1)
    found = conjugate_gradients(lambda v: (matrix @ v[..., None])[..., 0], right, diagonal, 30)
    torch.testing.assert_close(found, torch.linalg.solve(matrix, right), rtol=1e-8, atol=1e-10)


def test_neighbours_join_the_heaviest_and_nothing_is_lost():
    points = torch.tensor([[[0.0], [0.1], [5.0], [0.2]]], dtype=DOUBLE)
    state = Spikes.without_level(points, torch.tensor([[1.0, 3.0, 1.0, 0.0]], dtype=DOUBLE))
    joined = compact(merge(state, torch.cdist(points, points) < 1))
    assert joined.u.tolist() == [[4.0, 1.0]]
    torch.testing.assert_close(joined.points[0, :, 0], torch.tensor([0.075, 5.0], dtype=DOUBLE))


def test_samples_are_taken_and_put_back():
    state = Spikes(randn(3, 2, 1), randn(3, 2).abs(), randn(3, 1))
    more = Spikes(randn(1, 4, 1), randn(1, 4).abs(), randn(1, 1))
    both = state.put(torch.tensor([1]), more)
    assert both.u.shape == (3, 4)
    assert torch.equal(both.take(torch.tensor([1])).points, more.points)
    assert torch.equal(compact(both.take(torch.tensor([0]))).u.sum(-1), state.u[:1].sum(-1))


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_local_maxima_in_every_dimension(dim):
    values = torch.zeros(1, *[7] * dim)
    values[(0, *[2] * dim)] = 2
    values[(0, *[4] * dim)] = 1
    assert bool(local_maxima(values, 1)[(0, *[4] * dim)])
    assert not bool(local_maxima(values, 2)[(0, *[4] * dim)])  # the higher one is within two
    pool = (torch.max_pool1d, torch.max_pool2d, torch.max_pool3d)[dim - 1]
    random = randn(2, *[9] * dim)
    for reach in (1, 2, 3, 4):
        largest = pool(random[:, None], 2 * reach + 1, 1, reach)[:, 0]
        assert torch.equal(local_maxima(random, reach), random == largest)


def test_peaks_are_in_order_and_padded():
    values = torch.tensor([[1.0, 5.0, 3.0, -1.0], [2.0, 0.5, 7.0, 0.0]])
    chosen = torch.tensor([[True, True, True, False], [False, False, True, False]])
    index, height = peaks(values, chosen)
    assert index.tolist() == [[1, 2, 0], [2, 2, 2]]
    assert height.tolist() == [[5.0, 3.0, 1.0], [7.0, 0.0, 0.0]]
    assert peaks(values, chosen, 2)[0].tolist() == [[1, 2], [2, 2]]
    assert peaks(values, torch.zeros_like(chosen))[1].tolist() == [[0.0], [0.0]]
