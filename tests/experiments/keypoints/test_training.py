"""Augmentation, splits and measures; a network that learns; what is saved is what was trained."""

import numpy as np
import pandas as pd
import pytest
import torch

from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.keypoints.augmentation import augment, draw_moves
from geosoftmax_experiments.keypoints.losses import LOSSES
from geosoftmax_experiments.keypoints.measures import calibration, differences, errors, standing
from geosoftmax_experiments.keypoints.model import Model, Recipe
from geosoftmax_experiments.keypoints.network import UNet, grid_of
from geosoftmax_experiments.keypoints.saved import Description, load_model, save_model
from geosoftmax_experiments.keypoints.splits import inner_split, make_split, read_size
from geosoftmax_experiments.keypoints.training import device_of, predict, train
from tests.experiments.keypoints.projects import picture

CPU = torch.device("cpu")

# ------------------------------------------------------------------ augmentation


def drawn(frames, seed):
    """What moves frames, and their grain."""
    moves = draw_moves(len(frames), torch.Generator().manual_seed(seed))
    return moves, torch.randn(frames.shape, generator=torch.Generator().manual_seed(seed))


def test_points_move_with_their_frames():
    rng = np.random.default_rng(0)
    size, grid = (96, 128), (24, 32)
    points = rng.uniform((38, 50), (58, 78), (20, 1, 2))
    rows, columns = np.indices(size)
    frames = [np.exp(-((rows - p[0, 0]) ** 2 + (columns - p[0, 1]) ** 2) / 8.0) for p in points]
    places = torch.from_numpy((points + 0.5) / 4 - 0.5).float()
    frames = torch.tensor(np.stack(frames)).float()
    seen, moved = augment(frames, places, grid, *drawn(frames, 0))
    far = 0.0
    for frame, (place,) in zip(seen.numpy(), moved.numpy(), strict=True):
        brightest = np.unravel_index(frame.argmax(), frame.shape)
        expected = (place + 0.5) * 4 - 0.5
        assert np.hypot(*(brightest - expected)) < 1.6
        far = max(far, np.hypot(*(place - [11.5, 15.5])))
    assert float((moved - places).abs().max()) > 1  # they did move
    assert far > 1


def test_points_that_leave_the_frame_are_missing_and_missing_ones_stay_so():
    corner = torch.zeros(200, 2, 2)
    corner[:, 1] = torch.nan
    corner = corner[torch.arange(200)]
    frames = torch.rand(200, 16, 20)
    _, moved = augment(frames, corner, (4, 5), *drawn(frames, 0))
    gone = moved[:, 0].isnan().all(-1)
    assert 0.1 < float(gone.float().mean()) < 0.95
    assert bool(moved[:, 1].isnan().all())
    inside = moved[:, 0][~gone]
    assert bool(((inside >= 0) & (inside <= torch.tensor([3.0, 4.0]))).all())


def test_a_seed_gives_the_same_frames():
    frames, points = torch.rand(3, 16, 20), torch.rand(3, 2, 2)
    first, second = (augment(frames, points, (4, 5), *drawn(frames, 7)) for _ in range(2))
    assert torch.equal(first[0], second[0])


# ------------------------------------------------------------------ splits


@pytest.mark.parametrize("kind", ["random", "blocks"])
def test_splits_are_disjoint_nested_and_of_their_size(kind):
    for number in range(5):
        small, large = (make_split(116, size, kind, number) for size in (30, 93))
        assert (len(small.train), len(large.train)) == (30, 93)
        assert set(small.train) < set(large.train)
        assert sorted([*large.train, *large.test]) == list(range(116))
    assert not np.array_equal(make_split(116, 30, kind, 0).test, make_split(116, 30, kind, 1).test)


@pytest.mark.parametrize("kind", ["random", "blocks"])
@pytest.mark.parametrize("size", [4, 30, 110])
def test_settings_are_chosen_on_training_frames_alone(kind, size):
    inner, outer = inner_split(116, size, kind), make_split(116, size, kind, 0)
    assert sorted([*inner.train, *inner.test]) == sorted(outer.train)
    assert not set(inner.test) & set(outer.test)
    assert len(inner.test) >= 2


def test_blocks_keep_neighbours_in_time_together():
    """A frame's neighbour is mostly on its own side; at random it would be so by chance."""

    def together(kind):
        split = make_split(116, 58, kind, 0)
        side = np.isin(np.arange(116), split.train)
        return float((side[1:] == side[:-1]).mean())

    assert together("blocks") > 0.88
    assert together("random") < 0.65


