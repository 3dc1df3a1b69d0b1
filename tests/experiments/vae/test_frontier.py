"""Who wins at equal rate: on frontiers that are known."""

import itertools
import json

import numpy as np
import pandas as pd
import pytest

from geosoftmax_experiments.figures.stored import STORED
from geosoftmax_experiments.report import as_markdown
from geosoftmax_experiments.vae import figures
from geosoftmax_experiments.vae.choosing import rank
from geosoftmax_experiments.vae.frontier import (
    DEAREST,
    DIRECTIONS,
    LEAST_RATE,
    affordable_step,
    at_budget,
    curves_at_rate,
    matched_weights,
    mean_frontier,
    ratios,
    reference_at,
    standings,
    verdicts,
)
from geosoftmax_experiments.vae.tables import console_standings, rate_table, sentence, verdict_table


def rows(factor=0.8, slower=1.0):
    """Divergence is rate^-1 for softmax, and `factor` times that for the other."""
    found = []
    for loss, times, step in (("softmax", 1.0, 1.0), ("potential", factor, slower)):
        for seed in range(2):
            for weight in (0.1, 1.0, 10.0):
                for epoch in (1, 2, 3, 4):
                    rate = (
                        (20 if loss == "softmax" else 10) / weight * (1 + 0.01 * seed) * epoch / 4
                    )
                    found.append(
                        {"loss": loss, "weight": weight, "seed": seed, "epoch": epoch,
                         "seconds": epoch * step, "latent_kl": rate, "hausdorff": times / rate,
                         "hausdorff_reverse": 2 * times / rate}
                    )  # fmt: skip
    return pd.DataFrame(found)


def test_a_frontier_that_lies_below_dominates():
    ended = rows(0.8)
    beyond = (ended["loss"] == "softmax") & (ended["latent_kl"] > 101)
    ended.loc[beyond, list(DIRECTIONS)] *= 3  # what softmax gains there, it loses again
    for verdict in verdicts(ended):
        assert verdict.lower_everywhere
        assert verdict.dominates
        assert verdict.points == 2 * 2  # the rate 1 has softmax on both sides only at 2 … 200
        assert (verdict.above, verdict.runs) == (6, 6)
        assert verdict.closest == pytest.approx(0.8)
        assert "**below softmax everywhere** (4 of 4 rates, and at all 6 of" in sentence(verdict)
    for verdict in verdicts(rows(1.1)):
        assert verdict.lower == verdict.above == 0
        assert not verdict.dominates
        assert "above softmax everywhere" in sentence(verdict)


def test_a_frontier_dominates_only_if_it_does_so_at_the_rates_of_softmax():
    for verdict in verdicts(rows(0.8)):  # 0.8/100 at the last of its rates; softmax has 1/200
        assert verdict.ratio == pytest.approx(0.8)
        assert verdict.lower_everywhere
        assert (verdict.above, verdict.runs) == (4, 6)
        assert verdict.closest == pytest.approx(1.6)
        assert not verdict.dominates
        assert "only 4 of the 6 runs of softmax lie above it" in sentence(verdict)
    known = rows(0.8)  # at the lowest of softmax's rates there is nothing to compare
    for verdict in verdicts(known[(known["loss"] == "softmax") | (known["weight"] < 10)]):
        assert (verdict.above, verdict.runs) == (2, 6)
        assert not verdict.dominates


@pytest.mark.parametrize(
    ("factor", "written"), [(0.8, "0.800"), (0.9997, "0.99970"), (0.9994, "0.999")]
)
def test_tables_show_on_which_side_of_one_a_ratio_is(factor, written):
    cells = as_markdown(verdict_table(verdicts(rows(factor)))).splitlines()[2].split(" | ")
    assert cells[4] == cells[6] == written
    apart = rows(factor)
    apart.loc[apart["loss"] == "potential", "latent_kl"] *= 1000  # no rate in common
    assert as_markdown(verdict_table(verdicts(apart))).splitlines()[2].split(" | ")[4] == "–"


