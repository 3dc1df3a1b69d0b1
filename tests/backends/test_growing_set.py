"""The active set on grids: exact, certified, and the same whatever the batch and the threads."""

import warnings

import numpy as np
import pytest
import torch

from geosoftmax import ConvergenceWarning, GridCost, geometric_softmax, solve
from geosoftmax.backends.numba import growing_set
from tests.generators import oracle, planted, randn, total_variation

COSTS = {
    "p2-wide": GridCost((6, 7), p=2) / 4,
    "p2": GridCost((9, 5), p=2) / 2,
    "p2-narrow": GridCost((6, 6), p=2) * 3,
    "p1": GridCost((7, 6), p=1),
    "p1-wide": GridCost((8, 8), p=1) / 4,
    "voxels": GridCost((3, 4, 5), p=2) / 2,
    "line": GridCost((31,), p=2) / 4,
    "one": GridCost((1, 1), p=2),
}


def tables_of(cost):
    return growing_set.make_tables([torch.exp(-axis.matrix() / 2) for axis in cost.axes])


def run(cost, scores, tol=1e-12, max_iter=5000):
    rows = scores.reshape(-1, cost.size).numpy()
    found = growing_set.solve(tables_of(cost), rows, tol, max_iter)
    alpha, u, lower, upper, rounds = map(torch.from_numpy, found)
    return alpha.reshape(scores.shape), u.reshape(scores.shape), lower, upper, rounds


@pytest.fixture(params=COSTS.values(), ids=COSTS)
def cost(request):
    return request.param


@pytest.mark.parametrize("size", [0.1, 1.0, 5.0])
def test_it_agrees_with_nnls(cost, size):
    scores = size * randn(6, *cost.shape, seed=1)
    alpha, _, lower, upper, _ = run(cost, scores)
    expected, value = oracle(cost, scores)
    assert total_variation(alpha, expected) <= 1e-7  # that of nnls itself, where K is wide
    assert bool((lower <= value + 1e-11).all())
    assert bool((value <= upper + 1e-11).all())
    assert float((upper - lower).max()) <= 1e-12