def test_sizes():
    assert [read_size(text, 116) for text in ("95%", "80%", "60", "30")] == [110, 93, 60, 30]
    for text in ("116", "3", "100%", "many", "%"):
        with pytest.raises(UserError, match="no number of training frames"):
            read_size(text, 116)


# ------------------------------------------------------------------ measures


def table(loss, error, spread, frames=100, **others):
    n = len(error)
    cells = {"kind": "random", "size": 93, "loss": loss, "setting": "", "decoder": "mean"}
    cells |= {"seconds": 1.0, "network_ms": 1.0, "head_ms": 0.1, **others}
    columns = {"frame": np.arange(n) % frames, "error": error, "spread": spread}
    return pd.DataFrame({**cells, **columns, "entropy": spread, "likelihood": 1 / (1 + spread)})


def test_spreads_that_tell_the_truth_are_calibrated():
    rng = np.random.default_rng(0)
    spread = rng.uniform(1, 5, 20_000)
    error = np.hypot(*(rng.standard_normal((2, 20_000)) * spread / np.sqrt(2)))
    rows = table("softmax", error, spread)
    (row,) = calibration(rows, rows).to_dict("records")
    assert (row["raw_0.5"], row["raw_0.9"]) == pytest.approx((0.5, 0.9), abs=0.01)
    assert row["factor"] == pytest.approx(1, abs=0.03)
    assert row["rank_spread"] == row["rank_entropy"] == pytest.approx(row["rank_likelihood"])
    assert row["rank_spread"] > 0.4
    (row,) = calibration(table("softmax", error, 3 * spread), rows).to_dict("records")
    assert row["raw_0.5"] > 0.9  # too careful
    (row,) = calibration(
        table("softmax", error, 3 * spread), table("softmax", error, 3 * spread)
    ).to_dict("records")
    assert row["scaled_0.5"] == pytest.approx(0.5, abs=0.01)


def test_differences_that_are_chance_and_those_that_are_not():
    rng = np.random.default_rng(1)
    ours, same = rng.exponential(2, (2, 400))
    rows = pd.concat(
        [table("geometric", ours, ours), table("mse", same, same), table("dsnt", ours + 1, ours)]
    )
    found = {row["loss"]: row for row in differences(rows, "geometric").to_dict("records")}
    assert found["mse"]["mean_low"] < 0 < found["mse"]["mean_high"]
    assert found["dsnt"]["mean"] == pytest.approx(-1)
    assert found["dsnt"]["mean_high"] < 0
    assert found["dsnt"]["near_low"] > 0
    (row,) = errors(table("mse", np.array([1.0, 2.0, 6.0]), np.ones(3))).to_dict("records")
    assert (row["mean"], row["median"], row["near"]) == pytest.approx((3, 2, 2 / 3))


def test_intervals_are_those_of_frames_drawn_one_by_one():
    rng = np.random.default_rng(2)
    ours, theirs = rng.exponential(3, (2, 61))
    tables = [table(loss, e, e, frames=16) for loss, e in (("geometric", ours), ("mse", theirs))]
    (row,) = differences(pd.concat(tables), "geometric", seed=5).to_dict("records")
    draws = np.random.default_rng(5).integers(16, size=(2000, 16))
    for name, measure in (
        ("mean", np.mean),
        ("median", np.median),
        ("near", lambda error: np.mean(error <= 2)),
    ):
        assert row[name] == pytest.approx(measure(ours) - measure(theirs))
        apart = []
        for draw in draws:
            places = np.concatenate([np.arange(frame, 61, 16) for frame in draw])
            apart.append(measure(ours[places]) - measure(theirs[places]))
        low, high = np.quantile(apart, [0.025, 0.975])
        assert (row[f"{name}_low"], row[f"{name}_high"]) == pytest.approx((low, high))


def test_standing_counts_the_cells_where_ours_is_best_or_behind():
    rng = np.random.default_rng(3)
    error = rng.exponential(1.9, 400)
    cells = {
        20: (error - 0.3).clip(0),
        30: rng.permutation(error) * 1.0001,
        60: error + 2,
        80: error,
    }
    rows = pd.concat(
        [table("geometric", value, value, size=size) for size, value in cells.items()]
        + [table("mse", error, error, size=size) for size in cells]
        + [table("dsnt", error + 1, error, size=size) for size in cells]
    )
    found = standing(errors(rows), differences(rows, "geometric"), "geometric")
    counts = found.set_index("measure")[["best", "close", "behind"]]
    assert tuple(counts.loc["mean"]) == (2, 1, 1)  # a tie is best
    assert (counts.sum(axis=1) == 4).all()
    assert (counts["behind"] == 1).all()