def test_equal_seconds_stop_the_slower_loss_early():
    slow = at_budget(rows(slower=2.0), "seconds")
    assert set(slow.loc[slow["loss"] == "potential", "epoch"]) == {2}
    assert set(slow.loc[slow["loss"] == "softmax", "epoch"]) == {4}
    assert set(at_budget(rows(slower=2.0), "epochs")["epoch"]) == {4}
    between = at_budget(rows(slower=1.6), "seconds")  # at epoch 2.5, between two measurements
    ours = between[(between["loss"] == "potential") & (between["weight"] == 1.0)].iloc[0]
    assert ours["epoch"] == pytest.approx(2.5)
    assert ours["latent_kl"] == pytest.approx(10 * 2.5 / 4)
    assert ours["hausdorff"] == pytest.approx((0.8 / 5 + 0.8 / 7.5) / 2)
    fast = at_budget(rows(slower=0.5), "seconds")  # who is faster than softmax gains nothing
    assert set(fast["epoch"]) == {4}
    alone = rows(slower=0.5)
    alone["loss"] = alone["loss"].replace("softmax", "sigmoid")
    assert set(at_budget(alone, "seconds")["epoch"]) == {2, 4}
    crawling = at_budget(rows(slower=100.0), "seconds")  # it has its first measurement at least
    assert set(crawling.loc[crawling["loss"] == "potential", "epoch"]) == {1}
    with pytest.raises(ValueError, match="budget must be one of"):
        at_budget(rows(), "days")


def falling(speed):
    """Runs of constant rate whose divergence falls, `speed` times as fast as that of softmax."""
    found = rows()
    found["latent_kl"] = 20 / found["weight"] * (1 + 0.01 * found["seed"])
    for direction in DIRECTIONS:
        found[direction] = 20 - found["epoch"] * np.where(found["loss"] == "softmax", 1.0, speed)
    return found


@pytest.mark.parametrize(
    ("speed", "times"),
    [(0.9, np.nan), (1.0, np.nan), (1.005, 1.0), (1.105, 1.1), (1.173, 1.17), (3.0, DEAREST)],
)
def test_a_step_may_be_as_long_as_training_is_fast(speed, times):
    assert affordable_step(falling(speed), "potential") == pytest.approx(times, nan_ok=True)


def test_a_higher_rate_never_counts_against_a_loss():
    found = reference_at(np.array([1.0, 10, 100]), np.array([1.0, 0.1, 0.3]), np.array([50.0, 500]))
    assert found[0] == pytest.approx(0.1)
    assert np.isnan(found[1])


def test_ratios_are_those_of_the_verdict():
    points = at_budget(rows(0.8), "epochs")
    found = ratios(points, "potential", "hausdorff")
    np.testing.assert_allclose(found["ratio"], 0.8)
    assert found[["weight", "seed"]].to_numpy().tolist() == [[0.1, 0], [1, 0], [0.1, 1], [1, 1]]
    collapsed = points["latent_kl"] < 50  # what says nothing is no ratio, and no reason to fail
    points.loc[collapsed, "latent_kl"] = 0.0
    assert len(ratios(points, "potential", "hausdorff")) == 2
    assert ratios(points[points["loss"] != "softmax"], "potential", "hausdorff").empty


def swept(**rates):
    """Runs whose latent KLs are given, for the weights 0.1, 1, 10 …"""
    return pd.DataFrame(
        {"loss": loss, "weight": 0.1 * 10.0**k, "seed": 0, "latent_kl": rate}
        for loss, several in rates.items()
        for k, rate in enumerate(several)
    )


