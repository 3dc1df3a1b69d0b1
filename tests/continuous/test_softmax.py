"""The geometric softmax off the grid: exact answers, other solvers, laws, methods."""

import math

import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
import torch

from geosoftmax import ConvergenceWarning, GridCost, LineCost, solve
from geosoftmax.continuous import (
    Box,
    FunctionCost,
    Measure,
    PowerCost,
    geometric_logsumexp,
    geometric_softmax,
    interpolate,
    sinkhorn_potential,
)
from tests.continuous.examples import in_order, separated_spikes, unit_box, waves


@pytest.mark.parametrize(
    ("dim", "count", "scale", "apart"),
    [(1, 1, 400.0, 0), (1, 20, 8000.0, 0.025), (2, 20, 400.0, 0.125), (3, 8, 100.0, 0.25)],
)
def test_spikes_are_recovered_from_their_potential(dim, count, scale, apart):
    spikes = separated_spikes(3, count, dim, apart)
    cost = PowerCost(p=2, scale=scale)
    measure, solution = geometric_softmax(sinkhorn_potential(spikes, cost), unit_box(dim), cost)
    assert bool(solution.converged.all())
    assert measure.counts.tolist() == [count] * 3
    (points, weights), (found, shares) = in_order(spikes), in_order(measure)
    assert float((points - found).abs().max()) <= 1e-6
    assert float((weights - shares).abs().max()) <= 1e-6
    assert float(solution.lower.abs().max()) <= 1e-9  # g-LSE(∇Ω(α)) = 0


@pytest.mark.parametrize("scale", [1.0, 20.0, 400.0])
def test_bracket_holds_the_limit_of_finer_grids(scale):
    """A grid sees a smaller value, by O(spacing²): the maximum between its points is missed."""
    score = waves(6, 1)
    solution = geometric_softmax(score, Box(0, 1), PowerCost(scale=scale))[1]
    assert bool(solution.converged.all())
    missed = []
    for sides in (51, 101, 201, 401):
        x = torch.linspace(0, 1, sides, dtype=torch.float64)
        on_grid = solve(score(x[:, None]), LineCost(x, p=2) * scale)
        assert bool((on_grid.lower <= solution.upper + 1e-9).all())
        missed.append(float((solution.lower - on_grid.lower).mean()))
    assert missed[-1] < 1e-3
    rate = math.log2(missed[0] / missed[-1]) / 3
    assert 1.5 < rate < 2.5, missed


def test_grid_in_the_plane():
    score = waves(12, 2, frequency=4.0)
    solution = geometric_softmax(score, unit_box(2), PowerCost(scale=20.0))[1]
    missed = []
    for sides in (11, 21, 41):
        x = unit_box(2).grid(sides)
        scaled = GridCost((sides, sides), p=2) * (20.0 / (sides - 1) ** 2)
        on_grid = solve(score(x).unflatten(-1, (sides, sides)), scaled, tol=1e-4)
        missed.append(float((solution.lower - on_grid.lower).mean()))
    assert 1.5 < math.log2(missed[0] / missed[-1]) / 2 < 2.5, missed


def test_against_nnls_on_a_fine_grid():
    score, scale = waves(3, 1, seed=4), 30.0
    x = np.linspace(0, 1, 401)
    K = np.exp(-scale * (x[:, None] - x[None]) ** 2 / 2) + 1e-10 * np.eye(401)
    L = scipy.linalg.cholesky(K, lower=True)
    measure, solution = geometric_softmax(score, Box(0, 1), PowerCost(scale=scale))
    for row, f in enumerate(score(torch.from_numpy(x)[:, None]).numpy()):
        b = np.exp((f - f.max()) / 2)
        u, _ = scipy.optimize.nnls(L.T, scipy.linalg.solve_triangular(L, b, lower=True))
        assert float(solution.lower[row]) == pytest.approx(np.log(u @ b) + f.max(), abs=1e-4)
        one = measure[row]
        near = np.abs(x[None] - one.points.numpy()) < 0.03
        shares = near @ (u * b) / (u @ b)
        np.testing.assert_allclose(shares, one.weights.numpy(), atol=2e-3)


