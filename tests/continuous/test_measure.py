"""Boxes, measures, and costs between points."""

import math

import matplotlib as mpl
import pytest
import torch

from geosoftmax.continuous import Box, FunctionCost, Measure, PowerCost

DOUBLE = torch.float64


def test_ragged_batches():
    one, two = Measure([[0.0, 1.0]], [2.0]), Measure([[1.0, 0.0], [3.0, 0.0]], [1.0, 3.0])
    batch = Measure.stack([one, two])
    assert batch.batch_shape == (2,)
    assert len(batch) == 2
    assert batch.counts.tolist() == [1, 2]
    assert batch.mass.tolist() == [2.0, 4.0]
    assert batch.mean().tolist() == [[0.0, 1.0], [2.5, 0.0]]
    assert batch[0].points.tolist() == [[0.0, 1.0]]
    assert batch[1].weights.tolist() == [1.0, 3.0]
    assert batch.normalise().mass.tolist() == [1.0, 1.0]
    assert batch.expectation(lambda x: x.sum(-1)).tolist() == [2.0, 10.0]
    assert "up to 2 points in 2-D" in repr(batch)


def test_expectation_does_not_see_padding():
    batch = Measure.stack([Measure([[0.0]]), Measure([[1.0], [2.0]])])
    padded = Measure(batch.points - (batch.weights == 0)[..., None].to(DOUBLE), batch.weights)
    assert padded.expectation(lambda x: torch.log(x[..., 0] + 1))[0] == 0.0


def test_samples_follow_the_weights():
    measure = Measure([[0.0], [1.0], [5.0]], [0.5, 0.5, 0.0])
    drawn = measure.sample(2000, torch.Generator().manual_seed(0))
    assert drawn.shape == (2000, 1)
    assert set(drawn.flatten().tolist()) == {0.0, 1.0}
    assert float(drawn.mean()) == pytest.approx(0.5, abs=0.05)
    assert Measure(torch.zeros(4, 3, 2)).sample(7).shape == (4, 7, 2)


def test_moves():
    measure = Measure(torch.zeros(2, 3, 2, dtype=DOUBLE))
    shift = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=DOUBLE)
    assert measure.translate(shift).points[:, 0].tolist() == shift.tolist()
    assert measure.translate([1.0, 1.0]).mean().tolist() == [[1.0, 1.0]] * 2
    assert measure.move(lambda x: x - 1).mean().tolist() == [[-1.0, -1.0]] * 2
    with pytest.raises(ValueError, match="must end with 2"):
        measure.translate(1.0)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_plots(dim):
    mpl.use("agg")
    import matplotlib.pyplot as plt

    axes = Measure(torch.rand(4, dim), torch.tensor([0.0, 1.0, 2.0, 3.0])).plot()
    assert len(axes.collections) == 1
    shown = axes.collections[0]
    assert len(shown.get_segments() if dim == 1 else shown.get_sizes()) == 3
    plt.close(axes.figure)
    with pytest.raises(ValueError, match="draws one measure"):
        Measure(torch.rand(2, 4, dim)).plot()


@pytest.mark.parametrize(
    ("points", "weights", "says"),
    [
        ([0.0, 1.0], None, "Points on a line are a column"),
        (torch.zeros(3, 4), None, "dim 1, 2 or 3"),
        (torch.zeros(0, 1), None, "n at least 1"),
        ([[0.0], [1.0]], [1.0], "one for each point"),
        ([[0.0], [1.0]], [1.0, -0.1], "at least 0"),
        ([[0.0], [1.0]], [1.0, math.nan], "finite"),
        ([[0.0], [math.inf]], None, "points must be finite"),
    ],
)
def test_bad_measures(points, weights, says):
    with pytest.raises(ValueError, match=says):
        Measure(points, weights)


def test_misused_measures():
    single = Measure([[0.0]])
    with pytest.raises(TypeError, match="counts"):
        len(single)
    with pytest.raises(IndexError, match="single measure"):
        single[0]
    with pytest.raises(ValueError, match="of one dimension"):
        Measure.stack([single, Measure([[0.0, 0.0]])])
    with pytest.raises(ValueError, match="at least one"):
        Measure.stack([])


@pytest.mark.parametrize(
    ("lower", "upper", "says"),
    [
        (1, 0, "lower < upper"),
        ([0, 0], [1], "1, 2 or 3"),
        ([0] * 4, [1] * 4, "1, 2 or 3"),
        (0, math.inf, "finite"),
    ],
)
def test_bad_boxes(lower, upper, says):
    with pytest.raises(ValueError, match=says):
        Box(lower, upper)


def test_boxes():
    box = Box([0.0, -1.0], [2.0, 1.0])
    assert box.dim == 2
    assert box.grid(3).shape == (9, 2)
    inside = box.contains(torch.tensor([[1.0, 0.0], [3.0, 0.0]], dtype=DOUBLE))
    assert inside.tolist() == [True, False]
    assert box.clip(torch.tensor([[3.0, 0.0]], dtype=DOUBLE)).tolist() == [[2.0, 0.0]]


@pytest.mark.parametrize("p", [0.7, 1.0, 1.5, 2.0])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_derivatives_of_the_kernel(p, dim):
    """The closed forms against autograd, pair by pair."""
    cost = PowerCost(p=p, scale=3.0)
    x, y = torch.rand(2, 4, dim, dtype=DOUBLE), torch.rand(2, 5, dim, dtype=DOUBLE)
    closed, automatic = cost.jet(x, y), FunctionCost(cost.matrix).jet(x, y)
    for one, other in zip(closed, automatic, strict=True):
        torch.testing.assert_close(one, other)
    meeting = cost.jet(x, x)
    assert all(bool(torch.isfinite(part).all()) for part in meeting)


def test_costs_scale_and_describe_themselves():
    cost = 3 * PowerCost(p=1, scale=2.0) / 2
    assert repr(cost) == "PowerCost(p=1, scale=3)"
    assert repr(FunctionCost(torch.cdist) * 2) == "FunctionCost(cdist, scale=2)"
    with pytest.raises(ValueError, match="0 < p <= 2"):
        PowerCost(p=3)
    with pytest.raises(ValueError, match="positive"):
        PowerCost(scale=-1.0)
    with pytest.raises(TypeError, match="function of two point sets"):
        FunctionCost(3.0)  # pyright: ignore[reportArgumentType]