@pytest.mark.parametrize(
    ("rates", "weights"),
    [
        # Softmax at weight 1 would be compared at 300 nats with 150.
        ({"softmax": (600, 300, 148), "potential": (150, 80, 30)}, (10, 0.1)),
        # The farthest of the others decides.
        ({"softmax": (100, 50, 20), "potential": (100, 51, 9), "sigmoid": (48, 30, 10)},
         (1, 1, 0.1)),
        # Near enough: the weight nearest to 1.
        ({"softmax": (100, 50, 20), "potential": (101, 60, 20)}, (1, 1)),
        # Nowhere near enough: where the farthest is nearest.
        ({"softmax": (100, 50, 20), "potential": (700, 300, 140)}, (0.1, 10)),
        ({"softmax": (100, 50, 20)}, (1,)),
        # Collapsed runs agree too well.
        ({"softmax": (100, 50, 0), "potential": (80, 60, 0)}, (1, 1)),
        ({"softmax": (0.0, 0.0), "potential": (0.0, 0.0)}, (1, 0.1)),
    ],
)  # fmt: skip
def test_weights_are_matched_where_the_rates_come_nearest(rates, weights):
    found = matched_weights(swept(**rates), 1.0)
    assert found == pytest.approx(dict(zip(rates, weights, strict=True)))


def collapsed_rows():
    """Known frontiers, and a loss some of whose runs have collapsed."""
    known = rows(0.8)
    found = pd.concat([known, known[known["loss"] == "potential"].assign(loss="sigmoid")])
    found = found.reset_index(drop=True)
    gone = (found["loss"] == "sigmoid") & (found["weight"] == 10.0)
    found.loc[gone, "latent_kl"] = 1e-4
    return found


def curves(axis):
    """The lines of an axis by their label."""
    return {line.get_label(): line for line in axis.lines if line.get_label()[0] != "_"}


def test_the_frontier_ends_at_the_rates_that_count():
    figure = figures.draw_frontier(collapsed_rows(), "test")
    for axis in figure.axes:
        assert axis.get_xlim()[0] >= LEAST_RATE
        lines = curves(axis)
        assert len(lines["softmax, KL"].get_xdata()) == 3
        assert len(lines["sigmoid, BCE"].get_xdata()) == 2
        assert all(min(line.get_xdata()) >= LEAST_RATE for line in axis.lines)
    figures.plt.close(figure)


def test_the_ratio_shows_each_run_of_the_table():
    figure = figures.draw_ratio(collapsed_rows(), "test")
    assert len(figure.axes) == 4
    for axis in figure.axes:
        assert axis.get_yscale() == axis.get_xscale() == "log"
        lines = curves(axis)
        assert set(lines["softmax, KL (below 1 is better)"].get_ydata()) == {1.0}
        for label in ("potential layer", "sigmoid, BCE"):
            np.testing.assert_allclose(lines[label].get_ydata(), 0.8)
        dots = [line for line in axis.lines if line.get_linestyle() == "None"]
        assert [len(dot.get_xdata()) for dot in dots] == [4, 4]
    figures.plt.close(figure)


def test_the_curves_are_against_epochs_and_seconds_at_one_rate():
    figure = figures.draw_curves(rows(slower=2.0), 1.0, "test")
    labels = [axis.get_xlabel() for axis in figure.axes]
    assert labels == ["epochs", "seconds of training"]
    for axis, end in zip(figure.axes, [4, 8], strict=True):  # of four epochs, twice as slow
        ends = {label.split(",")[0]: max(line.get_xdata()) for label, line in curves(axis).items()}
        assert ends == {"softmax": 4, "potential layer": end}
    softmax, other = curves(figure.axes[0]).values()
    # The divergence is 1 over the rate, times 0.8: at one rate that is the ratio.
    assert other.get_ydata()[-1] / softmax.get_ydata()[-1] == pytest.approx(0.8, rel=0.02)
    figures.plt.close(figure)


def test_curves_at_a_rate_lie_between_those_of_the_weights():
    found = curves_at_rate(rows(), "softmax", 30.0)
    last = found[found["epoch"] == found["epoch"].max()]
    np.testing.assert_allclose(last["value"], 1 / 30, rtol=1e-6)
    assert set(last["rate"]) == {30.0}
    beyond = curves_at_rate(rows(), "softmax", 1e6)
    assert beyond["rate"].max() < 1000