def test_it_finds_planted_supports():
    problem = planted(GridCost((24, 20), p=2), rows=4, density=0.2)
    alpha, _, lower, upper, _ = run(problem.cost, problem.scores)
    assert total_variation(alpha, problem.alpha) <= 1e-9
    assert bool(((lower <= problem.value) & (problem.value <= upper)).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("tol", [1e-3, 1e-6, 1e-9])
def test_smooth_scores_settle(dtype, tol):
    """The case of trained networks: potentials of a wide kernel, with a little noise."""
    cost = GridCost((16, 16), p=2) / 4
    u = torch.where(randn(8, 16, 16) > 1.5, 1.0, 0.0) + 1e-4
    scores = (2 * torch.log(cost.matvec(u)) + 0.01 * randn(8, 16, 16, seed=1)).to(dtype)
    alpha, _, lower, upper, _ = run(cost, scores, tol)
    exact, _, below, above, _ = run(cost, scores.double())
    assert alpha.dtype == dtype
    assert float((upper - lower).max()) <= tol
    assert bool(((lower <= above) & (below <= upper)).all())
    assert total_variation(alpha, exact) <= 1e-3


def test_masked_outputs_get_nothing():
    cost = GridCost((6, 6), p=2) / 2
    scores = randn(5, 6, 6)
    scores[:, ::2, 1::3] = -torch.inf
    scores[1] = -torch.inf
    scores[1, 2, 3] = 7.0
    alpha, u, lower, upper, _ = run(cost, scores)
    assert bool((alpha[scores == -torch.inf] == 0).all())
    assert bool((u[scores == -torch.inf] == 0).all())
    assert float(alpha[1, 2, 3]) == 1
    low = scores.clamp_min(-600.0)
    assert total_variation(alpha, oracle(cost, low)[0]) <= 1e-7
    assert float(lower[1]) <= 7 <= float(upper[1])


def test_rows_without_a_solution_are_nan_and_harm_no_other():
    cost = GridCost((4, 4), p=1)
    scores = randn(5, 4, 4)
    alone = run(cost, scores[4:])
    scores[0, 1, 1] = torch.nan
    scores[1, 0, 0] = torch.inf
    scores[2] = -torch.inf
    scores[3, 0, 0] = torch.nan
    found = run(cost, scores)
    for bound in found[2:4]:
        assert bool(bound[:4].isnan().all())
    for all_rows, one_row in zip(found, alone, strict=True):
        assert torch.equal(all_rows[4:], one_row)


def test_rows_do_not_depend_on_the_batch_or_the_threads(threads):
    cost = GridCost((20, 20), p=2) / 4
    scores = 3 * randn(40, 20, 20)
    threads(1)
    together = run(cost, scores, 1e-6)
    single = run(cost, scores[17:18], 1e-6)
    threads(4)
    spread = run(cost, scores, 1e-6)
    for a, b, one in zip(together, spread, single, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a[17:18], one)


def test_brackets_are_true_after_any_number_of_rounds():
    cost = GridCost((12, 12), p=2) / 4
    scores = 2 * randn(6, 12, 12)
    _, value = oracle(cost, scores)
    for rounds in (1, 2, 5):
        _, _, lower, upper, taken = run(cost, scores, 1e-12, rounds)
        assert bool((taken <= rounds).all())
        assert bool(((lower <= value + 1e-11) & (value <= upper + 1e-11)).all())


@pytest.mark.parametrize("scale", [1e-3, 1 / 64, 1 / 16])
def test_nearly_singular_kernels_end(scale):
    """Wide kernels are singular in float64: the value is found, or the bracket stays wide."""
    cost = GridCost((16, 16), p=2) * scale
    scores = torch.cat([randn(3, 16, 16), 1e-3 * randn(3, 16, 16, seed=1)])
    alpha, _, lower, upper, rounds = run(cost, scores, 1e-6)
    assert bool((rounds < 5000).all())
    assert float((upper - lower).max()) <= 1e-6
    np.testing.assert_allclose(alpha.sum((1, 2)), 1.0, atol=1e-12)


def test_supports_beyond_the_largest_are_finished_by_others():
    cost = GridCost((40, 40), p=2) * 4
    solution = solve(0.1 * randn(2, 40, 40), cost)
    assert bool(solution.converged.all())
    assert int((solution.u > 0).flatten(1).sum(1).min()) > growing_set.LARGEST


def test_rows_that_are_given_up_are_no_warning_of_numpy():
    """A clean peak, whose support is ill-conditioned: others solve it."""
    rows, columns = torch.meshgrid(torch.arange(64.0), torch.arange(64.0), indexing="ij")
    peak = 5 * torch.exp(-((rows - 20.3) ** 2 + (columns - 41.7) ** 2) / 18)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        alpha = geometric_softmax(peak, GridCost((64, 64), p=2) / 2)
    assert all(issubclass(warning.category, ConvergenceWarning) for warning in caught)
    assert bool(torch.isfinite(alpha).all())


def smooth(rows, side, width):
    """Draw white noise, smoothed by a Gaussian along both axes."""
    taps = torch.exp(-(torch.arange(-8.0, 9.0, dtype=torch.float64) ** 2) / (2 * width**2))
    taps = (taps / taps.norm())[None, None]
    noise = torch.randn(
        rows, 1, side, side, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    along = torch.nn.functional.conv2d(noise, taps[..., None], padding=(8, 0))
    return torch.nn.functional.conv2d(along, taps[:, :, None], padding=(0, 8))[:, 0]


@pytest.mark.parametrize("side", [8, 12])
def test_no_weight_is_negative(side):
    # Among these are rows where one output at a time is dropped, and where a product rounds so
    # that none seems to be in the way.
    cost, scores = GridCost((side, side), p=2) / 10, 3 * smooth(2000, side, width=3)
    alpha, u, lower, upper, _ = run(cost, scores, tol=1e-6)
    assert float(u.min()) == 0
    assert float(alpha.min()) == 0
    some = slice(400)  # the exact solve takes its time
    exact = solve(scores[some], cost, tol=1e-9, method="active_set")
    assert bool((lower[some] <= exact.upper).all())
    assert bool((exact.lower <= upper[some]).all())