def test_answer_fulfils_the_optimality_conditions():
    score, cost, domain = waves(4, 2, seed=1), PowerCost(scale=30.0), unit_box(2)
    measure, solution = geometric_softmax(score, domain, cost)
    x = domain.grid(151)
    b = torch.exp((score(x) - solution.peak[:, None]) / 2)
    h = (cost.kernel(x, measure.points) @ solution.u[..., None])[..., 0]
    assert float((b - h).max()) < 1e-9
    b = torch.exp((score(measure.points) - solution.peak[:, None]) / 2)
    h = (cost.kernel(measure.points, measure.points) @ solution.u[..., None])[..., 0]
    assert float(torch.where(solution.u > 0, b - h, 0.0).abs().max()) < 1e-9


def test_methods_agree_and_converge_as_they_should():
    """Corrective methods converge geometrically, the paper's own as 1/t."""
    score, cost, domain = waves(4, 1, seed=3), PowerCost(scale=20.0), Box(0, 1)
    exact = geometric_softmax(score, domain, cost, tol=1e-12)[1].lower
    error = {}
    for method, rounds in [("corrective", 12), ("pairwise", 40), ("away", 40), ("plain", 64)]:
        with pytest.warns(ConvergenceWarning, match="did not reach"):
            solution = geometric_softmax(
                score, domain, cost, method=method, tol=1e-14, max_iter=rounds
            )[1]
        assert bool((solution.lower <= exact + 1e-12).all())
        assert bool((solution.upper >= exact - 1e-12).all())
        error[method] = (exact - solution.history).mean(-1).clamp_min(0)
    assert float(error["corrective"][8]) < 1e-8
    assert float(error["pairwise"][-1]) < 1e-3
    assert float(error["away"][-1]) < 3e-3
    rate = math.log2(float(error["plain"][16] / error["plain"][64])) / 2
    assert 0.7 < rate < 1.6, rate


def test_corrective_sees_what_lies_between_its_points():
    """Many points in the plane: maxima next to them are too near for the grid to show."""
    score, cost = waves(4, 2), PowerCost(scale=60.0)
    exact = geometric_softmax(score, unit_box(2), cost, tol=1e-10)[1].lower
    with pytest.warns(ConvergenceWarning, match="did not reach"):
        solution = geometric_softmax(
            score, unit_box(2), cost, method="corrective", tol=1e-14, max_iter=16
        )[1]
    assert float((exact - solution.lower).max()) < 1e-6


def test_translation_and_rotation_move_the_answer():
    score, cost = waves(2, 2, seed=5, frequency=3.0), PowerCost(scale=30.0)

    # A score that fades outwards faster than the kernel, so that the box does not matter.
    def faded(x):
        return score(x) - 60 * (x - 0.5).square().sum(-1)

    domain = Box([-0.5, -0.5], [1.5, 1.5])
    measure, solution = geometric_softmax(faded, domain, cost, tol=1e-12)
    shift = torch.tensor([0.3, -0.2], dtype=torch.float64)
    shifted = Box(domain.lower + shift, domain.upper + shift)
    moved, again = geometric_softmax(lambda x: faded(x - shift), shifted, cost, tol=1e-12)
    torch.testing.assert_close(again.lower, solution.lower, rtol=0, atol=1e-9)
    torch.testing.assert_close(
        in_order(moved)[0], in_order(measure.translate(shift))[0], rtol=0, atol=1e-6
    )
    c, s = math.cos(0.7), math.sin(0.7)
    turn = torch.tensor([[c, -s], [s, c]], dtype=torch.float64)
    turned, again = geometric_softmax(
        lambda x: faded((x - 0.5) @ turn + 0.5), domain, cost, tol=1e-12
    )
    torch.testing.assert_close(again.lower, solution.lower, rtol=0, atol=1e-9)
    expected = in_order(measure.move(lambda x: (x - 0.5) @ turn.mT + 0.5))
    torch.testing.assert_close(in_order(turned)[0], expected[0], rtol=0, atol=1e-6)
    torch.testing.assert_close(in_order(turned)[1], expected[1], rtol=0, atol=1e-6)