def measured(times, noise):
    """Runs of three seeds: total variation is `times` that of softmax, the rates differ."""
    found = []
    for seed in range(3):
        for weight in (0.1, 1.0, 10.0):
            for loss in ("softmax", "smoothed"):
                rate = 20 / weight * (1 if loss == "softmax" else 0.9)
                factor = 1.0 if loss == "softmax" else times + noise * (seed - 1)
                value = factor / rate
                found.append({"loss": loss, "weight": weight, "seed": seed, "epoch": 1,
                              "seconds": 1.0, "latent_kl": rate, "total_variation": value,
                              "error": value})  # fmt: skip
    return pd.DataFrame(found)


@pytest.mark.parametrize(
    ("times", "noise", "worse", "holds"),
    [(0.9, 0.0, 0, True), (1.1, 0.0, 2, False), (1.01, 0.1, 0, False), (0.99, 0.1, 0, True)],
)
def test_standings_say_ratio_error_and_where_it_is_worse(times, noise, worse, holds):
    (found, _) = standings(measured(times, noise), "softmax")
    assert found.measure == "total_variation"
    assert found.ratio == pytest.approx(times, rel=0.01)
    assert found.error == pytest.approx(noise / 3**0.5, rel=0.05)
    assert (found.worse, found.rates, found.holds) == (worse, 2, holds)
    # Errors are counted once, at the end: nothing is said of them at equal seconds.
    halves = pd.concat([measured(times, noise), measured(times, noise).assign(
        epoch=2, seconds=2.0, error=np.nan)])  # fmt: skip
    assert [s.measure for s in standings(halves, "softmax", "seconds")] == ["total_variation"]
    assert standings(measured(times, noise), "sigmoid") == []


def test_a_table_by_rate_has_a_line_for_each_weight_that_can_be_compared():
    found = measured(0.9, 0.0)
    found.loc[(found["loss"] == "smoothed") & (found["weight"] == 1.0), "total_variation"] *= 2.0
    table = rate_table(found, "softmax")
    assert list(table.columns) == ["loss", "latent KL", "total variation", "errors of a classifier"]
    # Weight 10 has 1.8 nats, below all rates of softmax.
    assert list(table["latent KL"]) == ["18.0", "180.0"]
    np.testing.assert_allclose(table["total variation"], [1.8, 0.9], rtol=0.01)
    assert set(table["loss"]) == {"g-softmax, smoothed scores"}
    assert rate_table(found, "sigmoid") is None


def shown_ticks(axis, name):
    """The numbers beside an axis that are drawn, within its ends."""
    scale = getattr(axis, f"{name}axis")
    low, high = sorted(scale.get_view_interval())
    return [float(tick) for tick in scale.get_majorticklocs() if low <= tick <= high]


@pytest.mark.parametrize(
    "factor",
    [
        pytest.param(factor, marks=() if factor in (0.97, 2.5, 30.0) else pytest.mark.slow)
        for factor in (0.3, 0.8, 0.97, 1.1, 1.3, 2.5, 30.0)
    ],
)
def test_axes_of_ratios_have_several_ticks_and_say_that_they_are_logarithmic(factor):
    figure = figures.draw_ratio(rows(factor), "test")
    figure.canvas.draw()
    for axis in figure.axes:
        ticks = shown_ticks(axis, "y")
        assert 4 <= len(ticks) <= 20
        assert any(abs(tick - 1) < 1e-9 for tick in ticks)  # that of softmax
    for axis in (figure.axes[0], figure.axes[2]):  # the others share these numbers
        assert "logarithmic" in axis.get_ylabel()
        at = zip(axis.get_yticks(), axis.get_yticklabels(), strict=True)
        low, high = axis.get_ylim()
        boxes = [text.get_window_extent() for y, text in at if low <= y <= high]
        assert not any(a.overlaps(b) for a, b in itertools.pairwise(boxes))
    figures.plt.close(figure)


