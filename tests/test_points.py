"""Points as targets on a grid, and how distributions are read as points."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import ndimage

from geosoftmax import (
    GridCost,
    decide,
    geometric_logistic_loss,
    geometric_softmax,
    locate,
    peaks,
    point_target,
    sinkhorn_potential,
    spread,
)
from geosoftmax.continuous import Box, Measure, PowerCost
from geosoftmax.continuous import geometric_softmax as continuous_softmax
from geosoftmax.continuous import sinkhorn_potential as continuous_potential
from tests.conftest import assert_close, compiles
from tests.generators import randn

SHAPES = [(7,), (1,), (5, 9), (1, 6), (41, 3), (3, 4, 5)]
RULES = ("local mean", "mode", "mean", "median")


def points_on(shape, *batch, seed=0, dtype=torch.float64, margin=0.0):
    rng = torch.Generator().manual_seed(seed)
    sides = torch.tensor(shape, dtype=torch.float64)
    unit = torch.rand(*batch, len(shape), generator=rng, dtype=torch.float64)
    return (margin + unit * (sides - 1 - 2 * margin)).to(dtype)


def distributions(shape, *batch, seed=0, sparse=0.3):
    rng = np.random.default_rng(seed)
    flat = rng.dirichlet(np.full(int(np.prod(shape)), sparse), batch)
    return torch.from_numpy(flat).reshape(*batch, *shape)


def grid_of(shape):
    axes = [torch.arange(n, dtype=torch.float64) for n in shape]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), -1)


def last(shape):
    return tuple(range(-len(shape), 0))


# ------------------------------------------------------------------ targets


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_mean_of_a_target_is_its_point(shape):
    points = points_on(shape, 3, 4)
    alpha, present = point_target(points, shape)
    assert alpha.shape == (3, 4, *shape)
    assert bool(present.all())
    n = len(shape)
    mean = (alpha[..., None] * grid_of(shape)).flatten(-n - 1, -2).sum(-2)
    assert_close(mean, points)
    assert_close(alpha.sum(last(shape)), torch.ones(3, 4, dtype=torch.float64))
    assert int((alpha > 0).sum(last(shape)).max()) <= 2**n


@pytest.mark.parametrize("shape", [(4, 6), (2, 3, 4)], ids=str)
def test_pixels_and_corners_have_all_their_mass_in_one_place(shape):
    grid = grid_of(shape)
    alpha = point_target(grid, shape).alpha
    d = int(np.prod(shape))
    assert torch.equal(alpha.reshape(d, d), torch.eye(d, dtype=torch.float64))


def test_no_distribution_with_this_mean_has_less_variance():
    """Linear programming, over all distributions on a grid with a given mean."""
    from scipy.optimize import linprog

    shape, point = (4, 5), torch.tensor([1.3, 2.75], dtype=torch.float64)
    places = grid_of(shape).reshape(-1, 2).numpy()
    squares = ((places - point.numpy()) ** 2).sum(-1)
    equal = np.vstack([np.ones(20), places.T])
    least = linprog(squares, A_eq=equal, b_eq=[1.0, *point.tolist()])
    alpha = point_target(point, shape).alpha.numpy().ravel()
    assert alpha @ squares == pytest.approx(least.fun, abs=1e-9)


@given(st.integers(0, 3), st.integers(0, 4), st.floats(0, 1), st.floats(0, 1))
def test_translations_by_pixels_move_the_mass(rows, columns, t, s):
    point = torch.tensor([t, s], dtype=torch.float64)
    start = point_target(point, (8, 9)).alpha
    moved = point_target(point + torch.tensor([rows, columns]), (8, 9)).alpha
    assert_close(moved, start.roll((rows, columns), (0, 1)))


def test_missing_points_are_marked_and_can_be_left_out():
    points = torch.tensor([[1.5, 2.0], [float("nan"), float("nan")], [0.0, 3.0]])
    alpha, present = point_target(points, (3, 4))
    assert present.tolist() == [True, False, True]
    scores = torch.randn(3, 3, 4, requires_grad=True)
    geometric_logistic_loss(scores[present], alpha[present], GridCost((3, 4))).backward()
    assert float(scores.grad[1].abs().max()) == 0
    assert float(scores.grad[0].abs().max()) > 0


def test_missing_points_are_never_trained_on():
    points = torch.tensor([[1.5, 2.0], [float("nan"), float("nan")]], requires_grad=True)
    alpha = point_target(points, (3, 4)).alpha
    assert alpha[1].isnan().all()
    with pytest.raises(ValueError, match=r"NaN for missing points.*leave them out, by `present`"):
        geometric_logistic_loss(torch.randn(2, 3, 4), alpha, GridCost((3, 4)))
    with pytest.raises(ValueError, match=r"sums to 0 .*leave it out of the batch"):
        geometric_logistic_loss(torch.randn(2, 3, 4), alpha.nan_to_num(), GridCost((3, 4)))
    (slope,) = torch.autograd.grad(alpha[0, 1].sum(), points)
    assert slope[1].tolist() == [0, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_targets_keep_the_dtype(dtype):
    assert point_target(torch.tensor([1.0, 2.0], dtype=dtype), (3, 4)).alpha.dtype == dtype


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_points_of_half_precision_have_targets_of_single_precision(dtype):
    """From 256 or 2,048 pixels on, not every pixel has a number of half precision."""
    points = torch.tensor([[2704.0], [2700.0], [0.5]]).to(dtype)
    alpha = point_target(points, (3000,)).alpha
    assert alpha.dtype == torch.float32
    assert alpha.sum(-1).tolist() == [1, 1, 1]
    assert torch.equal(locate(alpha, "mean", dim=-1), points.float())
    with pytest.raises(ValueError, match="outside the grid"):
        point_target(torch.tensor([[300.0]]).to(dtype), (300,))


def test_gradients_flow_to_points():
    points = points_on((5, 6), 3, margin=0.1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: point_target(x, (5, 6)).alpha, points)


def test_the_loss_of_a_point_is_least_at_its_own_potential():
    cost = GridCost((6, 7), p=1)
    alpha = point_target(torch.tensor([2.3, 4.6], dtype=torch.float64), (6, 7)).alpha
    f = sinkhorn_potential(alpha, cost)
    assert float(geometric_logistic_loss(f, alpha, cost)) == pytest.approx(0, abs=1e-10)
    assert_close(locate(geometric_softmax(f, cost)), torch.tensor([2.3, 4.6]).double(), atol=1e-6)


# ------------------------------------------------------------------ reading


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("rule", RULES)
def test_reading_inverts_the_target(shape, rule):
    points = points_on(shape, 2, 5, seed=1)
    found = locate(point_target(points, shape).alpha, rule, dim=last(shape))
    assert_close(found, points.round() if rule == "mode" else points)


@pytest.mark.parametrize("shape", [(11,), (9, 12), (5, 6, 7)], ids=str)
def test_local_means_against_every_window(shape):
    alpha = distributions(shape, 6)
    window, places = 3, grid_of(shape)
    for one, found in zip(alpha, locate(alpha, window=window, dim=last(shape)), strict=True):
        best, mean = -1.0, None
        for start in np.ndindex(*(n - window + 1 for n in shape)):
            part = tuple(slice(a, a + window) for a in start)
            mass = one[part]
            if float(mass.sum()) > best:
                best = float(mass.sum())
                mean = (mass[..., None] * places[part]).flatten(0, -2).sum(0) / mass.sum()
        assert_close(found, mean)


def test_means_and_modes_against_scipy():
    alpha = distributions((8, 5), 7)
    for one, mean, mode in zip(alpha, locate(alpha, "mean"), locate(alpha, "mode"), strict=True):
        assert tuple(mean.tolist()) == pytest.approx(ndimage.center_of_mass(one.numpy()))
        assert tuple(mode.int().tolist()) == ndimage.maximum_position(one.numpy())


def test_modes_are_those_of_decide():
    alpha = distributions((8, 5), 20, sparse=1.0)
    index = decide(alpha, GridCost((8, 5)), "mode")
    assert torch.equal(locate(alpha, "mode"), torch.stack(torch.unravel_index(index, (8, 5)), -1))


def test_medians_against_a_fine_scan():
    alpha = distributions((30,), 20, sparse=1.0)
    x = np.linspace(0, 29, 290_001)
    for one, found in zip(alpha.numpy(), locate(alpha, "median", dim=-1), strict=True):
        mass = np.interp(x, np.arange(30), one.cumsum() - one / 2)
        assert float(found) == pytest.approx(x[np.abs(mass - 0.5).argmin()], abs=2e-4)


def test_medians_lie_within_a_pixel_of_the_decision():
    alpha = distributions((9, 12), 50, sparse=1.0)
    pixel = torch.unravel_index(decide(alpha, GridCost((9, 12)), "median"), (9, 12))
    assert float((locate(alpha, "median") - torch.stack(pixel, -1)).abs().max()) <= 1


def test_the_median_of_two_halves_is_their_middle():
    alpha = torch.tensor([0.5, 0.0, 0.0, 0.0, 0.5], dtype=torch.float64)
    assert float(locate(alpha, "median", dim=-1)) == 2.0


@pytest.mark.parametrize("rule", RULES)
def test_readings_move_and_turn_with_the_distribution(rule):
    alpha = torch.zeros(4, 14, 15, dtype=torch.float64)
    alpha[:, 4:9, 5:11] = distributions((5, 6), 4, sparse=1.0)
    found = locate(alpha, rule)
    assert_close(locate(alpha.roll((3, -4), (1, 2)), rule), found + torch.tensor([3.0, -4.0]))
    assert_close(locate(alpha.mT.contiguous(), rule), found.flip(-1))
    mirrored = locate(alpha.flip(-1), rule)
    assert_close(mirrored[:, 0], found[:, 0])
    assert_close(mirrored[:, 1], 14 - found[:, 1])


def test_stray_mass_does_not_move_the_local_mean():
    here = point_target(torch.tensor([3.25, 7.5], dtype=torch.float64), (40, 50)).alpha
    astray = point_target(torch.tensor([36.0, 44.0], dtype=torch.float64), (40, 50)).alpha
    assert_close(locate(0.6 * here + 0.4 * astray), torch.tensor([3.25, 7.5]).double())


@pytest.mark.parametrize("rule", ["local mean", "mean", "median"])
def test_gradients_of_readings(rule):
    scores = torch.randn(2, 6, 7, dtype=torch.float64, requires_grad=True)

    def read(f):
        return locate(torch.softmax(f.flatten(-2), -1).reshape(f.shape), rule)

    assert torch.autograd.gradcheck(read, scores)


def test_axes_may_lie_anywhere():
    alpha = distributions((5, 6), 2, 3)
    moved = alpha.permute(2, 0, 3, 1)
    for rule in RULES:
        assert_close(locate(moved, rule, dim=(0, 2)), locate(alpha, rule))
    assert_close(spread(moved, dim=(0, 2)), spread(alpha))


@compiles
def test_readings_are_those_of_compiled_and_mapped_calls():
    alpha = distributions((6, 7), 5)
    for rule in RULES:
        expected = locate(alpha, rule)
        assert_close(torch.func.vmap(lambda one, rule=rule: locate(one, rule))(alpha), expected)
    compiled = torch.compile(locate, fullgraph=True, backend="eager")
    assert_close(compiled(alpha), locate(alpha))
    wrong = torch.stack([alpha[0], 2 * alpha[1], -alpha[2]])
    unread = torch.func.vmap(locate)(wrong)
    assert unread.isnan().any(-1).tolist() == [False, True, True]


def test_half_precision_and_batches_without_rows():
    alpha = torch.softmax(torch.randn(3, 48), -1).reshape(3, 6, 8)
    for dtype in (torch.float16, torch.bfloat16):
        half = alpha.to(dtype)
        found, far = locate(half, "mean"), spread(half)
        assert found.dtype == far.dtype == torch.float32
        single = half.float() / half.float().sum((1, 2), keepdim=True)
        assert_close(found, locate(single, "mean"))
        assert_close(far, spread(single))
    assert locate(alpha[:0]).shape == (0, 2)
    assert spread(alpha[:0]).shape == (0,)


# ------------------------------------------------------------------ spread


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_points_do_not_spread(shape, dtype):
    alpha = point_target(points_on(shape, 50, seed=2, dtype=dtype), shape).alpha
    assert float(spread(alpha, dim=last(shape)).max()) == 0


def test_spread_by_its_definition():
    alpha = distributions((6, 9), 8)
    places = grid_of((6, 9)).reshape(-1, 2).numpy()
    for one, found in zip(alpha.reshape(8, -1).numpy(), spread(alpha), strict=True):
        mean = one @ places
        variance = one @ ((places - mean) ** 2).sum(-1)
        t = mean % 1
        assert float(found) == pytest.approx(np.sqrt(variance - (t * (1 - t)).sum()))


def test_the_spread_of_two_points_and_its_slope():
    alpha = torch.zeros(9, 9, dtype=torch.float64)
    alpha[2, 2], alpha[2, 6] = 0.5, 0.5
    assert float(spread(alpha)) == pytest.approx(2.0)
    scores = torch.randn(2, 5, 5, dtype=torch.float64, requires_grad=True)

    def of_softmax(f):
        return spread(torch.softmax(f.flatten(-2), -1).reshape(f.shape))

    assert torch.autograd.gradcheck(of_softmax, scores)
    certain = point_target(torch.tensor([1.5, 2.0]).double(), (5, 5)).alpha.requires_grad_()
    spread(certain).backward()
    assert bool(certain.grad.isfinite().all())


# ------------------------------------------------------------------ off the grid


def test_points_come_back_off_the_grid():
    """The potential of two spikes, read by `geosoftmax.continuous` in index units."""
    domain, cost = Box([0, 0], [11, 15]), PowerCost(p=2, scale=0.25)
    true = Measure([[3.3, 4.6], [8.2, 11.7]], [0.7, 0.3])
    measure, solution = continuous_softmax(continuous_potential(true, cost), domain, cost)
    order = measure.weights.argsort(descending=True)
    assert bool(solution.converged)
    assert_close(measure.points[order], true.points, atol=1e-4)


# ------------------------------------------------------------------ on a GPU


@pytest.mark.gpu
def test_points_on_a_gpu_are_those_of_the_cpu():
    points = points_on((9, 12), 40, dtype=torch.float32)
    alpha = point_target(points.cuda(), (9, 12)).alpha
    assert_close(alpha.cpu(), point_target(points, (9, 12)).alpha)
    noisy = torch.softmax(torch.randn(40, 108), -1).reshape(40, 9, 12)
    for rule in RULES:
        assert_close(locate(noisy.cuda(), rule).cpu(), locate(noisy, rule))
    assert_close(spread(noisy.cuda()).cpu(), spread(noisy))
    outside = point_target(torch.tensor([[9.0, 1.0], [1.0, 1.0]]).cuda(), (9, 12)).alpha
    assert outside.isnan().any((-2, -1)).tolist() == [True, False]
    assert locate(torch.stack([noisy[0], -noisy[0]]).cuda()).isnan().any(-1).tolist() == [
        False,
        True,
    ]


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("points", "shape", "message"),
    [
        ([1.0, 2.0, 3.0], (4, 5), r"must end with size 2, \(row, column\)"),
        ([1.0, 4.5], (4, 5), r"1 of 1 points lie outside .* \[0, 3\] × \[0, 4\]"),
        ([4.0, 1.0], (4, 5), r"which lies inside if it is \(x, y\)"),
        ([-0.1, 1.0], (4, 5), "clamp points at the border"),
        ([1.0, float("inf")], (4, 5), "outside the grid"),
        ([1.0, 2.0], (4, 5, 6, 7), "1 to 3 sides"),
        ([1.0, 2.0], (4, 0), "at least 1"),
    ],
)
def test_bad_points_are_refused(points, shape, message):
    with pytest.raises(ValueError, match=message):
        point_target(torch.tensor(points), shape)


def test_what_is_no_point_is_refused():
    with pytest.raises(TypeError, match=r"must be a torch\.Tensor"):
        point_target([1.0, 2.0], (4, 5))
    with pytest.raises(TypeError, match="floating-point"):
        point_target(torch.tensor([1, 2]), (4, 5))


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (1.0, {"rule": "argmax"}, "rule must be one of local mean, mode, mean, median"),
        (1.0, {"window": 7}, r"window must fit the grid of shape \(5, 6\)"),
        (1.0, {"window": 0}, "window must be at least 1"),
        (1.0, {"rule": "mean", "window": 3}, "window is for rule='local mean'"),
        (1.0, {"dim": (0, 0)}, "twice"),
        (1.0, {"dim": 2}, "dim must name 1 to 3 axes"),
        (2.0, {}, "a sum is wrong by 1"),
        (-1.0, {}, "smallest value is -"),
        (float("nan"), {}, "distributions"),
    ],
)
def test_bad_readings_are_refused(change, options, message):
    with pytest.raises(ValueError, match=message):
        locate(change * torch.full((5, 6), 1 / 30), **options)


@pytest.mark.parametrize("dim", [None, "a", (0.0, 1), True])
def test_axes_that_are_none_are_refused(dim):
    with pytest.raises(TypeError, match="dim must be the axes of the grid"):
        locate(torch.full((2, 2), 0.25), dim=dim)


def test_a_grid_may_be_an_array():
    points = torch.tensor([0.5, 2.0])
    expected = point_target(points, (2, 4)).alpha
    assert torch.equal(point_target(points, np.array([2, 4])).alpha, expected)


def test_points_with_half_of_their_coordinates_are_refused():
    points = torch.tensor([[1.0, 2.0], [1.0, float("nan")]])
    with pytest.raises(ValueError, match=r"1 of 2 points have NaN in some coordinates only"):
        point_target(points, (4, 5))


# ------------------------------------------------------------------ peaks


@pytest.mark.parametrize("shape", [(24,), (12, 16), (6, 7, 8)], ids=str)
def test_peaks_of_targets(shape):
    corners = torch.tensor([[0.25] * len(shape), [side - 2.0 for side in shape]]).double()
    one, other = point_target(corners, shape).alpha
    maps = torch.stack([0.3 * one + 0.7 * other, one, 0.98 * one + 0.02 * other])
    points, mass = peaks(maps, dim=last(shape))
    assert_close(points[0], corners.flip(0))
    assert_close(mass, torch.tensor([[0.7, 0.3], [1, 0], [0.98, 0]], dtype=torch.float64))
    assert points[1:, 1].isnan().all()
    assert_close(points[1:, 0], corners[:1].expand(2, -1))


def test_peaks_against_scipy():
    """Patches of any shape, some of which touch at a corner alone."""
    maps = torch.rand(20, 9, 11, generator=torch.Generator().manual_seed(0)).double()
    maps = torch.where(maps > 0.75, maps, 0.0)
    maps /= maps.sum((1, 2), keepdim=True)
    points, mass = peaks(maps.reshape(4, 5, 9, 11))
    for k, one in enumerate(maps.numpy()):
        labels, count = ndimage.label(one > 0, structure=np.ones((3, 3)))
        numbers = np.arange(1, count + 1)
        weights = ndimage.sum_labels(one, labels, numbers)
        centres = np.array(ndimage.center_of_mass(one, labels, numbers))
        order = [i for i in np.argsort(-weights, kind="stable") if weights[i] >= 0.05]
        found = mass.flatten(0, 1)[k]
        assert_close(found[: len(order)], torch.tensor(weights[order]))
        assert not found[len(order) :].any()
        assert_close(points.flatten(0, 1)[k, : len(order)], torch.tensor(centres[order]))


def test_gradients_of_peaks():
    logits = randn(3, 6, 7, seed=4).requires_grad_()
    inside = (randn(3, 6, 7, seed=5) > 0.3).double()

    def read(f):
        mass = f.exp() * inside
        found = peaks(mass / mass.sum((1, 2), keepdim=True))
        return found.points.nan_to_num(), found.mass

    assert read(logits)[1].shape[1] > 1
    assert torch.autograd.gradcheck(read, logits)


def test_gradients_where_maps_have_fewer_peaks():
    """A map with a light patch, beside one with more peaks: what is left out has no gradient."""
    mass = torch.zeros(2, 6, 6, dtype=torch.float64)
    mass[0, 1, 1], mass[0, 4, 4], mass[1, 0, 0], mass[1, 4, 4] = 0.6, 0.4, 0.03, 0.97
    mass.requires_grad_()
    found = peaks(mass / mass.sum((1, 2), keepdim=True))
    assert found.points[1, 1].isnan().all()
    (slope,) = torch.autograd.grad(found.points.nan_to_num().sum() + found.mass.sum(), mass)
    assert slope.isfinite().all()
    assert slope[0].any()


def test_faint_pixels_join_no_peak():
    alpha = torch.full((5, 5), 1e-5, dtype=torch.float64)
    alpha[1, 1], alpha[3, 4] = 0.6, 0.4 - 23e-5
    assert_close(peaks(alpha).points, torch.tensor([[1, 1], [3, 4]]).double())
    assert peaks(alpha, faint=1e-6).mass.shape == (1,)
    assert peaks(alpha[None][:0]).points.shape == (0, 0, 2)
    for name in ("least", "faint"):
        with pytest.raises(ValueError, match=f"{name} must be a share"):
            peaks(alpha, **{name: 0})