def test_a_constant_adds_and_a_batch_is_its_samples():
    score, cost = waves(3, 1, seed=7), PowerCost(scale=50.0)
    value = geometric_logsumexp(score, Box(0, 1), cost)
    torch.testing.assert_close(
        geometric_logsumexp(lambda x: score(x) + 700.0, Box(0, 1), cost), value + 700.0
    )
    for row in range(3):
        alone = geometric_logsumexp(lambda x, row=row: score(x)[..., row, :], Box(0, 1), cost)
        assert alone.shape == ()
        assert float(alone) == pytest.approx(float(value[row]), abs=2e-9)
    nested = geometric_logsumexp(
        lambda x: score(x.reshape(-1, *x.shape[-2:])[:3] if x.dim() > 2 else x).reshape(3, 1, -1),
        Box(0, 1),
        cost,
    )
    assert nested.shape == (3, 1)


def test_other_families():
    """Where C is |x - y|, mass spreads out; the bracket still holds. A circle has no ends."""
    score, domain = waves(2, 1, seed=2), Box(0, 1)
    x = torch.linspace(0, 1, 2001, dtype=torch.float64)
    on_grid = solve(score(x[:, None]), LineCost(x, p=1) * 3)
    solution = geometric_softmax(score, domain, PowerCost(p=1, scale=3.0), tol=1e-3)[1]
    assert bool(solution.converged.all())
    assert bool((on_grid.lower <= solution.upper).all())
    assert bool((solution.lower <= on_grid.upper + 1e-5).all())

    def around(x, y):
        return 2 - 2 * torch.cos(2 * math.pi * (x[..., :, None, 0] - y[..., None, :, 0]))

    turning = geometric_softmax(
        lambda x: 4 * torch.cos(2 * math.pi * (x[..., 0] - 0.97)), domain, around
    )[0]
    assert float(turning.mean()) == pytest.approx(0.97, abs=1e-7)
    narrow = FunctionCost(lambda x, y: PowerCost().matrix(x, y)) * 30
    value = geometric_logsumexp(score, domain, narrow)
    torch.testing.assert_close(value, geometric_logsumexp(score, domain, PowerCost(scale=30.0)))


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_values_on_a_grid(dim):
    domain = Box([0.0] * dim, [2.0] * dim)
    coefficients = torch.randn(3, dim, dtype=torch.float64)

    def quadratic(x):
        return (x.square() @ coefficients.abs()[:, :, None])[..., 0].neg() + x.sum(-1)

    sides = [4, 5, 3][:dim]
    axes = [torch.linspace(0, 2, n, dtype=torch.float64) for n in sides]
    nodes = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).reshape(-1, dim)
    values = quadratic(nodes).reshape(3, *sides)
    points = 2 * torch.rand(3, 50, dim, dtype=torch.float64)
    score = interpolate(values, domain)
    torch.testing.assert_close(score(points), quadratic(points))
    torch.testing.assert_close(score(points[0])[0], score(points)[0])
    if dim == 3:
        return  # 64 neighbours for each point: slow, and nothing new
    value = geometric_logsumexp(values, domain, PowerCost(), grid=9)
    torch.testing.assert_close(value, geometric_logsumexp(quadratic, domain, PowerCost(), grid=9))