@pytest.mark.parametrize("epochs", [4, 40])
def test_curves_have_ticks_at_epochs_that_were_measured(epochs):
    if epochs == 4:
        found = rows()
    else:
        results = json.loads((STORED / "cats-p1" / "results.json").read_text(encoding="utf8"))
        found = pd.DataFrame(results["rows"])
    figure = figures.draw_curves(found, 1.0, "test")
    figure.canvas.draw()
    ticks = shown_ticks(figure.axes[0], "x")
    assert 4 <= len(ticks) <= 8
    assert set(ticks) <= set(found["epoch"])
    assert ticks[-1] == found["epoch"].max()
    assert len(shown_ticks(figure.axes[0], "y")) >= 4
    figures.plt.close(figure)


def test_the_console_says_how_the_divergence_is_at_equal_seconds():
    """Twice as slow, the loss has half of the epochs, so half of the rate, at equal seconds."""
    shown = rows(slower=2.0)
    table = console_standings(shown)
    cells = [list(column.cells) for column in table.columns]
    lines = dict(zip(*cells, strict=True))
    assert list(lines) == ["D(α‖β)", "D(β‖α)", "D(α‖β), equal seconds", "D(β‖α), equal seconds"]
    for standing in standings(shown, "softmax", "seconds"):
        what = "D(α‖β)" if standing.measure == "hausdorff" else "D(β‖α)"
        expected = f"{standing.ratio:.3f} ({standing.worse}/{standing.rates})"
        assert lines[f"{what}, equal seconds"] == expected
    assert "seconds" in str(table.title)


def test_no_numbers_beside_ticks_overlap():
    """The line of real drawings may make an axis longer."""
    results = json.loads((STORED / "cats-p1" / "results.json").read_text(encoding="utf8"))
    figure = figures.draw_samples(pd.DataFrame(results["rows"]), results["floors"])
    figure.canvas.draw()
    for axis in figure.axes:
        low, high = axis.get_ylim()
        at = zip(axis.get_yticks(), axis.get_yticklabels(), strict=True)
        shown = [text.get_window_extent() for y, text in at if low <= y <= high]
        assert len(shown) >= 3
        assert not any(a.overlaps(b) for a, b in itertools.pairwise(shown)), axis.get_ylabel()


def test_the_candidate_whose_worst_measure_is_lowest_is_chosen():
    softmax = measured(1.0, 0.0).query("loss == 'softmax'")
    several = [softmax]
    for name, times, error in (("a", 0.8, 1.1), ("b", 0.95, 0.97), ("c", 0.99, 0.5)):
        one = measured(times, 0.0).query("loss == 'smoothed'").assign(loss=name)
        one["error"] *= error / times
        several.append(one)
    ranked = rank(pd.concat(several, ignore_index=True))
    assert list(ranked.index) == ["b", "c", "a"]
    np.testing.assert_allclose(ranked["worst"], [0.97, 0.99, 1.1], rtol=1e-6)


def test_legends_cover_no_curve():
    for figure in (
        figures.draw_curves(rows(), 1.0, "test"),
        figures.draw_frontier(rows(), "test"),
        figures.draw_ratio(rows(), "test"),
    ):
        figure.canvas.draw()
        legends = [*figure.legends, *(axis.get_legend() for axis in figure.axes)]
        boxes = [legend.get_window_extent() for legend in legends if legend is not None]
        assert boxes
        for box in boxes:
            assert figure.bbox.x0 <= box.x0
            assert box.x1 <= figure.bbox.x1
            assert not any(box.overlaps(axis.get_window_extent()) for axis in figure.axes)
        figures.plt.close(figure)


def test_means_are_sorted_by_rate():
    mean = mean_frontier(at_budget(rows(), "epochs"), "softmax", "hausdorff")
    np.testing.assert_allclose(mean["latent_kl"], [2.01, 20.1, 201])
