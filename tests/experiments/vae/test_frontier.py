"""Who wins at equal rate: on frontiers that are known."""

import numpy as np
import pandas as pd
import pytest

from geosoftmax_experiments.vae.frontier import (
    at_budget,
    matched_weights,
    mean_frontier,
    reference_at,
    verdicts,
)


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
    for verdict in verdicts(rows(0.8)):
        assert verdict.dominates
        assert verdict.ratio == pytest.approx(0.8)
        assert verdict.points == 2 * 2  # the rate 1 has softmax on both sides only at 2 … 200
    for verdict in verdicts(rows(1.1)):
        assert verdict.lower == 0
        assert not verdict.dominates


def test_equal_seconds_stop_the_slower_loss_early():
    slow = at_budget(rows(slower=2.0), "seconds")
    assert set(slow.loc[slow["loss"] == "potential", "epoch"]) == {2}
    assert set(slow.loc[slow["loss"] == "softmax", "epoch"]) == {4}
    assert set(at_budget(rows(slower=2.0), "epochs")["epoch"]) == {4}
    crawling = at_budget(rows(slower=100.0), "seconds")  # it has its first measurement at least
    assert set(crawling.loc[crawling["loss"] == "potential", "epoch"]) == {1}
    with pytest.raises(ValueError, match="budget must be one of"):
        at_budget(rows(), "days")


def test_a_higher_rate_never_counts_against_a_loss():
    found = reference_at(np.array([1.0, 10, 100]), np.array([1.0, 0.1, 0.3]), np.array([50.0, 500]))
    assert found[0] == pytest.approx(0.1)
    assert np.isnan(found[1])


def test_weights_are_matched_by_rate():
    points = at_budget(rows(), "epochs")
    assert matched_weights(points, 1.0) == {"softmax": 1.0, "potential": 1.0}
    points.loc[points["loss"] == "potential", "latent_kl"] /= 8
    assert matched_weights(points, 1.0) == {"softmax": 1.0, "potential": 0.1}


def test_means_are_sorted_by_rate():
    mean = mean_frontier(at_budget(rows(), "epochs"), "softmax", "hausdorff")
    np.testing.assert_allclose(mean["latent_kl"], [2.01, 20.1, 201])