def test_masks_borders_and_float32_scores():
    cost = PowerCost(scale=10.0)
    measure, _ = geometric_softmax(lambda x: 8 * x[..., 0], Box(0, 1), PowerCost())
    assert measure.points.tolist() == [[1.0]]  # all of it is pressed against the border
    nowhere = torch.tensor(-math.inf, dtype=torch.float64)
    measure, _ = geometric_softmax(
        lambda x: torch.where(x[..., 0] > 0.5, -x[..., 0], nowhere), Box(0, 1), cost, tol=1e-2
    )
    assert bool((measure.points[measure.weights > 0] > 0.5).all())
    network = torch.nn.Linear(1, 1)
    measure, solution = geometric_softmax(lambda x: network(x.float())[..., 0], Box(0, 1), cost)
    assert solution.lower.dtype == torch.float64
    assert not solution.lower.requires_grad
    assert "converged=1/1" in repr(solution)


def good(x):
    return -x.square().sum(-1)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"score": lambda x: x[..., 0] * math.nan}, ValueError, "NaN"),
        ({"score": lambda x: x[..., 0] + math.inf}, ValueError, "inf"),
        ({"score": lambda x: x[..., 0] - math.inf}, ValueError, "every point is masked"),
        ({"score": lambda x: x}, ValueError, "one value for each point"),
        ({"score": lambda x: x[..., 0].sum()}, ValueError, "one value for each point"),
        ({"score": 3.0}, TypeError, "function of points"),
        ({"score": torch.zeros(3, 2)}, ValueError, "at least 3 points"),
        ({"domain": (0, 1)}, TypeError, "must be a Box"),
        ({"cost": 1.0}, TypeError, "PowerCost"),
        ({"cost": LineCost(3)}, TypeError, "fixed outputs"),
        ({"cost": PowerCost(scale=1e9)}, ValueError, "too coarse"),
        ({"cost": lambda x, y: x[..., 0]}, ValueError, "must return shape"),
        ({"method": "newton"}, ValueError, "method must be one of"),
        ({"tol": 0.0}, ValueError, "tol"),
        ({"max_iter": 0}, ValueError, "max_iter"),
        ({"grid": 2}, ValueError, "grid must be"),
    ],
)
def test_bad_input(change, error, says):
    arguments = {"score": good, "domain": Box(0, 1), "cost": PowerCost(), **change}
    with pytest.raises(error, match=says):
        geometric_softmax(**arguments)


def test_a_field_and_a_box_of_different_dimensions_are_both_named():
    square, cost = Box([0, 0], [1, 1]), PowerCost()
    with pytest.raises(ValueError, match=r"in 1-D, shape \(1, 1\); the domain Box\(.*\) is 2-D"):
        geometric_softmax(sinkhorn_potential(Measure([[0.2]]), cost), square, cost)
    line = interpolate(torch.zeros(5), Box(0, 1))  # it must not take the first coordinate alone
    with pytest.raises(ValueError, match=r"shape \(5,\) .* is 1-D; got points of shape \(\d+, 2\)"):
        geometric_softmax(line, square, cost)


def test_scores_that_do_not_broadcast():
    def first_only(x):
        return x[..., 0].expand(2, -1) if x.dim() == 2 else x[:1, :, 0]

    with pytest.raises(ValueError, match="Broadcast over the leading"):
        geometric_softmax(first_only, Box(0, 1), PowerCost())


def test_measure_of_one_point_has_value_of_its_score():
    point = Measure([[0.4]])
    cost = PowerCost(scale=100.0)
    assert float(geometric_logsumexp(sinkhorn_potential(point, cost), Box(0, 1), cost)) == (
        pytest.approx(0.0, abs=1e-12)
    )


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda d: -d.square(), "negative"),
        (lambda d: 40 * d**4, "not positive definite"),
        (lambda d: d.abs() + d.clamp(min=0), "not symmetric"),
        (lambda d: 1 + d.square(), "non-zero diagonal"),
        (lambda d: d / 0, "NaN or infinite"),
    ],
)
def test_functions_that_are_no_cost_are_refused(function, words):
    cost = FunctionCost(lambda x, y: function(x[..., :, None, 0] - y[..., None, :, 0]))
    with pytest.raises(ValueError, match=f"is no cost. At 32 points: .*{words}"):
        geometric_softmax(lambda x: -x[..., 0].square(), Box(0, 1), cost)