# ------------------------------------------------------------------ training


def test_shapes_of_maps():
    assert grid_of((480, 640), 80) == (60, 80)
    assert grid_of((1000, 30), 80) == (80, 8)
    assert UNet(3, 4)(torch.rand(2, 240, 320)).shape == (2, 3, 60, 80)


def test_recipes_and_devices_that_are_refused():
    with pytest.raises(UserError, match="--steps is 0"):
        Recipe(steps=0)
    with pytest.raises(UserError, match="no device 'tpu7'"):
        device_of("tpu7")
    with pytest.raises(UserError, match="No point of these frames"):
        train(np.zeros((2, 32, 32), np.uint8), np.full((2, 1, 2), np.nan), (8, 8), "mse",
              LOSSES["mse"][1][0], Recipe(steps=1), seed=0, device=CPU)  # fmt: skip


def discs(count, seed):
    rng = np.random.default_rng(seed)
    points = rng.uniform(8, (39, 55), (count, 2, 2))
    pictures = np.stack([picture(of_frame, rng=rng) for of_frame in points])
    return pictures, points, (points + 0.5) / 4 - 0.5


def test_a_short_training_finds_discs_and_is_repeatable():
    pictures, _, places = discs(24, 0)
    recipe = Recipe(longest=16, width=6, steps=60, batch=8, learning_rate=5e-3)
    setting = LOSSES["softmax"][1][0]
    args = (pictures, places, (12, 16), "softmax", setting, recipe)
    first, second = (train(*args, seed=3, device=CPU) for _ in range(2))
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)
    new, true, _ = discs(12, 1)
    found = predict(first, new, CPU)
    error = np.linalg.norm((found.points["local mean 5"] + 0.5) * 4 - 0.5 - true, axis=-1)
    assert np.median(error) < 4
    assert found.spread.shape == found.entropy.shape == found.likelihood.shape == (12, 2)


@pytest.mark.parametrize("loss", LOSSES)
def test_models_are_saved_and_loaded(loss, tmp_path):
    setting = LOSSES[loss][1][0]
    description = Description(loss, setting, "mode", (8, 12), 4, ("a", "b"))
    torch.manual_seed(0)
    model = description.build()
    save_model(model, description, tmp_path)
    loaded, read = load_model(tmp_path)
    assert read == description
    frames = np.random.default_rng(0).integers(0, 255, (3, 32, 48)).astype(np.uint8)
    before, after = (predict(m, frames, CPU).points["mode"] for m in (model, loaded))
    np.testing.assert_array_equal(before, after)


def test_the_layout_that_a_gpu_trains_with_is_not_saved(tmp_path):
    description = Description("softmax", LOSSES["softmax"][1][0], "mode", (8, 12), 4, ("a", "b"))
    model = description.build()
    model.network.to(memory_format=torch.channels_last)
    assert not all(weight.is_contiguous() for weight in model.network.parameters())
    save_model(model, description, tmp_path)
    loaded, _ = load_model(tmp_path)
    for name, value in loaded.tensors().items():
        assert value.is_contiguous(), name
        assert torch.equal(value, model.tensors()[name]), name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "has version 2"),
        ({"loss": "hinge"}, "does not describe a model"),
        ({"width": 10**9}, "does not describe a model"),
        ({"shape": [9, 12]}, "does not describe a model"),
        ({"setting": {"width": 1e300}}, "does not describe a model"),
        ({"width": 5}, "weights that do not fit"),
        ({"sha256": "0"}, "checksum is wrong"),
    ],
)
def test_models_that_are_refused(change, message, tmp_path):
    import json

    description = Description("mse", LOSSES["mse"][1][0], "mode", (8, 12), 4, ("a",))
    save_model(description.build(), description, tmp_path)
    words = json.loads((tmp_path / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps(words | change))
    with pytest.raises(UserError, match=message):
        load_model(tmp_path)
    with pytest.raises(UserError, match="is not a model"):
        load_model(tmp_path / "nowhere")


def test_the_model_holds_what_its_loss_needs():
    assert Model("deeplabcut", LOSSES["deeplabcut"][1][0], (8, 12), 2, 4).head.channels == 6
